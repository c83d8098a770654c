"""Other machines, as a command sees them: each runs one of our functions on bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from harness.values.errors import InfrastructureError


class LostWorkersError(InfrastructureError):
    """The machines at work on one piece were lost, again and again: perhaps the piece did that."""


class MachinesGoneError(Exception):
    """A command cannot go on without the machines that it was started with.

    Not of the error tree: what catches that goes on with the next thing, which is in vain here.
    """


class Machines(Protocol):
    """Machines that have this program and the package index, and nothing else of this one.

    `words` say which they are, `at_once` how many pieces of work they take side by side.
    `are_here`: they are processes of this machine, with as many compilers as it may have at once.
    """

    @property
    def words(self) -> str:
        """As above."""

    @property
    def at_once(self) -> int:
        """As above."""

    @property
    def are_here(self) -> bool:
        """As above."""

    async def run(
        self, work: Callable[[bytes], bytes], message: bytes, *, name: str, rank: int
    ) -> bytes:
        """What one of our module-level functions answers to a message, on one of the machines.

        Work that was lost with its machine is done again on another. `name` is shown to who looks
        at the machines; of what waits, the least `rank` begins first.

        Raises:
            LostWorkersError: every machine that was at work on it was lost.
            InfrastructureError: what hands out the work cannot be reached any more.
        """
