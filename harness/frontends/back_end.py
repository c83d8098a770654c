"""What an assembler is to the rest of the program: it ends what a front end begins.

ptxas is one, and what takes another compiler's own code is another. A back end knows its versions,
runs one of them on one program, and says what that means and needs. A front end names its own for
each target; `no_assembler` stands for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from harness.values.outcome import Assembly, Resources
from harness.values.toolchain import Assembler, Tool
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.bench.assemble import Inspection
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.bench.once import Assembled
    from harness.frontends.readings import PtxReading
    from harness.io.processes.hub import Hub, ResourceLimits
    from harness.judging.judge import CellEvidence


class LoweredProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A stored program to assemble, what was read off it, and the flags that go with it.

    `target` is to be written in place of the one that the program names; None to leave it.
    """

    sha256: str
    reading: PtxReading
    flags: tuple[str, ...]
    target: str | None = None


class BackEnd(Protocol):
    """One kind of assembler.

    `kind` names it in ids and options, `title` for people. `takes` is the stage of the front end
    that it takes, and the name of the artifact that holds it; `code` is what people call that.
    `default` is what is used where none is named: `bundled` where the compiler brings it along, a
    version, or `latest`.
    What is done to PTX as text (reduced, executed, varied) is done where `takes` is `ptx`.
    """

    kind: str
    title: str
    takes: str
    code: str
    default: str

    def available(self, *, prereleases: bool = False) -> list[Version]:
        """The versions that can be installed here, oldest first.

        Raises:
            InfrastructureError, UsageError: that cannot be found out.
        """

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        """The versions that a specifier names.

        Raises:
            UsageError: the specifier is malformed, or names what does not exist.
        """

    def installed(self) -> list[Version]:
        """Those that are on this machine, oldest first."""

    def install(self, version: Version | str) -> Assembler:
        """Install a version, or find it installed.

        Raises:
            UsageError, InfrastructureError: there is none, or it cannot be installed.
        """

    def planned(self, version: Version | str) -> Assembler:
        """What `install` would give, for `--list` and `--dry-run`; nothing is installed."""

    def brought_along(self, path: Path) -> Assembler:
        """The one that a compiler has at this place; asked where the default is `bundled`.

        Raises:
            StorageError, InfrastructureError: it cannot be read, or cannot be run.
        """

    def disassembler(self, *, installs: bool = True) -> tuple[Tool | None, tuple[str, ...]]:
        """What reads its machine code; without one, notes of what that means."""

    async def assemble(
        self, bench: Workbench, program: LoweredProgram, assembler: Assembler
    ) -> Kept[Assembly]:
        """Run it on a program; kept by content, and an end by one of our limits as such.

        An `Assembly` has a cubin where the run left whole machine code, of whatever format; as an
        artifact that is `cubin`.

        Raises:
            InfrastructureError: it cannot be started, or is damaged.
            UnusableArtifactError: the stored program is damaged.
        """

    async def assemble_once(
        self,
        hub: Hub,
        program: bytes,
        assembler: Assembler,
        *,
        flags: tuple[str, ...],
        target: str | None,
        limits: ResourceLimits,
    ) -> Assembled:
        """Run it on a program that is not stored; nothing is kept of it.

        `target` is as in `LoweredProgram`.

        Raises:
            InfrastructureError: it cannot be started.
        """

    async def inspect(
        self, bench: Workbench, code: str, tools: Sequence[Tool]
    ) -> Kept[Inspection] | None:
        """What stored machine code says of itself, read with the first of the tools that can.

        None where nothing reads it.

        Raises:
            InfrastructureError: a tool cannot be started.
            UnusableArtifactError: the stored code is damaged.
        """

    def resources(self, evidence: CellEvidence, inspection: Inspection | None) -> Resources:
        """What the kernel needs, as far as it is known."""

    def judge(self, evidence: CellEvidence) -> Verdict:
        """The verdict on a run that left no machine code, by the assembler's wordings."""
