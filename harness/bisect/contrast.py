"""One failure beside its neighbours: what it takes, and what does not matter. Pure.

For what has no order to search in: flags, the values of tuned parameters, GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.judging.answers import VerdictAnswer
from harness.judging.followed import Followed
from harness.values.kernel import Config
from harness.values.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A neighbour, what it did and why; `row` is None where it could not be tried."""

    label: str
    outcome: VerdictAnswer
    reason: str
    row: Row | None = None
    config: Config | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """One tuned parameter, with everything else as in the failing config: its values by outcome.

    It carries the failure where another value of it works; where none was tried, nothing is known.
    """

    name: str
    fails: tuple[str, ...]
    works: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def carries(self) -> bool | None:
        """Whether the failure depends on it; None where that cannot be determined."""
        if self.works:
            return True
        return False if len(self.fails) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The failing cell (`origin`), what is followed of it, and its neighbours along one axis."""

    axis: str
    origin: Row
    points: tuple[Point, ...]
    followed: Followed = field(default_factory=Followed)
    trouble: str | None = None

    def labels(self, *outcomes: VerdictAnswer) -> list[str]:
        """The neighbours that answered so."""
        return [point.label for point in self.points if point.outcome in outcomes]

    @property
    def carriers(self) -> list[Carrier]:
        """By tuned parameter; of the axis `config` only."""
        return carriers(Config.of(self.origin.config), self.points)


def carriers(origin: Config, points: Sequence[Point]) -> list[Carrier]:
    """What each parameter does alone; one that no neighbour changes alone has its own value only.

    `points` may hold the failing config itself.
    """
    configs = [point.config.as_dict() for point in points if point.config]
    names = dict.fromkeys(name for config in (origin.as_dict(), *configs) for name in config)
    found = []
    for name in names:
        values: dict[VerdictAnswer, list[str]] = {}
        for point in points:
            if point.config and _differ_in(origin, point.config) <= {name}:
                value = point.config.as_dict().get(name)
                values.setdefault(point.outcome, []).append("none" if value is None else str(value))
        tried = {word for words in values.values() for word in words}
        if len(tried) > 1 or name in origin.as_dict():
            found.append(
                Carrier(
                    name=name,
                    fails=tuple(values.pop(VerdictAnswer.SAME, ())),
                    works=tuple(values.pop(VerdictAnswer.OK, ())),
                    other=tuple(word for words in values.values() for word in words),
                )
            )
    return found


def _differ_in(one: Config, other: Config) -> set[str]:
    left, right = one.as_dict(), other.as_dict()
    return {name for name in {*left, *right} if left.get(name) != right.get(name)}
