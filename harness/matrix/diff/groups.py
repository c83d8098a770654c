"""Changes that are one piece of news: grouped by what happened, with where and how to see it.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.cells.spelling import show_command
from harness.tables.survivors import common_reason
from harness.values.change import Change, ChangeKind, Facts, Severity
from harness.values.kernel import Config
from harness.values.toolchain import BUNDLED, assembler_name
from harness.values.verdict import VerdictKind

_SHOWN = 3
_COMPILES = {kind.value for kind in VerdictKind if kind.compiles}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroup:
    """Cells to which the same thing happened; for failures the same signature.

    `what` says old and new with their reasons, `where` the cells in words, `since` the toolchain
    versions that a new cell was compared across, `command` shows one of them.
    """

    kind: ChangeKind
    changes: tuple[Change, ...]
    what: str
    where: str
    since: str | None
    issue: str | None
    command: str


def group_changes(changes: Iterable[Change]) -> list[ChangeGroup]:
    """The groups by kind, in the order of `Kind`, the largest first."""
    found: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        found.setdefault(_key(change), []).append(change)
    groups = [_group(members) for members in found.values()]
    order = list(ChangeKind)
    return sorted(groups, key=lambda group: (order.index(group.kind), -len(group.changes)))


def _key(change: Change) -> tuple[object, ...]:
    issue = change.expectation.issue if change.expectation else None
    if change.kind is ChangeKind.MISSING:
        return (change.kind,)
    if change.kind is ChangeKind.EXCLUDED:
        return change.kind, change.why
    if change.kind is ChangeKind.NEW:
        return change.kind, _outcome(change.newer), change.since
    if change.steps:
        gravest = change.steps[0]
        return change.kind, gravest.metric, gravest.worse, change.since, issue
    return change.kind, _outcome(change.older), _outcome(change.newer), change.since, issue


def _outcome(facts: Facts | None) -> tuple[str, str | None] | None:
    # What compiles differs in numbers, not in kind; its signature says nothing.
    if facts is None or facts.verdict in _COMPILES:
        return (facts.verdict, None) if facts else None
    return facts.outcome


def _group(changes: Sequence[Change]) -> ChangeGroup:
    first = changes[0]
    return ChangeGroup(
        kind=first.kind,
        changes=tuple(changes),
        what=_what(changes),
        where=_where([change.facts for change in changes]),
        since=first.since if all(change.since == first.since for change in changes) else None,
        issue=first.expectation.issue if first.expectation else None,
        command=_command(first),
    )


# --- what --------------------------------------------------------------------------------------


def _what(changes: Sequence[Change]) -> str:
    first = changes[0]
    if first.steps:
        return _steps(changes)
    older = [change.older for change in changes if change.older]
    newer = [change.newer for change in changes if change.newer]
    if first.kind is ChangeKind.MISSING:
        return f"was {_verdicts(older)}"
    if first.kind is ChangeKind.EXCLUDED:
        return f"since then, by the matrix ({first.why}); was {_verdicts(older)}"
    if first.kind is ChangeKind.NEW:
        return _said(newer)
    if first.kind is ChangeKind.FLAKY:
        return f"{_verdicts(older)} -> {_said(newer)}; its own runs disagree"
    if first.kind is ChangeKind.FIXED:
        return f"{_said(older) if older else _expected(first)} -> {_verdicts(newer)}"
    before = _verdicts(older) or "not known before"
    if first.kind is ChangeKind.MUTATED:
        before = _said(older)
    if first.kind is ChangeKind.REGRESSED and first.expectation:
        before = f"expected {first.expectation.verdict}, {before}"
    return f"{before} -> {_said(newer)}"


def _expected(change: Change) -> str:
    return f"expected {change.expectation.verdict}" if change.expectation else "not known before"


def _verdicts(facts: Sequence[Facts]) -> str:
    return ", ".join(dict.fromkeys(each.verdict for each in facts))


def _said(facts: Sequence[Facts]) -> str:
    """Verdict and reason; that of what is well needs no words."""
    words = _verdicts(facts)
    return words if words == VerdictKind.OK.value else f"{words} ({common_reason(facts)})"


def _steps(changes: Sequence[Change]) -> str:
    """`spills 0 -> 16 to 48 B; n_regs 128 -> 160`: the metrics that moved enough, in order."""
    found: dict[str, tuple[list[object], list[object]]] = {}
    least = min(max(step.severity for step in change.steps) for change in changes)
    for change in changes:
        for step in change.steps:
            if step.severity > Severity.INFORMATIONAL or least is Severity.INFORMATIONAL:
                before, after = found.setdefault(step.metric, ([], []))
                before.append(step.older)
                after.append(step.newer)
    return "; ".join(
        f"{metric} {_span(metric, before)} -> {_span(metric, after)}"
        for metric, (before, after) in found.items()
    )


_SPELLED: dict[str, Callable[[float], str]] = {
    "spills": lambda value: f"{value:,} B",
    "stack": lambda value: f"{value:,} B",
    "shared": lambda value: f"{value:,} B",
    "occupancy": lambda value: f"{value:.1%}",
}


def _span(metric: str, values: Sequence[object]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) < len(values):
        return "|".join(dict.fromkeys(map(str, values)))
    spell = _SPELLED.get(metric, "{:,}".format)
    low, high = min(numbers), max(numbers)
    return spell(low) if low == high else f"{spell(low)} to {spell(high)}"


# --- where -------------------------------------------------------------------------------------


def _where(cells: Sequence[Facts]) -> str:
    """The coordinates that the cells share, or how many there are; configs where they are few."""
    labels = [Config.of(dict(each.config)).label for each in cells]
    parts = [
        _some([each.kernel for each in cells], "kernels"),
        _some([each.launch for each in cells], "launches"),
        _some([each.target for each in cells], "targets"),
        _some([each.compiler_name if each.compiler else "PTX" for each in cells], "Tritons"),
        _tools(cells),
        _some(labels, "configs", shown=1),
    ]
    return " · ".join(parts)


def _tools(cells: Sequence[Facts]) -> str:
    """The assembler with its versions; of several, each with its own."""
    kinds = list({assembler_name(each.assembler) for each in cells})
    if len(kinds) > 1:
        return _some([each.tool for each in cells], "assemblers")
    versions = [
        f"{each.ptxas} (bundled)" if each.ptxas_origin == BUNDLED else each.ptxas
        for each in cells
        if each.ptxas
    ]
    return f"{kinds[0]} {_some(versions, 'versions')}" if versions else kinds[0]


def _some(words: Sequence[str], what: str, shown: int = _SHOWN) -> str:
    found = list(dict.fromkeys(words))
    return ", ".join(found) if len(found) <= shown else f"{len(found)} {what}"


def _command(change: Change) -> str:
    """How to look at the cell: what the compiler said, or the machine code it made."""
    stage = None
    if change.newer is not None:
        stage = "sass" if change.newer.verdict in _COMPILES else "log"
    return show_command(change.facts.short, stage)
