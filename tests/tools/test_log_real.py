"""Logs of compilations that really failed, as people paste them: each leads on by one command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage

from harness.io.toolchains.install import install_triton

pytestmark = pytest.mark.tools

# An instruction that does not exist, and a product that the tensor cores of sm_100 do not know.
PROGRAM = """
import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def refused(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.inline_asm_elementwise(
        "bogus.f32 $0, $1;", "=r,r", [tl.load(x + at)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y + at, value)

@triton.jit
def product(x, y, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + at, tl.dot(tl.load(x + at), tl.load(x + at), out_dtype=tl.float64))

name, kind, capability = sys.argv[1:]
source = ASTSource(
    fn=globals()[name],
    signature={"x": kind, "y": kind, "N": "constexpr"},
    constexprs={"N": 64},
)
triton.compile(source, target=GPUTarget("cuda", int(capability), 32), options={"num_warps": 8})
"""


def log_of(triage: Triage, triton: str, name: str, kind: str, capability: int) -> str:
    """What Triton prints when it fails to compile one of the kernels."""
    program = triage.folder / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join(map(str, (install_triton(triton).path, *sys.path)))
    done = subprocess.run(
        [sys.executable, str(program), name, kind, str(capability)],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "TRITON_CACHE_DIR": str(triage.folder / "triton"),
            "TMPDIR": str(triage.folder),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return done.stdout


def found_in(triage: Triage, log: str) -> list[dict[str, Any]]:
    (triage.folder / "server.log").write_text(log)
    done = triage("log", "server.log", "--json")
    assert done.returncode == 1, done.stderr
    found: list[dict[str, Any]] = msgspec.json.decode(done.stdout)["found"]
    return found


def followed(triage: Triage, found: list[dict[str, Any]], what: str) -> dict[str, Any]:
    """The one cell of the command that the log leads to."""
    [command] = next(entry["commands"] for entry in found if what in entry["what"])
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("triage", "compile")
    [cell] = triage.compile(*words, code=1)["cells"]
    return dict(cell)


def prefixed(prefix: str, log: str) -> str:
    return re.sub("^", prefix, log, flags=re.MULTILINE)


def test_the_ptx_that_triton_prints_is_refused_again(triage: Triage) -> None:
    log = log_of(triage, "3.6.0", "refused", "*fp32", 90)
    cell = followed(triage, found_in(triage, log), "kernel refused: PTX")
    assert (cell["verdict"], cell["target"]) == ("ptxas_error", "sm_90a")
    assert "bogus" in cell["reason"]


@pytest.mark.long
def test_the_file_of_an_older_triton_is_refused_again(triage: Triage) -> None:
    log = log_of(triage, "3.4.0", "refused", "*fp32", 90)
    cell = followed(triage, found_in(triage, log), "a file of PTX")
    assert (cell["verdict"], cell["target"]) == ("ptxas_error", "sm_90a")


@pytest.mark.long
@pytest.mark.parametrize(
    "prefix",
    [
        "(EngineCore_DP0 pid=93) ",
        "(EngineCore_0 pid=9492) ERROR 09-06 23:28:45 [core.py:714] ",
        "2026-04-24T06:46:09.0368804Z ",
        "[rank0]: ",
        "\x1b[36m(RayWorkerWrapper pid=7, ip=10.0.0.2)\x1b[0m ",
        "> ",
    ],
)
def test_a_module_fails_in_the_same_pass_whoever_logged_it(triage: Triage, prefix: str) -> None:
    log = prefixed(prefix, log_of(triage, "3.6.0", "product", "*fp64", 100))
    found = found_in(triage, log)
    assert "TritonGPUAccelerateMatmul" in found[0]["what"]
    cell = followed(triage, found, "kernel product: an MLIR reproducer")
    assert (cell["verdict"], cell["target"]) == ("pass_failure", "sm_100a")
    assert (cell["triton"], cell["config"]["num_warps"]) == ("3.6.0", 8)
    assert "TritonGPUAccelerateMatmul" in cell["reason"]


@pytest.mark.long
def test_a_frame_inside_a_package_leads_to_its_kernel(triage: Triage) -> None:
    package = "/opt/venv/lib/python3.12/site-packages"
    log = f"""\
[pip3] triton==3.6.0
GPU 0: NVIDIA H100 80GB HBM3
Traceback (most recent call last):
  File "{package}/conch/ops/activation/silu_and_mul.py", line 40, in silu_and_mul
    _silu_and_mul_kernel[grid](
  File "{package}/triton/runtime/jit.py", line 700, in run
triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144, \
Hardware limit: 232448. Reducing block sizes or `num_stages` may help.
"""
    found = found_in(triage, log)
    [command] = found[0]["commands"]
    assert command == "triage compile --kernel conch_silu_and_mul --sm 90a --triton 3.6.0"
    assert "sm_90" in found[1]["what"]
    assert triage(*shlex.split(command)[1:]).returncode == 0


def test_nothing_of_a_log_is_run(triage: Triage) -> None:
    log = log_of(triage, "3.6.0", "refused", "*fp32", 90)
    mark = triage.folder / "mark"
    log = log.replace("Repro command: ", f"Repro command: touch {mark}; ")
    found_in(triage, log)
    assert not Path(mark).exists()
