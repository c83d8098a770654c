"""A capture's session ends with its last cell, also where the work on one of its cells fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from acted_front_end import Stage

from harness.cells.compile import compile_selections
from harness.cells.places import RunProgress, work
from harness.frontends.registry import OpenSessions
from harness.store.store import Store
from harness.values.errors import StorageError
from harness.workaround.rank.ranking import rank

pytest_plugins = ["acted_fixtures"]


def _compile(stage: Stage) -> Awaitable[object]:
    return compile_selections([stage.selection()], stage.store, stage.how, RunProgress())


def _rank(stage: Stage) -> Awaitable[object]:
    return rank([stage.selection()], stage.store, stage.how, None, stage.tell)


class _StopError(Exception):
    """What no command expects."""


def test_what_a_command_works_with_is_gone_after_it_and_a_run_that_broke_is_not_finished(
    stage: Stage,
) -> None:
    folders = []

    async def command(error: Exception | None) -> None:
        async with work(stage.store, stage.how) as (bench, _):
            folders.append(bench.hub.scratch)
            assert bench.hub.scratch.is_dir()
            if error:
                raise error

    asyncio.run(command(None))
    with pytest.raises(_StopError):
        asyncio.run(command(_StopError()))
    assert [folder.exists() for folder in folders] == [False, False]
    broken, done = stage.store.runs(2)
    assert (done.finished is None, broken.finished is None) == (False, True)


@pytest.mark.parametrize("command", [_compile, _rank])
def test_the_session_of_a_capture_ends_where_a_result_cannot_be_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, command: Callable[[Stage], Awaitable[object]]
) -> None:
    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    closed: list[str] = []

    async def close(_: OpenSessions, key: str) -> None:
        closed.append(key)

    monkeypatch.setattr(Store, "put_result", full)
    monkeypatch.setattr(OpenSessions, "close", close)
    stage.ptxas("2.0")

    async def failing() -> None:
        await command(stage)

    with pytest.raises(StorageError, match="the disk is full"):
        asyncio.run(failing())
    assert len(closed) == 1
