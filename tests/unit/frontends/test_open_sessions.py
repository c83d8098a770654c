"""The living captures of a run of several languages."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from harness.frontends.registry import OpenSessions
from harness.io.processes.hub import Hub


class Slow:
    """Sessions whose end takes a turn of the loop, in which those of another kind begin."""

    def __init__(self, begin: Any) -> None:
        self._begin = begin
        self.closed: list[str] = []

    async def close(self, key: str) -> None:
        self._begin()
        await asyncio.sleep(0)
        self.closed.append(key)


def test_captures_of_another_language_may_begin_while_one_ends() -> None:
    sessions = OpenSessions(cast("Hub", None), timeout=1)
    other = Slow(lambda: None)
    first = Slow(lambda: vars(sessions)["_of"].setdefault("second", other))
    vars(sessions)["_of"]["first"] = first
    asyncio.run(sessions.close("capture"))
    assert first.closed == ["capture"]
