"""Bugs, for people and as documents. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from harness.cells.spelling import show_command
from harness.judging.conditions import Condition, spell
from harness.store.bug_identity import signature_of
from harness.tables.said import Block, GridColumn, SaidFacts, SaidGrid, SaidLine, Tone, say
from harness.tables.summary import plural
from harness.values.bug import Bug, BugRecord, HumanState, KeptWorkaround, MachineState

_TONES = {
    MachineState.REGRESSED: Tone.ALARM,
    MachineState.NEW: Tone.BAD,
    MachineState.CONFIRMED: Tone.BAD,
    MachineState.PRESENT: Tone.BAD,
    MachineState.MUTATED: Tone.POOR,
    MachineState.FLAKY: Tone.POOR,
    MachineState.UNTESTABLE: Tone.FAINT,
    MachineState.ABSENT: Tone.NOTE,
    MachineState.GONE: Tone.NOTE,
    MachineState.FIXED_CANDIDATE: Tone.NOTE,
    MachineState.FIXED_VERIFIED: Tone.GOOD,
}
_FIELDS = (
    *("stage", "kind", "code", "failing_pass", "title", "reason", "cells", "cells_now"),
    *("kernels", "targets", "first_seen", "last_seen", "compiled", "clean_nights", "ranges"),
    *("issues", "related", "likeness"),
)
_OF_PLACE = ("cells", "cells_now", "first_seen", "last_seen", "ranges")
_SHOWN_KERNELS = 2
_SHOWN_PAIRS = 10
_TITLE = 70


def command_of(bug: Bug) -> str:
    """The command that shows the example cell."""
    return show_command(bug.example.short, "log")


def bugs_document(bugs: Sequence[Bug]) -> dict[str, Any]:
    """All bugs, as `--json` prints them."""
    return {"schema": 1, "bugs": [_fields(bug) for bug in bugs]}


def bug_document(bug: Bug, workarounds: Sequence[KeptWorkaround] = ()) -> dict[str, Any]:
    """One bug, as `--json` prints it."""
    return {"schema": 1, "bug": {**_fields(bug), "workarounds": workarounds}}


def record_document(record: BugRecord) -> dict[str, Any]:
    """What people say of a bug, as `--json` prints it."""
    return {"schema": 1, "bug": _said(record)}


def _said(record: BugRecord) -> dict[str, Any]:
    said = structs.asdict(record)
    times = {name: said.pop(name) for name in ("created", "changed")}
    key, others = said.pop("key"), said.pop("other_keys")
    return {
        **said,
        "signature": signature_of(key),
        "program": key.partition("@")[2] or None,
        "other_signatures": others,
        **times,
    }


def _fields(bug: Bug) -> dict[str, Any]:
    example = bug.example
    return {
        **_said(bug.record),
        "machine": bug.machine.value,
        **{name: getattr(bug, name) for name in _FIELDS},
        "joined": [_said(record) for record in bug.joined],
        "example": {"cell": example.cell, "short": example.short, "command": command_of(bug)},
    }


def bugs_said(bugs: Sequence[Bug]) -> list[Block]:
    """One line a bug."""
    if not bugs:
        return [say("no bugs: nothing that was compiled has failed")]
    columns = (
        GridColumn(title="bug", is_number=True, folds=True),
        GridColumn(title="state", folds=True),
        GridColumn(title="your label", folds=True),
        GridColumn(title="cells", is_number=True, folds=True),
        # All that may be long shares one column: it wraps at words, also on a narrow screen.
        GridColumn(title="failure, kernels, versions", wraps=True, folds=True),
    )
    return [SaidGrid(columns=columns, rows=tuple(map(_line, bugs))), *map(say, _alike(bugs))]


def _line(bug: Bug) -> tuple[SaidLine, ...]:
    names, title, people = list(bug.kernels), _title(bug), _people(bug.record)
    more = f" and {len(names) - _SHOWN_KERNELS} more" if len(names) > _SHOWN_KERNELS else ""
    kernels = ", ".join(names[:_SHOWN_KERNELS]) + more
    where = "; ".join(filter(None, (kernels, *(affected.short for affected in bug.ranges))))
    cut = title if len(title) <= _TITLE else f"{title[: _TITLE - 3]}..."
    failure = f"{_failure(bug)}: {cut}"
    link = "" if people == bug.record.state.value else people
    return (
        say(str(bug.record.number)),
        say(bug.machine.value, _TONES[bug.machine]),
        say(bug.record.state.value),
        say(f"{bug.cells_now:,}/{bug.cells:,}"),
        say("\n".join(filter(None, (failure, where, link)))),
    )


def held_document(places: Sequence[tuple[Bug, str]], condition: Condition) -> dict[str, Any]:
    """Where a condition holds, as `--json` prints it; what has a bug's name means the same."""
    held = [
        {
            **{name: getattr(place.example, name) for name in ("kernel", "target")},
            "numbers": numbers,
            **{name: getattr(place, name) for name in _OF_PLACE},
            "example": {name: getattr(place.example, name) for name in ("cell", "short")},
        }
        for place, numbers in places
    ]
    return {"schema": 1, "while": spell(condition), "held": held}


def held_said(places: Sequence[tuple[Bug, str]], condition: Condition) -> list[Block]:
    """One line a kernel and target: in how many cells, with which numbers and versions."""
    if not places:
        return [say(f"{spell(condition)} holds for no result")]
    columns = (
        GridColumn(title="cells", is_number=True, folds=True),
        GridColumn(title="example", folds=True),
        GridColumn(title="kernel, target, numbers, versions", wraps=True, folds=True),
    )
    rows = []
    for place, numbers in places:
        lines = (f"{place.example.kernel} · {place.example.target}", numbers)
        versions = [f"{affected.tool}: {affected.words}" for affected in place.ranges]
        cells = (
            f"{place.cells_now:,}/{place.cells:,}",
            place.example.short,
            "\n".join([*filter(None, lines), *versions]),
        )
        rows.append(tuple(map(say, cells)))
    return [SaidGrid(columns=columns, rows=tuple(rows), title=spell(condition))]


def _alike(bugs: Sequence[Bug]) -> list[str]:
    pairs = [
        (
            likeness.agrees is not True,
            f"bugs {bug.record.number} and {likeness.number} {likeness.words}",
        )
        for bug in bugs
        for likeness in bug.likeness
        if likeness.number > bug.record.number and likeness.agrees is not None
    ]
    lines = [words for _, words in sorted(pairs)]
    more = len(lines) - _SHOWN_PAIRS
    rest = [f"and {plural(more, 'more pair')}: triage bugs show N"] if more > 0 else []
    return [*lines[:_SHOWN_PAIRS], *rest]


def bug_said(bug: Bug, workarounds: Sequence[KeptWorkaround] = ()) -> list[Block]:
    """All that is known of one bug, and what was found to work around it."""
    facts = [
        (name, words if isinstance(words, SaidLine) else say(words)) for name, words in _facts(bug)
    ]
    for workaround in workarounds:
        patch = ", with a patch" if workaround.diff else ""
        facts.append(
            ("workaround", say(f"{workaround.change}{patch} (for {workaround.baseline.cell})"))
        )
    head = say(f"bug {bug.record.number}: {_failure(bug)}", Tone.HEAD)
    return [head, SaidFacts(tuple(facts))]


def _facts(bug: Bug) -> Iterator[tuple[str, str | SaidLine]]:
    record, example = bug.record, bug.example
    yield "message", _title(bug)
    if bug.failing_pass:
        yield "pass", bug.failing_pass
    state = say(bug.machine.value, _TONES[bug.machine])
    if bug.machine in (MachineState.FIXED_CANDIDATE, MachineState.FIXED_VERIFIED):
        nights = "1 whole night" if bug.clean_nights == 1 else f"{bug.clean_nights} whole nights"
        state += say(f" ({nights} without it, in all cells that had it, at their newest versions)")
        if bug.untried:
            state += say(f"; {bug.untried} was not seen to accept its smallest input")
    elif bug.machine is MachineState.ABSENT:
        state += say(" (it works with the newest versions that were tried; no whole night says so)")
    elif bug.machine is MachineState.GONE:
        state += say(" (the source has no cell any more that showed it)")
    yield "state", state
    yield "your label", _people(record)
    if record.note:
        yield "note", record.note
    key, _, program = record.key.partition("@")
    yield "signature", key
    if program:
        yield "program", f"{program}: the failure says nothing, so it is this program's bug"
    if record.other_keys:
        yield "also", ", ".join(record.other_keys)
    yield "cells", f"{bug.cells_now:,} of {bug.cells:,} that ever showed it"
    yield "kernels", ", ".join(f"{name} ({count:,})" for name, count in bug.kernels.items())
    yield "targets", ", ".join(bug.targets)
    yield "seen", f"first in run {bug.first_seen}, last in run {bug.last_seen}"
    for affected in bug.ranges:
        yield affected.tool, affected.words
    if bug.issues:
        yield "issues", ", ".join(bug.issues)
    for joined in bug.joined:
        yield f"bug {joined.number}", joined.note
    for likeness in bug.likeness:
        yield f"bug {likeness.number}", likeness.words
    compared = {likeness.number for likeness in bug.likeness}
    related = [number for number in bug.related if number not in compared]
    if related:
        yield "possibly related", ", ".join(f"bug {number}" for number in related)
    yield "example", f"{example.cell}\n{example.reason}"
    yield "look", command_of(bug)


def _failure(bug: Bug) -> str:
    code = f" {bug.code}" if bug.code else ""
    return f"{bug.stage or '-'} {bug.kind}{code}"


def bug_title(bug: Bug) -> str:
    """What failed, and how, in one line."""
    return f"{_failure(bug)}: {_title(bug)}"


def _title(bug: Bug) -> str:
    title = bug.title.removesuffix(":")
    return title if title == bug.title else f"{title}, saying nothing"


def _people(record: BugRecord) -> str:
    if record.state is HumanState.REPORTED:
        return f"reported {record.url}"
    if record.state is HumanState.DUPLICATE:
        return f"duplicate of {record.duplicate_of}"
    return str(record.state.value)
