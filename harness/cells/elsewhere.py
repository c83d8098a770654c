"""Cells that other machines compile for a command which then looks at them here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from harness.frontends.base import Selection
    from harness.frontends.bench.bench import Workbench


class Elsewhere(Protocol):
    """Machines that make evidence: what is evaluated here afterwards finds it, and makes the rest.

    `at_once` is how many selections they can work on side by side.
    """

    @property
    def at_once(self) -> int:
        """As above."""

    async def make(self, bench: Workbench, selection: Selection) -> Sequence[str]:
        """Have the cells of a selection compiled; what came back is stored. What was in the way.

        Raises:
            InfrastructureError: the machines are lost, or the scheduler is.
            StorageError: the evidence cannot be kept.
        """
