"""What is known of a register collapse: what lifts it, with other ptxas, and for other configs.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.bisect.collapse.facts import Collapse, collapse_of, is_lifted
from harness.values.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """One PTX without something and with it: an option of ptxas, or a directive in the PTX."""

    words: str
    before: Row
    after: Row

    @property
    def lifts(self) -> bool:
        """Whether the collapse is gone, and half of the spills or more."""
        return is_lifted(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapseEvidence:
    """A collapse and what was compiled around it; every row is one that the store has.

    `options` were tried on the PTX of the case, byte for byte, `directive` in it. `versions` are
    other ptxas on that PTX, and `configs` the kernel's others, both with the first option that
    lifts it.
    """

    collapse: Collapse
    options: tuple[Lift, ...]
    directive: Lift | None = None
    versions: tuple[Lift, ...] = ()
    configs: tuple[Lift, ...] = ()

    @property
    def best(self) -> Lift | None:
        """The first option that lifts it."""
        return next((each for each in self.options if each.lifts), None)

    def healthy(self) -> Sequence[Lift]:
        """The configs that have no collapse."""
        return [each for each in self.configs if collapse_of(each.before) is None]
