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
from conftest import HERE, Triage

from harness.io.toolchains.install import install_triton
from harness.values.limits import limits_of
from harness.values.target import Target

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

# A script of a user, under plain Triton: only its driver, and the device of tensors, are pretended.
LAUNCHES = """
import faulthandler
import runpy
import sys
from types import SimpleNamespace
import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget

class OnMeta(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "meta"
        return function(*args, **kwargs)

faulthandler.enable(all_threads=False)
script, capability, shared = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
limits = {
    "max_shared_mem": shared, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32
}
triton.runtime.driver.set_active(SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", capability, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda _=None: 0,
    utils=SimpleNamespace(
        get_device_properties=lambda _: limits, load_binary=lambda *_: (0, 0, 32, 0)
    ),
    launcher_cls=lambda *_: lambda *_: None,
))
with OnMeta():
    runpy.run_path(script)["launch"]()
"""


def log_of(triage: Triage, triton: str, *words: object, program: str = PROGRAM) -> str:
    """What Triton prints when it fails to compile what the words of the program name."""
    file = triage.folder / "program.py"
    file.write_text(program)
    path = os.pathsep.join(map(str, (install_triton(triton).path, *sys.path)))
    done = subprocess.run(
        [sys.executable, str(file), *map(str, words)],
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


# The kernel of an issue (each file names it), the GPU that it is about, the Triton that fails,
# what a logger writes before a line, what is found first, and what the command comes to.
ACCELERATE = "an MLIR reproducer, which failed in TritonGPUAccelerateMatmul"
CONVERT = "an MLIR reproducer, which failed in ConvertTritonGPUToLLVM"
CI = "2026-04-24T06:46:09.0368804Z "
RTX = "GeForce RTX"
ISSUES = [
    ("atomic_of_bf16", "H100", "90a", "3.3.1", "", "launches bins", "rejected"),
    ("bf16_on_turing", "T4", "75", "3.2.0", "[rank0]: ", "launches scale", "ptxas_error"),
    ("dot_of_batches", "A100", "80", "3.2.0", "", "launches a kernel", "compiler_crash"),
    ("dot_of_bf16_on_turing", "T4", "75", "3.2.0", "> ", "launches matmul", "pass_failure"),
    ("dot_of_bytes", "H200", "90a", "3.6.0", "[rank1]:", "launches matmul", "rejected"),
    ("dot_of_bytes_on_turing", f"{RTX} 2070", "75", "3.4.0", CI, ACCELERATE, "pass_failure"),
    ("dot_on_b300", "B300", "103a", "3.5.0", "", "launches a kernel", "compiler_crash"),
    ("dot_on_turing", "T4", "75", "3.3.1", "(EngineCore pid=93) ", CONVERT, "compiler_crash"),
    ("fp8_on_sm80", "A100", "80", "3.6.0", "", CONVERT, "pass_failure"),
    ("fp8_to_fp8", "H100", "90a", "3.2.0", CI, "launches a kernel", "compiler_crash"),
    ("scaled_dot_on_rtx50", f"{RTX} 5090", "120a", "3.3.1", "", "launches scaled", "ptxas_error"),
    ("small_dot", "H100", "90a", "3.4.0", "(Worker pid=9) ", "launches matmul", "rejected"),
    ("too_much_tensor_memory", "B200", "100a", "3.6.0", "", "launches three_sums", "trap_stub"),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "gpu", "sm", "triton", "prefix", "what", "verdict"), ISSUES, ids=lambda word: word
)
def test_the_log_of_an_issue_leads_to_its_failure(
    triage: Triage,
    kernel: str,
    gpu: str,
    sm: str,
    triton: str,
    prefix: str,
    what: str,
    verdict: str,
) -> None:
    file = HERE / "kernels" / "reported" / f"{kernel}.py"
    target = Target.parse(sm)
    limits = limits_of(target.capability)
    assert limits is not None
    facts = target.capability, limits.max_shared_per_block
    log = log_of(triage, triton, file, *facts, program=LAUNCHES)
    found = found_in(triage, prefixed(prefix, f"triton=={triton}\nGPU 0: NVIDIA {gpu}\n{log}"))
    first = next(entry["what"] for entry in found if entry["commands"])
    assert what in first
    cell = followed(triage, found, first)
    assert (cell["verdict"], cell["triton"]) == (verdict, triton)
    assert cell["target"] == str(target)


def test_nothing_of_a_log_is_run(triage: Triage) -> None:
    log = log_of(triage, "3.6.0", "refused", "*fp32", 90)
    mark = triage.folder / "mark"
    log = log.replace("Repro command: ", f"Repro command: touch {mark}; ")
    found_in(triage, log)
    assert not Path(mark).exists()
