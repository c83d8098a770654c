"""What changed, for people and as a document. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, structs

from harness.cells.spelling import show_command
from harness.tables.said import SaidLine, Tone, say
from harness.tables.survivors import common_reason
from harness.values.change import Change, ChangeKind, Changes, ConfigSet, Severity, Surprise
from harness.values.kernel import Scalar
from harness.values.row import SCHEMA, Facts
from harness.values.toolchain import BUNDLED, EMULATOR, EXECUTOR_NAMES, assembler_name
from harness.values.verdict import VerdictKind

# Changes that are one piece of news: grouped by what happened, with where and how to see it.

_SHOWN = 3


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

    @property
    def count(self) -> int:
        """How many cells."""
        return len(self.changes)


def group_changes(changes: Iterable[Change]) -> list[ChangeGroup]:
    """The groups by kind, the gravest first, new failures after what is worse; then the largest."""
    by_key: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        by_key.setdefault(_key(change), []).append(change)
    groups = [_group(members) for members in by_key.values()]
    order = list(ChangeKind)

    def place(group: ChangeGroup) -> tuple[int, int, int]:
        facts = group.changes[0].facts
        is_new_failure = group.kind is ChangeKind.NEW and facts.verdict.is_failure
        kind = ChangeKind.FIXED if is_new_failure else group.kind
        return order.index(kind), -is_new_failure, -len(group.changes)

    return sorted(groups, key=place)


def _key(change: Change) -> tuple[object, ...]:
    issue = change.expectation.issue if change.expectation else None
    if change.kind in (ChangeKind.MISSING, ChangeKind.REMOVED):
        return (change.kind,)
    if change.kind is ChangeKind.EXCLUDED:
        return change.kind, change.why
    if change.kind is ChangeKind.NEW:
        return change.kind, _outcome(change.newer), change.since
    if change.steps:
        gravest = change.steps[0]
        other = change.is_of_other_configs
        return change.kind, gravest.metric, gravest.worse, change.since, issue, other
    words = _set_words(change)
    return change.kind, _outcome(change.older), _outcome(change.newer), change.since, issue, words


def _outcome(facts: Facts | None) -> tuple[str, str | None] | None:
    # What compiles differs in numbers, not in kind; its signature says nothing.
    if facts is None or facts.verdict.compiles:
        return (facts.verdict, None) if facts else None
    return facts.outcome


def _group(changes: Sequence[Change]) -> ChangeGroup:
    first = changes[0]
    # How to look at the cell: what the compiler said, or the machine code it made.
    stage = None
    if first.newer is not None:
        stage = "sass" if first.newer.verdict.compiles else "log"
    cells = [change.facts for change in changes]
    # The coordinates that the cells share, or how many there are; configs where they are few.
    parts = [
        _some([cell.kernel for cell in cells], "kernels"),
        _some([cell.launch for cell in cells], "launches"),
        _some([cell.target for cell in cells], "targets"),
        _some([cell.compiler_name if cell.compiler else "PTX" for cell in cells], "Tritons"),
        _tools(cells),
        _some([cell.config_label for cell in cells], "configs", shown=1),
    ]
    return ChangeGroup(
        kind=first.kind,
        changes=tuple(changes),
        what=_what(changes),
        where=" · ".join(parts),
        since=first.since if all(change.since == first.since for change in changes) else None,
        issue=first.expectation.issue if first.expectation else None,
        command=show_command(first.facts.short, stage),
    )


def _what(changes: Sequence[Change]) -> str:
    first = changes[0]
    sets = {change.configs for change in changes}
    each = f" at each of {len(sets)} places" if first.configs and len(sets) > 1 else ""
    if first.steps:
        return f"{_steps(changes)}{_set_words(first)}"
    older = [change.older for change in changes if change.older]
    newer = [change.newer for change in changes if change.newer]
    if first.kind is ChangeKind.MISSING:
        return f"was {_verdicts(older)}"
    if first.kind is ChangeKind.REMOVED:
        return f"not launched by the source any more; was {_verdicts(older)}"
    if first.kind is ChangeKind.EXCLUDED:
        return f"since then, by the matrix ({first.why}); was {_verdicts(older)}"
    if first.kind is ChangeKind.NEW:
        return _said(newer)
    if first.kind is ChangeKind.FLAKY:
        return f"{_verdicts(older)} -> {_said(newer)}; its own runs disagree"
    if first.kind is ChangeKind.FIXED:
        expected = f"expected {first.expectation.verdict}" if first.expectation else None
        before = _said(older) if older else expected or "not known before"
        return f"{before} -> {_verdicts(newer)}{_set_words(first, each)}"
    before = _verdicts(older) or "not known before"
    if first.kind is ChangeKind.MUTATED:
        before = _said(older)
    if first.kind is ChangeKind.REGRESSED and first.expectation:
        before = f"expected {first.expectation.verdict}, {before}"
    return f"{before} -> {_said(newer)}{_set_words(first, each)}"


def _set_words(change: Change, each: str = "") -> str:
    """What its set of configs adds to the words of a cell: nothing, where some of it still work.

    `each` says of how many sets it is true.
    """
    changed, configs = change.is_of_other_configs, change.configs
    if change.steps:
        return ", for the best config of another list" if changed else ""
    if configs and (changed or (configs.older[1] > 1 and not configs.newer[0])):
        return f"; {'another list: ' if changed else ''}{set_said(configs)}{each}"
    return ""


def set_said(configs: ConfigSet) -> str:
    """`0 of 8 configs work, before 8 of 8`."""
    (before, old), (now, new) = configs.older, configs.newer
    return f"{now:,} of {new:,} configs work, before {before:,} of {old:,}"


def _verdicts(facts: Sequence[Facts]) -> str:
    return ", ".join(dict.fromkeys(cell.verdict for cell in facts))


def _said(facts: Sequence[Facts]) -> str:
    words = _verdicts(facts)
    return words if words == VerdictKind.OK.value else f"{words} ({common_reason(facts)})"


def _steps(changes: Sequence[Change]) -> str:
    """`spills 0 -> 16 to 48 B; registers 128 -> 160`: the metrics that moved enough, in order."""
    spans: dict[str, tuple[list[object], list[object]]] = {}
    least = min(max(step.severity for step in change.steps) for change in changes)
    for change in changes:
        for step in change.steps:
            if step.severity > Severity.INFORMATIONAL or least is Severity.INFORMATIONAL:
                before, after = spans.setdefault(step.metric, ([], []))
                before.append(step.older)
                after.append(step.newer)
    return "; ".join(
        f"{_NAMED.get(metric, metric)} {_span(metric, before)} -> {_span(metric, after)}"
        for metric, (before, after) in spans.items()
    )


_NAMED = {"n_regs": "registers"}
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


def moved(change: Change, metric: str) -> list[str]:
    """The number (or verdict) of the older side and of the newer one; one text where both agree."""
    sides = []
    for value in (getattr(facts, metric) for facts in (change.older, change.newer) if facts):
        words = f"{value:,}" if isinstance(value, int) else str(value)
        if metric == "occupancy":
            words = f"{value:.1%}" if value else "cannot launch"
        sides.append("-" if value is None else words)
    return list(dict.fromkeys(sides))


def _tools(cells: Sequence[Facts]) -> str:
    kinds = list({assembler_name(cell.assembler) for cell in cells})
    if len(kinds) > 1:
        return _some([cell.tool for cell in cells], "assemblers")
    if all(cell.ptxas == EMULATOR for cell in cells):
        return EXECUTOR_NAMES[EMULATOR]
    versions = [
        f"{cell.ptxas} (bundled)" if cell.ptxas_origin == BUNDLED else cell.ptxas
        for cell in cells
        if cell.ptxas
    ]
    return f"{kinds[0]} {_some(versions, 'versions')}" if versions else kinds[0]


def _some(words: Sequence[str], noun: str, shown: int = _SHOWN) -> str:
    unique = list(dict.fromkeys(words))
    return ", ".join(unique) if len(unique) <= shown else f"{len(unique)} {noun}"


TONES = {
    ChangeKind.REGRESSED: Tone.ALARM,
    ChangeKind.MUTATED: Tone.BAD,
    ChangeKind.METRIC_WORSE: Tone.POOR,
    ChangeKind.FLAKY: Tone.POOR,
    ChangeKind.FIXED: Tone.RELIEF,
    ChangeKind.METRIC_BETTER: Tone.GOOD,
    ChangeKind.NEW: Tone.NOTE,
}
_QUIET_WORDS = {
    ChangeKind.SAME_OK: "compile as before",
    ChangeKind.SAME_FAIL: "fail as before",
    ChangeKind.SAME_UNTOLD: "could not be determined, as before",
    ChangeKind.EXPECTED: "fail as expected",
}


def changes_said(
    changes: Changes,
    *,
    informational: bool = False,
    sides: str | None = None,
    calm: str = "nothing changed",
) -> list[SaidLine]:
    """The headline, then each piece of news: how many, what, where, and the command to look.

    `sides` names what is compared; else that is by the numbers of the runs. `calm` is the headline
    where there is no news.
    """
    older = f"run {changes.older} -> " if changes.older is not None else ""
    news = [
        f"{count:,} {kind.value}"
        for kind, count in changes.counts.items()
        if count and not kind.is_quiet
    ]
    quiet = [f"{changes.counts[kind]:,} {words}" for kind, words in _QUIET_WORDS.items()
             if changes.counts.get(kind)]  # fmt: skip
    lines = [
        say(
            f"{sides or f'{older}run {changes.newer}'}: {', '.join(news) or calm}"
            + (f" ({', '.join(quiet)})" if quiet else ""),
            Tone.HEAD,
        )
    ]
    for group in group_changes(changes.changes):
        lines += _group_words(group, group.kind.value, TONES.get(group.kind, Tone.PLAIN))
    if informational:
        for group in group_changes(changes.informational):
            lines += _group_words(group, "informational", Tone.FAINT)
    for each in changes.surprises:
        place = f"matrix.yaml line {each.line}" if each.line else "the matrix"
        cells = "1 cell is" if each.cells == 1 else f"{each.cells:,} cells are"
        words = f"{cells} {each.verdict}, as before, though {place} expects {each.expected}"
        lines.append(say(f"{words}: change `expect` (triage show {each.example})", Tone.POOR))
    lines += [say(words, Tone.GOOD) for words in changes.expired]
    return lines + [say(words, Tone.BAD) for words in changes.broken]


def _group_words(group: ChangeGroup, title: str, tone: Tone) -> list[SaidLine]:
    words = f": {group.what}"
    if group.since:
        since = "nothing changed with" if group.kind is ChangeKind.NEW else "since"
        words += f" ({since} {group.since})"
    if group.issue:
        words += f" [{group.issue}]"
    return [
        say(f"{group.count:>5,} ") + say(title, tone) + say(words),
        say(f"      {group.where}"),
        say(f"      {group.command}", Tone.FAINT),
    ]


class ChangedSide(msgspec.Struct, frozen=True):
    """A cell in one of the runs; the keys are those of a row."""

    cell: str
    verdict: VerdictKind
    reason: str
    signature: str | None
    n_regs: int | None
    spill_stores: int | None
    spill_loads: int | None
    occupancy: float | None
    shared: int | None


class ChangedNumber(msgspec.Struct, frozen=True):
    """A number, or the health (`ok` or `sick`), that is not what it was."""

    metric: str
    older: int | float | str
    newer: int | float | str
    severity: str
    worse: bool


class ChangedCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell; a side is null where there was (or is) nothing."""

    cell: str
    short: str
    kernel: str
    launch: str
    config: Mapping[str, Scalar]
    target: str
    triton: str | None
    ptxas: str | None
    ptxas_origin: str | None
    older: ChangedSide | None
    newer: ChangedSide | None
    steps: tuple[ChangedNumber, ...]
    since: str | None
    issue: str | None


class ListedGroup(msgspec.Struct, frozen=True):
    """Cells to which the same thing happened, in words; `command` shows one of them."""

    kind: ChangeKind
    count: int
    what: str
    where: str
    since: str | None
    issue: str | None
    command: str


class ChangesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `triage diff --json` prints: counts of all kinds, and the cells of those that matter.

    `older` and `newer` are numbers of runs. `informational` are differences too small to count.
    """

    schema: Literal[1]
    older: int | None
    newer: int
    counts: Mapping[ChangeKind, int]
    changes: Mapping[ChangeKind, Sequence[ChangedCell]]
    groups: Sequence[ListedGroup]
    surprises: Sequence[Surprise]
    expired_workarounds: Sequence[str]
    broken_workarounds: Sequence[str]
    informational: Sequence[ChangedCell] | UnsetType = UNSET


def changes_document(changes: Changes, *, informational: bool = False) -> ChangesDocument:
    """The document of two runs."""
    by_kind: dict[ChangeKind, list[ChangedCell]] = {
        kind: [] for kind in ChangeKind if not kind.is_quiet
    }
    for change in changes.changes:
        by_kind[change.kind].append(changed_cell(change))
    return ChangesDocument(
        schema=SCHEMA,
        older=changes.older,
        newer=changes.newer,
        counts={kind: changes.counts.get(kind, 0) for kind in ChangeKind},
        changes=by_kind,
        groups=msgspec.convert(
            group_changes(changes.changes), list[ListedGroup], from_attributes=True
        ),
        surprises=changes.surprises,
        expired_workarounds=changes.expired,
        broken_workarounds=changes.broken,
        informational=list(map(changed_cell, changes.informational)) if informational else UNSET,
    )


def changed_cell(change: Change) -> ChangedCell:
    """The change as documents have it."""
    parts: dict[str, Any] = {
        **structs.asdict(change.facts),
        "older": change.older,
        "newer": change.newer,
        "steps": [
            {**structs.asdict(step), "severity": step.severity.name.lower().replace("_", "-")}
            for step in change.steps
        ],
        "since": change.since,
        "issue": change.expectation.issue if change.expectation else None,
    }
    return msgspec.convert(parts, ChangedCell, from_attributes=True)
