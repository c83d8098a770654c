"""Every way of handing a kernel over, with the real Triton and ptxas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

from harness.io.toolchains.install import install_triton
from harness.judging.ptxas.sass import line_tables
from harness.store.stages import stage_bytes
from harness.store.store import Store

pytestmark = pytest.mark.tools

SMALL = ["--kernel", str(HERE / "kernels" / "small.py") + "::add"]
TRITON = ["--triton", "3.6.0"]

MATRIX = """\
version: 1
toolchains:
  triton: {spec: "3.6.0"}
  ptxas: {spec: bundled}
targets: [sm_90a]
kernels: [kernel.ttgir, kernel.ttir]
"""

# Triton's own compiler on a file of IR, as a user's program would run it.
COMPILE = """
import sys, triton
from triton.backends.compiler import GPUTarget
try:
    triton.compile(sys.argv[1], target=GPUTarget("cuda", int(sys.argv[2]), 32))
except Exception as error:
    print(type(error).__name__, file=sys.stderr)
"""


def artifacts(triage: Triage, words: list[str], code: int = 0) -> dict[str, Path]:
    """The stages of one compiled config, as files."""
    [row] = triage.compile(*words, code=code)["cells"]
    found = {}
    for stage in ("ttir", "ttgir", "ptx"):
        found[stage] = triage.folder / f"kernel.{stage}"
        found[stage].write_text(triage("show", row["short"], "--stage", stage).stdout)
    return found


def compile_with_triton(triage: Triage, file: Path, capability: int, **env: str) -> Path:
    """What the real Triton leaves in its cache folder."""
    cache = triage.folder / "triton-cache"
    site = install_triton("3.6.0").path
    subprocess.run(
        [sys.executable, "-c", COMPILE, str(file), str(capability)],
        env={**os.environ, "PYTHONPATH": str(site), "TRITON_CACHE_DIR": str(cache), **env},
        capture_output=True,
        check=True,
        timeout=300,
    )
    return cache


def imported(triage: Triage, *words: str) -> list[dict[str, Any]]:
    done = triage("import", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = msgspec.json.decode(done.stdout)["imported"]
    return found


class Small:
    """A small kernel that is compiled once for all tests, and its stages as files beside it."""

    def __init__(self, triage: Triage) -> None:
        self.triage = triage
        self.files = artifacts(triage, [*SMALL, *TRITON, "--sm", "90a"])
        [self.row] = triage.compile(*SMALL, *TRITON, "--sm", "90a", code=0)["cells"]


@pytest.fixture(scope="module")
def small(module_triage: Triage) -> Small:
    return Small(module_triage)


def test_the_stages_of_one_kernel_all_lead_to_the_same_program(small: Small) -> None:
    for stage in ("ttir", "ttgir"):
        words = ["--kernel", small.files[stage].name, *TRITON, "--sm", "90a"]
        [again] = small.triage.compile(*words, code=0)["cells"]
        assert again["launch"] == stage
        assert again["config"]["num_warps"] == 4
        assert again["verdict"] == "ok"
        assert again["n_regs"] == small.row["n_regs"]
        assert again["ptx_body_sha256"] == small.row["ptx_body_sha256"]
    # The module says which target it was made for.
    [again] = small.triage.compile("--kernel", "kernel.ttgir", *TRITON, code=0)["cells"]
    assert again["target"] == "sm_90a"


def test_options_of_ir_can_be_set_as_far_as_it_leaves_them_open(small: Small) -> None:
    ttir = ["--kernel", "kernel.ttir", *TRITON, "--sm", "90a"]
    [row] = small.triage.compile(*ttir, "--set", "num_warps=8", code=0)["cells"]
    assert (row["launch"], row["threads"]) == ("ttir:num_warps=8", 256)
    done = small.triage("compile", "--kernel", "kernel.ttgir", *TRITON, "--set", "num_warps=8")
    assert done.returncode == 2
    assert "--set num_warps: the file itself fixes it to 4" in done.stderr


def test_ir_is_a_kernel_of_the_matrix(small: Small, triage: Triage) -> None:
    for name in ("kernel.ttgir", "kernel.ttir"):
        (triage.folder / name).write_text(small.files[name.partition(".")[2]].read_text())
    (triage.folder / "matrix.yaml").write_text(MATRIX)
    done = triage("matrix", "run", "--jobs", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(done.stdout)["cells"] == {"ok": 2}
    with Store.open(Path(triage.env["TRIAGE_HOME"])) as store:
        for stage in ("ttgir", "ttir"):
            [record] = store.latest_results(f"kernel.{stage}")
            row = msgspec.json.decode(record.row)
            assert (row["launch"], row["target"]) == (stage, "sm_90a")
            assert row["ptx_body_sha256"] == small.row["ptx_body_sha256"]


def test_ir_that_a_triton_cannot_read_is_unsupported(triage: Triage) -> None:
    (triage.folder / "odd.ttir").write_text(
        "module {\n  tt.func public @k(%x: !tt.ptr<f32>) {\n    tt.no_such_op %x\n  }\n}\n"
    )
    [row] = triage.compile("--kernel", "odd.ttir", *TRITON, "--sm", "90a", code=4)["cells"]
    assert (row["verdict"], row["stage"]) == ("unsupported", "capture")
    assert "this Triton cannot read the IR" in row["reason"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.ttir", b"", "the file is empty"),
        ("x.ttgir", b"\0\1\2", "it holds binary data"),
        ("x.ttir", b"module {}", "nothing that can be launched"),
        ("x.ttir::k", b"module {}", "holds one kernel; name the file"),
    ],
)
def test_ir_that_is_none_is_refused_in_one_line(
    triage: Triage, name: str, data: bytes, said: str
) -> None:
    (triage.folder / name.partition("::")[0]).write_bytes(data)
    done = triage("compile", "--kernel", name, "--sm", "90a")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr


def test_version_and_target_of_ptx_are_honoured_or_overridden(triage: Triage) -> None:
    artifacts(triage, [*SMALL, *TRITON, "--sm", "80"])
    ptx = ["--kernel", "kernel.ptx", "--ptxas", "12.8.93"]
    [row] = triage.compile(*ptx, code=0)["cells"]
    assert (row["target"], row["launch"], row["ptx_version"]) == ("sm_80", "ptx", "8.7")
    [newer] = triage.compile(*ptx, "--set", "version=9.9", code=4)["cells"]
    assert (newer["verdict"], newer["ptx_version"]) == ("unsupported", "9.9")
    assert newer["launch"] == "ptx:version=9.9"
    [other] = triage.compile(*ptx, "--set", "target=sm_90", "--sm", "90", code=0)["cells"]
    assert (other["target"], other["launch"]) == ("sm_90", "ptx:target=sm_90")
    text = triage("show", other["short"], "--stage", "ptx").stdout
    assert ".target sm_90" in text
    [plain] = triage.compile(*ptx, "--set", "ptx_options=-O0", code=0)["cells"]
    assert plain["ptxas_flags"] == [*row["ptxas_flags"], "-O0"]
    assert (plain["cell"] != row["cell"], plain["launch"]) == (True, "ptx:ptx_options=-O0")
    # PTX for a newer target than the one asked for cannot be had.
    [older] = triage.compile(*ptx, "--set", "target=sm_90", "--sm", "80", code=4)["cells"]
    assert older["verdict"] == "unsupported"


def test_a_failed_compilation_in_a_cache_folder_becomes_a_case(triage: Triage) -> None:
    failing = ["--kernel", "verdict_ptxas_error"]
    [original] = triage.compile(*failing, code=1)["cells"]
    files = artifacts(triage, failing, code=1)
    cache = compile_with_triton(triage, files["ttgir"], 80)
    [found] = imported(triage, str(cache), "--triton", "3.6.0")
    assert found["failed_after"] == "ptx"
    offline = Triage(triage.folder, {**triage.env, "TRIAGE_OFFLINE": "1"})
    kernel = ["--kernel", found["name"]]
    [row] = offline.compile(*kernel, "--ptxas", original["ptxas"], code=1)["cells"]
    assert row["launch"] == "ptx"
    for column in ("verdict", "stage", "signature", "reason", "target"):
        assert row[column] == original[column], column
    # Before PTX, with the Triton that made it.
    [row] = offline.compile(*kernel, "--launch", "ttgir", code=1)["cells"]
    assert (row["verdict"], row["triton"]) == (original["verdict"], "3.6.0")
    both = offline("compile", *kernel, "--launch", "*")
    assert both.returncode == 2
    assert "starts from PTX or before it; name one of ptx, ttgir" in both.stderr


def test_a_good_compilation_in_a_cache_folder_compiles_from_its_ir(small: Small) -> None:
    cache = compile_with_triton(small.triage, small.files["ttir"], 90)
    [found] = imported(small.triage, str(cache))
    assert (found["failed_after"], found["triton"]) == (None, "3.6.0")
    [row] = small.triage.compile("--kernel", found["name"], code=0)["cells"]
    assert row["launch"] in ("ttir", "ttgir")
    assert row["ptx_body_sha256"] == small.row["ptx_body_sha256"]


def test_a_folder_without_kernels_is_said_to_be_one(triage: Triage) -> None:
    (triage.folder / "empty").mkdir()
    done = triage("import", "empty")
    assert done.returncode == 3
    assert done.stderr == "triage: empty: no kernels: neither a Triton cache nor a dump folder\n"
    assert triage("import", "nowhere").returncode == 2


def test_a_script_that_does_not_end_meets_a_time_limit(triage: Triage) -> None:
    (triage.folder / "endless.py").write_text(
        "import time\nif __name__ == '__main__':\n    time.sleep(600)\n"
    )
    done = triage("compile", "--kernel", "endless.py", *TRITON, "--sm", "90a", "--timeout", "3")
    assert done.returncode == 2
    assert "did not end within 3 s" in done.stderr


@pytest.mark.long
def test_the_real_internal_compiler_error_comes_back_from_a_cache_folder(triage: Triage) -> None:
    words = ["--kernel", "mamba3_siso_bwd_dqkv", "--set", "chunk_size=32", "--sm", "100a"]
    config = ["--config", "num_warps=8,num_stages=1,maxnreg=none", "--ptxas", "13.1.115"]
    [original] = triage.compile(*words, *config, code=1)["cells"]
    assert original["code"] == "C7907"
    files = artifacts(triage, [*words, *config], code=1)
    tools = Path(triage.env["TRIAGE_CACHE_DIR"]) / "toolchains" / "ptxas-13.1.115"
    [ptxas] = [path for path in tools.rglob("ptxas") if path.is_file()]
    cache = compile_with_triton(triage, files["ttgir"], 100, TRITON_PTXAS_BLACKWELL_PATH=str(ptxas))
    [found] = imported(triage, str(cache))
    [row] = triage.compile("--kernel", found["name"], "--ptxas", "13.1.115", code=1)["cells"]
    assert (row["verdict"], row["code"]) == ("ptxas_ice", "C7907")
    assert row["signature"] == original["signature"]


def test_a_cubin_says_of_each_instruction_which_line_of_the_ptx_it_is_of(triage: Triage) -> None:
    [row] = triage.compile(*SMALL, *TRITON, "--sm", "90a", code=0)["cells"]
    with Store.open(triage.folder / "results") as store:
        [record] = store.find_cells(row["short"])
        ptx, cubin = (stage_bytes(store, record, stage) for stage in ("ptx", "cubin"))
    assert ptx is not None
    assert cubin is not None
    table = line_tables(cubin)["add"]
    lines = {table.line(address) for address in range(0, 0x100, 16)}
    assert any(line and b"ld.global" in ptx.splitlines()[line - 1] for line in lines)
