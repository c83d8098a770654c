"""What a pull request does to machine code: terminal, comment, SARIF, JUnit and JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec
from msgspec import structs

import harness
from harness.diff.diff_words import (
    ChangedCell,
    ChangeGroup,
    ChangesDocument,
    changes_document,
    changes_said,
    group_changes,
    moved,
    set_said,
)
from harness.diff.sets import does_work
from harness.tables.file_templates import foreign_cell, markdown_code
from harness.tables.said import SaidLine, say
from harness.values.change import Change, ChangeKind, ConfigSet, PullRequest
from harness.values.row import Facts

MARK = "<!-- kernel-triage: pull request -->"
"""The first line of a comment: by it, the next run finds the one to update."""

_LIMIT = 48_000
_BETTER = (ChangeKind.FIXED, ChangeKind.METRIC_BETTER)
_NAMED = {ChangeKind.METRIC_WORSE: "worse numbers", ChangeKind.METRIC_BETTER: "better numbers"}
_FOOT = """A cell is one config, for one target, by one toolchain. Spills are the bytes that a
thread stores and loads. `sick`: it compiles, but likely to slow code."""
_BARS = 8
_COLUMNS: Mapping[str, str] = {
    "verdict": "verdict",
    "n_regs": "registers",
    "spills": "spills (B)",
    "stack": "stack (B)",
    "shared": "shared (B)",
    "tmem_size": "tensor memory",
    "occupancy": "occupancy",
}


def pr_said(result: PullRequest) -> list[SaidLine]:
    """As `triage diff`, and how many cells have the same machine code."""
    if result.unreached is not None:
        return [say(f"{_sides(result)}: nothing changed"), say(_code_words(result))]
    said = changes_said(
        result.changes, informational=True, sides=_sides(result), calm=_calm(result)
    )
    return [*said, *map(say, (*result.renamed, _code_words(result)))]


def _sides(result: PullRequest) -> str:
    return f"{result.base} -> {result.head}"


def _code_words(result: PullRequest) -> str:
    if result.unreached is not None:
        files = ", ".join(result.unreached[:3]) + (", ..." if len(result.unreached) > 3 else "")
        why = f"{files}: comments and layout alone" if files else "no file differs"
        return f"nothing was compiled: {why}"
    compiled = [facts for facts in result.cells if not facts.is_executed]
    targets = ", ".join(dict.fromkeys(facts.target for facts in result.cells))
    words = f"{result.same_code:,} of {len(compiled):,} cells have the same machine code"
    if none := sum(not facts.cubin_sha256 for facts in compiled):
        words += f"; {none:,} have none"
    if result.other_code:
        words += f"; {len(result.other_code):,} have other code with the same registers and memory"
    if result.changes.informational:
        words += f"; {len(result.changes.informational):,} changed too little to count"
    executed = len(result.cells) - len(compiled)
    words += f"; {executed:,} cells were executed" if executed else "; nothing was executed"
    return f"compiled for {targets}: {words}" if targets else words


class ConfigsAlive(msgspec.Struct, frozen=True):
    """A kernel, its launch and target: of `base` and `head` the configs that work, and all.

    `spills` are those of the best config of each, in bytes; null where none works or none is known.
    """

    place: str
    base: tuple[int, int]
    head: tuple[int, int]
    toolchain: str
    spills: tuple[int | None, int | None]


class PullRequestDocument(ChangesDocument, frozen=True, kw_only=True):
    """What `triage pr --json` prints: as `triage diff --json`, and what is compared.

    `cells` counts those of head, `same_code` those of them whose machine code is that of base,
    `other_code` those whose code is another one with the same numbers, `unexpected` the failures of
    head that no matrix expects. `renamed` says which
    launches have another name in base, `failures` which could be captured there alone.
    """

    informational: Sequence[ChangedCell]
    base: str
    head: str
    cells: int
    same_code: int
    other_code: int
    unexpected: int
    alive: Sequence[ConfigsAlive]
    not_compiled_because: str | None
    renamed: Sequence[str]
    failures: Sequence[str]
    notes: Sequence[str]


def pr_document(result: PullRequest) -> PullRequestDocument:
    """The document of a pull request."""
    parts = {
        **structs.asdict(result),
        **structs.asdict(changes_document(result.changes, informational=True)),
        "cells": len(result.cells),
        "other_code": len(result.other_code),
        "alive": [
            ConfigsAlive(_place(each), each.older, each.newer, each.toolchain, each.spills)
            for each in result.changes.sets
        ],
        "not_compiled_because": None if result.unreached is None else _code_words(result),
    }
    return msgspec.convert(parts, PullRequestDocument)


def as_markdown(result: PullRequest) -> str:
    """The comment: what got worse, what got better, counts; each cell in a fold.

    Under 48,000 bytes: cells that do not fit are counted.
    """
    changes = result.changes.changes
    worse = [change for change in changes if change.kind.is_bad]
    gaps = [change for change in changes if change.kind.is_gap]
    better = [change for change in changes if change.kind in _BETTER]
    others = [change for change in changes if change not in (*worse, *gaps, *better)]
    broken = sum(change.kind is ChangeKind.REGRESSED for change in worse)
    fixed = sum(change.kind is ChangeKind.FIXED for change in better)
    no_longer = f" ({broken:,} no longer {'works' if broken == 1 else 'work'})" if broken else ""
    headline = [
        f"{len(some):,} {words}"
        for some, words in (
            (worse, f"worse{no_longer}"),
            (better, f"better ({fixed:,} fixed)" if fixed else "better"),
            (gaps, "not known"),
            (result.failures, "not captured"),
        )
        if some
    ]
    headline = [*(headline or [_calm(result)]), *_more(result)]
    lines = [MARK, f"### triage: {', '.join(headline)}{_fewer(result)}", ""]
    lines += [
        f"{markdown_code(result.base)} → {markdown_code(result.head)}, {_code_words(result)}."
    ]
    lines += [f"- {foreign_cell(words)}" for words in result.renamed[:20]]
    lines += [f"- not captured: {foreign_cell(failure)}" for failure in result.failures[:20]]
    for title, some in (
        ("Worse", worse),
        ("Better", better),
        ("Not known", gaps),
        ("Else", others),
    ):
        if some:
            lines += ["", f"**{title}**", "", "| cells | what | where |", "|--:|---|---|"]
            lines += [
                f"| {len(group.changes):,} | **{_NAMED.get(group.kind, group.kind.value)}**: "
                f"{foreign_cell(group.what)} "
                f"| {foreign_cell(group.where)} |"
                for group in _by_kernel(some)[:20]
            ]
            if (more := len(_by_kernel(some)) - 20) > 0:
                lines.append(f"| | {more} more of this kind | |")
    lost = [each for each in result.changes.sets if each.older != each.newer and each.older[1]]
    if lost:
        lines += ["", "**Configs that work**", "", "| kernel | base | head | with |"]
        lines += [
            "|---|--:|--:|---|",
            *(
                f"| {foreign_cell(_place(each))} | {each.older[0]} of {each.older[1]} "
                f"| {each.newer[0]} of {each.newer[1]} | {foreign_cell(each.toolchain)} |"
                for each in lost[:50]
            ),
        ]
    every = [*worse, *better, *gaps, *others, *result.changes.informational, *result.other_code]
    lines += _picture(every)
    lines += _fold(every, _LIMIT - len("\n".join(lines).encode()) - 1_000 - len(_FOOT))
    if result.command:
        lines += ["", f"Here: {markdown_code(result.command)}"]
    return "\n".join(lines) + "\n"


def _more(result: PullRequest) -> Iterator[str]:
    """What is neither worse nor better, and has to be known: launches gone, new configs failing."""
    kept = {_place(facts) for facts in result.cells}
    gone = {
        (facts.kernel, facts.launch)
        for change in result.changes.changes
        if change.kind is ChangeKind.REMOVED and _place(facts := change.facts) not in kept
    }
    if gone:
        yield f"{len(gone):,} {'launch is' if len(gone) == 1 else 'launches are'} gone"
    failing = sum(
        change.kind is ChangeKind.NEW and change.facts.verdict.is_failure
        for change in result.changes.changes
    )
    if failing:
        yield f"{failing:,} new {'cell fails' if failing == 1 else 'cells fail'}"


def _fewer(result: PullRequest) -> str:
    """The launch that lost most configs, one without any first; and how many more did."""
    worse = (change for change in result.changes.changes if change.kind.is_bad)
    sets = list(dict.fromkeys(change.configs for change in worse if change.configs))
    if not sets:
        return ""
    worst = min(
        sets, key=lambda each: (each.newer[0] > 0, each.newer[0] - each.older[0], _place(each))
    )
    more = f" (and {len(sets) - 1:,} more)" if len(sets) > 1 else ""
    words = f"{worst.kernel} · {worst.launch} on {worst.target}: {set_said(worst)}{more}"
    return f": {foreign_cell(words)}"


def _calm(result: PullRequest) -> str:
    is_same = not (result.changes.changes or result.changes.informational or result.other_code)
    return "nothing changed" if is_same else "nothing is worse"


def _by_kernel(changes: Sequence[Change]) -> list[ChangeGroup]:
    """As `triage diff` groups them, but no two kernels in one."""
    kernels = dict.fromkeys(change.facts.kernel for change in changes)
    return [
        group
        for kernel in kernels
        for group in group_changes(change for change in changes if change.facts.kernel == kernel)
    ]


def _picture(changes: Sequence[Change]) -> Iterator[str]:
    """The cells whose spills, else registers, moved most, in Mermaid: GitHub draws it.

    What cannot be launched spills nothing: only configs that work on both sides are drawn.
    """
    for metric in ("spills", "n_regs"):
        bars = [
            (change.facts, before, after)
            for change in changes
            if change.older and (before := getattr(change.older, metric)) is not None
            if change.newer and (after := getattr(change.newer, metric)) is not None
            if does_work(change.older) and does_work(change.newer)
            if before != after
        ]
        if bars:
            break
    else:
        return
    most = sorted(bars, key=lambda cell: -abs(cell[2] - cell[1]))[:_BARS]
    # Mermaid leaves out labels that are longer than a fifth of its width: the names come below.
    labels = [f'"{n} {side}"' for n in range(1, len(most) + 1) for side in ("base", "head")]
    numbers = [number for _, *sides in most for number in sides]
    yield from ("", "```mermaid", "xychart-beta horizontal")
    yield from (f'title "{_COLUMNS[metric]} of a thread"', f"x-axis [{', '.join(labels)}]")
    yield from (f"y-axis 0 --> {max(numbers)}", f"bar {numbers}", "```", "")
    for number, (facts, *_) in enumerate(most, 1):
        yield f"{number}. {foreign_cell(_name(facts))}"


def _place(cells: Facts | ConfigSet) -> str:
    return f"{cells.kernel} · {cells.launch} · {cells.target}"


def _name(facts: Facts) -> str:
    place = f"{facts.kernel} · {facts.launch} · {facts.config_label}"
    return f"{place} · {facts.target} · {facts.tool}"


def _fold(changes: Sequence[Change], room: int) -> Iterator[str]:
    """A table of cells, as many as there is room for in bytes."""
    if not changes:
        return
    sides = [side for change in changes for side in (change.older, change.newer) if side]
    columns = [metric for metric in _COLUMNS if any(getattr(side, metric) for side in sides)]
    yield from ("", f"<details><summary>Each cell ({len(changes):,})</summary>", "")
    yield f"| cell | {' | '.join(_COLUMNS[metric] for metric in columns)} |"
    yield "|---|" + "---|" * len(columns)
    for number, change in enumerate(changes):
        numbers = (" → ".join(moved(change, metric)) for metric in columns)
        line = f"| {foreign_cell(_name(change.facts))} | {' | '.join(numbers)} |"
        room -= len(line.encode()) + 1
        if room < 0:
            yield from ("", f"... and {len(changes) - number:,} more: `--json` has them.")
            break
        yield line
    yield from ("", _FOOT, "", "</details>")


def as_sarif(result: PullRequest) -> dict[str, Any]:
    """SARIF 2.1.0: what got worse, at the line where its kernel begins."""
    worse = [change for change in result.changes.changes if change.kind.is_bad]
    kinds = list(dict.fromkeys(change.kind for change in worse))
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kernel-triage",
                        "version": harness.__version__,
                        "rules": [{"id": kind.value} for kind in kinds],
                    }
                },
                "results": [
                    {
                        "ruleId": change.kind.value,
                        "level": "error" if change.kind in _ERRORS else "warning",
                        "message": {"text": _sentence(change)},
                        "partialFingerprints": {"cell/v1": change.facts.short},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": path, "uriBaseId": "%SRCROOT%"},
                                    "region": {"startLine": line},
                                }
                            }
                            for path, line in filter(None, [result.lines.get(change.facts.cell)])
                        ],
                    }
                    for change in worse
                ],
            }
        ],
    }


_ERRORS = (ChangeKind.REGRESSED, ChangeKind.MUTATED)


def _sentence(change: Change) -> str:
    facts = change.facts
    group = group_changes([change])[0]
    return f"{facts.kernel} on {facts.target}: {group.kind.value}: {group.what} ({group.where})"


def as_junit(result: PullRequest) -> str:
    """JUnit: a suite for each kernel, launch and target; a case for each cell of head."""
    by_cell = {change.facts.cell: change for change in result.changes.changes}
    suites: dict[str, list[str]] = {}
    bad: dict[str, list[int]] = {}
    for facts in result.cells:
        place = _place(facts)
        name = f"{facts.config_label} · {facts.cell.split('/', 3)[-1]}"
        change = by_cell.get(facts.cell)
        counts = bad.setdefault(place, [0, 0])
        inside = ""
        if change and change.kind.is_bad:
            inside = f"<failure message={quoteattr(_sentence(change))}/>"
            counts[0] += 1
        elif change and change.kind.is_gap:
            inside = f"<error message={quoteattr(_sentence(change))}/>"
            counts[1] += 1
        case = f"<testcase classname={quoteattr(place)} name={quoteattr(name)}>{inside}</testcase>"
        suites.setdefault(place, []).append(case)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites name="triage pr">']
    for place, cases in suites.items():
        failures, errors = bad[place]
        lines.append(
            f'<testsuite name={quoteattr(place)} tests="{len(cases)}" failures="{failures}" '
            f'errors="{errors}">'
        )
        lines += [*cases, "</testsuite>"]
    return "\n".join([*lines, "</testsuites>"]) + "\n"
