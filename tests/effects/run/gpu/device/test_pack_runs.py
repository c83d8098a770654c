"""The program of a pack, executed as on another machine, with a driver that needs no GPU."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.run.gpu.packing import runner_files

FAKE = Path(__file__).parents[4] / "fakes" / "libcuda.c"
OUT = np.full(128, 0xDEADBEEF, np.uint32)
IN = np.arange(100, 228, dtype=np.uint32)
POINTERS = [{"pointer": [0, 0]}, {"pointer": [1, 0]}]

Lines = list[dict[str, Any]]
Run = Callable[..., Lines]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def launch(**changes: object) -> dict[str, Any]:
    buffers = [
        {"name": name, "file": sha256(data.tobytes()), "size": data.nbytes}
        for name, data in (("out", OUT), ("in", IN))
    ]
    shape = {"grid": [1, 1, 1], "block": [128, 1, 1], "cluster": [1, 1, 1], "shared": 0}
    return {**shape, "buffers": buffers, "arguments": POINTERS, **changes}


def write_pack(
    path: Path,
    *texts: str,
    limit: float = 0.5,
    timings: list[list[int]] | None = None,
    samples: int = 1,
    sanitize: bool = False,
    **changes: object,
) -> Path:
    """A pack whose "cubins" say what the fake driver does with them."""
    blobs = {sha256(data): data for data in (OUT.tobytes(), IN.tobytes(), b"")}
    cases = []
    for text in texts:
        cubin = text.encode() + b"\0"
        blobs[sha256(cubin)] = cubin
        entry = "missing" if text == "missing" else "k"
        cases.append({"name": text, "launch": 0, "entry": entry, "cubin": sha256(cubin)})
    manifest = {"pack": 1, "limit": limit, "repeats": 2, "cases": cases}
    manifest["launches"] = [launch(**changes)]
    manifest |= {"timings": timings or [], "samples": samples, "sanitize": sanitize}
    members = {**runner_files(), "pack.json": json.dumps(manifest).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        for name, data in blobs.items():
            archive.writestr(f"blobs/{name}", data)
    return path


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    folder = tmp_path_factory.mktemp("driver")
    argv = [compiler, "-shared", "-fPIC", "-w", "-o", str(folder / "libcuda.so.1"), str(FAKE)]
    subprocess.run(argv, check=True)
    (folder / "libnvidia-ml.so.1").symlink_to("libcuda.so.1")
    return folder


def start(
    pack: Path, driver: Path, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(driver), **variables}
    # Isolated: what is installed here must not be needed there.
    argv = [sys.executable, "-I", "-S", str(pack), *words]
    return subprocess.run(
        argv, env=env, cwd=pack.parent, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def run(tmp_path: Path, driver: Path) -> Run:
    def execute(*texts: str, jobs: int = 2, **changes: Any) -> Lines:
        pack = write_pack(tmp_path / "case.pack", *texts, **changes)
        done = start(pack, driver, "--out", "results", "--jobs", str(jobs))
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / "results").read_text().splitlines()
        return [json.loads(line) for line in lines]

    return execute


def runs_of(lines: Lines, case: int) -> Lines:
    return [line for line in lines if line.get("case") == case]


def buffer_of(lines: Lines, run: dict[str, Any]) -> list[int]:
    [blob] = [line for line in lines if line.get("blob") == run["buffers"][0]]
    data = zlib.decompress(base64.b64decode(blob["data"]))
    assert sha256(data) == blob["blob"]
    found: list[int] = np.frombuffer(data, np.uint32).tolist()
    return found


def test_each_cubin_runs_twice_on_its_inputs_and_what_it_left_comes_back(run: Run) -> None:
    lines = run("add 1", "add 5", "add 1")
    assert lines[0]["results"] == 1
    assert lines[0]["gpu"]["name"] == "Fake GPU"
    assert lines[0]["gpu"]["capability"] == 90
    assert lines[0]["gpu"]["driver"] == "580.1"
    assert lines[-1]["end"] is True
    for case, added in ((0, 1), (1, 5), (2, 1)):
        first, second = runs_of(lines, case)
        assert (first["run"], second["run"]) == (0, 1)
        assert first["buffers"] == second["buffers"]
        assert buffer_of(lines, first)[:5] == [
            100 + added,
            101 + added,
            102 + added,
            103 + added,
            OUT[4],
        ]
        # The input is as it was: it is named, and not sent.
        assert first["buffers"][1] == sha256(IN.tobytes())
    assert len([line for line in lines if "blob" in line]) == 2


SANITIZER = """#!/bin/sh
# compute-sanitizer --tool TOOL --print-limit N PROGRAM...: runs it, says what the real one says.
tool=$2
shift 4
"$@" || exit
echo "========= COMPUTE-SANITIZER"
if [ "$tool" = racecheck ]; then
    echo "========= Error: Race reported between Write access at k+0x120"
    echo "=========     and Read access at k+0x150 [256 hazards]"
    echo "========= RACECHECK SUMMARY: 4 hazards displayed (4 errors, 0 warnings)"
elif [ "$tool" = initcheck ]; then
    echo "no such device" >&2
else
    echo "========= ERROR SUMMARY: 0 errors"
fi
"""


def test_each_case_goes_through_four_tools_where_they_are(tmp_path: Path, driver: Path) -> None:
    pack = write_pack(tmp_path / "case.pack", "add 1", "fault", sanitize=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "compute-sanitizer").write_text(SANITIZER)
    (tmp_path / "bin" / "compute-sanitizer").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = start(pack, driver, "--out", "results", PATH=path)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    found = [line for line in lines if line.get("status") == "sanitized"]
    said = {(line["case"], line["tool"]): (line["errors"], line["words"]) for line in found}
    race = "Error: Race reported between Write access at k+0x120, and Read access at k+0x150"
    for case in (0, 1):
        assert said[case, "memcheck"] == said[case, "synccheck"] == (0, "")
        assert said[case, "racecheck"] == (4, f"{race} [256 hazards]")
        errors, words = said[case, "initcheck"]
        assert errors is None
        assert words.startswith("initcheck came to no end: ")
    assert lines[-1]["end"] is True


def test_without_the_tools_each_answer_says_so(tmp_path: Path, driver: Path) -> None:
    if Path("/usr/local/cuda/bin/compute-sanitizer").exists():
        pytest.skip("this machine has the tools")
    pack = write_pack(tmp_path / "case.pack", "add 1", sanitize=True)
    done = start(pack, driver, "--out", "results", PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    found = [line for line in lines if line.get("status") == "sanitized"]
    assert [line["errors"] for line in found] == [None] * 4
    assert {line["words"] for line in found} == {"no compute-sanitizer on this machine"}


def test_a_fault_a_crash_or_a_hang_costs_itself_only(run: Run) -> None:
    lines = run("add 1", "fault", "add 2", "crash", "hang", "add 3")
    assert [each["status"] for each in runs_of(lines, 1)] == ["fault"]
    assert runs_of(lines, 1)[0]["name"] == "CUDA_ERROR_ILLEGAL_ADDRESS"
    [died] = runs_of(lines, 3)
    assert (died["status"], died["signal"]) == ("died", signal.SIGSEGV)
    [hung] = runs_of(lines, 4)
    assert (hung["status"], hung["seconds"]) == ("hang", 0.5)
    for case, value in ((0, 101), (2, 102), (5, 103)):
        first, _ = runs_of(lines, case)
        assert buffer_of(lines, first)[0] == value


def test_what_goes_wrong_is_tried_once_more_in_a_process_of_its_own(run: Run) -> None:
    """`first` faults only where another case came before it in the same process."""
    lines = run("add 1", "after", jobs=1)
    assert [each["status"] for each in runs_of(lines, 1)] == ["ended", "ended"]


def test_what_the_driver_refuses_costs_nobody_a_process(run: Run) -> None:
    lines = run("refuse-load", "refuse-launch", "missing", "count", jobs=1)
    said = [(each["call"], each["code"]) for n in range(3) for each in runs_of(lines, n)]
    assert said == [
        ("cuModuleLoadDataEx", 209),
        ("cuLaunchKernel", 701),
        ("cuModuleGetFunction", 500),
    ]
    first, second = runs_of(lines, 3)
    assert [buffer_of(lines, each)[0] for each in (first, second)] == [0, 1]


def test_memory_that_is_not_there_is_refused(run: Run) -> None:
    huge = [{"name": "b", "file": None, "size": 1 << 29}]
    lines = run("add 1", buffers=launch()["buffers"] + huge)
    [refused] = runs_of(lines, 0)
    assert (refused["call"], refused["name"]) == ("cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY")


def test_shared_memory_that_is_not_there_is_refused_with_what_was_asked_for(run: Run) -> None:
    [refused] = runs_of(run("add 1", shared=300_000), 0)
    assert (refused["call"], refused["status"]) == ("cuFuncSetAttribute", "refused")
    assert refused["needs"]["dynamic_shared"] == 300_000


@pytest.mark.parametrize("digest", [None, "windows", "whole"])
def test_a_tensor_without_elements_is_a_buffer_too(run: Run, digest: str | None) -> None:
    none = [{"name": "b", "file": sha256(b""), "size": 0}]
    lines = run("add 1", buffers=launch()["buffers"] + none, digest=digest)
    assert [each["buffers"][2] for each in runs_of(lines, 0)] == [sha256(b"")] * 2
    assert runs_of(lines, 0)[0]["guards"] == []


def test_what_is_written_beside_a_buffer_is_told(run: Run) -> None:
    lines = run("beyond")
    for each in runs_of(lines, 0):
        [guard] = each["guards"]
        assert guard == {"buffer": 0, "side": "behind", "bytes": 8, "first": 0, "last": 11}


def test_scalars_maps_and_null_are_passed(run: Run) -> None:
    tensor = {
        "pointer": [1, 64],
        "element": "u32",
        "sizes": [32, 4],
        "strides": [128],
        "box": [32, 4],
        "element_strides": [1, 1],
        "interleave": 0,
        "swizzle": 0,
        "nan_fill": False,
    }
    arguments = [POINTERS[0], {"scalar": "2a000000"}, {}, {"map": tensor}]
    lines = run("arguments", arguments=arguments)
    first, _ = runs_of(lines, 0)
    scalar, null, distance = buffer_of(lines, first)[:3]
    # The fake map begins with the address that it was made for.
    assert (scalar, null, distance) == (42, 0, 0)


def test_cases_are_timed_in_turns_and_the_first_run_is_dropped(run: Run) -> None:
    lines = run("takes 3", "takes 40", "fault", timings=[[0, 1, 2]], samples=7)
    times = {each["case"]: each for each in lines if each.get("status") == "timed"}
    # What faulted has no time; the caches are written before every run.
    assert times[0]["ms"] == [3.0] * 7
    assert times[1]["ms"] == [40.0] * 7
    assert times.keys() == {0, 1}
    assert times[0]["sm_mhz"] == [1980] * 7


def test_what_is_slow_is_timed_less_often(run: Run) -> None:
    lines = run("takes 500", "takes 1", timings=[[0], [1]], samples=30)
    times = {each["case"]: each["ms"] for each in lines if each.get("status") == "timed"}
    assert [len(times[0]), len(times[1])] == [5, 30]


def test_a_fault_while_it_is_timed_leaves_the_others_without_a_time(run: Run) -> None:
    lines = run("takes 1", "third", "takes 2", timings=[[0, 1], [2]], samples=5, jobs=1)
    assert [each["status"] for each in runs_of(lines, 1)] == ["ended", "ended", "untimed"]
    assert [each["status"] for each in runs_of(lines, 0)] == ["ended", "ended", "untimed"]
    assert runs_of(lines, 2)[-1]["ms"] == [2.0] * 5
    assert lines[-1]["end"] is True


def test_few_bytes_fill_a_large_buffer_and_only_a_digest_comes_back(run: Run) -> None:
    words = np.arange(128, dtype=np.uint32)
    size = 5_000_004
    large = [{"name": "out", "file": sha256(IN.tobytes()), "size": size}, launch()["buffers"][1]]
    lines = run("add 1", buffers=large, digest="windows")
    assert not any("blob" in line for line in lines)
    whole = bytearray((IN.tobytes() * (size // IN.nbytes + 1))[:size])
    whole[:16] = (words[:4] + 101).astype(np.uint32).tobytes()
    starts = sorted({(size - (1 << 16)) * n // 63 for n in range(64)})
    looked_at = b"".join(bytes(whole[at : at + (1 << 16)]) for at in starts)
    first, second = runs_of(lines, 0)
    assert first["buffers"][0] == second["buffers"][0] == sha256(looked_at)
    assert first["guards"] == []
    [glimpse, _] = first["glimpses"]
    assert bytes.fromhex(glimpse)[:16] == bytes(whole[:16])
    assert "glimpses" not in second
    lines = run("add 1", buffers=large, digest="whole")
    assert runs_of(lines, 0)[0]["buffers"][0] == sha256(bytes(whole))


def test_what_was_done_is_kept_when_it_is_killed(tmp_path: Path, driver: Path) -> None:
    pack = write_pack(tmp_path / "case.pack", "add 1", "hang", limit=60)
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(driver)}
    argv = [sys.executable, "-I", "-S", str(pack), "--out", "results", "--jobs", "1"]
    process = subprocess.Popen(argv, env=env, cwd=tmp_path, start_new_session=True)
    results = tmp_path / "results"
    deadline = time.monotonic() + 30
    while not results.exists() or results.read_text().count('"case":0') < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(runs_of(lines, 0)) == 2
    assert not any("end" in line for line in lines)
    # Nothing that it started is left.
    while process_group(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def process_group(number: int) -> list[str]:
    """The processes of a group that are not dead."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[2]) == number and words[0] != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"FAKE_CUDA_ABSENT": "1"}, "pack: cuInit: CUDA_ERROR_NO_DEVICE"),
        ({"LD_LIBRARY_PATH": "/nowhere"}, "pack: libcuda.so.1: no NVIDIA driver"),
    ],
)
def test_without_a_gpu_there_is_one_line(
    tmp_path: Path, driver: Path, variables: dict[str, str], said: str
) -> None:
    pack = write_pack(tmp_path / "case.pack", "add 1")
    done = start(pack, driver, "--out", "results", **variables)
    assert done.returncode == 4
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_it_says_what_it_holds(tmp_path: Path, driver: Path) -> None:
    pack = write_pack(tmp_path / "case.pack", "add 1", "fault")
    done = start(pack, driver, "--inspect")
    assert done.returncode == 0
    assert "2 cubins" in done.stdout
    assert " k  fault\n" in done.stdout
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"launches": []}, "`launch` is none of the launches"),
        ({"repeats": 0}, "`repeats` is not a number of runs"),
        ({"limit": "long"}, "`limit` is not a number of seconds"),
        ({"pack": 2}, "not a pack of version 1"),
        (
            {"cases": [{"name": "x", "launch": 0, "entry": "k", "cubin": "../../x"}]},
            "is not a sha256",
        ),
        ({"launches": [launch(grid=[1, 0, 1])]}, "`grid` is not three sizes"),
        ({"launches": [launch(shared=-1)]}, "`shared` is not a size"),
        ({"launches": [launch(arguments=[{"pointer": [9, 0]}])]}, "a pointer to no buffer"),
        ({"launches": [launch(arguments=[{"scalar": "xyz"}])]}, "hexadecimal"),
        ({"launches": [launch(buffers=[{"size": 1 << 41}])]}, "over 1 TiB"),
        ({"timings": [[1]]}, "`timings` are not lists of cases"),
        ({"samples": 0}, "`samples` is not a number of runs"),
    ],
)
def test_a_pack_that_is_none_is_refused_in_one_line(
    tmp_path: Path, driver: Path, damage: dict[str, Any], said: str
) -> None:
    pack = write_pack(tmp_path / "whole.pack", "add 1")
    with zipfile.ZipFile(pack) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = {**json.loads(members["pack.json"]), **damage}
    members["pack.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(tmp_path / "bad.pack", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    done = start(tmp_path / "bad.pack", driver, "--out", "results")
    assert done.returncode == 4
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_cubin_that_is_not_what_its_name_says_is_not_run(tmp_path: Path, driver: Path) -> None:
    pack = write_pack(tmp_path / "whole.pack", "add 1")
    with zipfile.ZipFile(pack) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    [cubin] = [name for name, data in members.items() if data == b"add 1\0"]
    members[cubin] = b"add 2\0"
    with zipfile.ZipFile(tmp_path / "bad.pack", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    done = start(tmp_path / "bad.pack", driver, "--out", "results")
    lines = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    [refused] = runs_of(lines, 0)
    assert refused["status"] == "refused"
    assert "not what its name says" in refused["words"]
    assert done.returncode == 0
