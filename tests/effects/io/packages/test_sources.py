from __future__ import annotations

import hashlib
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from local_index import LocalIndex, Served, link, tar, wheel

from harness.io.packages import archives as sources
from harness.io.packages.archives import fetch_sdist, fetch_wheel, unpack
from harness.values.errors import InfrastructureError, IntegrityError, OfflineError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("local_index_fixtures",)

SETUP = {"demo-1.0/setup.py": "raise SystemExit('built!')", "demo-1.0/pkg/a.py": "A = 1"}


@pytest.fixture
def sdist(local_index: LocalIndex, empty_cache: Path) -> Served:
    return local_index.add("demo-1.0.tar.gz", tar(SETUP))


def test_sdist_is_unpacked_and_not_built(
    sdist: Served, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = fetch_sdist("Demo", "1.0", sdist.sha256)
    assert tree == empty_cache / "sources" / f"demo-1.0-{sdist.sha256[:8]}" / "tree"
    assert (tree / "pkg" / "a.py").read_text() == "A = 1"
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    assert fetch_sdist("demo", "1.0", sdist.sha256.upper()) == tree
    assert sdist.gets == 1


def test_zip_sdist(local_index: LocalIndex, empty_cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "made.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo-1.0/a.py", "A = 1")
    served = local_index.add("demo-1.0.zip", path.read_bytes())
    assert (fetch_sdist("demo", "1.0", served.sha256) / "a.py").read_text() == "A = 1"


def test_wheel_goes_on_the_module_path(local_index: LocalIndex, empty_cache: Path) -> None:
    served = local_index.add(*wheel("demo", "1.0", {"demo/__init__.py": "B = 2"}))
    with pytest.raises(UsageError, match=r"no sdist of demo 1\.0"):
        fetch_sdist("demo", "1.0", served.sha256)
    assert (fetch_wheel("demo", "1.0", served.sha256) / "demo" / "__init__.py").is_file()


def test_wheel_of_a_platform_is_not_taken(local_index: LocalIndex, empty_cache: Path) -> None:
    served = local_index.add(*wheel("demo", "1.0", {}, tag="py3-none-manylinux2014_x86_64"))
    with pytest.raises(UsageError, match="no pure-Python wheel of demo"):
        fetch_wheel("demo", "1.0", served.sha256)


def test_other_hash_names_both(sdist: Served, empty_cache: Path) -> None:
    with pytest.raises(IntegrityError) as caught:
        fetch_sdist("demo", "1.0", "f" * 64)
    assert sdist.sha256 in str(caught.value)
    assert "f" * 64 in str(caught.value)
    assert not [path for path in (empty_cache / "sources").iterdir() if path.name != ".locks"]


@pytest.mark.parametrize(("version", "sha256"), [("x", "f" * 64), ("1.0", "f" * 63), ("1.0", "")])
def test_malformed_pins(empty_cache: Path, version: str, sha256: str) -> None:
    with pytest.raises(UsageError):
        fetch_sdist("demo", version, sha256)


def test_offline_says_so(sdist: Served, monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    with pytest.raises(OfflineError, match="TRIAGE_OFFLINE"):
        fetch_sdist("demo", "1.0", sdist.sha256)


def test_truncated_then_whole(sdist: Served) -> None:
    sdist.sent = 50
    with pytest.raises(OfflineError, match="broke off"):
        fetch_sdist("demo", "1.0", sdist.sha256)
    sdist.sent = None
    assert fetch_sdist("demo", "1.0", sdist.sha256).is_dir()


def test_too_large_a_download(sdist: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_DOWNLOAD_LIMIT", 10)
    with pytest.raises(InfrastructureError, match="over the limit"):
        fetch_sdist("demo", "1.0", sdist.sha256)


def test_folder_of_another_hash(sdist: Served) -> None:
    fetch_sdist("demo", "1.0", sdist.sha256)
    with pytest.raises(IntegrityError, match="was not unpacked from"):
        fetch_sdist("demo", "1.0", sdist.sha256[:8] + "0" * 56)


def test_hostile_archive_leaves_nothing(local_index: LocalIndex, empty_cache: Path) -> None:
    served = local_index.add("demo-1.0.tar.gz", tar({"../../escaped": "x"}))
    with pytest.raises(IntegrityError, match="refused"):
        fetch_sdist("demo", "1.0", served.sha256)
    left = [path.name for path in empty_cache.rglob("*") if "index" not in path.parts]
    assert not [name for name in left if "escaped" in name or "partial" in name]


def device(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    return member


HOSTILE = {
    "absolute": tar({"/etc/x": "x"}),
    "parent": tar({"a/../../x": "x"}),
    "backslash": tar({"a\\..\\x": "x"}),
    "symlink out": tar({}, members=(link("a", "../x"),)),
    "symlink absolute": tar({}, members=(link("a", "/etc/passwd"),)),
    "symlink deep": tar({}, members=(link("a/b", "../../x"),)),
    "symlink chain": tar({}, members=(link("b", "a/.."), link("a", "."))),
    "symlink loop": tar({}, members=(link("a/b", "c/../.."), link("a/c", "b/../.."))),
    "hardlink out": tar({}, members=(link("a", "../x", tarfile.LNKTYPE),)),
    "hardlink absolute": tar({}, members=(link("a", "/etc/passwd", tarfile.LNKTYPE),)),
    "hardlink to nothing": tar({}, members=(link("a", "b", tarfile.LNKTYPE),)),
    "hardlink to itself": tar({}, members=(link("a", "a", tarfile.LNKTYPE),)),
    "behind a link": tar({}, members=(link("a", "b"), device("a/x", tarfile.DIRTYPE))),
    "over a link": tar({}, members=(link("a", "b"), link("a", "c"))),
    "device": tar({}, members=(device("a", tarfile.CHRTYPE),)),
    "pipe": tar({}, members=(device("a", tarfile.FIFOTYPE),)),
    "file as folder": tar({"a": "x", "a/b": "y"}),
    "folder as file": tar({"a/b": "x", "a": "y"}),
    "truncated": tar(SETUP)[:-30],
    "no archive": b"<html>not found</html>",
    "empty": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tars_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "demo.tar.gz"
    path.write_bytes(HOSTILE[name])
    outside = sorted(tmp_path.parent.iterdir())
    with pytest.raises(IntegrityError) as caught:
        unpack(path, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.parent.iterdir()) == outside


def zip_with(tmp_path: Path, name: str, mode: int) -> Path:
    path = tmp_path / "demo.zip"
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        archive.writestr(member, "../x")
    return path


@pytest.mark.parametrize(
    ("name", "mode"), [("../x", 0o100644), ("/x", 0o100644), ("a", 0o120777), ("a", 0o020644)]
)
def test_hostile_zips_are_refused(tmp_path: Path, name: str, mode: int) -> None:
    with pytest.raises(IntegrityError, match="refused"):
        unpack(zip_with(tmp_path, name, mode), tmp_path / "out")


def test_damaged_zip(tmp_path: Path) -> None:
    path = zip_with(tmp_path, "a", 0o100644)
    path.write_bytes(path.read_bytes().replace(b"../x", b"..!x"))
    with pytest.raises(IntegrityError, match="damaged"):
        unpack(path, tmp_path / "out")


def test_links_inside_are_kept(tmp_path: Path) -> None:
    members = (link("d/l", "../d/f"), link("h", "d/f", tarfile.LNKTYPE), link("gone", "d/none"))
    path = tmp_path / "demo.tar.gz"
    path.write_bytes(tar({"d/f": "text"}, members=members))
    unpack(path, tmp_path / "out")
    assert (tmp_path / "out/d/l").read_text() == "text"
    assert (tmp_path / "out/h").read_text() == "text"
    assert (tmp_path / "out/gone").is_symlink()


def test_executable_bit_is_kept_and_no_other(tmp_path: Path) -> None:
    member = tarfile.TarInfo("run")
    member.mode = 0o6777
    path = tmp_path / "demo.tar.gz"
    path.write_bytes(tar({}, members=(member,)))
    unpack(path, tmp_path / "out")
    assert (tmp_path / "out/run").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("limits", [{"size": 100}, {"entries": 2}])
def test_limits(tmp_path: Path, limits: dict[str, int]) -> None:
    path = tmp_path / "demo.tar.gz"
    path.write_bytes(tar({f"f{each}": "0" * 40 for each in range(3)}))
    with pytest.raises(IntegrityError, match="more than"):
        unpack(path, tmp_path / "out", **limits)
    unpack(path, tmp_path / "ok", size=120, entries=3)


def test_hash_is_that_of_the_file(sdist: Served) -> None:
    assert hashlib.sha256(sdist.body).hexdigest() == sdist.sha256
