"""The driver of reductions on toy documents: tuples of numbers, and any predicate."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.minimize.reduction.reducer import (
    UNLIMITED,
    Effort,
    FoundPass,
    Reducer,
    Reduction,
    ReductionProgress,
)

Document = tuple[int, ...]
D = TypeVar("D")
Predicate = Callable[[Document], bool]


def without(document: Document, chosen: Sequence[int]) -> Document:
    return tuple(value for place, value in enumerate(document) if place not in chosen)


def halved(document: Document, places: Sequence[int]) -> Document | None:
    if any(place + 1 in places for place in places):
        return None
    return tuple(v // 2 if place in places else v for place, v in enumerate(document))


def negated(document: Document, places: Sequence[int]) -> Document:
    return tuple(-v if place in places else v for place, v in enumerate(document))


# Any element may go.
DELETE = FoundPass[Document]("delete", lambda document: range(len(document)), without)
# Any element may be halved; refuses to touch neighbours together.
HALVE = FoundPass[Document](
    "halve", lambda document: [n for n, value in enumerate(document) if value], halved
)
# Makes a document another one, never a smaller one, and back again: it could go in circles.
NEGATE = FoundPass[Document]("negate", lambda document: range(len(document)), negated)
PASSES = (DELETE, HALVE, NEGATE)


def size(document: Document) -> int:
    return sum(10 + abs(value) for value in document)


@dataclass
class Oracle:
    predicate: Predicate
    asked: list[Document] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    async def test(self, document: Document) -> bool:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        # Whoever comes later is faster, so answers arrive in the wrong order.
        for _ in range(max(0, 5 - len(self.asked) % 6)):
            await asyncio.sleep(0)
        self.running -= 1
        return self.predicate(document)

    def __call__(self, document: Document) -> Awaitable[bool]:
        self.asked.append(document)
        return asyncio.ensure_future(self.test(document))


async def reduce(
    document: D,
    passes: Sequence[FoundPass[D]],
    is_interesting: Callable[[D], Awaitable[bool]],
    *,
    size: Callable[[D], int],
    key: Callable[[D], str],
    effort: Effort = UNLIMITED,
    watch: Callable[[ReductionProgress[D]], None] = lambda _: None,
) -> Reduction[D]:
    """Reduce a document until no pass brings anything, or nothing is left to spend.

    Singles wait until every pass had its first round: most of
    what is left then goes in larger pieces by another pass.
    """
    reducer = Reducer(document, is_interesting, size=size, key=key, effort=effort, watch=watch)
    await reducer.sweep(passes, smallest=2)
    while await reducer.sweep(passes):
        pass
    return reducer.reduction(is_minimal=True)


def run(
    document: Document,
    predicate: Predicate,
    passes: Sequence[FoundPass[Document]] = PASSES,
    watch: Callable[[ReductionProgress[Document]], None] = lambda _: None,
    **effort: Any,
) -> tuple[Reduction[Document], Oracle]:
    oracle = Oracle(predicate)

    async def main() -> Reduction[Document]:
        return await reduce(
            document, passes, oracle, size=size, key=repr, effort=Effort(**effort), watch=watch
        )

    return asyncio.run(main()), oracle


documents = st.lists(st.integers(0, 9), min_size=0, max_size=24).map(tuple)


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    """Monotone ones (these must stay), thresholds, parities, and arbitrary ones by hash."""
    kind = draw(st.sampled_from(["all of", "weight", "parity", "chance", "either"]))
    number = draw(st.integers(0, 30))
    wanted = draw(st.lists(st.integers(0, 9), max_size=4))
    table: dict[str, Predicate] = {
        "all of": lambda d: all(value in d for value in wanted),
        "weight": lambda d: sum(abs(v) for v in d) >= number,
        "parity": lambda d: len(d) % 2 == number % 2,
        "chance": lambda d: random.Random(repr((d, number))).random() < 0.4,
        "either": lambda d: 7 in d or len(d) > number,
    }
    return table[kind]


@settings(deadline=None)
@given(documents, predicates(), st.integers(1, 4), st.integers(0, 3))
def test_what_comes_out_is_interesting_never_larger_and_minimal(
    document: Document, predicate: Predicate, jobs: int, seed: int
) -> None:
    result, oracle = run(document, predicate, jobs=jobs, seed=seed)
    assert result.document == document or predicate(result.document)
    assert size(result.document) <= size(document)
    assert len(set(oracle.asked)) == len(oracle.asked) == result.tests
    assert document not in oracle.asked
    assert oracle.most_running <= jobs
    assert result.is_finished
    assert result.is_minimal
    for transformation in PASSES:
        for edit in transformation.opportunities(result.document):
            single = transformation.apply(result.document, [edit])
            if single is not None and size(single) < size(result.document):
                assert not predicate(single) or single == document


@settings(deadline=None)
@given(documents, predicates(), st.integers(1, 4), st.integers(0, 3))
def test_a_seed_and_a_number_of_jobs_make_one_result(
    document: Document, predicate: Predicate, jobs: int, seed: int
) -> None:
    first, asked = run(document, predicate, jobs=jobs, seed=seed)
    second, again = run(document, predicate, jobs=jobs, seed=seed)
    assert first == second
    assert asked.asked == again.asked


@settings(deadline=None)
@given(documents, predicates(), st.integers(1, 4), st.integers(0, 40))
def test_the_budget_holds_and_what_was_found_within_it_is_kept(
    document: Document, predicate: Predicate, jobs: int, most: int
) -> None:
    whole, _ = run(document, predicate, jobs=jobs)
    result, oracle = run(document, predicate, jobs=jobs, max_tests=most)
    assert len(oracle.asked) == result.tests <= most
    assert result.document == document or predicate(result.document)
    if not result.is_finished:
        assert result.tests == most
        assert not result.is_minimal
    if whole.tests < most:
        assert result == whole


@settings(deadline=None)
@given(documents, st.lists(st.integers(0, 9), max_size=4), st.integers(1, 4))
def test_it_finds_the_smallest_where_elements_do_not_depend_on_one_another(
    document: Document, wanted: list[int], jobs: int
) -> None:
    needed = set(wanted) & set(document)
    result, _ = run(document, lambda d: needed <= set(d), [DELETE], jobs=jobs)
    assert sorted(result.document) == sorted(needed)


@settings(deadline=None)
@given(documents, predicates(), st.integers(1, 4))
def test_the_ledger_and_the_watcher_agree_with_the_result(
    document: Document, predicate: Predicate, jobs: int
) -> None:
    heard: list[ReductionProgress[Document]] = []
    result, _ = run(document, predicate, jobs=jobs, watch=heard.append)
    assert sum(count.tests for count in result.ledger.values()) == result.tests
    assert sum(count.removed for count in result.ledger.values()) == (
        size(document) - size(result.document)
    )
    best = [progress for progress in heard if progress.is_accepted]
    assert all((progress.document is not None) == progress.is_accepted for progress in heard)
    assert (best[-1].document if best else document) == result.document
    assert all(size(p.document) == p.size for p in best if p.document is not None)
    sizes = [progress.size for progress in heard]
    assert sizes == sorted(sizes, reverse=True)
    assert result.tests - heard[-1].tests <= jobs if heard else result.tests == 0


def test_chunks_cost_a_logarithm_not_a_line() -> None:
    document = tuple([0] * 999 + [7])
    result, _ = run(document, lambda d: 7 in d, [DELETE])
    assert result.document == (7,)
    assert result.tests < 50


def test_side_by_side_successes_are_merged() -> None:
    """Two halves that may each go, but not both: the union is tested, and refused."""
    both, _ = run((1, 2, 3, 4), lambda d: 1 in d or 4 in d, [DELETE], jobs=2)
    assert both.document in ((1,), (4,))


def test_when_the_time_is_up_no_further_test_begins() -> None:
    oracle = Oracle(lambda d: False)

    async def main() -> Reduction[Document]:
        return await reduce(
            (1, 2, 3, 4),
            PASSES,
            oracle,
            size=size,
            key=repr,
            effort=Effort(is_time_up=lambda: len(oracle.asked) == 2),
        )

    result = asyncio.run(main())
    assert result.tests == len(oracle.asked) == 2
    assert not result.is_finished
    assert not result.is_minimal


def test_a_plain_coroutine_function_gives_the_same_result() -> None:
    async def plain(document: Document) -> bool:
        return 3 in document

    async def main() -> Reduction[Document]:
        return await reduce(
            (1, 2, 3, 4, 5), PASSES, plain, size=size, key=repr, effort=Effort(jobs=2)
        )

    started, _ = run((1, 2, 3, 4, 5), lambda d: 3 in d, jobs=2)
    assert asyncio.run(main()) == started


def test_an_error_of_the_oracle_ends_it_and_leaves_nothing_running() -> None:
    tasks: list[asyncio.Task[bool]] = []

    async def test(document: Document) -> bool:
        if document == (1, 2):
            raise OSError("no compiler")
        await asyncio.sleep(3600)
        return False

    def start(document: Document) -> Awaitable[bool]:
        tasks.append(asyncio.ensure_future(test(document)))
        return tasks[-1]

    async def main() -> None:
        document: Document = (1, 2, 3, 4)
        reducer = Reducer(document, start, size=size, key=repr, effort=Effort(jobs=2))
        with pytest.raises(OSError, match="no compiler"):
            await reducer.round(DELETE, largest=2)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert [task.cancelled() for task in tasks] == [False, True]
