"""ptxas, and no assembler, behind the door of assemblers: see `harness.frontends.back_end`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_emulator.ptx.text.facts import retarget
from harness.frontends.bench.assemble import PtxInput, assemble, inspect_cubin
from harness.frontends.bench.bench import Kept, content_key
from harness.frontends.bench.once import Assembled, assemble_text
from harness.io.packages.versions import LATEST
from harness.io.toolchains.bundled import describe_ptxas
from harness.io.toolchains.install import (
    available_ptxas,
    find_nvdisasm,
    install_ptxas,
    installed_nvdisasm,
    planned_ptxas,
    select_ptxas,
)
from harness.io.toolchains.installed import installed_versions
from harness.judging.judge import judge_ptxas
from harness.judging.ptxas.resources import combine
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import Assembly, ProcessEnd, Resources
from harness.values.toolchain import (
    BUNDLED,
    NO_ASSEMBLER,
    NOTHING,
    PTX,
    PTXAS,
    Assembler,
    Tool,
    assembler_name,
)
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd, LoweredProgram
    from harness.frontends.base import FrontEnd
    from harness.frontends.bench.assemble import Inspection
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.bench.once import Assembled
    from harness.io.processes.hub import Hub, ResourceLimits
    from harness.judging.judge import CellEvidence


class _PtxasBackEnd:
    kind = PTXAS
    title = PTXAS
    takes = PTX
    code = "PTX"

    def __init__(self, default: str) -> None:
        self.default = default

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return [version for version, _ in available_ptxas(prereleases=prereleases)]

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        return select_ptxas(spec, prereleases=prereleases)

    def installed(self) -> list[Version]:
        return installed_versions(PTXAS)

    def install(self, version: Version | str) -> Assembler:
        return install_ptxas(version)

    def planned(self, version: Version | str) -> Assembler:
        return planned_ptxas(version)

    def brought_along(self, path: Path) -> Assembler:
        return describe_ptxas(path, BUNDLED)

    def disassembler(self, *, installs: bool = True) -> tuple[Tool | None, tuple[str, ...]]:
        if not installs:
            return installed_nvdisasm(), ()
        try:
            return find_nvdisasm(), ()
        except (InfrastructureError, UsageError) as error:  # an index of one's own may lack it
            return None, (f"instructions are not counted: {error}",)

    async def assemble(
        self, bench: Workbench, program: LoweredProgram, assembler: Assembler
    ) -> Kept[Assembly]:
        facts = program.reading.facts
        assert facts is not None, "what cannot be read as PTX is not assembled"
        source = PtxInput(
            sha256=program.sha256,
            body_sha256=program.reading.body_sha256,
            version=facts.version,
            target=program.target,
        )
        return await assemble(bench, source, ptxas=assembler, flags=program.flags)

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
        text = program.decode(errors="replace")
        text = retarget(text, target=target) if target else text
        return await assemble_text(hub, text, ptxas=assembler, flags=flags, limits=limits)

    async def inspect(
        self, bench: Workbench, code: str, tools: Sequence[Tool]
    ) -> Kept[Inspection] | None:
        return await inspect_cubin(bench, code, tools)

    def resources(self, evidence: CellEvidence, inspection: Inspection | None) -> Resources:
        if evidence.log is None or evidence.ptx is None:
            return Resources()
        return combine(
            entry=evidence.ptx.entry,
            log=evidence.log,
            cubin=inspection.cubin if inspection else None,
            metadata=evidence.lowering.metadata if evidence.lowering else {},
            ptx=evidence.ptx,
        )

    def judge(self, evidence: CellEvidence) -> Verdict:
        return judge_ptxas(evidence)


PTXAS_BACK_END: BackEnd = _PtxasBackEnd(LATEST)
BUNDLED_BACK_END: BackEnd = _PtxasBackEnd(BUNDLED)
"""ptxas by itself, and as a compiler brings it along."""


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
