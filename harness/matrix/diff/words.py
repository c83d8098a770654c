"""What changed, for people and as a document. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.matrix.diff.groups import ChangeGroup, group_changes
from harness.tables.said import SaidLine, Tone, say
from harness.values.change import Change, ChangeKind, Changes, Facts, MetricStep, Surprise
from harness.values.kernel import Scalar

_TONES = {
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


def changes_said(changes: Changes, *, informational: bool = False) -> list[SaidLine]:
    """The headline, then each piece of news: how many, what, where, and the command to look."""
    lines = [say(_headline(changes), Tone.HEAD)]
    for group in group_changes(changes.changes):
        lines += _group(group, group.kind.value, _TONES.get(group.kind, Tone.PLAIN))
    if informational:
        for group in group_changes(changes.informational):
            lines += _group(group, "informational", Tone.FAINT)
    lines += [say(_surprise(each), Tone.POOR) for each in changes.surprises]
    lines += [say(each, Tone.GOOD) for each in changes.expired]
    return lines + [say(each, Tone.BAD) for each in changes.broken]


def _headline(changes: Changes) -> str:
    runs = f"run {changes.newer}"
    if changes.older is not None:
        runs = f"run {changes.older} -> run {changes.newer}"
    news = [
        f"{count:,} {kind.value}"
        for kind, count in changes.counts.items()
        if count and not kind.is_quiet
    ]
    quiet = [f"{changes.counts[kind]:,} {words}" for kind, words in _QUIET_WORDS.items()
             if changes.counts.get(kind)]  # fmt: skip
    return f"{runs}: {', '.join(news) or 'nothing changed'}" + (
        f" ({', '.join(quiet)})" if quiet else ""
    )


def _group(group: ChangeGroup, title: str, tone: Tone) -> list[SaidLine]:
    words = f": {group.what}"
    if group.since:
        since = "nothing changed with" if group.kind is ChangeKind.NEW else "since"
        words += f" ({since} {group.since})"
    if group.issue:
        words += f" [{group.issue}]"
    return [
        say(f"{len(group.changes):>5,} ") + say(title, tone) + say(words),
        say(f"      {group.where}"),
        say(f"      {group.command}", Tone.FAINT),
    ]


def _surprise(found: Surprise) -> str:
    expected = found.expectation
    place = f"matrix.yaml line {expected.line}" if expected.line else "the matrix"
    cells = "1 cell is" if found.cells == 1 else f"{found.cells:,} cells are"
    return (
        f"{cells} {found.verdict}, as before, though {place} expects {expected.verdict}: "
        f"change `expect` (triage show {found.example})"
    )


def changes_document(changes: Changes, *, informational: bool = False) -> dict[str, Any]:
    """What `triage diff --json` prints: counts of all kinds, and the cells of those that matter."""
    document: dict[str, Any] = {
        "schema": 1,
        "older": changes.older,
        "newer": changes.newer,
        "counts": {kind.value: changes.counts.get(kind, 0) for kind in ChangeKind},
        "changes": changes_by_kind(changes),
        "groups": [_group_document(group) for group in group_changes(changes.changes)],
        "surprises": [
            {
                "verdict": each.verdict,
                "expected": each.expectation.verdict,
                "issue": each.expectation.issue,
                "line": each.expectation.line,
                "cells": each.cells,
                "example": each.example,
            }
            for each in changes.surprises
        ],
        "expired_workarounds": changes.expired,
        "broken_workarounds": changes.broken,
    }
    if informational:
        document["informational"] = [_changed_cell(each) for each in changes.informational]
    return document


def changes_by_kind(changes: Changes) -> dict[str, list[ChangedCell]]:
    """Each kind that is news, with its cells: `changes` of `triage matrix run --json` too."""
    found: dict[str, list[ChangedCell]] = {
        kind.value: [] for kind in ChangeKind if not kind.is_quiet
    }
    for change in changes.changes:
        found[change.kind.value].append(_changed_cell(change))
    return found


def _group_document(group: ChangeGroup) -> dict[str, Any]:
    return {
        "kind": group.kind.value,
        "count": len(group.changes),
        "what": group.what,
        "where": group.where,
        "since": group.since,
        "issue": group.issue,
        "command": group.command,
    }


@dataclass(frozen=True, slots=True)
class _Side:
    """A cell in one of the runs."""

    cell: str
    verdict: str
    reason: str
    signature: str | None
    n_regs: int | None
    spill_stores: int | None
    spill_loads: int | None
    occupancy: float | None


@dataclass(frozen=True, slots=True)
class _Step:
    metric: str
    older: int | float | str
    newer: int | float | str
    severity: str
    worse: bool


@dataclass(frozen=True, slots=True)
class ChangedCell:
    """One cell in the document. No dict: there may be a hundred thousand."""

    cell: str
    short: str
    kernel: str
    launch: str
    config: Mapping[str, Scalar]
    target: str
    triton: str | None
    ptxas: str | None
    ptxas_origin: str | None
    older: _Side | None
    newer: _Side | None
    steps: tuple[_Step, ...]
    since: str | None
    issue: str | None


def _changed_cell(change: Change) -> ChangedCell:
    facts = change.facts
    return ChangedCell(
        cell=facts.cell,
        short=facts.short,
        kernel=facts.kernel,
        launch=facts.launch,
        config=facts.config,
        target=facts.target,
        triton=facts.triton,
        ptxas=facts.ptxas,
        ptxas_origin=facts.ptxas_origin,
        older=_side(change.older),
        newer=_side(change.newer),
        steps=tuple(_step(step) for step in change.steps),
        since=change.since,
        issue=change.expectation.issue if change.expectation else None,
    )


def _step(step: MetricStep) -> _Step:
    severity = step.severity.name.lower().replace("_", "-")
    return _Step(step.metric, step.older, step.newer, severity, step.worse)


def _side(facts: Facts | None) -> _Side | None:
    if facts is None:
        return None
    return _Side(
        cell=facts.cell,
        verdict=facts.verdict,
        reason=facts.reason,
        signature=facts.signature,
        n_regs=facts.n_regs,
        spill_stores=facts.spill_stores,
        spill_loads=facts.spill_loads,
        occupancy=facts.occupancy,
    )
