"""Triton behind the door: see `harness.frontends.base`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.base import Adapt, Plan, PlannedLaunch, Selection
from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.launch_code import fetch_launch_code, has_launch_code
from harness.frontends.planning import cells_of
from harness.frontends.ptxas_back_end import BUNDLED_BACK_END
from harness.frontends.reads import withheld
from harness.frontends.triton.compile_file import TRITON_FORM
from harness.frontends.triton.config_source import OPTIONS, config_source
from harness.frontends.triton.environment import child_environment
from harness.frontends.triton.ir_inputs import IR_SUFFIXES, repro_of
from harness.frontends.triton.knobs import NO_KNOBS
from harness.frontends.triton.lower import capture, lower, lowering_key, stored_capture
from harness.frontends.triton.passes import failing_pass, llvm_of
from harness.frontends.triton.ptx_reading import read_stored_ptx
from harness.frontends.triton.sessions import TritonSessions, child_code_sha256
from harness.frontends.triton.settings import knobs
from harness.frontends.triton.wordings import judge_dialects
from harness.io.packages.versions import OLDEST_TRITON
from harness.io.toolchains.bundled import bundled_nvdisasm, installed_triton
from harness.io.toolchains.install import install_triton, planned_triton, select_triton
from harness.io.toolchains.installed import installed_versions
from harness.io.toolchains.offered import available_triton
from harness.values.environment import Environment
from harness.values.errors import InfrastructureError
from harness.values.kernel import Config, Repro
from harness.values.limits import Limits, limits_of
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.target import Target
from harness.values.toolchain import TRITON, Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import FrontEnd
    from harness.frontends.bench.bench import Kept, Sessions, Workbench
    from harness.frontends.readings import PtxReading
    from harness.frontends.source_form import FileForm
    from harness.io.processes.hub import Hub


class _TritonFrontEnd:
    kind = TRITON
    title = "Triton"
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)
    suffixes: tuple[str, ...] = IR_SUFFIXES
    modules: tuple[str, ...] = ()
    stages: tuple[str, ...] = ("ttir", "glir", "ttgir", "llir", "ptx")
    options: tuple[str, ...] = OPTIONS
    levels: tuple[str, ...] = ("source", "ttir", "ttgir", "config")
    source_form: FileForm | None = TRITON_FORM
    issue_fields: tuple[str, ...] = ()
    interprets = True
    patches = True

    def back_end(self, target: Target) -> BackEnd:  # noqa: ARG002
        return BUNDLED_BACK_END

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        return repro_of(path, kernel)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        found = available_triton(prereleases=prereleases)
        return [version for version in found if version >= OLDEST_TRITON]

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        return select_triton(spec, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        found = [install_triton(version) for version in installed_versions(TRITON)]
        try:
            beside = installed_triton()
        except InfrastructureError:
            return found
        is_known = any(each.version == beside.version for each in found)
        return found if is_known else [*found, beside]

    def install(self, version: Version | str) -> Compiler:
        return install_triton(version)

    def environment(self, version: str) -> Environment | None:  # noqa: ARG002
        return None  # wheels on the module path of triage's Python: see docs/design.md

    def planned(self, version: Version | str) -> Compiler:
        return planned_triton(version)

    def default(self) -> Compiler:
        return installed_triton()

    def open_sessions(self, hub: Hub, *, timeout: float, memory: int) -> Sessions:
        return TritonSessions(hub, capture_timeout=timeout, capture_memory=memory)

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
        code = fetch_launch_code(selection.repro, launch.spec, launch.overrides)
        code = adapt(code) if adapt else code
        limits = _limits(target)
        captured = await capture(bench, code, target=target, triton=compiler, limits=limits)
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
        code = fetch_launch_code(selection.repro, launch.spec, launch.overrides)
        code = adapt(code) if adapt else code
        limits = _limits(target)
        captured = stored_capture(bench, code, target=target, triton=compiler, limits=limits)
        if captured is None:
            return None
        return _cells(selection, target, launch, captured, is_own=adapt is None)

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        return await lower(bench, launch, record, ptxas=ptxas)

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        return lowering_key(launch, record, ptxas)

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        # The earliest IR there is: Gluon has no TTIR, and an old Triton keeps no source.
        stored = (lowering.artifacts.get(stage) for stage in ("source", "ttir", "glir", "ttgir"))
        return read_stored_ptx(bench, ptx, next(filter(None, stored), None))

    async def failing_pass(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        traps: bool,
    ) -> str | None:
        return await failing_pass(bench, launch, record, ptxas=ptxas, traps=traps)

    def built_with(self, compiler: Compiler) -> str | None:
        return llvm_of(compiler)

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_dialects(lowering)

    def install_line(self, version: str) -> str:
        return f"pip install triton=={version}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:  # noqa: ARG002
        if autotuned:
            return config_source(config, "triton.Config")
        values = ", ".join(f"{name}={value!r}" for name, value in config.items)
        return f"kernel[grid](..., {values})"

    def identity(self, compiler: Compiler) -> object:
        return [compiler.identity, child_code_sha256(), knobs(compiler)]


def _limits(target: Target) -> Limits:
    limits = limits_of(target.capability)
    assert limits is not None, "the selection refuses targets without limits"
    return limits


def _cells(
    selection: Selection,
    target: Target,
    launch: PlannedLaunch,
    captured: CapturedLaunch,
    *,
    is_own: bool,
) -> Plan:
    reads = captured.capture.value.reads
    return cells_of(
        selection,
        target,
        launch,
        captured,
        nvdisasm=bundled_nvdisasm(captured.compiler),
        withheld=withheld(reads, child_environment(captured.compiler), NO_KNOBS),
        is_own=is_own,
    )


TRITON_FRONT_END: FrontEnd = _TritonFrontEnd()
