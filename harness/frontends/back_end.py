"""What an assembler is to the rest of the program: it ends what a front end begins.

ptxas is one, and what takes another compiler's own code is another. A back end knows its versions,
runs one of them on one program, and says what that means and needs. A front end names its own for
each target; `NoAssembler` stands for none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from packaging.version import Version

from gpu_emulator.ptx.text.facts import retarget
from harness.frontends.assemble import (
    CODE,
    Assembled,
    AssemblerRun,
    Inspection,
    inspect_cubin,
    is_cubin,
)
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.readings import PtxReading
from harness.io.packages.versions import LATEST, select
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.install import (
    available_wheels,
    describe_ptxas,
    find_nvdisasm,
    install_ptxas,
    installed_nvdisasm,
    select_versions,
)
from harness.io.toolchains.installed import check_ptxas, installed_versions
from harness.judging.judge import CellEvidence, judge_ptxas
from harness.judging.ptxas.cubin import read_cubin
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

T = TypeVar("T")


class LoweredProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A stored program to assemble, what was read off it, and the flags that go with it.

    `target` is to be written in place of the one that the program names; None to leave it.
    """

    sha256: str
    reading: PtxReading
    flags: tuple[str, ...]
    target: str | None = None


class Versions(ABC, Generic[T]):
    """A tool by its versions; `kind` names it in ids and options, `title` for people."""

    kind: str
    title: str

    @abstractmethod
    def available(self, *, prereleases: bool = False) -> list[Version]:
        """The versions that can be installed here, oldest first; none where it has no versions.

        Raises:
            InfrastructureError, UsageError: that cannot be found out.
        """

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        """The versions that a specifier names.

        Raises:
            UsageError: the specifier is malformed, or names what does not exist.
        """
        there = self.available(prereleases=prereleases)
        return select(there, spec, what=self.title, prereleases=prereleases)

    @abstractmethod
    def install(self, version: Version | str) -> T:
        """Install a version, or find it installed.

        Raises:
            UsageError, InfrastructureError: there is none, or it cannot be installed.
        """

    def planned(self, version: Version | str) -> T:
        """What `install` would give, for `--list` and `--dry-run`; nothing is installed."""
        return self.install(version)


class BackEnd(Versions[Assembler]):
    """One kind of assembler.

    `takes` is the stage of the front end
    that it takes, and the name of the artifact that holds it; `code` is what people call that.
    `default` is what is used where none is named: `bundled` where the compiler brings it along, a
    version, or `latest`.
    What is done to PTX as text (reduced, executed, varied) is done where `takes` is `ptx`.
    """

    takes: str
    code: str
    default: str

    def installed(self) -> list[Version]:
        """Those that are on this machine, oldest first."""
        return self.available()

    def brought_along(self, path: Path) -> Assembler:
        """The one that a compiler has at this place; asked where the default is `bundled`.

        Raises:
            StorageError, InfrastructureError: it cannot be read, or cannot be run.
        """
        raise AssertionError(f"no compiler brings {self.title} along: {path}")

    def disassembler(self, *, installs: bool = True) -> tuple[Tool | None, tuple[str, ...]]:
        """What reads its machine code; without one, notes of what that means."""
        return None, ()

    @abstractmethod
    def run(
        self,
        assembler: Assembler,
        program: Callable[[], bytes],
        flags: tuple[str, ...],
        target: str | None,
    ) -> AssemblerRun:
        """One run on a program; `target` is as in `LoweredProgram`."""

    @abstractmethod
    def key(self, program: LoweredProgram, assembler: Assembler) -> str:
        """By what the result of a run is kept: all that decides it."""

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
        code = partial(bench.store.artifacts.get, program.sha256)
        run = self.run(assembler, code, program.flags, program.target)
        key = self.key(program, assembler)
        return await bench.run_once("assemble", key, Assembly, partial(run.attempt, bench))

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
        run = self.run(assembler, lambda: program, flags, target)
        with hub.folder("oracle") as folder:
            assembly = await run.execute(hub, folder, limits)
            # Not each assembler leaves a cubin.
            is_known = assembly.has_cubin and is_cubin(folder / CODE)
            cubin = read_cubin((folder / CODE).read_bytes()) if is_known else None
            return Assembled(assembly=assembly, cubin=cubin)

    async def inspect(
        self, bench: Workbench, code: str, tools: Sequence[Tool]
    ) -> Kept[Inspection] | None:
        """What stored machine code says of itself, read with the first of the tools that can.

        None where nothing reads it.

        Raises:
            InfrastructureError: a tool cannot be started.
            UnusableArtifactError: the stored code is damaged.
        """
        return None

    def resources(self, evidence: CellEvidence, inspection: Inspection | None) -> Resources:
        """What the kernel needs, as far as it is known."""
        return Resources()

    @abstractmethod
    def judge(self, evidence: CellEvidence) -> Verdict:
        """The verdict on a run that left no machine code, by the assembler's wordings."""


class _PtxasBackEnd(BackEnd):
    kind = PTXAS
    title = PTXAS
    takes = PTX
    code = "PTX"

    def __init__(self, default: str) -> None:
        self.default = default

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return [wheel.version for wheel in available_wheels(PTXAS, prereleases=prereleases)]

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        return select_versions(PTXAS, spec, prereleases=prereleases)

    def installed(self) -> list[Version]:
        return installed_versions(PTXAS)

    def install(self, version: Version | str) -> Assembler:
        return install_ptxas(version)

    def planned(self, version: Version | str) -> Assembler:
        return install_ptxas(version, is_planned=True)

    def brought_along(self, path: Path) -> Assembler:
        return describe_ptxas(path, BUNDLED)

    def disassembler(self, *, installs: bool = True) -> tuple[Tool | None, tuple[str, ...]]:
        if not installs:
            return installed_nvdisasm(), ()
        try:
            return find_nvdisasm(), ()
        except (InfrastructureError, UsageError) as error:  # an index of one's own may lack it
            return None, (f"instructions are not counted: {error}",)

    def run(
        self,
        assembler: Assembler,
        program: Callable[[], bytes],
        flags: tuple[str, ...],
        target: str | None,
    ) -> AssemblerRun:
        def ptx() -> bytes:
            data = program()
            if target:
                data = retarget(data.decode(errors="replace"), target=target).encode()
            return data

        return AssemblerRun(
            program=ptx,
            name="kernel.ptx",
            argv=(assembler.path, *flags, "kernel.ptx", "-o", CODE),
            flags=flags,
            is_code=is_cubin,
            check=partial(check_ptxas, assembler),
        )

    def key(self, program: LoweredProgram, assembler: Assembler) -> str:
        facts = program.reading.facts
        assert facts is not None, "what cannot be read as PTX is not assembled"
        # PTX that differs in debug information only is assembled once.
        return content_key(
            body=program.reading.body_sha256,
            version=facts.version,
            target=program.target,
            ptxas=assembler.sha256,
            flags=program.flags,
        )

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


@dataclass(kw_only=True)
class NoAssembler(BackEnd):
    """What stands where an assembler would: it has no versions, and runs nothing.

    `takes` is the last stage, `code` what people call it; `is_code` says that it is machine code,
    which is then kept as such, and not an IR that goes no further. `needs` are the kernel's, as
    far as the compiler says them.
    """

    takes: str
    code: str
    is_code: bool
    needs: Callable[[CellEvidence], Resources] | None = None
    kind: str = NO_ASSEMBLER
    title: str = assembler_name(NO_ASSEMBLER)
    default: str = NO_ASSEMBLER

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return []

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        raise UsageError(f"{spec}: {self.title} has versions")

    def install(self, version: Version | str) -> Assembler:
        return NOTHING

    def brought_along(self, path: Path) -> Assembler:
        return NOTHING

    def run(self, *_: object) -> AssemblerRun:
        raise AssertionError("it runs nothing")

    def key(self, program: LoweredProgram, assembler: Assembler) -> str:
        return content_key(passed_on=program.sha256, is_code=self.is_code)

    async def assemble(
        self, bench: Workbench, program: LoweredProgram, assembler: Assembler
    ) -> Kept[Assembly]:
        """The program as it is, kept where commands look for machine code."""
        key = self.key(program, assembler)
        artifacts = {"cubin": program.sha256} if self.is_code else {}
        stored = bench.find("assemble", key, Assembly)
        return stored or bench.keep("assemble", key, _PASSED_ON, artifacts)

    async def assemble_once(self, *_: object, **__: object) -> Assembled:
        return Assembled(assembly=_PASSED_ON)

    def resources(self, evidence: CellEvidence, inspection: Inspection | None) -> Resources:
        return self.needs(evidence) if self.needs else Resources()

    def judge(self, evidence: CellEvidence) -> Verdict:
        raise AssertionError(f"nothing assembles {evidence.code}, so nothing fails at it")
