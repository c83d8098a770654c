"""What is alike for languages whose kernels are read from a file, in this process.

There is no launch code, no environment and no child: a front end of theirs is a subclass that reads
files, says what its cells are, and lowers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.frontends.ptxas_back_end import PTXAS_BACK_END
from harness.packages.versions import select

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.bench.bench import Sessions, Workbench
    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import Adapt, CapturedLaunch, Plan, PlannedLaunch, Selection
    from harness.frontends.source_form import FileForm
    from harness.processes.hub import Hub
    from harness.values.environment import Environment
    from harness.values.outcome import LaunchFacts
    from harness.values.target import Target
    from harness.values.toolchain import Assembler, Compiler

__all__ = ["FileFrontEnd"]


class _NoSessions:
    """Files are read, not run: nothing stays open."""

    async def close(self, key: str) -> None:
        """Nothing to end."""


class FileFrontEnd:
    """The parts of `harness.frontends.base.FrontEnd` that follow from that."""

    kind: str
    title: str
    back_ends: tuple[BackEnd, ...] = (PTXAS_BACK_END,)
    modules: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    source_form: FileForm | None = None
    issue_fields: tuple[str, ...] = ()
    interprets = False
    patches = False

    def available(self, *, prereleases: bool = False) -> list[Version]:
        """As the protocol has it."""
        raise NotImplementedError

    def install(self, version: Version | str) -> Compiler:
        """As the protocol has it."""
        raise NotImplementedError

    def stored_plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,
    ) -> Plan:
        """As the protocol has it; nothing has to be stored for it."""
        raise NotImplementedError

    def back_end(self, target: Target) -> BackEnd:  # noqa: ARG002
        """As the protocol has it."""
        return self.back_ends[0]

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        """As the protocol has it."""
        there = self.available(prereleases=prereleases)
        return select(there, spec, what=self.title, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        """As the protocol has it."""
        return [self.install(version) for version in self.available()]

    def planned(self, version: Version | str) -> Compiler:
        """As the protocol has it."""
        return self.install(version)

    def default(self) -> Compiler:
        """As the protocol has it."""
        return self.installed()[-1]

    def environment(self, version: str) -> Environment | None:  # noqa: ARG002
        """As the protocol has it."""
        return None

    def open_sessions(self, hub: Hub, *, timeout: float, memory: int) -> Sessions:  # noqa: ARG002
        """As the protocol has it."""
        return _NoSessions()

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
        """As the protocol has it."""
        return self.stored_plan(bench, selection, target, compiler, launch, adapt=adapt)

    async def failing_pass(
        self,
        bench: Workbench,  # noqa: ARG002
        launch: CapturedLaunch,  # noqa: ARG002
        record: LaunchFacts,  # noqa: ARG002
        *,
        ptxas: Assembler,  # noqa: ARG002
        traps: bool,  # noqa: ARG002
    ) -> str | None:
        """As the protocol has it."""
        return None

    def built_with(self, compiler: Compiler) -> str | None:  # noqa: ARG002
        """As the protocol has it."""
        return None
