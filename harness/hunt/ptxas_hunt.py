"""One ptxas as it is hunted in, by generated PTX or by changes of real PTX.

Hits are duplicates nearly always. A hit is known if it goes away with the one opcode that a known
cause cannot do without: so it is asked once more without it, and what still fails is a hit
of something else, which that cause no longer hides. What is new is reduced, by the passes of
`triage minimize`, to a program that is as well defined as the one that was generated.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from msgspec import structs

from gpu_emulator.ptx.text.document import Document, parse
from gpu_emulator.ptx.text.facts import read_ptx, retarget
from harness.cells.places import CompileOptions
from harness.hunt.causes import (
    Cause,
    LeastProgram,
    is_same_cause,
    is_same_kind,
    joined,
    known_words,
    said_of,
    walks_of,
)
from harness.hunt.changes import AnyProgram, ChangedProgram, Program
from harness.hunt.corpus import TOGETHER, CorpusSource, acquainted, changed_program
from harness.hunt.generator import Generator, program_text, some_forms
from harness.hunt.on_gpu import Launcher
from harness.hunt.oracles import LEVELS, AskedTogether, HuntCase, Oracles, body_of
from harness.hunt.plan import Hit, HuntedCompiler, HuntPlan, HuntState
from harness.hunt.variants import (
    accesses,
    chunks,
    combined,
    computing,
    first_word,
    is_closed,
    pruned,
    size_of,
    slices,
    tidy,
    without,
)
from harness.hunt.voting import HuntAnswer, Vote
from harness.io.processes.hub import Hub
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import find_nvdisasm, install_ptxas
from harness.io.toolchains.installed import installed_versions
from harness.minimize.ptx.reduce import count_unwritten, reduce_ptx, single_steps
from harness.minimize.reduction.reducer import Effort
from harness.run.gpu.packing import place_of
from harness.values.errors import UsageError
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.target import Target
from harness.values.toolchain import GPU, PTXAS, SASS, Assembler

# Seconds for one program: ptxas that takes longer hangs.
_LONGEST = 60.0
BATCH = 128
"""Programs of one module."""
# In one module of this many -O0 votes of every program: what it alone gets wrong is rare.
_ALL_LEVELS = 8
# Candidates that a reduction asks about at a time, and in all.
_AT_ONCE, _MOST_TESTS = 32, 1500
_MOST_AT_ONCE = 64
# Seconds for a variant of what ptxas fails on: one that hangs costs all of them.
_LONGEST_VARIANT = 10.0
# How much of what may go alone is tried together: all of it, then less, in several orders.
_SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15)

_Step = tuple[frozenset[str], frozenset[str]]
"""What a step of a reduction does: the lines that go, and those that come."""


@dataclass(kw_only=True)
class HuntedPtxas(HuntedCompiler):
    """A ptxas; `head` are the first lines of each program.

    Reductions ask `together`: they do not wait for a turn behind whole modules. `grown` says which
    files are not changed. `walked` is what was taken out of a hit already, by its seed; `refused`
    are steps of reductions that made a program which ptxas refuses.
    """

    oracles: Oracles
    together: AskedTogether
    head: str = ""
    grown: list[str] = field(default_factory=list)
    walked: dict[int, set[str]] = field(default_factory=dict)
    refused: set[_Step] = field(default_factory=set)

    async def ask(self, programs: Sequence[HuntCase], number: int) -> list[HuntAnswer]:
        return await self.oracles.ask(programs, screens=(number + 1) % _ALL_LEVELS != 0)

    @property
    def notes(self) -> Iterable[str]:
        return self.grown

    @property
    def device(self) -> str:
        return self.oracles.gpu.device if self.oracles.gpu else ""

    def spent(self) -> Mapping[str, float]:
        gpus = [one.gpu.cpu for one in (self.oracles, self.together.oracles) if one.gpu]
        return self.oracles.spent | ({"launches": sum(gpus)} if gpus else {})

    async def still_there(
        self, causes: Sequence[Cause], show: Callable[[str], None]
    ) -> list[Cause]:
        if self.plan.corpus:
            return []
        mine = [program for cause in self.state.causes for program in cause.programs]
        least = [cause.least for cause in self.state.causes]
        texts = {body_of(program.text) for program in mine}
        others = [
            cause.least
            for cause in causes
            if body_of(cause.least.text) not in texts
            and not any(is_same_cause(cause.least, one) for one in least)
        ]
        asked = [HuntCase(self.head + body_of(one.text), one.seed) for one in others]
        answers = await self.oracles.ask(asked)
        return [
            Cause(programs=[LeastProgram.of(one, answer)], hits=0, is_known=True)
            for other, one, answer in zip(others, asked, answers, strict=True)
            if is_same_kind(answer, other.answer)
        ]

    def mark(self, hit: Hit) -> str:
        """Its rarest opcode, or what ptxas says."""
        opcodes = {op.opcode for op in computing(parse(hit.asked.text)) if op.base != "bra"}
        rarest = min(
            opcodes, key=lambda opcode: (self.state.seen.get(opcode, 0), opcode), default=""
        )
        return hit.answer.signature or rarest

    async def walk_around(self, hit: Hit) -> Hit | None:
        """The hit without what is known; None where nothing is left of it: that cause is counted.

        A hit of wrong code is cut down to one result first. It is not asked twice about one word.

        Raises:
            InfrastructureError: a tool cannot be started.
        """
        asked, answer = hit.asked, hit.answer
        walked = self.walked.get(asked.seed)
        if walked is None:
            walked = self.walked[asked.seed] = set()
            if answer.vote is Vote.WRONG:
                texts = [text for text in slices(asked.text) if is_closed(text)]
                parts = [HuntCase(text, asked.seed) for text in texts]
                answers = await in_parallel(self._ask(part, answer) for part in parts)
                pairs = zip(parts, answers, strict=True)
                wrong = [part for part, one in pairs if is_same_kind(one, answer)]
                asked = min([asked, *wrong], key=lambda part: size_of(part.text))
        document = parse(asked.text)
        opcodes = {op.opcode for op in (*computing(document), *accesses(document))}
        opcodes |= {first_word(opcode) for opcode in opcodes}
        walks = {
            word: cause
            for cause in self.state.causes
            for word, needed in walks_of(cause, self.state.seen)
            if needed <= opcodes and word not in walked
        }
        if not walks:
            return Hit(asked, answer)
        walked.update(walks)
        less = [HuntCase(without(asked.text, word), asked.seed) for word in walks]
        least = asked
        for word in walks:
            least = HuntCase(without(least.text, word), asked.seed)
        *answers, after = await in_parallel(self._ask(one, answer) for one in (*less, least))
        needed_causes = [
            cause
            for cause, one in zip(walks.values(), answers, strict=True)
            if not is_same_kind(one, answer)
        ]
        if is_same_kind(after, answer):
            return Hit(least, answer)
        # Where only all of them together are needed, several known causes are in it.
        [*needed_causes, *walks.values()][0].hits += 1
        return None

    async def reduce(self, hit: Hit, *, is_time_up: Callable[[], bool]) -> LeastProgram | str:
        asked, answer, seed = hit.asked, hit.answer, hit.asked.seed

        async def is_same(text: str) -> bool:
            return is_same_kind(await self._ask(HuntCase(text, seed), answer), answer)

        made = self.program(seed) if self.plan.corpus else None
        if isinstance(made, ChangedProgram) and made.text == asked.text:
            asked = HuntCase(await made.with_fewer_steps(is_same), seed)
        if answer.vote is Vote.WRONG:
            text = await self._narrowed(Hit(asked, answer), is_time_up)
        elif not await is_same(asked.text):
            return "a hit that did not come back"
        else:
            most = count_unwritten(asked.text)

            async def is_interesting(candidate: str) -> bool:
                # On a change of real PTX ptxas may not fail, whatever it means.
                is_allowed = bool(self.plan.corpus) or is_closed(candidate)
                is_allowed = is_allowed and count_unwritten(candidate) <= most
                return is_allowed and await is_same(candidate)

            result = await reduce_ptx(
                asked.text,
                lambda candidate: asyncio.ensure_future(is_interesting(candidate)),
                always=True,
                effort=Effort(jobs=_AT_ONCE, max_tests=_MOST_TESTS, is_time_up=is_time_up),
            )
            text = result.document
        if is_time_up() or text is None:
            return ""  # what is half reduced has no name yet
        least = HuntCase(text, seed)
        if answer.vote is Vote.WRONG:
            last = await self.together.ask(least, LEVELS, is_thorough=True)
        else:
            [last] = await self.together.oracles.ask([least], votes=False)
        return LeastProgram.of(least, last) if last.is_hit else f"a hit that is {said_of(last)}"

    async def _narrowed(self, hit: Hit, is_time_up: Callable[[], bool]) -> str | None:
        """Wrong code, step by step: what is asked at once goes into one module.

        Chunks of instructions go first, then single ones, then every single step is tried; of what
        may go alone, as much as may go together. None where the program turns out to be of a cause
        that came up in the meantime.
        """
        asked, answer = hit.asked, hit.answer
        best, tried, failed = asked.text, {asked.text}, set[_Step]()
        draw = random.Random(asked.seed)  # noqa: S311 - to repeat, not to hide

        async def smaller(candidates: Iterable[Document], *, again: bool = False) -> list[str]:
            """Those of them that are as wrong: of the smallest that have some, a module full.

            What failed before is asked `again` where nothing else is left.
            """
            size, lines = size_of(best), set(best.splitlines())
            new: list[tuple[tuple[int, int], str, _Step, Document]] = []
            for document in candidates:
                text = str(document)
                of_text = len(document.instructions), len(text)
                others = set(text.splitlines())
                step = frozenset(lines - others), frozenset(others - lines)
                is_vain = step in self.refused or (step in failed and not again)
                if of_text < size and text not in tried and not is_vain:
                    new.append((of_text, text, step, document))
            new.sort(key=lambda one: one[:2])
            allowed = (
                (text, step)
                for _, text, step, document in new
                if is_closed(document) and not count_unwritten(document)
            )
            while some := dict(islice(allowed, _MOST_AT_ONCE)):
                tried.update(some)
                answers = await in_parallel(
                    self._ask(HuntCase(text, asked.seed), answer) for text in some
                )
                good: list[str] = []
                for (text, step), one in zip(some.items(), answers, strict=True):
                    if is_same_kind(one, answer):
                        good.append(text)
                    else:
                        (self.refused if one.vote is Vote.REFUSED else failed).add(step)
                if good:
                    return good
            return []

        kinds = (chunks, lambda document: single_steps(document, deletes=True), single_steps)
        for steps in kinds:
            while not is_time_up():
                left = await self.walk_around(Hit(HuntCase(best, asked.seed), answer))
                if left is None:
                    return None
                best = left.asked.text
                candidates = [pruned(step) for step in steps(parse(best))]
                good = await smaller(candidates) or await smaller(candidates, again=True)
                if not good:
                    break
                orders = [good, good[::-1], draw.sample(good, len(good))]
                groups = [some[: round(part * len(good))] for part in _SHARES for some in orders]
                joint = [combined(best, group) for group in groups if len(group) > 1]
                better = await smaller(pruned(parse(text)) for text in joint)
                best = min([*good, *better], key=size_of)
        return tidy(best)

    async def _ask(self, asked: HuntCase, like: HuntAnswer) -> HuntAnswer:
        """The answer to a variant of a hit: alone where ptxas fails, since a module would."""
        if like.vote is not Vote.WRONG:
            oracles = self.together.oracles
            seconds = oracles.limits.timeout
            if like.vote is Vote.FAILS:
                seconds = min(seconds, _LONGEST_VARIANT)
            limits = structs.replace(oracles.limits, timeout=seconds)
            return (await replace(oracles, limits=limits).ask([asked], votes=False))[0]
        # One level is enough until the end: nvdisasm takes longest.
        return await self.together.ask(asked, like.levels[-1:])

    async def spread(self, show: Callable[[str], None], is_time_up: Callable[[], bool]) -> None:
        """Ask every ptxas that is installed, and other targets, about all least programs.

        Programs of one name that do not fail on the same versions are of two causes. Where time is
        short, the versions that are asked lie apart.
        """
        programs = [program for cause in self.state.new for program in cause.programs]
        places: list[str | Target] = list(map(str, apart(installed_versions(PTXAS))))
        if self.oracles.gpu is None:  # which has one target
            # Of each other generation that is known.
            known = [Target(capability=number) for number in reversed(KNOWN_CAPABILITIES)]
            majors = {one.capability // 10: one for one in known}
            own = self.plan.targets[0].capability // 10
            places[2:2] = [one for major, one in sorted(majors.items()) if major != own]

        async def ask() -> None:
            while places and not is_time_up():
                await self._spread_to(places.pop(0), programs, show)

        await in_parallel(ask() for _ in range(self.oracles.jobs))
        causes = self.state.causes
        parts = [part for cause in self.state.new for part in cause.parted(self.plan.tool.version)]
        causes[:] = [cause for cause in causes if cause.is_known] + joined(parts)

    async def _spread_to(
        self, place: str | Target, programs: Sequence[LeastProgram], show: Callable[[str], None]
    ) -> None:
        """Ask a version of ptxas, or the hunted one for another target."""
        is_version = isinstance(place, str)
        waiting = [
            (one, there)
            for one in programs
            if str(place) not in (there := one.versions if is_version else one.targets)
        ]
        if not waiting:
            return
        asked = [one.asked for one, _ in waiting]
        if isinstance(place, str):
            show(f"asking ptxas {place} about {len(waiting)} programs")
            oracles = replace(self.oracles, ptxas=install_ptxas(place))
        else:
            show(f"asking for {place} about {len(waiting)} programs")
            oracles = replace(self.oracles, target=place)
            try:
                head = await oracles.head()
            except UsageError:
                return  # this ptxas does not know it
            texts = [
                retarget(one.text, target=str(place))
                if self.plan.corpus
                else head + body_of(one.text)
                for one in asked
            ]
            asked = [HuntCase(text, one.seed) for text, one in zip(texts, asked, strict=True)]
        for (_, there), answer in zip(waiting, await oracles.ask(asked), strict=True):
            there[str(place)] = said_of(answer)


T = TypeVar("T")


def apart(values: Sequence[T]) -> list[T]:
    """The last, the first, and then always the middle of what lies between: the largest first.

    >>> apart([1, 2, 3, 4, 5])
    [5, 1, 3, 2, 4]
    """
    order, gaps = [*values[:-2:-1], *values[: len(values) > 1]], [(0, len(values) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(values[middle])
            gaps += [(low, middle), (middle, high)]
    return order


@contextlib.asynccontextmanager
async def hunted_ptxas(
    plan: HuntPlan,
    state: HuntState,
    how: CompileOptions,
    show: Callable[[str], None],
    open_hub: Callable[[], Hub],
) -> AsyncIterator[HuntedPtxas]:
    """The ptxas of a plan, asked which opcodes it takes, or which files can be changed.

    Raises:
        UsageError: it does not know the target, or assembles no file of the corpus.
        InfrastructureError: a tool cannot be started, or there is no GPU.
    """
    assert isinstance(plan.tool, Assembler)
    async with open_hub() as hub:
        [target] = plan.targets
        gpu = None
        if plan.on == GPU:
            gpu = Launcher(hub=hub, target=target, destination=place_of(plan.runner))
        oracles = Oracles(
            hub=hub,
            ptxas=plan.tool,
            target=target,
            nvdisasm=find_nvdisasm() if plan.on == SASS and not plan.corpus else None,
            limits=structs.replace(how.limits, timeout=min(how.timeout, _LONGEST)),
            jobs=how.workers,
            slots=asyncio.Semaphore(how.workers),
            gpu=gpu,
        )
        beside = replace(oracles, slots=asyncio.Semaphore(how.workers), gpu=gpu and replace(gpu))
        head, grown = await oracles.head(), list[str]()
        program: Callable[[int], AnyProgram]
        if plan.corpus:
            show(f"asking ptxas about {len(plan.corpus)} files")
            sources = await _sources(plan, oracles, grown)
            program = partial(changed_program, sources=sources)
        else:
            if gpu:
                [answer] = await oracles.ask([HuntCase(program_text(head, ["ret;"]), 0)])
                if answer.vote is not Vote.RIGHT:
                    raise UsageError(f"--on {GPU} --sm {target}: {answer.words}")
            show("asking ptxas which opcodes it takes")
            generator = Generator(head, await oracles.usable(head, some_forms(plan.seed)))

            def program(seed: int) -> Program:
                return generator.program(seed, known_words(state.causes, state.seen))

        yield HuntedPtxas(
            plan=plan,
            state=state,
            program=program,
            batch=TOGETHER if plan.corpus else BATCH,
            # While some programs are launched, others are made.
            jobs=how.workers * (2 if gpu else 1),
            oracles=oracles,
            together=AskedTogether(beside),
            head=head,
            grown=grown,
        )


async def _sources(plan: HuntPlan, oracles: Oracles, grown: list[str]) -> list[CorpusSource]:
    """What can be changed: of one entry, and assembled as it is; `grown` says what grows."""
    sources = {text: source for text in plan.corpus if (source := CorpusSource.read(text))}
    answers = await in_parallel(
        oracles.ask([HuntCase(one.text, 0)], votes=False) for one in sources.values()
    )
    taken = list[CorpusSource]()
    for (text, source), [answer] in zip(sources.items(), answers, strict=True):
        if answer.vote is Vote.ASSEMBLED:
            taken.append(source)
        elif answer.vote is Vote.GROWS:
            grown.append(f"{read_ptx(text).entry} is not changed: as it is, it has {answer.words}")
    if not taken:
        raise UsageError(f"ptxas {plan.tool.version} assembles no file of the corpus as it is")
    return acquainted(taken)
