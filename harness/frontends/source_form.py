"""A kernel as one file of source: how a front end writes it, and compiles it.

What is tried while such a file is reduced is compiled as any cell is, but not stored: there are
thousands of candidates, and none is asked for again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec

from harness.frontends.bench import Workbench
from harness.frontends.one_file import Syntax
from harness.frontends.readings import PtxReading
from harness.frontends.sessions import CapturedLaunch
from harness.io.processes.hub import ResourceLimits
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.standalone import SourceInstall
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage


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
    """How files of the kernels of one compiler are compiled."""

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
