"""Which config is reduced: the first that fails, though several are compiled side by side."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.minimize.reduction import subject as module
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import VerdictKind

TARGET = Target.parse("90a")


class Cells:
    """Cells that take longer the earlier they are, so that later ones are done first."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.done: list[int] = []
        self.cancelled: list[int] = []

    async def evaluate(self, bench: object, cell: Any) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.02 * (5 - cell))
            self.done.append(cell)
        except asyncio.CancelledError:
            self.cancelled.append(cell)
            raise
        finally:
            self.running -= 1
        return int(cell)


@pytest.mark.parametrize("jobs", [1, 3])
def test_configs_are_compiled_side_by_side_and_heard_in_order(jobs: int) -> None:
    cells = Cells()
    evaluate = cast("Any", cells.evaluate)

    async def heard(until: int) -> list[int]:
        found: list[int] = []
        bench = cast("Any", SimpleNamespace(jobs=jobs))
        async with aclosing(module._in_order(bench, cast("Any", range(5)), evaluate)) as evaluated:
            async for done in evaluated:
                found.append(cast("int", done))
                if len(found) == until:
                    break
        return found

    assert asyncio.run(heard(5)) == [0, 1, 2, 3, 4]
    assert cells.most == jobs
    assert asyncio.run(heard(1)) == [0]
    assert cells.running == 0


def test_of_several_launches_the_one_that_is_reduced_is_told() -> None:
    def notes(*launches: str) -> tuple[str, ...]:
        cells = [
            SimpleNamespace(
                cell=SimpleNamespace(kernel="k", launch=name, config=Config(), target=TARGET),
                launch=None,
                entry=None,
            )
            for name in launches
        ]
        selection = SimpleNamespace(config=ConfigFilter())
        row = Row(
            cell="",
            short="",
            kernel="k",
            launch=launches[0],
            config={},
            target=str(TARGET),
            triton="3.9.0",
            ptxas=None,
            ptxas_origin=None,
            verdict=VerdictKind.PASS_FAILURE,
            reason="",
        )
        made = module._chosen(
            cast("Any", None), cast("Any", selection), cast("Any", cells), [row], 0, None
        )
        return made.notes

    assert notes("main") == ()
    assert notes("main", "main#2", "main#3") == (
        "of 3 launches, main#1 is reduced (--launch names another)",
        "2 more configs were not looked at (--config names one)",
    )
    assert notes("main:n=3#2", "main:n=3")[0].startswith("of 2 launches, main:n=3#2 is reduced")
