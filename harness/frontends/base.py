"""What a compiler of kernels is to the rest of the program: the door behind which each lives.

A front end finds kernels in a source, captures their launches, lowers one config to what an
assembler takes, and knows its own versions, stages and options. Everything else (cells, verdicts,
bisection, blame, reduction, reports) speaks to this class, and to no compiler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.version import Version

from harness.frontends.back_end import BackEnd, Versions
from harness.frontends.bench import Kept, Workbench
from harness.frontends.one_file import Syntax
from harness.frontends.plan import CapturePlace, Plan
from harness.frontends.readings import PtxReading
from harness.frontends.sessions import CapturedLaunch
from harness.io.processes.hub import ResourceLimits
from harness.values.errors import UsageError
from harness.values.kernel import Config, Repro
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.standalone import SourceInstall
from harness.values.target import Target
from harness.values.toolchain import Assembler, Compiler, Environment
from harness.values.verdict import Stage, Verdict


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a text: evidence, and, where it got that far, what the assembler is to take.

    `reading` is what was read off that. `picked_ptxas` is the executable that the compiler would
    have run.
    """

    lowering: Lowering
    program: bytes | None = None
    reading: PtxReading | None = None
    picked_ptxas: str | None = None

    @property
    def ptx(self) -> str | None:
        """The program of a compiler that comes to PTX."""
        return None if self.program is None else self.program.decode(errors="replace")


class CompileRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A file to compile, with `options`; the compiler sees `ptxas`, or the one that it picks.

    With another `suffix` than that of its source it is the compiler's own IR. `until` is the stage
    that matters.
    """

    text: str
    ptxas: Assembler | None
    limits: ResourceLimits
    until: Stage | None = None
    suffix: str = ".py"
    options: Mapping[str, object] = {}


class SourceForm(ABC):
    """How files of the kernels of one compiler are compiled.

    What is tried while such a file is reduced is compiled as any cell is, but not stored: there are
    thousands of candidates, and none is asked for again.
    """

    @abstractmethod
    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        """What a user needs to run a file with this version, and with this assembler's.

        Raises:
            UsageError, InfrastructureError: it is not known what goes with it.
        """

    @abstractmethod
    async def compile(
        self, bench: Workbench, launch: CapturedLaunch, request: CompileRequest
    ) -> Lowered | None:
        """Run a file as far as the assembler, in the compiler of a capture and for its target.

        None where it got past the stage that matters: it is not compiled any further.

        Raises:
            InfrastructureError: the child could not be kept alive.
        """


class SyntaxForm(SourceForm):
    """How the kernels of a compiler that reads files are written as one: it has no launch.

    `suffix` is that of the file, which is reduced by its `syntax`.
    """

    suffix: str
    syntax: Syntax

    @abstractmethod
    def write(
        self, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[str, Mapping[str, object]]:
        """A config of a file, as one that needs nothing but its compiler, and its options.

        Raises:
            UsageError: a part of it cannot be read.
        """


class PartLowering(msgspec.Struct, frozen=True, kw_only=True):
    """A lowering with some of the passes; `passes` are all in their order, with what each is on.

    Of LLVM's `SROAPass on kernel`, of the compiler's own `add_pipeline of make_ttgir`.
    """

    lowering: Kept[Lowering]
    passes: tuple[str, ...]


class FrontEnd(Versions[Compiler]):
    """One kernel language and its compiler.

    `suffixes` are those of files that
    `--kernel` takes; Python files are taken that import one of `modules`. `stages` are what it
    lowers a kernel through, in order, whatever the target. `options` of a config leave the kernel's
    meaning alone. `levels` are those at which a kernel can be reduced besides what the assembler
    takes, and `source_form` is how it writes one as a file, where it can. One that `interprets` is
    a `CapturedFrontEnd` that runs its launches with values; one that `takes_inputs` has files
    that launch nothing, whose kernels are executed on inputs that the user names. `patches`: its
    kernels are Python with a tuner, whose source a patch can change. `back_ends` are all that
    `back_end` may name.
    `issue_fields` are the headings of its form of an issue, which the template `report/KIND.md.j2`
    fills; none where it has no form of its own.
    """

    back_ends: tuple[BackEnd, ...]
    suffixes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    stages: tuple[str, ...]
    options: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    source_form: SourceForm | None = None
    issue_fields: tuple[str, ...] = ()
    interprets: bool = False
    takes_inputs: bool = False
    patches: bool = False

    def back_end(self, target: Target) -> BackEnd:
        """What assembles for a target: it takes the last of the stages there."""
        return self.back_ends[0]

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        """The kernel of a file, or one of its kernels.

        Raises:
            UsageError: it cannot be read, or holds no such kernel.
        """
        raise UsageError(f"{path}: {self.title} kernels are captured from Python files ({kernel})")

    def parameters(self, path: Path, kernel: str) -> dict[str, str]:
        """The names of the parameters of a kernel of a file, in order; empty where it is not known.

        Each with the type of the elements that it points to, as `--buffer` spells it, or "".
        """
        return {}

    async def plainer(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> Mapping[str, Kept[Lowering]]:
        """The same record, lowered with less of the compiler's own optimisation: by its options."""
        return {}

    def builds_beside(self, compilers: Sequence[Compiler]) -> list[Version]:
        """All versions of the other distributions of this compiler that these come from."""
        return []

    def installed(self) -> list[Compiler]:
        """Those that are on this machine."""
        return [self.install(version) for version in self.available()]

    def environment(self, version: str) -> Environment | None:
        """The packages that a version lives in; None where it is installed in another way.

        Raises:
            UsageError: it is not known what goes with this version.
        """
        return None

    def default(self) -> Compiler:
        """The one to use where none is named.

        Raises:
            InfrastructureError: there is none.
        """
        installed = self.installed()
        return installed[-1] if installed else self.install(self.available()[-1])

    async def plan(self, bench: Workbench, place: CapturePlace) -> Plan:
        """The cells of one launch: one for each config that the filter lets through, and ptxas.

        Raises:
            CaptureError: the launch cannot be captured, or never launches the kernel.
            InfrastructureError: the compiler, or a source, cannot be brought here.
        """
        plan = self.stored_plan(bench, place)
        assert plan is not None, "where nothing is captured, a plan needs no compilation"
        return plan

    @abstractmethod
    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan | None:
        """As `plan`, from what is stored; None where it is not. Nothing is fetched or started."""

    @abstractmethod
    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        """Lower one config for this assembler.

        The artifact of the name of the last stage (`ptx`) is what it is to assemble.
        """

    @abstractmethod
    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        """By what a lowering is kept: equal for all that share one."""

    @abstractmethod
    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        """What the program (by its sha256) says, beside the IR that it came from."""

    async def failing_pass(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        traps: bool,
    ) -> str | None:
        """The pass that fails or dies, or (`traps`) that puts a trap in; None where none is known.

        Raises:
            InfrastructureError: this machine failed.
        """
        return None

    async def lower_part(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        record: LaunchFacts,
        *,
        ptxas: Assembler,
        llvm: int | None = None,
        without: Collection[int] = (),
        until: Stage | None = None,
    ) -> PartLowering | None:
        """As `lower`, with the first `llvm` optional passes of LLVM alone, -1: all of them.

        With `llvm` None, without those of the compiler's own passes that have these places; with
        `until` no further than this stage. None where the compiler cannot do that. Nothing is kept.

        Raises:
            InfrastructureError: this machine failed.
        """
        return None

    def built_with(self, compiler: Compiler) -> str | None:
        """The commit of the LLVM inside the compiler, where it is known."""
        return None

    @abstractmethod
    def judge(self, lowering: Lowering) -> Verdict:
        """The verdict on a lowering that raised or did not end well, by the compiler's wordings."""

    @abstractmethod
    def install_line(self, version: str) -> str:
        """What a user types, or does, to have this version."""

    @abstractmethod
    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        """What a user writes to have this config."""

    def user_settings(self, compiler: Compiler) -> Mapping[str, str]:
        """The variables of the user's that a compiler reads."""
        return {}

    def identity(self, compiler: Compiler) -> object:
        """All of the compiler and its settings that decides what it generates."""
        return compiler.identity
