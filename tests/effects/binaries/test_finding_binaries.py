from __future__ import annotations

import os
import random
import zipfile
from pathlib import Path

import pytest
from made_binaries import CUBIN, PTX, cubin, entry, fatbin, library

from harness.binaries import find_binaries as finding
from harness.binaries.find_binaries import in_words, read_binaries
from harness.values.errors import EmptySelectionError, TriageError, UsageError

CODE = cubin("13.1.115/two_entries-sm_90")
TEXT = b".version 8.7\n.target sm_90\n.visible .entry alone() {ret;}\n"
BOTH = fatbin(entry(CUBIN, CODE), entry(PTX, TEXT))
NAMES = ["calls_helper", "uses_shared"]


def names_in(path: Path) -> list[tuple[str, str]]:
    return sorted((kernel.file, kernel.name) for kernel in read_binaries(str(path)).kernels)


def in_file(file: str, *more: str) -> list[tuple[str, str]]:
    return sorted((file, name) for name in (*NAMES, *more))


@pytest.mark.parametrize(
    ("content", "more"),
    [
        (CODE, ()),
        (fatbin(entry(CUBIN, CODE)), ()),
        (library({".text": b"code", ".nv_fatbin": BOTH}), ("alone",)),
    ],
    ids=["cubin", "fatbin", "library"],
)
def test_a_file_is_known_by_its_content(
    tmp_path: Path, content: bytes, more: tuple[str, ...]
) -> None:
    path = tmp_path / "anything"
    path.write_bytes(content)
    assert names_in(path) == in_file("anything", *more)


def test_what_is_linked_on_the_device_is_read_where_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "a.o"
    part = {"__nv_relfatbin": fatbin(entry(PTX, TEXT))}
    path.write_bytes(library(part))
    assert names_in(path) == [("a.o", "alone")]
    path.write_bytes(library({**part, ".nv_fatbin": fatbin(entry(CUBIN, CODE))}))
    assert names_in(path) == in_file("a.o")


def test_archives_and_folders(tmp_path: Path) -> None:
    wheel = tmp_path / "dist" / "x.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/a.so", library({".nv_fatbin": fatbin(entry(CUBIN, CODE, "zstd"))}))
        archive.writestr("x/__init__.py", "raise SystemExit\n")
    assert names_in(wheel) == in_file("x/a.so")
    (tmp_path / "k.cubin").write_bytes(CODE)
    (tmp_path / "k.ptx").write_bytes(TEXT)
    (tmp_path / "notes").write_bytes(b"nothing")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.cubin").symlink_to(tmp_path / "k.cubin")
    expected = in_file("k.cubin") + in_file("dist/x.whl:x/a.so") + [("k", "alone")]
    assert names_in(tmp_path) == sorted(expected)


def test_what_is_damaged_costs_a_line_and_the_rest_is_read(tmp_path: Path) -> None:
    whole = library({".nv_fatbin": fatbin(entry(CUBIN, CODE), entry(CUBIN, CODE[:300]))})
    (tmp_path / "a.so").write_bytes(whole)
    (tmp_path / "b.so").write_bytes(whole[:-200])
    (tmp_path / "c.fatbin").write_bytes(fatbin(entry(CUBIN, CODE))[:400])
    (tmp_path / "d.cubin").write_bytes(CODE[:1000])
    (tmp_path / "e.zip").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "f.so").write_bytes(library({".nv_fatbin": fatbin(entry(64, b"12345678"))}))
    found = read_binaries(str(tmp_path))
    assert [kernel.name for kernel in found.kernels] == NAMES
    assert [line.partition(":")[0] for line in found.problems] == [
        "a.so", "b.so", "c.fatbin", "d.cubin", "e.zip", "f.so",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"PK\x03\x04", os.urandom(5000), b"\x50\xed\x55\xba" * 9]
)
def test_a_file_without_kernels_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TriageError) as caught:
        read_binaries(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    for name in ("nothing.so", "a==1==2"):
        with pytest.raises(UsageError, match="no such file"):
            read_binaries(str(tmp_path / name))
    with pytest.raises(EmptySelectionError):
        read_binaries(str(tmp_path))


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_MOST_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.so", library({".nv_fatbin": fatbin(entry(CUBIN, CODE))}))
        archive.writestr("b.so", b"\x7fELF" + bytes(1 << 20))
    found = read_binaries(str(path))
    assert [kernel.name for kernel in found.kernels] == NAMES
    assert found.problems == ["b.so: not unpacked: too large"]
    layers = path.read_bytes()
    for _ in range(5):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("z.zip", layers)
        layers = path.read_bytes()
    with pytest.raises(UsageError, match="archives in archives"):
        read_binaries(str(path))


def test_names_of_cxx_are_said_in_words() -> None:
    odd = ["plain", "_Z", "_ZN2ns4nameEv", "-x", "_Zz\n"]
    words = in_words(odd)
    assert list(words) == odd
    assert {words[name] for name in odd if name != "_ZN2ns4nameEv"} == set(odd) - {"_ZN2ns4nameEv"}
    assert words["_ZN2ns4nameEv"] in ("ns::name()", "_ZN2ns4nameEv")


def test_no_damage_is_more_than_a_line(tmp_path: Path) -> None:
    rng, path, refused = random.Random(31), tmp_path / "file", 0
    for number in range(150):
        data = bytearray((CODE, library({".nv_fatbin": BOTH}))[number % 2])
        for _ in range(rng.choice((1, 2, 9))):
            data[rng.choice((rng.randrange(len(data)), -rng.randrange(1, 700)))] = rng.choice(
                (0, 255, rng.randrange(256))
            )
        path.write_bytes(data)
        try:
            read_binaries(str(path))
        except TriageError:
            refused += 1
    assert 0 < refused < 150
