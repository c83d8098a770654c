"""For which Tritons and GPUs a tuning list has to leave configs out, and which. Pure.

Only what was compiled is claimed: a guard names the releases of Triton with which the configs
failed, and the arguments by which the tuner tells launches apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from harness.tables.survivors import common_fields
from harness.values.kernel import Config, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRelease:
    """Which configs of a list fail with one release of Triton; in neither: could not tell."""

    triton: str
    fails: tuple[Config, ...]
    works: tuple[Config, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """With each of these releases of Triton, configs with all of these values fail.

    `either` holds one mapping from name to values for each family of failing configs.
    """

    releases: tuple[str, ...]
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
    """`capability` is (major, minor); `arguments` are those of the launch that was compiled."""

    capability: tuple[int, int]
    arguments: tuple[tuple[str, Scalar], ...]
    clauses: tuple[Clause, ...]
    tested: tuple[str, ...]


def make_guard(
    releases: Iterable[GuardedRelease], *, capability: int, arguments: Mapping[str, Scalar]
) -> Guard | None:
    """A guard over releases that were compiled; None where no config has to be left out.

    A release between two of them that was not compiled is not covered. A Triton with which no
    config works is left alone: a tuner needs one config at least.
    """
    ordered = sorted(releases, key=lambda each: Version(each.triton))
    clauses: dict[object, Clause] = {}
    for each in ordered:
        if not each.fails or not each.works:
            continue
        either = _families(each.fails, each.works)
        same = clauses.get(either)
        before = same.releases if same else ()
        clauses[either] = Clause(
            releases=(*before, Version(each.triton).public),
            either=either,
            reason=same.reason if same else each.reason,
        )
    if not clauses:
        return None
    return Guard(
        capability=divmod(capability, 10),
        arguments=tuple(arguments.items()),
        clauses=tuple(clauses.values()),
        tested=tuple(each.triton for each in ordered),
    )


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
