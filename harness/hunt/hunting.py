"""`triage hunt`: programs are made and put to the oracles until the time is up.

What was found is in the store the moment it is found: a hunt is a record, with its hits that wait
and its causes, and the causes that hunts have in common are read from all of them. So the same hunt
goes on where it was, and what kills it costs the batches in flight. A hunt is named by its
compiler, target, seed and the code that makes its programs. What is hunted in is a
`HuntedCompiler`: ptxas is here, Triton in `triton_hunt.py`.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import structs

from gpu_emulator.ptx.text.facts import read_ptx
from gpu_emulator.values import Scalar
from harness.cells.places import CompileOptions
from harness.frontends.bench import content_key
from harness.hunt.causes import (
    Cause,
    Causes,
    CorpusCauses,
    LeastProgram,
    is_same_cause,
    is_same_kind,
    join,
    joined,
    known_words,
    ranked,
    said_of,
)
from harness.hunt.corpus import (
    TOGETHER,
    CorpusProgram,
    CorpusSource,
    acquainted,
    changed_program,
    retargeted,
)
from harness.hunt.generator import (
    RESULTS,
    THREADS,
    WORDS,
    Generator,
    HuntProgram,
    launch_of,
    some_forms,
)
from harness.hunt.on_gpu import Launcher
from harness.hunt.oracles import LEVELS, Asked, AskedTogether, Oracles, body_of
from harness.hunt.voting import Answer, Vote, emulated_ptx
from harness.io.files.own_code import code_sha256
from harness.io.processes.hub import Hub
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import find_nvdisasm, install_ptxas
from harness.io.toolchains.installed import installed_versions
from harness.judging.signature import template
from harness.run.emulating import emulator_sha256
from harness.run.gpu.packing import place_of
from harness.store.store import Store
from harness.values.errors import StorageError, UsageError
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, GPU, PTXAS, SASS, Assembler, Compiler

# Seconds for one program: ptxas that takes longer hangs.
_LONGEST = 60.0

_KIND = "hunt"
"""The kind of record that a hunt is."""

BATCH = 128
"""So many programs make one module."""

# In the last of so many modules -O0 votes of every program: what it alone gets wrong is rare.
_ALL_LEVELS = 8

# So many hits are reduced side by side at least. Questions about ptxas go into one module: the more
# hits, the less often nvdisasm starts.
_FEWEST, _FEWEST_TOGETHER = 4, 12
# Hits for each job that may wait to be reduced: beyond, no more programs are made until fewer do.
_MOST_WAITING = 12
# Programs are made, and hits reduced, in these shares of the time; then other versions are asked.
_MAKING, _REDUCING = 0.8, 0.9
_MOST_REASONS = 200
# The modules that make programs for ptxas and vote on them: a hunt is kept by their code and that
# of the emulator. The others reduce and name what is found: a change there starts no hunt again.
VOTES_ON_PTXAS = (
    *("corpus", "disassembly", "generator", "growth"),
    *("on_gpu", "oracles", "voting"),
)
# Of the name of a repro; and the file of one that is wrong at every level.
_PREFIX, _EXPECTED = "hunt_", "what_the_emulated_ptx_leaves.npy"


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A program that ptxas is accused of, as it was generated."""

    asked: Asked
    answer: Answer


class HuntState(msgspec.Struct, kw_only=True):
    """How far a hunt is, over all times that it was run.

    Batches below `batch` are done, and those of `beyond`. `reasons` count why programs were
    refused, left out or not voted on. `curve` has the seconds, programs, causes and seconds of CPU
    each time that one came up. `waiting` are hits that were not reduced yet; `causes` begin with
    those that other hunts found and that are still there.
    """

    batch: int = 0
    beyond: list[int] = []
    tried: int = 0
    seconds: float = 0.0
    votes: dict[str, int] = {}
    reasons: dict[str, int] = {}
    seen: dict[str, int] = {}
    causes: list[Cause] = []
    cpu: float = 0.0
    curve: list[tuple[float, int, int, float]] = []
    waiting: list[Hit] = []

    @property
    def new(self) -> list[Cause]:
        """The causes that this hunt found, as they came up."""
        return ranked([cause for cause in self.causes if not cause.is_known])


class KeptHunt(msgspec.Struct, frozen=True, kw_only=True):
    """A hunt that a store knows, with how far it is; `version` is of what was hunted in.

    Hunts with the same `known_by` have causes in common.
    """

    title: str
    version: str
    state: HuntState
    known_by: str = ""


class HuntPlan(msgspec.Struct, frozen=True, kw_only=True):
    """For how long is hunted: `seconds`, or `most` programs; and where programs begin.

    `on` executes them; a GPU is reached by the `runner`, or is this machine's.
    """

    seed: int
    seconds: float
    most: int | None = None
    on: str = EMULATOR
    runner: str | None = None

    @property
    def tool(self) -> Assembler | Compiler:
        """What is hunted in."""
        raise NotImplementedError

    @property
    def targets(self) -> tuple[Target, ...]:
        """For which GPUs programs are compiled."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """By what the hunt is kept: what its programs and answers follow from."""
        raise NotImplementedError

    @property
    def coordinates(self) -> dict[str, Any]:
        """What is hunted in, for JSON."""
        raise NotImplementedError

    @property
    def known_by(self) -> str:
        """The name of what hunts are in that have causes in common."""
        return self.tool.kind

    @property
    def place(self) -> str:
        """As options of `triage run`, where it does as the hunt; the emulator needs none."""
        if self.runner:
            return f" --runner {shlex.quote(self.runner)}"
        return "" if self.on == EMULATOR else f" --on {self.on}"

    def target_of(self, seed: int) -> Target:
        """For which GPU the program of a seed is compiled."""
        return self.targets[seed % len(self.targets)]

    def command(self, folder: str, least: LeastProgram) -> str:
        """What executes a least program as the hunt did, where the repro is in this folder."""
        raise NotImplementedError


class PtxasPlan(HuntPlan, frozen=True, kw_only=True):
    """A hunt in one ptxas.

    Where `on` is the emulator of PTX, nothing is executed, and what ptxas fails on is found. Where
    there is a `corpus` of texts, these are changed and no programs are generated.
    """

    ptxas: Assembler
    target: Target
    corpus: tuple[str, ...] = ()

    @property
    def tool(self) -> Assembler:
        return self.ptxas

    @property
    def targets(self) -> tuple[Target, ...]:
        return (self.target,)

    @property
    def key(self) -> str:
        return content_key(
            ptxas=self.ptxas.sha256,
            target=str(self.target),
            seed=self.seed,
            on=self.on,
            corpus=list(self.corpus),
            code=[code_of(VOTES_ON_PTXAS), emulator_sha256()],
        )

    @property
    def coordinates(self) -> dict[str, Any]:
        return {"ptxas": self.ptxas.version, "target": str(self.target), "on": self.on}

    def command(self, folder: str, least: LeastProgram) -> str:
        name, place = Path(folder).name, Path(folder).parents[1]
        return (
            f"cd {shlex.quote(str(place))} && triage run --kernel {name}{self.place} "
            f"--sm {self.target} --ptxas {self.ptxas.version} -O 0,3"
        )


@dataclass(slots=True, kw_only=True)
class HuntReport:
    """What a hunt came to; `spent` are seconds of CPU by what used them, `own` this process'.

    `device` is the GPU that voted.
    """

    plan: HuntPlan
    state: HuntState
    spent: Mapping[str, float] = field(default_factory=dict)
    own: float = 0.0
    seconds: float = 0.0
    tried: int = 0
    is_stopped: bool = False
    device: str = ""
    notes: list[str] = field(default_factory=list)


class GeneratedProgram(Protocol):
    """A program of a seed; `opcodes` is what it is made of."""

    @property
    def seed(self) -> int: ...

    @property
    def text(self) -> str: ...

    @property
    def opcodes(self) -> Collection[str]: ...


class Pursuit(Protocol):
    """All causes that a hunt has found, and what is done with a hit."""

    def mark(self, asked: Asked, answer: Answer) -> str:
        """What a hit is most likely about: of one mark one is reduced at a time."""

    async def walk_around(self, asked: Asked, answer: Answer) -> tuple[Asked, Answer] | None:
        """The hit without what is known; None where nothing is left: that cause is counted."""

    async def reduce(
        self, asked: Asked, answer: Answer, *, is_time_up: Callable[[], bool]
    ) -> LeastProgram | str:
        """The least program that gets such an answer; or why there is none, in words.

        No words: there was no time, or it is counted with a cause.
        """


class HuntedCompiler(Protocol):
    """What is hunted in: `batch` programs are asked about together, by `jobs` processes."""

    @property
    def batch(self) -> int: ...

    @property
    def jobs(self) -> int: ...

    def program(self, seed: int) -> GeneratedProgram:
        """The program of a seed."""

    async def ask(self, programs: Sequence[Asked], number: int) -> Sequence[Answer]:
        """The answers about a batch of this number.

        Raises:
            InfrastructureError: a tool cannot be started, or the disk is full.
        """

    def causes(self, state: HuntState) -> Pursuit:
        """What is known, for one who reduces."""

    def spent(self) -> Mapping[str, float]:
        """Seconds of CPU by what used them, the compilers first."""

    async def spread(
        self, state: HuntState, show: Callable[[str], None], is_time_up: Callable[[], bool]
    ) -> None:
        """Ask other versions, and other targets, about all least programs, while there is time."""


@dataclass(slots=True, kw_only=True)
class _Hunt:
    """One hunt at work."""

    plan: HuntPlan
    store: Store
    hunted: HuntedCompiler
    state: HuntState
    tell: Callable[[str], None]
    started: float = field(default_factory=time.monotonic)
    before: float = 0.0
    cpu_before: float = 0.0
    tried_before: int = 0
    in_flight: set[int] = field(default_factory=set)
    lasted: float = 0.0
    taken: set[int] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    hits: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    is_made: bool = False

    def __post_init__(self) -> None:
        state = self.state
        self.before, self.tried_before = state.seconds, state.tried
        self.cpu_before = state.cpu - time.process_time()

    @property
    def passed(self) -> float:
        return time.monotonic() - self.started

    @property
    def cpu(self) -> float:
        """Seconds of CPU, of all processes, over all times that the hunt was run."""
        return self.cpu_before + time.process_time() + sum(self.hunted.spent().values())

    def is_late(self) -> bool:
        return self.passed > self.plan.seconds * _REDUCING

    def is_over(self) -> bool:
        """Whether no batch may be begun: it would take as long as the last one did."""
        begun = self.state.tried - self.tried_before + self.hunted.batch * len(self.in_flight)
        is_enough = self.plan.most is not None and begun >= self.plan.most
        return is_enough or self.passed + self.lasted > self.plan.seconds * _MAKING

    async def work(self, jobs: int) -> None:
        """Make programs and reduce what they hit, until the time is up.

        Raises:
            InfrastructureError: a tool cannot be started, or the disk is full.
        """
        if self.state.waiting:
            self.hits.set()

        async def make() -> None:
            try:
                await in_parallel(self._make() for _ in range(jobs))
            finally:
                self.is_made = True
                self.hits.set()

        causes = self.hunted.causes(self.state)
        fewest = _FEWEST if self.hunted.batch == 1 else _FEWEST_TOGETHER
        reducers = [self._reduce(causes) for _ in range(max(fewest, jobs // 2))]
        narrating = asyncio.ensure_future(self._narrate())
        try:
            await in_parallel([make(), *reducers])
        finally:
            narrating.cancel()

    async def _make(self) -> None:
        state = self.state
        while not self.is_over():
            if len(state.waiting) > _MOST_WAITING * self.hunted.jobs:
                self.room.clear()
                await self.room.wait()
                continue
            taken = {*state.beyond, *self.in_flight}
            number = next(n for n in itertools.count(state.batch) if n not in taken)
            self.in_flight.add(number)
            batch = self.hunted.batch
            first = self.plan.seed * 1_000_000_000 + number * batch
            programs = [self.hunted.program(first + n) for n in range(batch)]
            asked = [Asked(one.text, one.seed) for one in programs]
            begun = self.passed
            answers = await self.hunted.ask(asked, number)
            self.lasted = self.passed - begun
            self._note(number, programs, answers)

    def _note(
        self, number: int, programs: Sequence[GeneratedProgram], answers: Sequence[Answer]
    ) -> None:
        state = self.state
        for program, answer in zip(programs, answers, strict=True):
            _count(state.votes, answer.vote.value)
            if answer.is_hit:
                hit = Hit(asked=Asked(program.text, program.seed), answer=answer)
                state.waiting.append(hit)
            elif (
                answer.vote not in (Vote.RIGHT, Vote.ASSEMBLED)
                and len(state.reasons) < _MOST_REASONS
            ):
                _count(state.reasons, f"{answer.vote.value}: {template(answer.words)[:160]}")
            for opcode in program.opcodes:
                _count(state.seen, opcode)
        state.tried += len(programs)
        self.in_flight.discard(number)
        state.beyond.append(number)
        while state.batch in state.beyond:
            state.beyond.remove(state.batch)
            state.batch += 1
        if state.waiting:
            self.hits.set()
        self.save()

    def save(self) -> None:
        """Put into the store where the hunt is, and what it knows."""
        self.state.seconds = self.before + self.passed
        self.state.cpu = self.cpu
        keep_hunt(self.store, self.plan, self.state)

    async def _reduce(self, causes: Pursuit) -> None:
        """Take hits that wait: walk around what is known of all of them, then reduce the least."""
        state = self.state
        while not self.is_late():
            hits = [hit for hit in state.waiting if hit.asked.seed not in self.taken]
            self.taken |= {hit.asked.seed for hit in hits}
            # Most are known: one module shows it of all of them.
            walks = await in_parallel(causes.walk_around(hit.asked, hit.answer) for hit in hits)
            self.taken -= {hit.asked.seed for hit in hits}
            left: list[Hit] = []
            for hit, walk in zip(hits, walks, strict=True):
                place = state.waiting.index(hit)
                if walk is None:
                    del state.waiting[place]
                else:
                    state.waiting[place] = Hit(asked=walk[0], answer=walk[1])
                    left.append(state.waiting[place])
            marks = [(causes.mark(hit.asked, hit.answer), hit) for hit in left]
            new = [(mark, hit) for mark, hit in marks if mark not in self.marks]
            if new:
                mark, hit = min(new, key=lambda pair: len(pair[1].asked.text))
                self.taken.add(hit.asked.seed)
                self.marks.add(mark)
                self.hits.set()
                await self._look_at(causes, hit)
                self.marks.discard(mark)
                self.taken.discard(hit.asked.seed)
                self.hits.set()
            self.save()
            self.room.set()
            if not new:
                if self.is_made and not self.taken:
                    break
                self.hits.clear()
                await self.hits.wait()
        self.hits.set()
        self.room.set()

    async def _look_at(self, causes: Pursuit, hit: Hit) -> None:
        program = await causes.reduce(hit.asked, hit.answer, is_time_up=self.is_late)
        if not program and self.is_late():
            return
        self.state.waiting.remove(hit)
        if isinstance(program, str):
            if program:
                _count(self.state.reasons, f"untold: {program}")
            return
        program.versions.setdefault(self.plan.tool.version, said_of(program.answer))
        state = self.state
        cause, is_new = join(
            state.causes, program, seconds=self.before + self.passed, tried=state.tried
        )
        if is_new:
            state.curve.append((cause.seconds, cause.tried, len(state.new), self.cpu))
            self.tell(f"{cause.name}: {program.answer.words}")

    async def _narrate(self) -> None:
        while True:
            self.tell("")
            await asyncio.sleep(1.0)

    def words(self) -> str:
        """Where it is, in one line."""
        state = self.state
        tried = state.tried - self.tried_before
        new = len(state.new)
        known = sum(cause.hits for cause in state.causes) - new
        return (
            f"{tried:,} tried, {tried / max(self.passed, 1e-3):.0f} a second, "
            f"{state.votes.get(Vote.REFUSED.value, 0):,} refused, "
            f"{known:,} known, {new} new"
            + (f", {len(state.waiting)} waiting" if state.waiting else "")
        )


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


@dataclass(slots=True, kw_only=True)
class _HuntedPtxas:
    """ptxas, as it is hunted in."""

    plan: PtxasPlan
    oracles: Oracles
    generator: Generator
    batch: int = BATCH
    together: AskedTogether = field(init=False)
    state: HuntState = field(default_factory=HuntState)

    def __post_init__(self) -> None:
        # A reduction does not wait for a turn behind whole modules.
        beside, gpu = asyncio.Semaphore(self.oracles.jobs), self.oracles.gpu
        self.together = AskedTogether(replace(self.oracles, slots=beside, gpu=gpu and replace(gpu)))

    @property
    def jobs(self) -> int:
        """While some programs are launched, others are made."""
        return self.oracles.jobs * (2 if self.oracles.gpu else 1)

    def program(self, seed: int) -> GeneratedProgram:
        return self.generator.program(seed, known_words(self.state.causes, self.state.seen))

    async def ask(self, programs: Sequence[Asked], number: int) -> list[Answer]:
        return await self.oracles.ask(programs, screens=(number + 1) % _ALL_LEVELS != 0)

    def causes(self, state: HuntState) -> Causes:
        """Who asks together waits for one answer."""
        self.state = state
        return Causes(self.together, state.causes, state.seen)

    def spent(self) -> dict[str, float]:
        gpus = [one.gpu.cpu for one in (self.oracles, self.together.oracles) if one.gpu]
        return asdict(self.oracles.spent) | ({"launches": sum(gpus)} if gpus else {})

    async def spread(
        self, state: HuntState, show: Callable[[str], None], is_time_up: Callable[[], bool]
    ) -> None:
        await _spread(self.plan, state, self.oracles, show, is_time_up)


@dataclass(slots=True, kw_only=True)
class _HuntedCorpus(_HuntedPtxas):
    """ptxas, as it is hunted in by changes of real PTX; nothing is executed."""

    sources: Sequence[CorpusSource]
    batch: int = TOGETHER

    def program(self, seed: int) -> CorpusProgram:
        return changed_program(seed, self.sources)

    async def ask(self, programs: Sequence[Asked], number: int) -> list[Answer]:
        return await self.oracles.ask(programs, votes=False)

    def causes(self, state: HuntState) -> Causes:
        return CorpusCauses(self.together, state.causes, state.seen, self.sources)


async def _sources(plan: PtxasPlan, oracles: Oracles) -> tuple[list[CorpusSource], list[str]]:
    """What can be changed: of one entry, and assembled as it is; and what grows as it is."""
    sources = {text: source for text in plan.corpus if (source := CorpusSource.read(text))}
    answers = await in_parallel(
        oracles.ask([Asked(one.text, 0)], votes=False) for one in sources.values()
    )
    taken, grown = list[CorpusSource](), list[str]()
    for (text, source), [answer] in zip(sources.items(), answers, strict=True):
        if answer.vote is Vote.ASSEMBLED:
            taken.append(source)
        elif answer.vote is Vote.GROWS:
            grown.append(f"{read_ptx(text).entry} is not changed: as it is, it has {answer.words}")
    if not taken:
        raise UsageError(f"ptxas {plan.ptxas.version} assembles no file of the corpus as it is")
    return acquainted(taken), grown


async def hunt(
    plan: PtxasPlan,
    store: Store,
    how: CompileOptions,
    tell: Callable[[str], None],
    show: Callable[[str], None],
    open_hub: Callable[[], Hub] = Hub,
) -> HuntReport:
    """Hunt in a ptxas; as `hunt_in`.

    Raises:
        UsageError: the ptxas does not know the target.
        InfrastructureError: a tool cannot be started, or the disk is full; what was found is kept.
    """
    async with open_hub() as hub:
        oracles = _oracles(hub, plan, how)
        head = await oracles.head()
        if plan.corpus:
            show(f"asking ptxas about {len(plan.corpus)} files")
            sources, grown = await _sources(plan, oracles)
            of_corpus = _HuntedCorpus(
                plan=plan, oracles=oracles, generator=Generator(head, ()), sources=sources
            )
            report = await hunt_in(of_corpus, plan, store, tell, show)
            report.notes += grown
            return report
        await _check_gpu(oracles, head)
        show("asking ptxas which opcodes it takes")
        generator = Generator(head, await oracles.usable(head, some_forms(plan.seed)))
        state = state_of(store, plan)
        state.causes += await _still_there(known_causes(store, plan), state, oracles, head)
        keep_hunt(store, plan, state)
        hunted = _HuntedPtxas(plan=plan, oracles=oracles, generator=generator)
        report = await hunt_in(hunted, plan, store, tell, show)
        report.device = oracles.gpu.device if oracles.gpu else ""
        return report


async def _check_gpu(oracles: Oracles, head: str) -> None:
    """Launch a program that does nothing.

    Raises:
        UsageError: the GPU does not take cubins of the target.
        InfrastructureError: there is no GPU.
    """
    if oracles.gpu:
        [answer] = await oracles.ask([Asked(HuntProgram(0, head, ("ret;",)).text, 0)])
        if answer.vote is not Vote.RIGHT:
            raise UsageError(f"--on {GPU} --sm {oracles.target}: {answer.words}")


async def hunt_in(
    hunted: HuntedCompiler,
    plan: HuntPlan,
    store: Store,
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> HuntReport:
    """Hunt for the time of the plan, from where this hunt was; a stop ends it early.

    `tell` hears what is found, `show` where it is.

    Raises:
        InfrastructureError: a tool cannot be started, or the disk is full; what was found is kept.
    """
    state = state_of(store, plan)
    one = _Hunt(
        plan=plan,
        store=store,
        hunted=hunted,
        state=state,
        tell=lambda words: tell(words) if words else show(one.words()),
    )
    report = HuntReport(plan=plan, state=state)
    own = time.process_time()
    try:
        # What is under way at the end of the time is not waited for.
        async with asyncio.timeout(plan.seconds):
            await one.work(hunted.jobs)
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        _go_on()
        report.is_stopped = True
    one.save()
    report.seconds, report.own = one.passed, time.process_time() - own
    report.tried = state.tried - one.tried_before
    if state.new and not report.is_stopped:
        try:
            async with asyncio.timeout(max(0.0, plan.seconds - one.passed)):
                await hunted.spread(state, show, lambda: one.passed > plan.seconds)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            _go_on()
            report.is_stopped = True
        one.save()
    report.spent = hunted.spent()
    return report


def _go_on() -> None:
    """A stop ends what was done, and not the command: it says what was found.

    Raises:
        CancelledError: no signal has stopped the hunt: something below it was cancelled.
    """
    task = asyncio.current_task()
    assert task is not None
    if not task.cancelling():
        raise asyncio.CancelledError
    task.uncancel()


def keep_hunt(store: Store, plan: HuntPlan, state: HuntState) -> None:
    """Put into the store how far a hunt is.

    Raises:
        StorageError: the disk is full.
    """
    title = f"{plan.tool.name} for {', '.join(map(str, plan.targets))}, seed {plan.seed}"
    hunt = KeptHunt(title=title, version=plan.tool.version, state=state, known_by=plan.known_by)
    store.keep_record(_KIND, plan.key, hunt)


def code_of(modules: Iterable[str]) -> str:
    """Hash of modules of a hunt, by their names."""
    return code_sha256(*(f"hunt/{name}.py" for name in modules))


def state_of(store: Store, plan: HuntPlan) -> HuntState:
    """How far a hunt is."""
    kept = store.records(_KIND, KeptHunt, [plan.key]).get(plan.key)
    return kept.state if kept else HuntState()


def kept_hunts(store: Store) -> list[KeptHunt]:
    """All hunts, those that have found the most first."""
    kept = store.records(_KIND, KeptHunt).values()
    return sorted(kept, key=lambda hunt: (-len(hunt.state.new), hunt.title))


def known_causes(store: Store, plan: HuntPlan) -> list[Cause]:
    """The causes that all hunts in a compiler of this kind have found.

    Of those that are the same by name and versions, the one that was found last.
    """
    named: dict[str, list[Cause]] = {}
    for hunt in store.records(_KIND, KeptHunt).values():
        if hunt.known_by == plan.known_by:
            for cause in hunt.state.new:
                same = named.setdefault(cause.name, [])
                same[:] = [one for one in same if not is_same_cause(one.least, cause.least)]
                same.append(cause)
    return list(itertools.chain.from_iterable(named.values()))


async def _still_there(
    causes: Sequence[Cause], state: HuntState, oracles: Oracles, head: str
) -> list[Cause]:
    """Those causes of other hunts that this ptxas has, too: what it mends is hunted again."""
    texts = {body_of(program.text) for cause in state.causes for program in cause.programs}
    pairs = [(cause, head + body_of(cause.least.text)) for cause in causes]
    pairs = [pair for pair in pairs if body_of(pair[1]) not in texts]
    mine = [cause.least for cause in state.causes]
    pairs = [pair for pair in pairs if not any(is_same_cause(pair[0].least, one) for one in mine)]
    asked = [Asked(text, cause.least.seed) for cause, text in pairs]
    answers = await oracles.ask(asked)
    return [
        Cause(programs=[LeastProgram.of(one, answer)], hits=0, is_known=True)
        for (cause, _), one, answer in zip(pairs, asked, answers, strict=True)
        if is_same_kind(answer, cause.least.answer)
    ]


def _oracles(hub: Hub, plan: PtxasPlan, how: CompileOptions) -> Oracles:
    gpu = None
    if plan.on == GPU:
        gpu = Launcher(hub=hub, target=plan.target, destination=place_of(plan.runner))
    return Oracles(
        hub=hub,
        ptxas=plan.ptxas,
        target=plan.target,
        nvdisasm=find_nvdisasm() if plan.on == SASS else None,
        limits=structs.replace(how.limits, timeout=min(how.timeout, _LONGEST)),
        jobs=how.workers,
        slots=asyncio.Semaphore(how.workers),
        gpu=gpu,
    )


async def _spread(
    plan: PtxasPlan,
    state: HuntState,
    oracles: Oracles,
    show: Callable[[str], None],
    is_time_up: Callable[[], bool],
) -> None:
    """Ask every ptxas that is installed, and other targets, about all least programs.

    Programs of one name that do not fail on the same versions are of two causes. Where time is
    short, the versions that are asked lie apart.
    """
    programs = [program for cause in state.new for program in cause.programs]
    places: list[str | Target] = list(map(str, apart(installed_versions(PTXAS))))
    if oracles.gpu is None:  # which has one target
        places[2:2] = _others(plan.target)

    async def ask() -> None:
        while places and not is_time_up():
            place = places.pop(0)
            await _spread_to(place, plan, programs, oracles, show)

    await in_parallel(ask() for _ in range(oracles.jobs))
    parts = [part for cause in state.new for part in cause.parted(plan.ptxas.version)]
    state.causes[:] = [cause for cause in state.causes if cause.is_known] + joined(parts)


async def _spread_to(
    place: str | Target,
    plan: PtxasPlan,
    programs: Sequence[LeastProgram],
    oracles: Oracles,
    show: Callable[[str], None],
) -> None:
    """Ask a version of ptxas, or the hunted one for another target."""
    is_version = isinstance(place, str)
    answers_of = [one.versions if is_version else one.targets for one in programs]
    waiting = [
        (one, there)
        for one, there in zip(programs, answers_of, strict=True)
        if str(place) not in there
    ]
    if not waiting:
        return
    asked = [one.asked for one, _ in waiting]
    if isinstance(place, str):
        show(f"asking ptxas {place} about {len(waiting)} programs")
        oracles = replace(oracles, ptxas=install_ptxas(place))
    else:
        show(f"asking for {place} about {len(waiting)} programs")
        oracles = replace(oracles, target=place)
        try:
            head = await oracles.head()
        except UsageError:
            return  # this ptxas does not know it
        asked = [
            Asked(
                retargeted(one.text, str(place)) if plan.corpus else head + body_of(one.text),
                one.seed,
            )
            for one, _ in waiting
        ]
    for (_, there), answer in zip(waiting, await oracles.ask(asked), strict=True):
        there[str(place)] = said_of(answer)


T = TypeVar("T")


def apart(values: Sequence[T]) -> list[T]:
    """The last, the first, and then always the middle of what lies between: the largest first."""
    order, gaps = [*values[:-2:-1], *values[: len(values) > 1]], [(0, len(values) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(values[middle])
            gaps += [(low, middle), (middle, high)]
    return order


def _others(target: Target) -> list[Target]:
    """A target of each other generation that is known."""
    known = [Target(capability=number) for number in KNOWN_CAPABILITIES]
    majors = {one.capability // 10: one for one in reversed(known)}
    return [one for major, one in sorted(majors.items()) if major != target.capability // 10]


def write_repros(report: HuntReport, home: Path) -> list[str]:
    """Write the least program of each cause as a repro, with its inputs; their folders.

    They lie in a folder `repros`: where that is, `--kernel NAME` knows them. In the order in which
    the causes came up.

    Raises:
        StorageError: a folder cannot be written.
    """
    plan = report.plan
    assert isinstance(plan, PtxasPlan)

    def files_of(name: str, cause: Cause) -> dict[str, bytes]:
        least = cause.least
        launch = launch_of(least.seed, least.text)
        scalars = [argument for argument in launch.arguments if isinstance(argument, Scalar)]
        values = [int.from_bytes(scalar.raw, "little") for scalar in scalars]
        read = f"u32[{THREADS * WORDS}]:in.npy"
        written = f"u32[{THREADS * RESULTS // 4}]:0xa5a5a5a5"
        # A failure is known by what differs: so each cause is a bug of its own.
        out = f"out_of_{name.removeprefix(_PREFIX)}"
        files: dict[str, np.ndarray[Any, Any]] = {"in.npy": launch.allocations[0].data}
        words = f"{cause.name} (ptxas {plan.ptxas.version}); {least.answer.words}"
        lines = [
            f"kernel: {name}",
            "files: [case.ptx]",
            f"summary: {json.dumps(words)}",
            f"targets: [{plan.target}]",
        ]
        if least.answer.vote is Vote.WRONG:
            lines += [
                "inputs:",
                f"  buffers: {{in: '{read}', {out}: '{written}'}}",
                f"  scalars: {{n: {values[0]}, m: {values[1]}}}",
                "  grid: 1",
                f"  block: {THREADS}",
            ]
            if least.answer.levels == LEVELS:
                # No cubin says the same as the PTX.
                lines.append(f"  expect: {{{out}: {_EXPECTED}}}")
                files[_EXPECTED] = emulated_ptx(launch).allocations[1].data
        # A repro is named as its entry.
        text = re.sub(r"\.entry\s+k\b", f".entry {name}", least.text, count=1)
        return {
            "case.ptx": text.encode(),
            "repro.yaml": ("\n".join(lines) + "\n").encode(),
            **{file: _as_npy(data) for file, data in files.items()},
        }

    return write_folders(
        report, home / "hunt" / f"ptxas-{plan.ptxas.version}-{plan.target}", files_of
    )


def _as_npy(data: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, data.view(np.uint32), allow_pickle=False)
    return stream.getvalue()


def write_folders(
    report: HuntReport, place: Path, files_of: Callable[[str, Cause], Mapping[str, bytes]]
) -> list[str]:
    """Write a repro for each new cause below a place: its files, by the repro's name; the folders.

    Raises:
        StorageError: a folder cannot be written.
    """
    folders: list[str] = []
    for cause in report.state.new:
        name = f"{_PREFIX}{re.sub(r'[^a-z0-9]+', '_', cause.name.lower()).strip('_')[:60]}"
        # Two causes may have one name: they fail on different versions.
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        names = {Path(other).name for other in folders}
        free = next(one for one in itertools.chain([name], numbered) if one not in names)
        folder = place / "repros" / free
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # An earlier run of the hunt may have left it for another cause of this name.
            (folder / _EXPECTED).unlink(missing_ok=True)
            for file, content in files_of(folder.name, cause).items():
                (folder / file).write_bytes(content)
        except OSError as error:
            raise StorageError(f"{folder}: {error.strerror or error}") from error
        folders.append(str(folder))
    return folders
