"""What is alike for compilers that live in an environment of their own and capture launch code.

A front end of theirs is a subclass: it names its environment and its child, and lowers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.captures import kernel_text
from harness.frontends.launch_code import capture_request, fetch_launch_code, has_launch_code
from harness.frontends.planning import cells_of
from harness.frontends.ptxas_back_end import BUNDLED_BACK_END
from harness.frontends.readings import read_stored
from harness.frontends.reads import withheld
from harness.io.packages.versions import exact_version, select
from harness.io.toolchains.environments import (
    compiler_in,
    environments_of,
    install_environment,
    is_installed,
    planned_environment,
)
from harness.values.environment import Environment
from harness.values.errors import UsageError
from harness.values.kernel import Config, Repro
from harness.values.limits import limits_of
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.target import Target
from harness.values.toolchain import Assembler, Compiler

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import Adapt, LaunchCode, Plan, PlannedLaunch, Selection
    from harness.frontends.bench.bench import Kept, Sessions, Workbench
    from harness.frontends.capture_request import CaptureRequest
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.captures import CapturingChild
    from harness.frontends.readings import PtxReading
    from harness.frontends.sessions import JobResult
    from harness.frontends.source_form import FileForm
    from harness.io.processes.hub import Hub


class CapturedFrontEnd:
    """The parts of `harness.frontends.base.FrontEnd` that follow from an environment and a child.

    `child` runs launch code. `needs` are packages that a user installs themselves, beside those of
    the environment.
    """

    kind: str
    title: str
    child: CapturingChild
    needs: tuple[str, ...] = ()
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)
    suffixes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    source_form: FileForm | None = None
    issue_fields: tuple[str, ...] = ()
    interprets = False
    patches = False

    def environment(self, version: str) -> Environment:
        """See the protocol."""
        raise NotImplementedError

    def available(self, *, prereleases: bool = False) -> list[Version]:
        """See the protocol."""
        raise NotImplementedError

    def bundled(self, compiler: Compiler) -> Path | None:
        """The assembler that this compiler brings along."""
        raise NotImplementedError

    async def finished(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, *, alone: bool
    ) -> tuple[Lowering, dict[str, str]]:
        """The evidence and the artifacts of what a job of the child left."""
        raise NotImplementedError

    def lowered_with(self) -> dict[str, object]:
        """What decides a lowering besides compiler, child and settings."""
        return {}

    def asked(self, ptxas: Assembler) -> dict[str, object]:  # noqa: ARG002
        """What the child gets to know of the assembler that a record is lowered for."""
        return {}

    def back_end(self, target: Target) -> BackEnd:  # noqa: ARG002
        """See the protocol."""
        return self.back_ends[0]

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        """See the protocol."""
        raise UsageError(f"{path}: {self.title} kernels are captured from Python files ({kernel})")

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        """See the protocol."""
        exact = exact_version(spec)
        if exact is not None and self._installed(exact):
            return [exact]
        there = self.available(prereleases=prereleases)
        return select(there, spec, what=self.title, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        """See the protocol."""
        return [compiler_in(each) for each in environments_of(self.kind)]

    def _installed(self, version: Version | str) -> Compiler | None:
        """What is installed is used as it is: its partners were chosen then."""
        return next((each for each in self.installed() if each.version == str(version)), None)

    def install(self, version: Version | str) -> Compiler:
        """See the protocol."""
        return self._installed(version) or install_environment(self.environment(str(version)))

    def planned(self, version: Version | str) -> Compiler:
        """See the protocol."""
        return self._installed(version) or planned_environment(self.environment(str(version)))

    def default(self) -> Compiler:
        """See the protocol."""
        here = self.installed()
        return here[-1] if here else self.install(self.available()[-1])

    def open_sessions(self, hub: Hub, *, timeout: float, memory: int) -> Sessions:
        """See the protocol."""
        return self.child.open_sessions(hub, timeout=timeout, memory=memory)

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
        """See the protocol."""
        code, request = self._request(selection, target, compiler, launch, adapt)
        captured = await self.child.capture(bench, code, request, compiler)
        return self._cells(selection, target, launch, captured, is_own=adapt is None)

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
        """See the protocol."""
        if not (has_launch_code(selection.repro) and is_installed(compiler)):
            return None
        code, request = self._request(selection, target, compiler, launch, adapt)
        captured = self.child.stored_capture(bench, code, request, compiler)
        if captured is None:
            return None
        return self._cells(selection, target, launch, captured, is_own=adapt is None)

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        """See the protocol."""

        async def finish(done: JobResult, alone: bool) -> tuple[Lowering, dict[str, str]]:  # noqa: FBT001
            lowering, artifacts = await self.finished(bench, launch, done, alone=alone)
            if text := kernel_text(launch.request, record):
                artifacts["python"] = bench.store.artifacts.put(text)
            return lowering, artifacts

        key = self.lowering_key(launch, record, ptxas)
        return await self.child.lower(bench, launch, record, key, finish, self.asked(ptxas))

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        """See the protocol."""
        asked = self.asked(ptxas)
        return self.child.lowering_key(launch, record, **self.lowered_with(), **asked)

    def identity(self, compiler: Compiler) -> object:
        """See the protocol."""
        return [compiler.identity, *self.lowered_with().values(), self.child.identity()]

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        """See the protocol."""
        entry = lowering.value.metadata.get("entry")
        return read_stored(bench, ptx, entry=str(entry) if entry else None)

    def built_with(self, compiler: Compiler) -> str | None:  # noqa: ARG002
        """See the protocol."""
        return None

    def install_line(self, version: str) -> str:
        """See the protocol."""
        pins = (str(pin) for pin in self.environment(version).pins)
        return f"pip install {' '.join((*self.needs, *pins))}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:  # noqa: ARG002
        """See the protocol."""
        values = ", ".join(f"{name}={value!r}" for name, value in config.items)
        return f"{kernel}(..., {values})"

    def _request(
        self,
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
        bundled = self.bundled(compiler)
        settings = {"target": str(target), "ptxas": str(bundled) if bundled else None}
        return code, replace(capture_request(code, target, limits), settings=settings)

    def _cells(
        self,
        selection: Selection,
        target: Target,
        launch: PlannedLaunch,
        captured: CapturedLaunch,
        *,
        is_own: bool,
    ) -> Plan:
        environment = self.child.environment(captured.compiler)
        missing = withheld(captured.capture.value.reads, environment, self.child.never)
        return cells_of(selection, target, launch, captured, withheld=missing, is_own=is_own)
