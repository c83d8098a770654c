"""No assembler: what the compiler writes last is the end. See `harness.frontends.back_end`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.bench.bench import Kept, content_key
from harness.frontends.bench.once import Assembled
from harness.values.errors import UsageError
from harness.values.outcome import Assembly, ProcessEnd, Resources
from harness.values.toolchain import NO_ASSEMBLER, NOTHING, Assembler, Tool, assembler_name
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd, LoweredProgram
    from harness.frontends.base import FrontEnd
    from harness.frontends.bench.assemble import Inspection
    from harness.frontends.bench.bench import Workbench
    from harness.judging.judge import CellEvidence


_PASSED_ON = Assembly(end=ProcessEnd(exit_code=0), flags=(), stdout="", stderr="", has_cubin=True)


def _unknown(_evidence: CellEvidence) -> Resources:
    return Resources()


def no_assembler(
    *, takes: str, code: str, is_code: bool, needs: Callable[[CellEvidence], Resources] = _unknown
) -> BackEnd:
    """What stands where an assembler would: it has no versions, and runs nothing.

    `takes` is the last stage, `code` what people call it; `is_code` says that it is machine code,
    which is then kept as such, and not an IR that goes no further. `needs` are the kernel's, as
    far as the compiler says them.
    """
    return _NoAssembler(takes=takes, code=code, is_code=is_code, needs=needs)


def unassembled(end: FrontEnd) -> str:
    """What to say where an assembler is asked for, and there is none."""
    return f"nothing assembles what {end.title} generates here"


@dataclass(kw_only=True)
class _NoAssembler:
    takes: str
    code: str
    is_code: bool
    needs: Callable[[CellEvidence], Resources]
    kind: str = NO_ASSEMBLER
    title: str = assembler_name(NO_ASSEMBLER)
    default: str = NO_ASSEMBLER

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return []

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        raise UsageError(f"{spec}: {self.title} has versions")

    def installed(self) -> list[Version]:
        return []

    def install(self, version: Version | str) -> Assembler:
        return NOTHING

    planned = install

    def brought_along(self, path: Path) -> Assembler:
        return NOTHING

    def disassembler(self, *, installs: bool = True) -> tuple[Tool | None, tuple[str, ...]]:
        return None, ()

    async def assemble(
        self, bench: Workbench, program: LoweredProgram, assembler: Assembler
    ) -> Kept[Assembly]:
        """The program as it is, kept where commands look for machine code."""
        key = content_key(passed_on=program.sha256, is_code=self.is_code)
        if kept := bench.find("assemble", key, Assembly):
            return kept
        artifacts = {"cubin": program.sha256} if self.is_code else {}
        return bench.keep("assemble", key, _PASSED_ON, artifacts)

    async def assemble_once(self, *_: object, **__: object) -> Assembled:
        return Assembled(assembly=_PASSED_ON)

    async def inspect(
        self, bench: Workbench, code: str, tools: Sequence[Tool]
    ) -> Kept[Inspection] | None:
        return None

    def resources(self, evidence: CellEvidence, inspection: Inspection | None) -> Resources:
        return self.needs(evidence)

    def judge(self, evidence: CellEvidence) -> Verdict:
        raise AssertionError(f"nothing assembles {evidence.code}, so nothing fails at it")
