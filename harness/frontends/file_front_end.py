"""What is alike for languages whose kernels are read from a file, in this process.

There is no launch code and no child that stays: a front end of theirs is a subclass that reads
files, says what its cells are, and lowers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.base import LaunchCode
from harness.frontends.bench.bench import Kept
from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.ptxas_back_end import PTXAS_BACK_END
from harness.io.packages.versions import select
from harness.values.environment import Environment
from harness.values.kernel import LaunchSpec, Repro, Scalar
from harness.values.outcome import Capture, LaunchFacts
from harness.values.target import Target
from harness.values.toolchain import Assembler, Compiler

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import Adapt, Plan, PlannedLaunch, Selection
    from harness.frontends.bench.bench import Sessions, Workbench
    from harness.frontends.source_form import FileForm, SyntaxForm
    from harness.io.processes.hub import Hub


def repro_of_file(
    kind: str, path: Path, kernel: str | None, *, name: str | None = None, launch: str = "file"
) -> Repro:
    """A file as a repro with one launch, the file itself; without a `name`, its path is one."""
    return Repro(
        name=name or str(path),
        kernel=kernel,
        folder=path.parent,
        file=path,
        launches=(LaunchSpec(name=launch, function=None, file=path),),
        compiler=kind,
    )


def injected_configs(file: Path, adapt: Adapt | None) -> dict[str, list[dict[str, Scalar]]]:
    """The configs that take the place of a file's own, by kernel: empty where none do."""
    if adapt is None:
        return {}
    code = LaunchCode(
        file=file, function=None, overrides={}, paths=(), bare=(), identity={"file": str(file)}
    )
    found = adapt(code).injected
    return {name: [dict(config) for config in configs] for name, configs in found.items()}


def launch_of_file(key: str, kernel: str, config: Mapping[str, Scalar], file: Path) -> LaunchFacts:
    """A kernel of a file with one of its configs: it is launched with nothing that is known."""
    return LaunchFacts(
        key=key,
        kernel=kernel,
        config=dict(config),
        autotuned=bool(config),
        arguments=[],
        grid=None,
        file=str(file),
    )


def captured_file(
    compiler: Compiler,
    request: object,
    records: Sequence[LaunchFacts],
    *,
    key: str,
    ptxas: str = "",
) -> CapturedLaunch:
    """The launches of a file, as if they were captured; `ptxas` is the one of the compiler."""
    capture = Capture(records=list(records), pruned={}, ptxas=ptxas, triton="")
    kept = Kept(value=capture, key=key, artifacts={}, cached=True)
    return CapturedLaunch(capture=kept, compiler=compiler, request=request)


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
    source_form: FileForm | SyntaxForm | None = None
    issue_fields: tuple[str, ...] = ()
    interprets = False
    patches = False

    def available(self, *, prereleases: bool = False) -> list[Version]:
        """See the protocol."""
        raise NotImplementedError

    def install(self, version: Version | str) -> Compiler:
        """See the protocol."""
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
    ) -> Plan | None:
        """As the protocol has it; `plan` of this class asks for a plan without a compilation."""
        raise NotImplementedError

    def back_end(self, target: Target) -> BackEnd:  # noqa: ARG002
        """See the protocol."""
        return self.back_ends[0]

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        """See the protocol."""
        there = self.available(prereleases=prereleases)
        return select(there, spec, what=self.title, prereleases=prereleases)

    def installed(self) -> list[Compiler]:
        """See the protocol."""
        return [self.install(version) for version in self.available()]

    def planned(self, version: Version | str) -> Compiler:
        """See the protocol."""
        return self.install(version)

    def default(self) -> Compiler:
        """See the protocol."""
        return self.installed()[-1]

    def environment(self, version: str) -> Environment | None:  # noqa: ARG002
        """See the protocol."""
        return None

    def open_sessions(self, hub: Hub, *, timeout: float, memory: int) -> Sessions:  # noqa: ARG002
        """See the protocol."""
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
        """See the protocol."""
        plan = self.stored_plan(bench, selection, target, compiler, launch, adapt=adapt)
        assert plan is not None
        return plan

    async def failing_pass(
        self,
        bench: Workbench,  # noqa: ARG002
        launch: CapturedLaunch,  # noqa: ARG002
        record: LaunchFacts,  # noqa: ARG002
        *,
        ptxas: Assembler,  # noqa: ARG002
        traps: bool,  # noqa: ARG002
    ) -> str | None:
        """See the protocol."""
        return None

    def built_with(self, compiler: Compiler) -> str | None:  # noqa: ARG002
        """See the protocol."""
        return None
