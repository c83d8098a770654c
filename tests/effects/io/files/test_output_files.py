"""Output files are written as a shell's redirection writes them; input files are regular."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from harness.io.files.reading import read_regular
from harness.io.files.writing import write_output
from harness.values.errors import ConfigurationError, StorageError, UsageError

TEXT = b"results\n"


def write(path: Path, *, overwrite: bool = False) -> None:
    def fill(draft: Path) -> None:
        draft.write_bytes(TEXT)

    write_output(path, fill, option="--out", overwrite=overwrite)


def test_a_new_file_is_whole_and_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes() == TEXT
    assert list(tmp_path.iterdir()) == [tmp_path / "a.csv"]


def test_a_file_is_replaced_only_if_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="--force"):
        write(path)
    assert path.read_bytes() == b"old"
    write(path, overwrite=True)
    assert path.read_bytes() == TEXT
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_stays(tmp_path: Path, *, exists: bool) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    if exists:
        target.write_bytes(b"old")
    link.symlink_to("target.csv")
    write(link, overwrite=exists)
    assert link.is_symlink()
    assert target.read_bytes() == TEXT


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="no process reads"):
        write(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:  # noqa: PTH123
        write(pipe)
        assert reader.read() == TEXT
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["null", "full"])
def test_a_device_stays_a_device(name: str) -> None:
    path = Path("/dev") / name
    if name == "full":
        with pytest.raises(StorageError, match="full"):
            write(path, overwrite=True)
    else:
        write(path, overwrite=True)
    assert stat.S_ISCHR(path.stat().st_mode)


@pytest.mark.parametrize(
    "kind", ["folder", "pipe", "device", "nothing", "loop", "sparse", "socket"]
)
def test_what_is_no_file_of_a_sane_size_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 1 << 40)
    with pytest.raises(ConfigurationError, match=kind if kind != "device" else "zero"):
        read_regular(path, 1000)


def test_a_link_that_was_put_there_later_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(TEXT)
    link = tmp_path / "kernel.ptx"
    link.symlink_to("secret")
    assert read_regular(link, 100) == TEXT
    with pytest.raises(ConfigurationError, match="symbolic link"):
        read_regular(link, 100, follow_links=False)
