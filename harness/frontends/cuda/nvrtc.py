"""NVRTC: the library that compiles CUDA C++ where there is no nvcc, as in wheels of CUDA 12.

It needs no host compiler, and knows no host headers. Its partners are headers and a ptxas.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.cuda import nvrtc_child
from harness.frontends.cuda.nvcc import judge_nvcc
from harness.frontends.cuda.running import NvccRun
from harness.frontends.programs import run_program
from harness.values.outcome import Lowering
from harness.values.target import Target
from harness.values.toolchain import Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.io.processes.hub import ResourceLimits


_FLAGS = ("-std=c++17", "-lineinfo")


async def run_nvrtc(
    bench: Workbench,
    compiler: Compiler,
    file: Path,
    words: tuple[str, ...],
    target: Target,
    *,
    alone: bool = False,
    keeps: bool = True,
    limits: ResourceLimits | None = None,
) -> NvccRun:
    """Run the NVRTC of a compiler's environment on a file, as far as PTX.

    Raises:
        InfrastructureError: it cannot be started.
    """
    options = [*_FLAGS, f"--gpu-architecture=compute_{target.capability}{target.suffix}", *words]
    request = {"file": str(file), "options": options}
    program = Path(nvrtc_child.__file__)
    done = await run_program(bench, compiler, program, request, alone=alone, limits=limits)
    log = _read(done.folder / "stderr") if done.answer is None else str(done.answer["log"])
    code = 0 if done.answer is None else int(done.answer["code"])
    end = replace(done.end, exit_code=code) if done.end.ok and code else done.end
    out = done.folder / "kernel.ptx"
    ptx = text = None
    if end.ok and out.is_file():
        ptx = bench.store.artifacts.put_file(out) if keeps else None
        text = None if keeps else _read(out)
    bench.hub.drop_folder(done.folder)
    return NvccRun(end=end, log=log, ptx=ptx, text=text)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def child_identity() -> object:
    """What of our code and options decides what it generates: it reads nothing of the host's."""
    return [hashlib.sha256(Path(nvrtc_child.__file__).read_bytes()).hexdigest(), _FLAGS]


def judge_nvrtc(lowering: Lowering) -> Verdict:
    """The verdict on a run of NVRTC that left no PTX: its front end is that of nvcc."""
    return judge_nvcc(lowering, "NVRTC")
