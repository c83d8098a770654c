"""Steps of registers, spills and occupancy between two runs of a cell: which of them matter.

Counters are exact integers, so that a rule is a threshold and no statistics. A step down follows
the same rule as a step up: its base is the smaller of the two numbers.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.values.change import Facts, MetricStep, Severity
from harness.values.timing import Faster, compare_times
from harness.values.verdict import VerdictKind

_INFORMATIONAL = ("stack", "shared", "tmem_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """A difference of at least `least`, and of at least this fraction of the smaller number."""

    least: int
    fraction: float

    def is_step(self, one: int, other: int) -> bool:
        """Whether the numbers are that far apart."""
        return abs(one - other) >= max(self.least, self.fraction * min(one, other))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRules:
    """From when on a difference is more than informational; spills are stores plus loads."""

    spills: Rise = Rise(least=16, fraction=0.10)
    registers: Rise = Rise(least=8, fraction=0.05)


DEFAULT_RULES = StepRules()


def metric_steps(
    older: Facts, newer: Facts, rules: StepRules = DEFAULT_RULES, *, health: bool = True
) -> tuple[MetricStep, ...]:
    """What differs in the numbers of a cell that compiles in both runs, the gravest first.

    Numbers that are not known on both sides tell nothing. With the same machine code, and the same
    memory asked for at launch, there is no step. Without `health` it is left out that the
    cell is sick now, or no longer.
    """
    if older.cubin_sha256 and _program(older) == _program(newer):
        # What the same code takes on another day says nothing of the code.
        return ()
    found = [*_health(older, newer)] if health else []
    found += [*_spills(older, newer, rules), *_occupancy(older, newer)]
    found += [*_registers(older, newer, rules), *_others(older, newer)]
    found += _times(older, newer)
    return tuple(sorted(found, key=lambda step: -step.severity))


def direction(steps: tuple[MetricStep, ...]) -> bool | None:
    """Whether the gravest step is one for the worse; None where all are informational."""
    if not steps or steps[0].severity is Severity.INFORMATIONAL:
        return None
    return steps[0].worse


def _program(facts: Facts) -> tuple[object, ...]:
    """The machine code, and what is asked for beside it at launch."""
    return facts.cubin_sha256, facts.shared, facts.tmem_size


def _health(older: Facts, newer: Facts) -> Iterator[MetricStep]:
    if older.verdict != newer.verdict:
        yield MetricStep(
            metric="verdict",
            older=older.verdict,
            newer=newer.verdict,
            severity=Severity.HEALTH,
            worse=newer.verdict == VerdictKind.SICK.value,
        )


def _spills(older: Facts, newer: Facts, rules: StepRules) -> Iterator[MetricStep]:
    before, after = older.spills, newer.spills
    if before is None or after is None or before == after:
        return
    severity = Severity.INFORMATIONAL
    if not before or not after:
        severity = Severity.SPILLS_BEGIN
    elif rules.spills.is_step(before, after):
        severity = Severity.SPILLS
    yield MetricStep(
        metric="spills", older=before, newer=after, severity=severity, worse=after > before
    )


def _occupancy(older: Facts, newer: Facts) -> Iterator[MetricStep]:
    # It moves in whole blocks: where it moved, a limit of registers or memory was crossed.
    before, after = older.occupancy, newer.occupancy
    if before is not None and after is not None and before != after:
        yield MetricStep(
            metric="occupancy",
            older=before,
            newer=after,
            severity=Severity.LIMIT,
            worse=after < before,
        )


def _registers(older: Facts, newer: Facts, rules: StepRules) -> Iterator[MetricStep]:
    before, after = older.n_regs, newer.n_regs
    if before is None or after is None or before == after:
        return
    is_step = rules.registers.is_step(before, after)
    yield MetricStep(
        metric="n_regs",
        older=before,
        newer=after,
        severity=Severity.REGISTERS if is_step else Severity.INFORMATIONAL,
        worse=after > before,
    )


def _times(older: Facts, newer: Facts) -> Iterator[MetricStep]:
    """A noisy metric: only intervals that are apart are a step, whatever their medians are."""
    before, after = older.time_ms, newer.time_ms
    if before is None or after is None:
        return
    faster = compare_times(before, after)
    if faster is not Faster.AMBIGUOUS:
        yield MetricStep(
            metric="time_ms",
            older=before.median,
            newer=after.median,
            severity=Severity.TIME,
            worse=faster is Faster.FIRST,
        )


def _others(older: Facts, newer: Facts) -> Iterator[MetricStep]:
    for metric in _INFORMATIONAL:
        before, after = getattr(older, metric), getattr(newer, metric)
        if before is not None and after is not None and before != after:
            yield MetricStep(
                metric=metric,
                older=before,
                newer=after,
                severity=Severity.INFORMATIONAL,
                worse=after > before,
            )
