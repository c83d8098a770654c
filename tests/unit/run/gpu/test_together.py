"""Questions travel together: one trip takes all that were asked by then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from harness.frontends.bench.bench import TimeIsUpError
from harness.run.gpu.evaluating import Together
from harness.values.errors import InfrastructureError


def test_what_is_asked_at_once_is_one_trip_and_what_comes_later_another() -> None:
    taken: list[list[int]] = []

    async def trip(questions: Sequence[int]) -> list[int]:
        taken.append(list(questions))
        await asyncio.sleep(0.01)
        return [10 * each for each in questions]

    async def main() -> list[int]:
        together = Together(trip=trip)
        first = await asyncio.gather(*map(together.ask, (1, 2, 3)))
        later = asyncio.ensure_future(together.ask(4))
        dropped = asyncio.ensure_future(together.ask(5))
        await asyncio.sleep(0)
        dropped.cancel()
        assert together.trips == 1
        return [*first, await later]

    assert asyncio.run(main()) == [10, 20, 30, 40]
    assert taken == [[1, 2, 3], [4]]


@pytest.mark.parametrize("kind", [InfrastructureError, TimeIsUpError])
def test_a_trip_that_fails_fails_for_all_who_asked(kind: type[Exception]) -> None:
    async def trip(questions: Sequence[int]) -> list[int]:
        raise kind(f"no GPU for {len(questions)}")

    async def main() -> list[BaseException | int]:
        together = Together(trip=trip)
        return await asyncio.gather(*map(together.ask, (1, 2)), return_exceptions=True)

    found = asyncio.run(main())
    assert [str(each) for each in found] == ["no GPU for 2"] * 2


def test_nobody_waits_for_a_trip_that_broke() -> None:
    async def trip(questions: Sequence[int]) -> list[int]:
        return [*questions][1:]

    async def main() -> None:
        await asyncio.wait_for(Together(trip=trip).ask(1), 5)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
