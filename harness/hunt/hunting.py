"""`triage hunt`: programs are made and put to the oracles until the time is up.

What was found is in the store the moment it is found: a hunt is a record, with its hits that wait
and its causes, and the causes that hunts have in common are read from all of them. So the same hunt
goes on where it was, and what kills it costs the batches in flight. A hunt is named by its
compiler, target, seed and the code that makes its programs. What is hunted in is a
`HuntedCompiler`: a source of programs, and ptxas (`ptxas_hunt.py`) or Triton (`triton_hunt.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.cells.places import CompileOptions
from harness.hunt.causes import join, said_of
from harness.hunt.changes import AnyProgram
from harness.hunt.oracles import HuntCase
from harness.hunt.plan import (
    Hit,
    HuntedCompiler,
    HuntPlan,
    HuntReport,
    HuntState,
    keep_hunt,
    known_causes,
    state_of,
)
from harness.hunt.ptxas_hunt import hunted_ptxas
from harness.hunt.triton_hunt import hunted_triton
from harness.hunt.voting import HuntAnswer, Vote
from harness.io.processes.hub import Hub
from harness.io.processes.tasks import in_parallel
from harness.judging.signature import template
from harness.store.store import Store

# The fewest hits that are reduced side by side. Questions about ptxas go into one module: the more
# hits, the less often nvdisasm starts.
_FEWEST, _FEWEST_TOGETHER = 4, 12
# Hits for each job that may wait to be reduced: beyond, no more programs are made until fewer do.
_MOST_WAITING = 12
# Programs are made, and hits reduced, in these shares of the time; then other versions are asked.
_MAKING, _REDUCING = 0.8, 0.9
_MOST_REASONS = 200


async def hunt(
    plan: HuntPlan,
    store: Store,
    how: CompileOptions,
    tell: Callable[[str], None],
    show: Callable[[str], None],
    open_hub: Callable[[], Hub] = Hub,
) -> HuntReport:
    """Hunt for the time of the plan, from where this hunt was; a stop ends it early.

    `tell` hears what is found, `show` where it is.

    Raises:
        UsageError: the ptxas does not know the target, or nothing of the corpus can be changed.
        InfrastructureError: a tool cannot be started, there is no GPU, or the disk is full; what
            was found is kept.
    """
    state = state_of(store, plan)
    opened = (
        hunted_ptxas(plan, state, how, show, open_hub)
        if plan.of_ptxas
        else hunted_triton(plan, state, store, how, open_hub)
    )
    async with opened as hunted:
        state.causes += await hunted.still_there(known_causes(store, plan), show)
        keep_hunt(store, plan, state)
        return await hunt_in(hunted, store, tell, show)


async def hunt_in(
    hunted: HuntedCompiler, store: Store, tell: Callable[[str], None], show: Callable[[str], None]
) -> HuntReport:
    """Make programs, reduce what they hit, and ask other versions about it; as `hunt`."""
    plan, state = hunted.plan, hunted.state
    loop = _HuntLoop(store=store, hunted=hunted, tell=tell, show=show)
    own = time.process_time()
    is_stopped = await _is_stopped(loop.work(), plan.seconds)
    loop.save()
    report = HuntReport(plan=plan, state=state, is_stopped=is_stopped)
    report.seconds, report.own = loop.passed, time.process_time() - own
    report.tried = state.tried - loop.tried_before
    if state.new and not report.is_stopped:
        spreading = hunted.spread(show, lambda: loop.passed > plan.seconds)
        report.is_stopped = await _is_stopped(spreading, max(0.0, plan.seconds - loop.passed))
        loop.save()
    report.spent, report.device, report.notes = hunted.spent(), hunted.device, list(hunted.notes)
    return report


async def _is_stopped(work: Coroutine[Any, Any, None], seconds: float) -> bool:
    """Work for so long; whether a signal stopped it.

    What is under way at the end of the time is not waited for. A stop ends what was done, and not
    the command: it says what was found.

    Raises:
        CancelledError: no signal has stopped it: something below it was cancelled.
    """
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            raise
        task.uncancel()
        return True
    return False


@dataclass(slots=True, kw_only=True)
class _HuntLoop:
    """One hunt at work.

    Batches `in_flight` are asked about. Hits of the seeds that are `taken` are worked on, and one
    of each of the `marks`. `hits` tells those who reduce that there may be work, `room` those who
    make programs.
    """

    store: Store
    hunted: HuntedCompiler
    tell: Callable[[str], None]
    show: Callable[[str], None]
    plan: HuntPlan = field(init=False)
    state: HuntState = field(init=False)
    started: float = field(default_factory=time.monotonic)
    seconds_before: float = field(init=False)
    cpu_before: float = field(init=False)
    tried_before: int = field(init=False)
    lasted: float = 0.0
    in_flight: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    marks: set[str] = field(default_factory=set)
    hits: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    is_made: bool = False

    def __post_init__(self) -> None:
        self.plan, self.state = self.hunted.plan, self.hunted.state
        self.seconds_before, self.tried_before = self.state.seconds, self.state.tried
        self.cpu_before = self.state.cpu - time.process_time()

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.started

    @property
    def cpu(self) -> float:
        """Seconds of CPU, of all processes, over all times that the hunt was run."""
        return self.cpu_before + time.process_time() + sum(self.hunted.spent().values())

    def is_late(self) -> bool:
        """Whether no hit may be reduced any more."""
        return self.passed > self.plan.seconds * _REDUCING

    def is_over(self) -> bool:
        """Whether no batch may be begun: it would take as long as the last one did."""
        begun = self.state.tried - self.tried_before + self.hunted.batch * len(self.in_flight)
        is_enough = self.plan.most is not None and begun >= self.plan.most
        return is_enough or self.passed + self.lasted > self.plan.seconds * _MAKING

    async def work(self) -> None:
        """Make programs and reduce what they hit, until the time is up.

        Raises:
            InfrastructureError: a tool cannot be started, or the disk is full.
        """
        if self.state.waiting:
            self.hits.set()
        jobs = self.hunted.jobs
        fewest = _FEWEST if self.hunted.batch == 1 else _FEWEST_TOGETHER

        async def make() -> None:
            try:
                await in_parallel(self._make() for _ in range(jobs))
            finally:
                self.is_made = True
                self.hits.set()

        async def narrate() -> None:
            while True:
                self.show(self.words())
                await asyncio.sleep(1.0)

        narrating = asyncio.ensure_future(narrate())
        try:
            await in_parallel([make(), *(self._reduce() for _ in range(max(fewest, jobs // 2)))])
        finally:
            narrating.cancel()

    async def _make(self) -> None:
        """Batches, one after the other."""
        state, hunted = self.state, self.hunted
        while not self.is_over():
            if len(state.waiting) > _MOST_WAITING * hunted.jobs:
                self.room.clear()
                await self.room.wait()
                continue
            taken = {*state.beyond, *self.in_flight}
            number = next(n for n in itertools.count(state.batch) if n not in taken)
            self.in_flight.add(number)
            first = self.plan.seed * 1_000_000_000 + number * hunted.batch
            programs = [hunted.program(first + n) for n in range(hunted.batch)]
            begun = self.passed
            answers = await hunted.ask([HuntCase(one.text, one.seed) for one in programs], number)
            self.lasted = self.passed - begun
            self._note(number, programs, answers)

    def _note(
        self, number: int, programs: Sequence[AnyProgram], answers: Sequence[HuntAnswer]
    ) -> None:
        """Keep what came of a batch."""
        state = self.state
        for program, answer in zip(programs, answers, strict=True):
            _count(state.votes, answer.vote.value)
            if answer.is_hit:
                state.waiting.append(Hit(HuntCase(program.text, program.seed), answer))
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
        self.state.seconds = self.seconds_before + self.passed
        self.state.cpu = self.cpu
        keep_hunt(self.store, self.plan, self.state)

    async def _reduce(self) -> None:
        """Take hits that wait: walk around what is known of all of them, then reduce the least."""
        state, hunted = self.state, self.hunted
        while not self.is_late():
            hits = [hit for hit in state.waiting if hit.asked.seed not in self.taken]
            self.taken |= {hit.asked.seed for hit in hits}
            # Most are known: one module shows it of all of them.
            walks = await in_parallel(map(hunted.walk_around, hits))
            self.taken -= {hit.asked.seed for hit in hits}
            new: list[tuple[str, Hit]] = []
            for hit, walk in zip(hits, walks, strict=True):
                place = state.waiting.index(hit)
                if walk is None:
                    del state.waiting[place]
                else:
                    state.waiting[place] = walk
                    if (mark := hunted.mark(walk)) not in self.marks:
                        new.append((mark, walk))
            if new:
                mark, hit = min(new, key=lambda pair: len(pair[1].asked.text))
                self.taken.add(hit.asked.seed)
                self.marks.add(mark)
                self.hits.set()
                await self._reduce_hit(hit)
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

    async def _reduce_hit(self, hit: Hit) -> None:
        """Reduce a hit, and count it with its cause; where the time is up before, it waits on."""
        state = self.state
        program = await self.hunted.reduce(hit, is_time_up=self.is_late)
        if not program and self.is_late():
            return
        state.waiting.remove(hit)
        if isinstance(program, str):
            if program:
                _count(state.reasons, f"untold: {program}")
            return
        program.versions.setdefault(self.plan.tool.version, said_of(program.answer))
        seconds = self.seconds_before + self.passed
        cause, is_new = join(state.causes, program, seconds=seconds, tried=state.tried)
        if is_new:
            state.curve.append((cause.seconds, cause.tried, len(state.new), self.cpu))
            self.tell(f"{cause.name}: {program.answer.words}")

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
