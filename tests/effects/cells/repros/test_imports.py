"""Cache and dump folders, whole and damaged; nothing of them may escape or be run."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from harness.cells.repros.cache_folders import Leftovers, read_leftovers, write_repro
from harness.cells.repros.find import find_kernel
from harness.values.errors import ConfigurationError, UsageError

TTIR = "module {\n  tt.func public @add(%x: !tt.ptr<f32>) {\n    tt.return\n  }\n}\n"
TTGIR = 'module attributes {"ttg.num-warps" = 8 : i32, ttg.target = "cuda:100"} {\n' + TTIR + "}\n"
PTX = ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry add()\n{\n ret;\n}\n"
METADATA = {"num_warps": 8, "num_ctas": 1, "num_stages": 2, "triton_version": "3.6.0", "shared": 0}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


def entry(cache: Path, name: str = "HASH1", kernel: str = "add", **files: str | bytes) -> Path:
    folder = cache / name
    folder.mkdir()
    for suffix, data in files.items():
        raw = data if isinstance(data, bytes) else data.encode()
        (folder / f"{kernel}.{suffix}").write_bytes(raw)
    return folder


def only_skipped(cache: Path) -> list[str]:
    found = read_leftovers(cache)
    assert not found.kernels
    return found.skipped


def test_a_compilation_that_ended_well(cache: Path) -> None:
    entry(
        cache,
        ttir=TTIR,
        ttgir=TTGIR,
        ptx=PTX,
        llir="x",
        cubin=b"\x7fELF",
        json=json.dumps(METADATA),
    )
    (cache / "HASH1" / "__grp__add.json").write_text("{}")
    [kernel] = read_leftovers(cache).kernels
    assert list(kernel.files) == [".ttir", ".ttgir", ".ptx"]
    assert kernel.failed_after is None
    assert dict(kernel.options) == {"num_warps": 8, "num_stages": 2}
    assert (kernel.kernel, str(kernel.target), kernel.triton) == ("add", "sm_100a", "3.6.0")
    folder, is_new = write_repro(kernel, Path("repros"), triton=None)
    assert is_new
    repro = find_kernel(folder.name)
    assert [launch.name for launch in repro.launches] == ["ttir", "ttgir", "ptx"]
    assert (repro.kernel, repro.version, repro.targets) == ("add", "3.6.0", ("sm_100a",))
    values = {p.name: (p.default, p.settable) for p in repro.launches[1].parameters}
    # The module itself fixes its warps.
    assert values["num_warps"] == (8, False)
    assert values["num_stages"] == (2, True)
    assert write_repro(kernel, Path("repros"), triton=None) == (folder, False)


@pytest.mark.parametrize(
    ("files", "after", "launches"),
    [
        ({"ttir": TTIR, "ttgir": TTGIR, "llir": "x", "ptx": PTX}, "ptx", ["ptx", "ttgir", "ttir"]),
        ({"ttir": TTIR, "ttgir": TTGIR, "llir": "x"}, "llir", ["ttgir", "ttir"]),
        ({"ttir": TTIR}, "ttir", ["ttir"]),
    ],
)
def test_a_compilation_that_failed_goes_on_from_where_it_was(
    cache: Path, files: dict[str, str], after: str, launches: list[str]
) -> None:
    entry(cache, **files)
    [kernel] = read_leftovers(cache).kernels
    assert kernel.failed_after == after
    folder, _ = write_repro(kernel, Path("repros"), triton="3.7.1")
    repro = find_kernel(folder.name)
    assert [launch.name for launch in repro.launches] == launches
    assert f"failed after {after}" in repro.summary
    assert repro.version == "3.7.1"


def test_a_dump_has_no_metadata_and_ends_with_a_cubin(cache: Path) -> None:
    entry(cache, ttir=TTIR, ttgir=TTGIR, ptx=PTX, cubin=b"\x7fELF")
    [kernel] = read_leftovers(cache).kernels
    assert kernel.failed_after is None
    # One entry's own folder will do as well.
    assert read_leftovers(cache / "HASH1").kernels[0].name == kernel.name


def test_equal_names_stay_apart_by_their_content(cache: Path) -> None:
    entry(cache, "A", ptx=PTX)
    entry(cache, "B", ptx=PTX.replace("8.7", "8.8"))
    entry(cache, "C", ptx=PTX)
    names = [kernel.name for kernel in read_leftovers(cache).kernels]
    assert names[0] == names[2] != names[1]


DAMAGED: list[tuple[str, bytes, str]] = [
    ("ptx", b"", "the file is empty"),
    ("ptx", PTX.encode()[:12], "no .target"),
    ("ptx", b"\x7fELF\x00\x01" * 40, "binary data"),
    ("ptx", b"\xff\xfe" + PTX.encode(), "binary data"),
    ("ttir", TTIR.encode()[:20], "nothing that can be launched"),
    ("ttgir", os.urandom(4096) + b"\0", "binary data"),
]


@pytest.mark.parametrize(("suffix", "data", "said"), DAMAGED)
def test_a_damaged_file_is_passed_over_with_a_line(
    cache: Path, suffix: str, data: bytes, said: str
) -> None:
    (entry(cache, "BAD") / f"add.{suffix}").write_bytes(data)
    entry(cache, "GOOD", ptx=PTX)
    found = read_leftovers(cache)
    assert [kernel.origin for kernel in found.kernels] == ["GOOD/add"]
    assert len(found.skipped) == 2
    assert f"BAD/add.{suffix}: " in found.skipped[0]
    assert said in found.skipped[0]
    assert found.skipped[1].endswith("BAD/add: nothing left to go on from")
    assert all("\n" not in line for line in found.skipped)


def test_a_damaged_stage_leaves_the_others(cache: Path) -> None:
    entry(cache, ptx=PTX, ttgir=b"\0rubbish", json=b'{"num_warps": 8')
    found = read_leftovers(cache)
    assert list(found.kernels[0].files) == [".ptx"]
    assert len(found.skipped) == 2
    assert "not JSON: its options are not known" in found.skipped[1]


@pytest.mark.parametrize(
    "metadata",
    [
        "[1]",
        "null",
        '{"num_warps": [1], "num_stages": {"a": 1}, "triton_version": 3, "target": "x"}',
        '{"num_warps": "8; rm -rf /", "triton_version": "../../x", "target": {"arch": 99999}}',
        "[" * 100_000,
    ],
)
def test_metadata_of_any_shape_is_survived(cache: Path, metadata: str) -> None:
    entry(cache, ptx=PTX, json=metadata)
    [kernel] = read_leftovers(cache).kernels
    assert kernel.triton is None
    write_repro(kernel, Path("repros"), triton=None)


def test_links_are_not_followed(cache: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "add.ptx").write_text(PTX)
    (cache / "LINK").symlink_to(secret)
    folder = entry(cache, "REAL")
    (folder / "add.ptx").symlink_to(secret / "add.ptx")
    (folder / "loop.ptx").symlink_to(folder / "loop.ptx")
    skipped = only_skipped(cache)
    assert len(skipped) == 3
    assert all("a symbolic link: not followed" in line for line in skipped)


def test_what_is_no_file_is_passed_over(cache: Path) -> None:
    folder = entry(cache)
    os.mkfifo(folder / "pipe.ptx")
    (folder / "folder.ptx").mkdir()
    skipped = only_skipped(cache)
    assert {line.rpartition(": ")[2] for line in skipped} == {
        "a folder, not a file",
        "not a regular file",
    }


def test_two_gigabytes_of_ptx_are_refused_unread(cache: Path) -> None:
    folder = entry(cache, ptx=PTX)
    with (folder / "add.ptx").open("r+b") as file:
        file.truncate(2 << 30)
    skipped = only_skipped(cache)
    assert "more than 33,554,432 bytes: it is not read" in skipped[0]


def test_names_cannot_leave_the_folder(cache: Path) -> None:
    evil = PTX.replace("add", "add$__").replace(".visible", ".visible")
    ttir = TTIR.replace("@add", '@"../../../etc/passwd"')
    entry(cache, "A", kernel="..%2f..", ptx=evil)
    entry(cache, "B", ttir=ttir)
    into = Path("repros")
    for kernel in read_leftovers(cache).kernels:
        folder, _ = write_repro(kernel, into, triton=None)
        assert folder.resolve().parent == into.resolve()
        names = {path.name for path in folder.iterdir()}
        assert names <= {"kernel.ptx", "kernel.ttir", "repro.yaml", ".imported"}
        assert find_kernel(folder.name).kernel == kernel.kernel


def test_a_repro_of_that_name_is_not_written_over(cache: Path) -> None:
    entry(cache, ptx=PTX)
    [kernel] = read_leftovers(cache).kernels
    mine = Path("repros") / kernel.name
    mine.mkdir(parents=True)
    (mine / "repro.yaml").write_text("mine")
    with pytest.raises(UsageError, match="in the way"):
        write_repro(kernel, Path("repros"), triton=None)
    assert (mine / "repro.yaml").read_text() == "mine"


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.write_text("x")])
def test_a_folder_that_is_none(tmp_path: Path, make: object) -> None:
    path = tmp_path / "nothing"
    make(path)  # type: ignore[operator]
    with pytest.raises(UsageError, match=r"no such folder|not a folder"):
        read_leftovers(path)


def test_an_empty_folder_holds_nothing(cache: Path) -> None:
    (cache / "notes.txt").write_text("hello")
    assert read_leftovers(cache) == Leftovers()


INDUCTOR = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics

@triton_heuristics.pointwise(size_hints={'x': 64}, triton_meta={'device': DeviceProperties(cc=90)})
@triton.jit
def triton_poi_0(in_ptr0, xnumel, XBLOCK: tl.constexpr):
    pass
"""


def test_inductors_files_are_parsed_and_never_run(cache: Path) -> None:
    debug = cache / "run_1" / "torchinductor" / "model__0"
    debug.mkdir(parents=True)
    call = f"k = async_compile.triton('triton_poi_0', '''{INDUCTOR}''', device_str='cuda')\n"
    (debug / "output_code.py").write_text(f"raise SystemExit\n{call}")
    (cache / "ckernel.py").write_text(INDUCTOR)
    (cache / "other.py").write_text("raise SystemExit")
    (cache / "odd.py").write_text("triton_heuristics (")
    found = read_leftovers(cache)
    [kernel] = found.kernels
    assert (kernel.kernel, str(kernel.target)) == ("triton_poi_0", "sm_90a")
    assert [line.partition(":")[0] for line in found.skipped] == [str(cache / "odd.py")]
    write_repro(kernel, Path("repros"), triton=None)
    repro = find_kernel(kernel.name)
    assert (repro.kernel, [launch.name for launch in repro.launches]) == (
        "triton_poi_0",
        ["launch"],
    )


def _event(**facts: object) -> str:
    payload = {
        "metadata": METADATA,
        "file_content": {"add.ttir": TTIR, "add.ptx": PTX, "x.sass": ""},
    }
    return json.dumps({"event_type": "compilation", "payload": payload, **facts}) + "\n"


@pytest.mark.parametrize("name", ["t.ndjson", "t.bin.ndjson", "t.ndjson.gz"])
def test_a_trace_of_tritonparse(cache: Path, name: str) -> None:
    launch = json.dumps({"event_type": "launch", "grid": [1, 1, 1]}) + "\n"
    text = "no json\n" + launch + _event(is_fake=True) + _event() + _event()
    packed = gzip.compress(text.encode()) if name != "t.ndjson" else text.encode()
    (cache / name).write_bytes(packed)
    found = read_leftovers(cache / name)
    [kernel] = found.kernels
    assert found.skipped == [f"{cache / name}, line 1: not an event of tritonparse"]
    assert list(kernel.files) == [".ttir", ".ptx"]
    assert (kernel.kernel, str(kernel.target), kernel.triton) == ("add", "sm_100a", "3.6.0")


@pytest.mark.parametrize(
    ("line", "limit", "words"),
    [
        (bytes(1 << 20), {"_MAX_EVENT": 1 << 16}, "line 2: longer than 0 MiB"),
        (b"\n", {}, "line 102: 100 remarks before it"),
        (b'{"event_type": "launch"}\n', {"_MAX_TRACE": 1 << 14}, "past 0 GiB of text"),
    ],
)
def test_a_trace_that_unpacks_without_end_is_read_to_a_bound(
    cache: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, limit: dict[str, int], words: str
) -> None:
    """A thousand times as much as the file; what stands before the bound is imported."""
    for name, value in limit.items():
        monkeypatch.setattr(f"harness.cells.repros.cache_folders.{name}", value)
    (cache / "bomb.gz").write_bytes(
        gzip.compress(_event().encode() + line * ((4 << 20) // len(line)))
    )
    found = read_leftovers(cache / "bomb.gz")
    assert [kernel.kernel for kernel in found.kernels] == ["add"]
    assert len(found.skipped) <= 101
    assert found.skipped[-1].startswith(f"{cache / 'bomb.gz'}, line ")
    assert words in found.skipped[-1]
    assert found.skipped[-1].endswith(": the rest is not read")


def test_a_damaged_trace_gives_what_stands_before(cache: Path) -> None:
    packed = gzip.compress((_event() + "x" * 100_000).encode())
    (cache / "t.gz").write_bytes(packed[:-20])
    found = read_leftovers(cache / "t.gz")
    assert "the rest is damaged" in found.skipped[-1]
    with pytest.raises(ConfigurationError, match="no such file"):
        read_leftovers(cache / "none.gz")
