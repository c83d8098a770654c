"""The driver of every reduction: batches, halves, speculates, merges and accounts. Pure.

A transformation only says what may go (`opportunities`) and makes the document without it
(`apply`). The driver decides what is tried, in which order, and what is kept. It knows nothing of
what a document is.

A round tries all opportunities of one transformation together, and halves what is refused, breadth
first and the later ones first: what comes late depends on what comes early, seldom the other way
round. Candidates are built ahead of the answers, `jobs` of them, and answers are heard in the order
in which they were asked for: so a seed and a number of jobs make one result, whichever is faster.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

D = TypeVar("D")
E = TypeVar("E")

# The tests of a reduction: questions, answers and costs.


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCount:
    """What one pass cost, and what it brought."""

    tests: int = 0
    accepted: int = 0
    removed: int = 0

    def __add__(self, other: PassCount) -> PassCount:
        return PassCount(
            tests=self.tests + other.tests,
            accepted=self.accepted + other.accepted,
            removed=self.removed + other.removed,
        )


class ReductionTest:
    """A test that was started. It may be heard more than once."""

    __slots__ = ("_pending", "answer")

    def __init__(self, pending: Awaitable[bool] | None) -> None:
        self._pending = pending
        self.answer = None if pending else True

    async def hear(self) -> bool:
        """What it said, when it has said it."""
        if self.answer is None and self._pending:
            self.answer = bool(await self._pending)
        return bool(self.answer)

    def abandon(self) -> None:
        """End a test that is not needed any more: a task is cancelled, a coroutine is closed."""
        stop = getattr(self._pending, "cancel", None) or getattr(self._pending, "close", None)
        if self.answer is None and stop:
            stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a reduction may spend, and how.

    `jobs` candidates are on their way at a time. `seed` says where chunks are cut; 0 cuts them in
    the middle. `max_tests` is how many tests it may make; `is_time_up` is asked before every one.
    """

    jobs: int = 1
    seed: int = 0
    max_tests: int | None = None
    is_time_up: Callable[[], bool] = lambda: False


UNLIMITED = Effort()


@dataclass(slots=True)
class TestLedger:
    """All that was asked, what it said and cost; a reduction shares it with its excursions."""

    count: int = 0
    is_over: bool = False
    ledger: dict[str, PassCount] = field(default_factory=dict)
    by_digest: dict[bytes, ReductionTest] = field(default_factory=dict)

    def enter(self, name: str, count: PassCount) -> None:
        """Enter something into the ledger."""
        self.ledger[name] = self.ledger.get(name, PassCount()) + count


Edit = Hashable


@dataclass(frozen=True)
class FoundPass(Generic[D]):
    """One kind of change: it says what may go, and never decides whether it goes.

    `name` is what the ledger calls it. Its functions say its edits, what comes of some, and one in
    words: the same for the same change, also where the document has changed elsewhere.
    """

    name: str
    find: Callable[[D], Iterable[Edit]]
    make: Callable[[D, Any], D | None]
    words: Callable[[D, Any], Hashable] = lambda _, edit: edit

    def opportunities(self, document: D) -> Sequence[Edit]:
        """Changes to this very document, in its order; any of them may be applied together."""
        return list(self.find(document))

    def apply(self, document: D, chosen: Sequence[Edit]) -> D | None:
        """The document with these changes; None if they cannot go together or change nothing."""
        return self.make(document, chosen)

    def marks(self, document: D) -> set[Hashable]:
        """All its edits, in words."""
        return {self.words(document, edit) for edit in self.find(document)}

    def beyond(self, refused: Collection[Hashable]) -> FoundPass[D]:
        """The same pass without edits whose words are among these, which may grow."""
        return replace(
            self,
            find=lambda document: (
                edit for edit in self.find(document) if self.words(document, edit) not in refused
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionProgress(Generic[D]):
    """What one test said; `document` is the new best one, None where it was refused.

    `tests` and `size` are so far: how many were made, how large the best is.
    """

    pass_name: str
    is_accepted: bool
    tests: int
    size: int
    document: D | None

    def mapped(self, made_of: Callable[[D], E], *, unit: int = 1) -> ReductionProgress[E]:
        """The same with what is made of the document; `unit` of its size count as one."""
        return ReductionProgress(
            pass_name=self.pass_name,
            is_accepted=self.is_accepted,
            tests=self.tests,
            size=self.size // unit,
            document=None if self.document is None else made_of(self.document),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction(Generic[D]):
    """A reduced document.

    `is_finished` is False where the budget or the time ended it. `is_minimal`: every single
    opportunity of every pass was tried on this very document, and refused.
    """

    document: D
    tests: int
    is_finished: bool
    is_minimal: bool
    ledger: Mapping[str, PassCount] = field(default_factory=dict)

    def mapped(self, made_of: Callable[[D], E], *, spent: int = 0) -> Reduction[E]:
        """The same with what is made of the document, after `spent` more tests."""
        return Reduction(
            document=made_of(self.document),
            tests=spent + self.tests,
            is_finished=self.is_finished,
            is_minimal=self.is_minimal,
            ledger=self.ledger,
        )


class Reducer(Generic[D]):
    """A reduction under way, and the best document so far.

    Args:
        document: what to begin with; it is taken to be interesting.
        is_interesting: called for up to `effort.jobs` documents before the first answer is awaited.
            One that returns a *started* test (`asyncio.ensure_future(...)`) has them run side by
            side; a plain coroutine function runs them one after another, with the same result.
        size: what must not grow.
        key: documents with the same key are the same to `is_interesting`: one test does for both.
        effort: what it may spend; `is_interesting` is called for each test.
        watch: hears of every test, when its answer is heard.
    """

    def __init__(
        self,
        document: D,
        is_interesting: Callable[[D], Awaitable[bool]],
        *,
        size: Callable[[D], int],
        key: Callable[[D], str],
        effort: Effort = UNLIMITED,
        watch: Callable[[ReductionProgress[D]], None] = lambda _: None,
    ) -> None:
        self.best = document
        self.size = size
        self.jobs = max(1, effort.jobs)
        seed = effort.seed
        self.random = random.Random(seed) if seed else None  # noqa: S311 - to repeat, not to hide
        self._tests = TestLedger()
        self._is_interesting = is_interesting
        self._key = key
        self._effort = effort
        self._watch = watch
        self._reach: dict[str, int] = {}
        self._outer: Reducer[D] | None = None
        self._complete: Callable[[D], D] = lambda same: same
        self._tests.by_digest[self._digest(document)] = ReductionTest(None)

    @property
    def tests(self) -> int:
        """How many tests were made."""
        return self._tests.count

    def excursion(self, document: D, complete: Callable[[D], D]) -> Reducer[D]:
        """A reduction beside this one, that shares its tests and begins with another document.

        What is tested is not the document but what `complete` makes of it. What is found is
        neither reported as the best document nor counted, until this one adopts it.
        """
        inner = copy(self)
        vars(inner).update(best=document, _outer=self, _complete=complete, _reach={})
        self._tests.by_digest[inner._digest(document)] = ReductionTest(None)  # noqa: SLF001 - of this class
        return inner

    def reduction(self, *, is_minimal: bool = False) -> Reduction[D]:
        """What it came to."""
        return Reduction(
            document=self.best,
            tests=self.tests,
            is_finished=not self._tests.is_over,
            is_minimal=is_minimal and not self._tests.is_over,
            ledger=dict(self._tests.ledger),
        )

    async def sweep(self, passes: Sequence[FoundPass[D]], *, smallest: int = 1) -> bool:
        """One round of each pass; whether any of them brought something."""
        brought = [await self.round(transformation, smallest=smallest) for transformation in passes]
        return any(brought)

    async def round(
        self, transformation: FoundPass[D], *, smallest: int = 1, largest: int | None = None
    ) -> bool:
        """Try the opportunities of one pass on the best document; whether any was taken.

        Args:
            transformation: the pass.
            smallest: chunks of this size are not halved.
            largest: the size of the first chunks. None begins with everything, and in a later round
                with twice the largest chunk that was taken in the one before.
        """
        run = _Round(self, transformation)
        if largest is None:
            largest = self._reach.get(transformation.name, len(run.edits))
        await run.run(smallest=max(1, smallest), largest=max(1, largest))
        self._reach[transformation.name] = 2 * run.longest_taken
        return run.longest_taken > 0

    async def ask(self, name: str, documents: Sequence[D]) -> list[bool]:
        """Test some documents, whatever their size. None becomes the best: see `adopt`."""
        answers: list[bool] = []
        waiting: deque[tuple[ReductionTest | None, bool]] = deque()
        try:
            for document in documents:
                is_new = not self.is_known(document)
                waiting.append((self.begin(name, document), is_new))
                if len(waiting) == self.jobs:
                    answers.append(await self._hear(name, *waiting.popleft()))
            while waiting:
                answers.append(await self._hear(name, *waiting.popleft()))
        finally:
            for test, _ in waiting:
                if test:
                    test.abandon()
        return answers

    async def _hear(self, name: str, test: ReductionTest | None, is_new: bool) -> bool:  # noqa: FBT001
        answer = test is not None and await test.hear()
        if test and is_new:
            self.tell(name)
        return answer

    def begin(self, name: str, document: D) -> ReductionTest | None:
        """The test of a document, started unless it was before; None if nothing may be spent."""
        tests, digest = self._tests, self._digest(document)
        if digest not in tests.by_digest:
            if self.is_spent():
                return None
            tests.count += 1
            tests.enter(name, PassCount(tests=1))
            tests.by_digest[digest] = ReductionTest(self._is_interesting(self._complete(document)))
        return tests.by_digest[digest]

    def is_spent(self) -> bool:
        """Whether no further test may be started."""
        if not self._tests.is_over:
            most = self._effort.max_tests
            is_enough = most is not None and self.tests >= most
            self._tests.is_over = is_enough or self._effort.is_time_up()
        return self._tests.is_over

    def is_known(self, document: D) -> bool:
        """Whether this document was tested before."""
        return self._digest(document) in self._tests.by_digest

    def _digest(self, document: D) -> bytes:
        text = self._key(self._complete(document))
        return hashlib.sha256(text.encode(errors="surrogatepass")).digest()

    def adopt(self, name: str, document: D) -> None:
        """Make a document that was found to be interesting the best one."""
        if not self._outer:
            self._tests.enter(name, PassCount(accepted=1, removed=-self.growth(document)))
        self.best = document

    def tell(self, name: str, *, is_accepted: bool = False) -> None:
        """Report the answer of one test to the watcher."""
        is_best, best = is_accepted and self._outer is None, (self._outer or self).best
        self._watch(
            ReductionProgress(
                pass_name=name,
                is_accepted=is_best,
                tests=self.tests,
                size=self.size(best),
                document=best if is_best else None,
            )
        )

    def growth(self, document: D) -> int:
        """By how much it is larger than the best document; negative for a smaller one."""
        return self.size(document) - self.size(self.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial(Generic[D]):
    """A chunk of the edits, tried on top of the first `taken` chunks that the round had taken.

    `is_new`: the document was never tested before.
    """

    chunk: range
    document: D
    answer: ReductionTest
    is_new: bool
    taken: int


class _Round(Generic[D]):
    """One pass over the opportunities that one document offers.

    Every candidate is the document at the start of the round with some of its edits, so that what
    was found side by side can be merged: the union is one more candidate.
    """

    def __init__(self, reducer: Reducer[D], transformation: FoundPass[D]) -> None:
        self.edits = transformation.opportunities(reducer.best)
        self.longest_taken = 0
        self._reducer = reducer
        self._pass = transformation
        self._start = reducer.best
        self._taken: list[range] = []
        self._waiting: deque[range] = deque()
        self._trials: deque[_Trial[D]] = deque()

    async def run(self, *, smallest: int, largest: int) -> None:
        """Try chunks of at most `largest` edits, and halve what is refused down to `smallest`."""
        ends = range(len(self.edits), 0, -largest)
        self._waiting.extend(range(max(0, stop - largest), stop) for stop in ends)
        try:
            while True:
                self._fill(smallest)
                if not self._trials:
                    return
                await self._consider(self._trials.popleft(), smallest)
        finally:
            for trial in self._trials:
                trial.answer.abandon()

    def _fill(self, smallest: int) -> None:
        reducer = self._reducer
        while self._waiting and len(self._trials) < reducer.jobs and not reducer.is_spent():
            chunk = self._waiting.popleft()
            trial = self._begin(chunk)
            if trial:
                self._trials.append(trial)
            else:
                self._halve(chunk, smallest)

    def _begin(self, chunk: range) -> _Trial[D] | None:
        """A test of this chunk on top of what was taken; None where none is needed to refuse it."""
        positions = sorted(position for taken in (*self._taken, chunk) for position in taken)
        document = self._pass.apply(self._start, [self.edits[position] for position in positions])
        if document is None or self._reducer.growth(document) > 0:
            return None
        is_new = not self._reducer.is_known(document)
        answer = self._reducer.begin(self._pass.name, document)
        # What was tested before is taken only where it is smaller: else a pass could go in circles.
        is_gain = self._reducer.growth(document) < 0
        if answer is None or (not is_new and (answer.answer is False or not is_gain)):
            return None
        return _Trial(
            chunk=chunk, document=document, answer=answer, is_new=is_new, taken=len(self._taken)
        )

    async def _consider(self, trial: _Trial[D], smallest: int) -> None:
        answer = await trial.answer.hear()
        is_accepted = answer and trial.taken == len(self._taken)
        if is_accepted:
            self._reducer.adopt(self._pass.name, trial.document)
            self._taken.append(trial.chunk)
            self.longest_taken = max(self.longest_taken, len(trial.chunk))
        elif answer:
            # Found beside another success: try both together.
            self._waiting.appendleft(trial.chunk)
        else:
            self._halve(trial.chunk, smallest)
        if trial.is_new or is_accepted:
            self._reducer.tell(self._pass.name, is_accepted=is_accepted)

    def _halve(self, chunk: range, smallest: int) -> None:
        """Queue the two halves of what was refused, the later one first."""
        if len(chunk) <= smallest:
            return
        middle = len(chunk) // 2
        chance = self._reducer.random
        if chance and len(chunk) >= 8:
            middle += chance.randint(-len(chunk) // 8, len(chunk) // 8)
        self._waiting.extend((chunk[middle:], chunk[:middle]))


# A reduction that does not ask again for what was refused, until nothing else is left.
#
# Where a test takes a second, most of a reduction would go into edits that were refused before and
# look no different now. They are asked for once more at the end: only that tells that nothing can
# go.


async def sweep_coarsely(
    reducer: Reducer[D], passes: Sequence[FoundPass[D]], *, smallest: int
) -> None:
    """One round of each pass, in chunks of `smallest` at least; each begins with everything."""
    for transformation in passes:
        await _round(reducer, transformation, smallest=smallest)


async def _round(reducer: Reducer[D], transformation: FoundPass[D], *, smallest: int = 1) -> bool:
    # What is offered now has little to do with how much went in the last round.
    largest = len(transformation.opportunities(reducer.best))
    return await reducer.round(transformation, smallest=smallest, largest=max(1, largest))


async def reduce_patiently(reducer: Reducer[D], passes: Sequence[FoundPass[D]]) -> None:
    """Sweep until no pass brings anything; single edits are tried all along."""
    waiting = [(transformation, set[Hashable]()) for transformation in passes]
    while True:
        brought = False
        for whole, refused in waiting:
            patient, is_taken = whole.beyond(refused), True
            while is_taken:
                before = whole.marks(reducer.best)
                is_taken = await _round(reducer, patient)
                brought |= is_taken
                # What a taken edit made possible is new, and was not asked for.
                refused.update(before & whole.marks(reducer.best))
        # What was refused long ago may have a chance now.
        if not brought and not await reducer.sweep(passes):
            return


# Texts that are reduced as documents.


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of a text. `instructions` are those of PTX; `lines` counts what the level counts."""

    instructions: int | None = None
    bytes: int
    lines: int


class ReduceText(Protocol):
    """Reduces a text; the arguments are those of `Reducer`."""

    async def __call__(
        self,
        text: str,
        is_interesting: Callable[[str], Awaitable[bool]],
        *,
        effort: Effort,
        watch: Callable[[ReductionProgress[str]], None],
    ) -> Reduction[str]:
        """One reduction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat(Generic[D]):
    """A kind of text: how it is read as a document, measured, and reduced.

    `size` must not grow, `lines` is for a reader. Documents with the same `key` (the
    same text, where there is none) are tested once. `run` tries all passes on a reducer, until
    nothing more can go.
    """

    read: Callable[[str], D]
    text_of: Callable[[D], str]
    size: Callable[[D], int]
    lines: Callable[[D], int]
    run: Callable[[Reducer[D]], Awaitable[None]]
    key: Callable[[D], str] | None = None

    def size_of(self, text: str) -> Size:
        """How large a text is."""
        return Size(bytes=len(text.encode()), lines=self.lines(self.read(text)))

    async def reduce(
        self,
        document: D,
        is_interesting: Callable[[D], Awaitable[bool]],
        *,
        effort: Effort = UNLIMITED,
        watch: Callable[[ReductionProgress[D]], None] = lambda _: None,
    ) -> Reduction[D]:
        """Reduce a document; the arguments are those of `Reducer`."""
        key = self.key or self.text_of
        reducer = Reducer(
            document, is_interesting, size=self.size, key=key, effort=effort, watch=watch
        )
        await self.run(reducer)
        return reducer.reduction(is_minimal=True)

    async def reduce_text(
        self,
        text: str,
        is_interesting: Callable[[str], Awaitable[bool]],
        *,
        effort: Effort,
        watch: Callable[[ReductionProgress[str]], None],
    ) -> Reduction[str]:
        """The same of a text; see `ReduceText`."""
        reduction = await self.reduce(
            self.read(text),
            lambda document: is_interesting(self.text_of(document)),
            effort=effort,
            watch=lambda progress: watch(progress.mapped(self.text_of)),
        )
        return reduction.mapped(self.text_of)
