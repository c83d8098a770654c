"""A kernel of TileLang lowered: CUDA C++ by a fork of the child that captured it, PTX by nvcc."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.frontends.captures import CapturingChild, keep_streams, read_lowering
from harness.frontends.cuda.running import run_nvcc
from harness.frontends.readings import read_text
from harness.frontends.source_form import Lowered
from harness.frontends.tilelang.versions import KIND
from harness.frontends.tilelang.wordings import NVCC_STAGE
from harness.values.outcome import Lowering
from harness.values.verdict import Stage

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.cuda.running import NvccRun
    from harness.frontends.sessions import JobResult


# As TileLang 0.1.8 to 0.1.15 call nvcc, besides the options that they choose.
FLAGS = ("-O3", "-lineinfo")
"""The options of nvcc that do not depend on the kernel."""
_FILES = {"tir": "kernel.tir", "device": "kernel.device", "cuda": "kernel.cu"}
CHILD = CapturingChild(
    kind=KIND,
    module="harness.frontends.tilelang.child",
    code=("frontends/pretend", "frontends/triton/child", "frontends/tilelang/child"),
    settings=("TILELANG_", "TL_", "TVM_"),
    never=frozenset({"TILELANG_CACHE_DIR", "TILELANG_TARGET", "TILELANG_DEFAULT_TARGET"}),
)


async def kept_lowering(
    bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
) -> tuple[Lowering, dict[str, str]]:
    """What a job left, and what nvcc makes of it, with the artifacts that were kept."""
    lowering = read_lowering(done, "tir")
    found = {stage: done.folder / name for stage, name in _FILES.items()}
    artifacts = {
        stage: bench.store.artifacts.put_file(file)
        for stage, file in found.items()
        if file.is_file()
    }
    if not lowering.end.ok or lowering.error or "cuda" not in artifacts:
        artifacts["log"] = keep_streams(bench, done)
        return lowering, artifacts
    run = await _nvcc(bench, launch, done, alone=alone)
    if run.ptx:
        artifacts["ptx"] = run.ptx
    artifacts["log"] = keep_streams(bench, done, run.log)
    return _with_nvcc(launch, done, lowering, run), artifacts


async def lowered_text(
    bench: Workbench, launch: CapturedLaunch, done: JobResult, *, until: Stage | None
) -> Lowered | None:
    """The same of a file that was compiled by itself, of which nothing is kept.

    None where it got past `until`.
    """
    lowering = read_lowering(done, "tir")
    has_code = (done.folder / _FILES["cuda"]).is_file()
    if not lowering.end.ok or lowering.error or not has_code:
        return Lowered(lowering=lowering)
    if until is not None and until.value in _FILES:
        return None
    run = await _nvcc(bench, launch, done, keeps=False)
    reading = read_text(run.text) if run.text is not None else None
    lowering = _with_nvcc(launch, done, lowering, run)
    program = run.text.encode() if run.text is not None else None
    return Lowered(lowering=lowering, program=program, reading=reading)


async def _nvcc(
    bench: Workbench,
    launch: CapturedLaunch,
    done: JobResult,
    *,
    alone: bool = False,
    keeps: bool = True,
) -> NvccRun:
    words = [*FLAGS, *(each for each in _options(done) if not each.startswith("--ptxas-options"))]
    code = done.folder / _FILES["cuda"]
    return await run_nvcc(bench, launch.compiler, code, words, alone=alone, keeps=keeps)


def _options(done: JobResult) -> list[str]:
    """Of nvcc, as TileLang chooses them."""
    return list((done.result or {}).get("options", []))


def _with_nvcc(
    launch: CapturedLaunch, done: JobResult, lowering: Lowering, run: NvccRun
) -> Lowering:
    flags = _flags_for_ptxas(_options(done), str(launch.request.settings["target"]))
    return replace(
        lowering,
        end=replace(run.end, wall=run.end.wall + done.end.wall, cpu=run.end.cpu + done.end.cpu),
        stage=NVCC_STAGE if run.ptx is None and run.text is None else "ptx",
        flags=tuple(flags),
        log=run.log,
    )


def _flags_for_ptxas(options: list[str], target: str) -> list[str]:
    """What nvcc would hand to ptxas: the target, and what is meant for ptxas alone."""
    named = (each.partition("=")[2] for each in options if each.startswith("-arch="))
    arch = next(named, target)
    own = [each.partition("=")[2] for each in options if each.startswith("--ptxas-options=")]
    return ["-v", f"--gpu-name={arch}", *own]
