"""A compiler that lives in a virtual environment, and an assembler of its own: there is no PTX.

A file `NAME.brew` says `cup NAME`, and its configs as `config NAME = VALUE VALUE ...`. The package
`brewc` writes a step for each of `size` measures; it needs the package `beans`. Brew 1.1 writes a
step that no kettle knows where `foam` is 2. `kettle.py` boils the steps: kettle 1.1 dies of four
measures and more, 1.0 and 2.0 do not. No version of Brew has a cup for more than eight.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version
from toy_front_end import Toy

from harness.frontends.assemble import CODE, AssemblerRun
from harness.frontends.back_end import BackEnd
from harness.frontends.bench import Kept, content_key
from harness.frontends.readings import PtxReading
from harness.frontends.sessions import CapturedLaunch, run_program
from harness.io.toolchains.environments import (
    environments_of,
    install_environment,
    planned_environment,
)
from harness.judging.judge import death_signal, failed
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import LaunchFacts, Lowering, RaisedError, Resources
from harness.values.toolchain import Assembler, Compiler, Environment, PackagePin
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.frontends.assemble import Inspection
    from harness.frontends.back_end import LoweredProgram
    from harness.frontends.bench import Workbench
    from harness.judging.judge import CellEvidence

HERE = Path(__file__).parent
KETTLE = HERE / "kettle.py"
KETTLES = ("1.0", "1.1", "2.0")


class Kettle(BackEnd):
    kind = "kettle"
    title = "Kettle"
    takes = "steps"
    code = "recipe"
    default = "latest"

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return [Version(version) for version in KETTLES]

    def install(self, version: Version | str) -> Assembler:
        if str(version) not in KETTLES:
            raise UsageError(f"there is no Kettle {version}")
        digest = hashlib.sha256(KETTLE.read_bytes() + str(version).encode()).hexdigest()
        return Assembler(
            kind=self.kind, version=str(version), origin="kettle", path=KETTLE, sha256=digest
        )

    def key(self, program: LoweredProgram, assembler: Assembler) -> str:
        return content_key(kettle=assembler.sha256, recipe=program.sha256, flags=program.flags)

    def run(
        self,
        assembler: Assembler,
        program: Callable[[], bytes],
        flags: tuple[str, ...],
        target: str | None,
    ) -> AssemblerRun:
        words = (str(assembler.path), assembler.version, *flags, "recipe", CODE)
        return AssemblerRun(
            program=program,
            name="recipe",
            argv=(sys.executable, "-IS", *words),
            flags=flags,
            is_code=lambda path: path.is_file() and path.read_bytes().endswith(b"done\n"),
            check=lambda: None,
        )

    def resources(self, evidence: CellEvidence, inspection: Inspection | None) -> Resources:
        said = re.search(r"(\d+) spoons", evidence.assembly.stdout) if evidence.assembly else None
        return Resources(n_regs=int(said[1]) if said else None)

    def judge(self, evidence: CellEvidence) -> Verdict:
        assert evidence.assembly is not None
        end = evidence.assembly.end
        last = [*evidence.assembly.stderr.splitlines(), "it said nothing"][0]
        died = death_signal(end) is not None
        kind = VerdictKind.COMPILER_CRASH if died else VerdictKind.PASS_FAILURE
        return failed(kind, Stage.CUBIN, f"Kettle {end.words}: {last}", message=last)


class Brew(Toy):
    kind = "brew"
    title = "Brew"
    back_ends: tuple[BackEnd, ...] = (Kettle(),)
    suffixes: tuple[str, ...] = (".brew",)
    stages: tuple[str, ...] = ("beans", "steps")
    options: tuple[str, ...] = ("foam",)
    names_by = "cup"

    def installed(self) -> list[Compiler]:
        return [self.install(each.version) for each in environments_of(self.kind)]

    def environment(self, version: str) -> Environment:
        if version not in self.versions:
            raise UsageError(f"there is no Brew {version}")
        pins = PackagePin(name="brewc", version=version), PackagePin(name="beans", version="3.1")
        return Environment(kind=self.kind, version=version, pins=pins, imports=("brewc",))

    def install(self, version: Version | str) -> Compiler:
        return install_environment(self.environment(str(version)))

    def planned(self, version: Version | str) -> Compiler:
        return planned_environment(self.environment(str(version)))

    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[Lowering, dict[str, bytes]]:
        request = {"name": record.kernel, **record.config}
        done = await run_program(bench, launch.compiler, HERE / "brew_child.py", request)
        answer = done.result
        if not done.end.ok or answer is None:
            raise InfrastructureError(f"{launch.compiler.name}: its child {done.end.words}")
        steps = done.folder / "steps"
        written = {"steps": steps.read_bytes()} if steps.is_file() else {}
        bench.hub.drop_folder(done.folder)
        said = answer["error"]
        error = RaisedError(type="BrewError", kinds=("BrewError",), message=said or "")
        lowering = Lowering(
            end=done.end,
            stage="beans" if said else "steps",
            error=error if said else None,
            metadata={"partners": answer["partners"]},
        )
        return lowering, written

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        kernel = bench.store.artifacts.get(ptx).split()[1].decode()
        reading = PtxReading(facts=None, body_sha256=ptx, kernel=kernel)
        return bench.keep("ptx", content_key(steps=ptx), reading, {})

    def install_line(self, version: str) -> str:
        return f"pip install brewc=={version}"


BREW = Brew()
