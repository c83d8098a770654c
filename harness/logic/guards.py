"""For which Tritons and GPUs a tuning list has to leave configs out, and which. Pure.

Only what was tried is claimed: a guard covers the releases of Triton in which the configs failed
when they were compiled, and the arguments that the tuner tells launches by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from harness.logic.survivorship import common_fields
from harness.values.kernel import Config, Scalar

__all__ = ["Clause", "Guard", "Release", "make_guard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What one release of Triton made of the configs of a list; what is in neither was not told."""

    triton: str
    fails: tuple[Config, ...]
    works: tuple[Config, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """From one release of Triton to another, both included: configs with all of these values fail.

    `either` holds one mapping from name to values for each family of failing configs.
    """

    first: str
    last: str
    either: tuple[tuple[tuple[str, tuple[Scalar | None, ...]], ...], ...]
    reason: str

    def fails(self, config: Config) -> bool:
        """Whether this config is one of them."""
        values = config.as_dict()
        return any(
            all(values.get(name) in allowed for name, allowed in family) for family in self.either
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`capability` is (major, minor); `arguments` are those of the launch that was tried."""

    capability: tuple[int, int]
    arguments: tuple[tuple[str, Scalar], ...]
    clauses: tuple[Clause, ...]
    tested: tuple[str, ...]


def make_guard(
    releases: Iterable[Release],
    *,
    capability: int,
    arguments: Mapping[str, Scalar],
) -> Guard | None:
    """A guard over releases that were tried; None where no config has to be left out.

    A Triton on which nothing works is left alone: a tuner needs one config at least.
    """
    ordered = sorted(releases, key=lambda each: Version(each.triton))
    clauses: list[Clause] = []
    before = -1
    for index, each in enumerate(ordered):
        if not each.fails or not each.works:
            continue
        either = _families(each.fails, each.works)
        minor = _minor(each.triton)
        if clauses and before == index - 1 and clauses[-1].either == either:
            clauses[-1] = Clause(
                first=clauses[-1].first, last=minor, either=either, reason=clauses[-1].reason
            )
        else:
            clauses.append(Clause(first=minor, last=minor, either=either, reason=each.reason))
        before = index
    if not clauses:
        return None
    return Guard(
        capability=divmod(capability, 10),
        arguments=tuple(arguments.items()),
        clauses=tuple(clauses),
        tested=tuple(each.triton for each in ordered),
    )


def _minor(version: str) -> str:
    parsed = Version(version)
    return f"{parsed.major}.{parsed.minor}"


def _families(
    fails: Sequence[Config], works: Sequence[Config]
) -> tuple[tuple[tuple[str, tuple[Scalar | None, ...]], ...], ...]:
    """What the failing configs have in common and no other has; else each of them as it is."""
    common = common_fields([c.as_dict() for c in fails], [c.as_dict() for c in works])
    if common is not None:
        return (tuple((name, tuple(values)) for name, values in common.items()),)
    return tuple(tuple((name, (value,)) for name, value in _whole(c, fails, works)) for c in fails)


def _whole(
    config: Config, fails: Sequence[Config], works: Sequence[Config]
) -> list[tuple[str, Scalar | None]]:
    """Every name that any of the configs has: what this one has not is not set."""
    names = dict.fromkeys(name for each in (*fails, *works) for name, _ in each.items)
    return [(name, config.as_dict().get(name)) for name in names]
