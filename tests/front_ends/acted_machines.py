"""Machines that fail as a test writes down: threads of this process, which is what they have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.io.processes.cluster import Machines

Work = Callable[[bytes], bytes]


@dataclass
class Threads(Machines):
    """Machines; `fate` is asked for each piece of work, and may raise or answer in its place."""

    fate: Callable[[str, int], bytes | None] = lambda _name, _nth: None
    words: str = "threads"
    at_once: int = 3
    are_here: bool = True
    sent: list[str] = field(default_factory=list)
    at_work: int = 0
    alone: list[str] = field(default_factory=list)

    async def run(self, work: Work, message: bytes, *, name: str, rank: int) -> bytes:
        self.sent.append(name)
        self.at_work += 1
        try:
            if self.at_work == 1:
                self.alone.append(name)
            await asyncio.sleep(0)
            answer = self.fate(name, self.sent.count(name))
            return answer if answer is not None else await asyncio.to_thread(work, message)
        finally:
            self.at_work -= 1
