"""What goes on side by side ends with its first error; questions that are asked together, too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from harness.frontends.bench import TimeIsUpError
from harness.io.processes.cluster import MachinesGoneError
from harness.io.processes.tasks import Batcher, in_parallel
from harness.values.errors import InfrastructureError


def test_results_come_in_the_order_of_the_jobs() -> None:
    async def job(number: int) -> int:
        await asyncio.sleep((3 - number) / 100)
        return 10 * number

    async def main() -> list[int]:
        return await in_parallel(map(job, (1, 2, 3)))

    assert asyncio.run(main()) == [10, 20, 30]


@pytest.mark.parametrize("kind", [InfrastructureError, MachinesGoneError, KeyError])
def test_nothing_goes_on_after_an_error_which_is_raised_as_it_is(kind: type[Exception]) -> None:
    """What the caller closes in its `finally`, no sibling uses any more."""
    went_on: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise kind("gone")

    async def goes_on() -> None:
        try:
            await asyncio.sleep(0.02)
        finally:
            went_on.append("ended")
        went_on.append("on a closed session")

    async def main() -> None:
        try:
            await in_parallel([in_parallel([goes_on(), fails()]), goes_on()])
        finally:
            went_on.append("closed")
        await asyncio.sleep(0.05)

    with pytest.raises(kind, match="gone") as raised:
        asyncio.run(main())
    assert not isinstance(raised.value, BaseExceptionGroup)
    assert went_on == ["ended", "ended", "closed"]


def test_what_is_asked_at_once_is_one_trip_and_what_comes_later_another() -> None:
    taken: list[list[int]] = []

    async def gpu_batch(questions: Sequence[int]) -> list[int]:
        taken.append(list(questions))
        await asyncio.sleep(0.01)
        return [10 * each for each in questions]

    async def main() -> list[int]:
        together = Batcher(answer=gpu_batch, pause=0.01)
        first = await asyncio.gather(*map(together.ask, (1, 2, 3)))
        later = together.ask(4)
        dropped = together.ask(5)
        await asyncio.sleep(0)
        dropped.cancel()
        assert together.count == 1
        return [*first, await later]

    assert asyncio.run(main()) == [10, 20, 30, 40]
    assert taken == [[1, 2, 3], [4]]


@pytest.mark.parametrize("turns", range(8))
def test_a_question_at_the_end_of_a_trip_is_answered(turns: int) -> None:
    """However many turns of the loop after the answer it is asked."""

    async def answer(questions: Sequence[int]) -> Sequence[int]:
        return questions

    async def main() -> int:
        together = Batcher(answer=answer)
        assert await together.ask(1) == 1
        for _ in range(turns):
            await asyncio.sleep(0)
        return await asyncio.wait_for(together.ask(2), timeout=5)

    assert asyncio.run(main()) == 2


def test_a_trip_begins_when_nobody_has_asked_for_a_pause() -> None:
    taken: list[list[int]] = []

    async def gpu_batch(questions: Sequence[int]) -> Sequence[int]:
        taken.append(list(questions))
        return questions

    async def main() -> None:
        together = Batcher(answer=gpu_batch, pause=0.5)
        first = together.ask(1)
        await asyncio.sleep(0.01)
        await asyncio.gather(first, together.ask(2))

    asyncio.run(main())
    assert taken == [[1, 2]]


def test_batches_are_of_a_size_and_so_many_at_once() -> None:
    sizes: list[int] = []
    at_work: list[int] = []

    async def answer(questions: Sequence[int]) -> Sequence[int]:
        sizes.append(len(questions))
        at_work.append(len(questions))
        assert len(at_work) <= 2
        await asyncio.sleep(0.001)
        at_work.pop()
        return questions

    async def main() -> list[int]:
        together = Batcher(answer=answer, at_once=2, most=4)
        return await asyncio.gather(*map(together.ask, range(10)))

    assert asyncio.run(main()) == list(range(10))
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize(
    "kind", [InfrastructureError, TimeIsUpError, MachinesGoneError, RuntimeError]
)
def test_a_trip_that_fails_fails_for_all_who_asked(kind: type[Exception]) -> None:
    async def gpu_batch(questions: Sequence[int]) -> list[int]:
        raise kind(f"no GPU for {len(questions)}")

    async def main() -> list[BaseException | int]:
        together = Batcher(answer=gpu_batch)
        return await asyncio.gather(*map(together.ask, (1, 2)), return_exceptions=True)

    found = asyncio.run(main())
    assert [(type(each), str(each)) for each in found] == [(kind, "no GPU for 2")] * 2


def test_nobody_waits_for_a_trip_that_broke() -> None:
    async def gpu_batch(questions: Sequence[int]) -> list[int]:
        return [*questions][1:]

    async def main() -> None:
        await asyncio.wait_for(Batcher(answer=gpu_batch).ask(1), 5)

    with pytest.raises(ValueError, match="shorter"):
        asyncio.run(main())
