"""TileLang behind the door: see `harness.frontends.base`.

Launch code runs as it is in a child; each kernel that it has compiled is lowered to CUDA C++ by a
fork of that child, and by nvcc to PTX with the options that this TileLang would give it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.frontends.captures import CapturingChild, keep_streams, read_lowering
from harness.frontends.cuda.nvcc import host_compiler, tool_of
from harness.frontends.cuda.running import run_nvcc
from harness.frontends.launch_code import capture_request, fetch_launch_code, has_launch_code
from harness.frontends.planning import cells_of
from harness.frontends.ptxas_back_end import BUNDLED_BACK_END
from harness.frontends.readings import read_stored
from harness.frontends.reads import withheld
from harness.frontends.tilelang.versions import KIND, TITLE, available, declared_environment
from harness.frontends.tilelang.wordings import NVCC_STAGE, failing_pass, judge_tilelang
from harness.packages.versions import exact_version, select
from harness.toolchains.environments import (
    compiler_in,
    environments_of,
    install_environment,
    planned_environment,
)
from harness.values.errors import UsageError
from harness.values.limits import limits_of
from harness.values.outcome import Lowering

if TYPE_CHECKING:
    from pathlib import Path

    from packaging.version import Version

    from harness.bench.bench import Kept, Sessions, Workbench
    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import (
        Adapt,
        CapturedLaunch,
        FrontEnd,
        LaunchCode,
        Plan,
        PlannedLaunch,
        Selection,
    )
    from harness.frontends.capture_request import CaptureRequest
    from harness.frontends.readings import PtxReading
    from harness.frontends.sessions import JobResult
    from harness.processes.hub import Hub
    from harness.values.environment import Environment
    from harness.values.kernel import Config, Repro
    from harness.values.outcome import LaunchFacts
    from harness.values.target import Target
    from harness.values.toolchain import Assembler, Compiler
    from harness.values.verdict import Verdict

__all__ = ["CHILD", "TILELANG_FRONT_END"]

# As TileLang 0.1.8 to 0.1.15 call nvcc, besides the options that they choose.
_FLAGS = ("-O3", "-lineinfo")
_FILES = {"tir": "kernel.tir", "device": "kernel.device", "cuda": "kernel.cu"}
CHILD = CapturingChild(
    kind=KIND,
    module="harness.frontends.tilelang.child",
    code=("frontends/pretend", "frontends/triton/child", "frontends/tilelang/child"),
    settings=("TILELANG_", "TL_", "TVM_"),
    never=frozenset({"TILELANG_CACHE_DIR", "TILELANG_TARGET", "TILELANG_DEFAULT_TARGET"}),
)


class _TileLangFrontEnd:
    kind = KIND
    title = TITLE
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)
    suffixes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ("tilelang",)
    stages: tuple[str, ...] = ("tir", "device", "cuda", NVCC_STAGE, "ptx")
    options: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    interprets = False
    patches = False

    def back_end(self, target: Target) -> BackEnd:  # noqa: ARG002
        return BUNDLED_BACK_END

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        raise UsageError(f"{path}: TileLang kernels are captured from Python files ({kernel})")

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return available(prereleases=prereleases)

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        exact = exact_version(spec)
        if exact is not None and self._installed(exact):
            return [exact]
        return select(available(prereleases=prereleases), spec, what=TITLE, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        return [compiler_in(each) for each in environments_of(KIND)]

    def _installed(self, version: Version | str) -> Compiler | None:
        """What is installed is used as it is: its partners were chosen then."""
        return next((each for each in self.installed() if each.version == str(version)), None)

    def environment(self, version: str) -> Environment:
        return declared_environment(version)

    def install(self, version: Version | str) -> Compiler:
        return self._installed(version) or install_environment(declared_environment(str(version)))

    def planned(self, version: Version | str) -> Compiler:
        return self._installed(version) or planned_environment(declared_environment(str(version)))

    def default(self) -> Compiler:
        here = self.installed()
        return here[-1] if here else self.install(available()[-1])

    def open_sessions(self, hub: Hub, *, timeout: float, memory: int) -> Sessions:
        return CHILD.open_sessions(hub, timeout=timeout, memory=memory)

    async def plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,
    ) -> Plan:
        code, request = _request(selection, target, compiler, launch, adapt)
        captured = await CHILD.capture(bench, code, request, compiler)
        return _cells(selection, target, launch, captured, is_own=adapt is None)

    def stored_plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,
    ) -> Plan | None:
        if not has_launch_code(selection.repro):
            return None
        code, request = _request(selection, target, compiler, launch, adapt)
        captured = CHILD.stored_capture(bench, code, request, compiler)
        if captured is None:
            return None
        return _cells(selection, target, launch, captured, is_own=adapt is None)

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        async def finish(done: JobResult, alone: bool) -> tuple[Lowering, dict[str, str]]:  # noqa: FBT001
            return await _finished(bench, launch, done, alone=alone)

        key = self.lowering_key(launch, record, ptxas)
        return await CHILD.lower(bench, launch, record, key, finish)

    def lowering_key(
        self,
        launch: CapturedLaunch,
        record: LaunchFacts,
        ptxas: Assembler,  # noqa: ARG002
    ) -> str:
        return CHILD.lowering_key(launch, record, host=host_compiler(), flags=_FLAGS)

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        entry = lowering.value.metadata.get("entry")
        return read_stored(bench, ptx, entry=str(entry) if entry else None)

    async def failing_pass(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        traps: bool,
    ) -> str | None:
        if traps:
            return None
        error = (await self.lower(bench, launch, record, ptxas=ptxas)).value.error
        return failing_pass(error.traceback) if error else None

    def built_with(self, compiler: Compiler) -> str | None:  # noqa: ARG002
        return None

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_tilelang(lowering)

    def install_line(self, version: str) -> str:
        pins = (str(pin) for pin in declared_environment(version).pins)
        return f"pip install torch {' '.join(pins)}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:  # noqa: ARG002
        values = ", ".join(f"{name}={value!r}" for name, value in config.items)
        return f"{kernel}(..., {values})"

    def identity(self, compiler: Compiler) -> object:
        return [compiler.identity, host_compiler(), _FLAGS, CHILD.identity()]


def _request(
    selection: Selection,
    target: Target,
    compiler: Compiler,
    launch: PlannedLaunch,
    adapt: Adapt | None,
) -> tuple[LaunchCode, CaptureRequest]:
    """What the child is to run, as the target would see it."""
    code = fetch_launch_code(selection.repro, launch.spec, launch.overrides)
    code = adapt(code) if adapt else code
    limits = limits_of(target.capability)
    assert limits is not None, "targets are checked when they are chosen"
    settings = {"target": str(target), "ptxas": str(tool_of(compiler, "ptxas"))}
    return code, replace(capture_request(code, target, limits), settings=settings)


def _cells(
    selection: Selection,
    target: Target,
    launch: PlannedLaunch,
    captured: CapturedLaunch,
    *,
    is_own: bool,
) -> Plan:
    environment = CHILD.environment(captured.compiler)
    missing = withheld(captured.capture.value.reads, environment, CHILD.never)
    return cells_of(selection, target, launch, captured, withheld=missing, is_own=is_own)


async def _finished(
    bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
) -> tuple[Lowering, dict[str, str]]:
    """What a job left, and what nvcc makes of it."""
    target = str(launch.request.settings["target"])
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
    options = (done.result or {}).get("options", [])
    words = [*_FLAGS, *(each for each in options if not each.startswith("--ptxas-options"))]
    run = await run_nvcc(bench, launch.compiler, found["cuda"], words, alone=alone)
    if run.ptx:
        artifacts["ptx"] = run.ptx
    artifacts["log"] = keep_streams(bench, done, run.log)
    flags = tuple(_flags_for_ptxas(options, target))
    lowering = replace(
        lowering,
        end=replace(run.end, wall=run.end.wall + done.end.wall, cpu=run.end.cpu + done.end.cpu),
        stage="ptx" if run.ptx else NVCC_STAGE,
        flags=flags,
        log=run.log,
    )
    return lowering, artifacts


def _flags_for_ptxas(options: list[str], target: str) -> list[str]:
    """What nvcc would hand to ptxas: the target, and what is meant for ptxas alone."""
    named = (each.partition("=")[2] for each in options if each.startswith("-arch="))
    arch = next(named, target)
    own = [each.partition("=")[2] for each in options if each.startswith("--ptxas-options=")]
    return ["-v", f"--gpu-name={arch}", *own]


TILELANG_FRONT_END: FrontEnd = _TileLangFrontEnd()
