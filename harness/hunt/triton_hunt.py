"""`triage hunt triton`: the loop of `hunting.py` over generated kernels and one Triton.

A hit is reduced as `triage minimize` reduces sources, and named by how it fails and by what is
left. What is known is walked around: a kernel that has all that a known cause needs is compiled
only now and then, unless that cause is a matter of the order in which copies land, and a hit of it
is counted there.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs
from packaging.version import Version

from harness.cells.places import CompileOptions, at_bench
from harness.frontends.bench import content_key
from harness.frontends.registry import front_end
from harness.frontends.texts.ir_inputs import read_triton_ir
from harness.hunt.causes import Cause, LeastProgram, is_same_kind, said_of
from harness.hunt.gluon_sources import gluon_program
from harness.hunt.hunting import (
    GeneratedProgram,
    HuntPlan,
    HuntReport,
    HuntState,
    Pursuit,
    code_of,
    hunt_in,
    keep_hunt,
    known_causes,
    state_of,
    write_folders,
)
from harness.hunt.ir_corpus import IrSource, changed_ir
from harness.hunt.ir_hunt import IrCauses, IrOracles, fitting_sources, options_of, suffix_of
from harness.hunt.oracles import Asked
from harness.hunt.triton_causes import TritonCauses, has_all
from harness.hunt.triton_oracles import Care, TritonOracles
from harness.hunt.triton_sources import KERNEL, program
from harness.hunt.voting import Answer, Vote
from harness.io.files.own_code import code_sha256
from harness.io.processes.hub import Hub
from harness.io.processes.tasks import in_parallel
from harness.run.emulating import emulator_sha256
from harness.run.gpu.packing import place_of
from harness.store.store import Store
from harness.values.errors import OfflineError
from harness.values.target import Target
from harness.values.toolchain import GPU, Compiler

# Of kernels that have all that a known cause needs, one of so many is compiled all the same.
_SELDOM = 8
# Of so many kernels one is in Gluon, where the Triton has it.
_GLUON = 4


# As `VOTES_ON_PTXAS`. All of `run/` votes, too: it executes launches, and compares what they leave.
VOTES_ON_TRITON = (
    *("gluon_sources", "growth", "ir_corpus", "ir_defined", "ir_hunt"),
    *("oracles", "triton_oracles", "triton_sources", "voting"),
)


class TritonPlan(HuntPlan, frozen=True, kw_only=True):
    """A hunt in one Triton; programs take turns with the targets.

    Where there is a `corpus` of modules of its IR, these are changed and no kernels are generated.
    """

    triton: Compiler
    gpus: tuple[Target, ...]
    corpus: tuple[str, ...] = ()

    @property
    def tool(self) -> Compiler:
        return self.triton

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.gpus

    @property
    def key(self) -> str:
        return content_key(
            triton=self.triton.identity,
            targets=[str(target) for target in self.gpus],
            seed=self.seed,
            on=self.on,
            corpus=list(self.corpus),
            code=[
                code_of(VOTES_ON_TRITON),
                code_sha256("run", "frontends/triton/child"),
                emulator_sha256(),
            ],
        )

    @property
    def coordinates(self) -> dict[str, Any]:
        targets = [str(target) for target in self.gpus]
        return {"triton": self.triton.version, "targets": targets, "on": self.on}

    @property
    def known_by(self) -> str:
        return "IR of Triton" if self.corpus else super().known_by

    def command(self, folder: str, least: LeastProgram) -> str:
        what = f"run{self.place}" if least.answer.vote is Vote.WRONG else "compile"
        what += f" --kernel {folder}/"
        if self.corpus:
            what += f"{Path(folder).name}{suffix_of(least.text)}"
            what += "".join(f" --set {n}={value}" for n, value in options_of(least.asked).items())
        else:
            what += "launch.py"
        return f"triage {what} --sm {self.target_of(least.seed)} --triton {self.triton.version}"


@dataclass(slots=True, kw_only=True)
class _HuntedTriton:
    """A Triton, as it is hunted in."""

    plan: TritonPlan
    oracles: TritonOracles
    batch: int = 1
    known: list[Cause] = field(default_factory=list)

    @property
    def notes(self) -> Iterable[str]:
        """What else there is to say at the end."""
        return ()

    @property
    def jobs(self) -> int:
        return self.oracles.jobs

    def program(self, seed: int) -> GeneratedProgram:
        is_gluon = seed // len(self.plan.targets) % _GLUON == _GLUON - 1
        return gluon_program(seed) if is_gluon and has_gluon(self.plan.triton) else program(seed)

    async def ask(self, programs: Sequence[Asked], number: int) -> list[Answer]:
        return await in_parallel(self._ask(asked) for asked in programs)

    async def _ask(self, asked: Asked) -> Answer:
        names = (
            cause.name
            for cause in self.known
            if not cause.least.answer.is_latent and has_all(self.plan, cause, asked)
        )
        if asked.seed // len(self.plan.targets) % _SELDOM and (name := next(names, None)):
            return Answer(vote=Vote.LEFT_OUT, words=f"has what a known cause needs ({name})")
        return (await self.oracles.ask([asked]))[0]

    def causes(self, state: HuntState) -> Pursuit:
        self.known = state.causes
        return TritonCauses(plan=self.plan, oracles=self.oracles, causes=state.causes)

    def spent(self) -> dict[str, float]:
        return {"Triton and the emulator": self.oracles.bench.cpu_seconds}

    async def spread(
        self, state: HuntState, show: Callable[[str], None], is_time_up: Callable[[], bool]
    ) -> None:
        """Ask every Triton that is installed about all least programs."""
        programs = [one for cause in state.causes for one in cause.programs]
        front = front_end(self.plan.triton.kind)
        for compiler in sorted(front.installed(), key=lambda one: Version(one.version)):
            waiting = [one for one in programs if compiler.version not in one.versions]
            if waiting and not is_time_up():
                show(f"asking {compiler.name} about {len(waiting)} programs")
                there = replace(self.oracles, compiler=compiler)
                try:
                    answers = await there.ask([one.asked for one in waiting], care=Care.THOROUGH)
                except OfflineError:
                    continue  # one beside triage is selected by what the index lists
                for one, answer in zip(waiting, answers, strict=True):
                    one.versions[compiler.version] = said_of(answer)
        state.causes[:] = [
            part for cause in state.causes for part in cause.parted(self.plan.triton.version)
        ]


@dataclass(slots=True, kw_only=True)
class _HuntedIr(_HuntedTriton):
    """A Triton, as it is hunted in by changes of its IR."""

    oracles: IrOracles
    sources: Mapping[Target, list[IrSource]]
    unchanged: dict[tuple[IrSource, Target], asyncio.Future[list[Answer]]] = field(
        default_factory=dict
    )
    lowering: IrOracles = field(init=False)

    def __post_init__(self) -> None:
        # Changes of what leaves open what it computes, or is wrong as it is, say nothing.
        self.lowering = replace(self.oracles, executes=False)

    @property
    def notes(self) -> Iterator[str]:
        """Which files are lowered alone, and why."""
        for (source, target), asking in self.unchanged.items():
            answers = asking.result() if asking.done() and not asking.cancelled() else ()
            for answer in answers:
                if answer.vote in (Vote.LEFT_OUT, Vote.WRONG):
                    kernel = read_triton_ir(source.module.text).kernel
                    yield f"{kernel} for {target} is not executed: {answer.words}"

    def program(self, seed: int) -> GeneratedProgram:
        return changed_ir(seed, self.sources[self.plan.target_of(seed)])

    async def _ask(self, asked: Asked) -> Answer:
        target = self.plan.target_of(asked.seed)
        source = changed_ir(asked.seed, self.sources[target]).source
        if (source, target) not in self.unchanged:
            first = Asked(source.module.text, asked.seed)
            self.unchanged[source, target] = asyncio.ensure_future(self.oracles.ask([first]))
        [unchanged] = await self.unchanged[source, target]
        if unchanged.vote in (Vote.FAILS, Vote.GROWS, Vote.REFUSED):
            return Answer(vote=Vote.LEFT_OUT, words=f"a file as it is: {unchanged.words}")
        if unchanged.vote in (Vote.LEFT_OUT, Vote.WRONG):
            return (await self.lowering.ask([asked]))[0]
        [answer] = await self.oracles.ask([asked])
        if answer.vote is Vote.WRONG:
            first = Asked(source.module.text, asked.seed)
            [unchanged] = await self.oracles.ask([first])
            if unchanged.vote is Vote.WRONG:
                words = f"a file as it is: {unchanged.words}"
                return Answer(vote=Vote.LEFT_OUT, words=words)
        return answer

    def causes(self, state: HuntState) -> Pursuit:
        return IrCauses(
            plan=self.plan, oracles=self.oracles, causes=state.causes, sources=self.sources
        )

    def spent(self) -> dict[str, float]:
        return {"Triton and the emulator": self.oracles.bench.cpu_seconds}


def has_gluon(triton: Compiler) -> bool:
    """Whether a Triton has the Gluon that is generated: its interface changes with versions."""
    copies = "triton/experimental/gluon/language/nvidia/ampere/async_copy.py"
    path = triton.path / copies if triton.path else None
    return path is not None and path.is_file() and "def async_load(" in path.read_text()


async def hunt_triton(
    plan: TritonPlan,
    store: Store,
    how: CompileOptions,
    tell: Callable[[str], None],
    show: Callable[[str], None],
    open_hub: Callable[[], Hub] = Hub,
) -> HuntReport:
    """Hunt in a Triton; as `hunting.hunt_in`.

    Raises:
        InfrastructureError: a tool cannot be started, there is no GPU, or the disk is full; what
            was found is kept.
    """
    if plan.on == GPU:
        place_of(plan.runner)
    async with at_bench(store, how, open_hub) as bench:
        kind = IrOracles if plan.corpus else TritonOracles
        oracles = kind(
            bench=bench, compiler=plan.triton, targets=plan.targets, on=plan.on, runner=plan.runner
        )
        state = state_of(store, plan)
        texts = {program.text for cause in state.causes for program in cause.programs}
        others = [one for one in known_causes(store, plan) if one.least.text not in texts]
        show(f"asking {plan.triton.name} about {len(others)} known causes")
        asked = [cause.least.asked for cause in others]
        answers = await oracles.ask(asked, care=Care.THOROUGH)
        state.causes += [
            structs.replace(cause, hits=0, is_known=True)
            for cause, answer in zip(others, answers, strict=True)
            if is_same_kind(answer, cause.least.answer)  # what this Triton mends is hunted again
        ]
        keep_hunt(store, plan, state)
        hunted = _HuntedTriton(plan=plan, oracles=oracles)
        if isinstance(oracles, IrOracles):
            sources = fitting_sources(plan.corpus, plan.targets)
            hunted = _HuntedIr(plan=plan, oracles=oracles, sources=sources)
        report = await hunt_in(hunted, plan, store, tell, show)
        report.notes += hunted.notes
        return report


def write_triton_repros(report: HuntReport, home: Path) -> list[str]:
    """Write the least kernel of each cause as a repro; their folders, as the causes came up.

    Raises:
        StorageError: a folder cannot be written.
    """
    plan = report.plan
    assert isinstance(plan, TritonPlan)

    def files_of(name: str, cause: Cause) -> dict[str, bytes]:
        least = cause.least
        file, text = "launch.py", re.sub(rf"\b{KERNEL}\b", name, least.text)
        lines = [f"kernel: {name}"]
        if plan.corpus:
            file, text = f"{name}{suffix_of(least.text)}", least.text
            lines = [f"kernel: {read_triton_ir(text).kernel}", f"files: [{file}]"]
        lines += [
            f"summary: {json.dumps(f'{cause.name}; {least.answer.words}'[:400])}",
            f"triton: {plan.tool.version}",
            f"targets: [{plan.target_of(least.seed)}]",
        ]
        return {file: text.encode(), "repro.yaml": ("\n".join(lines) + "\n").encode()}

    return write_folders(report, home / "hunt" / f"triton-{plan.tool.version}", files_of)
