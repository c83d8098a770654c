"""What an issue states, as values that can be checked, and whether it is so. Pure.

The Markdown and the gate are made from the same claims: a sentence of the issue carries those that
it rests on, and the gate holds each against what the attached files do (`ClaimsTrial`), against
what the stored evidence comes to by today's rules, and against the text itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harness.judging.answers import VerdictAnswer
from harness.report.gate import without_folders
from harness.values.execution import OutputFacts, RunRow
from harness.values.row import Row
from harness.values.toolchain import EMULATOR


class ClaimKind(StrEnum):
    """What a claim is about."""

    OUTCOME = "outcome"  # of an attached file on one compiler
    VERDICT = "verdict"
    END = "end"  # exit code or signal
    SHA256 = "sha256"
    BYTES = "bytes"
    INSTRUCTIONS = "instructions"
    LINES = "lines"  # of functions, in a file of source; operations, in one of IR
    UNWRITTEN = "unwritten"  # registers that may be read before anything wrote them
    FIGURES = "figures"  # verdict and numbers of one stored cell
    OUTPUT = "output"  # what one tensor holds after a run, and must hold
    SEEN = "seen"  # what a run was held to, and under which schedules it goes wrong
    VALID = "valid"  # that a reduced file is right in itself: nothing here can tell
    TEXT = "text"  # a line that only has to be there as it was computed


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedPlace:
    """An attached file on one version of one compiler, with one change of flags."""

    file: str
    tool: str
    version: str
    target: str
    flag: str = ""

    def __str__(self) -> str:
        changed = f" ({self.flag})" if self.flag else ""
        return f"{self.file} with {self.tool} {self.version}{changed} for {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement: `sentence` is what the issue says, `expected` what must come out.

    `place` is where an attached file is compiled, `file` names one whose bytes count, `cell` a
    stored result. `is_bound`: it says of one side of a boundary what the title rests on; where it
    cannot be checked, the report is not ready. `reason` says why nothing can check it.
    """

    kind: ClaimKind
    sentence: str = ""
    expected: str | int | tuple[object, ...] | None = None
    place: AttachedPlace | None = None
    file: str | None = None
    cell: str | None = None
    is_bound: bool = False
    reason: str = ""

    @property
    def subject(self) -> AttachedPlace | str:
        """What it is about."""
        return self.place or self.cell or self.file or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """The text in Markdown, its title first, and what it claims."""

    text: str
    claims: tuple[Claim, ...]


class Ledger:
    """Takes the sentences of an issue as they are written, with the claims that each rests on."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []

    def say(self, sentence: str, *claims: Claim) -> str:
        """The sentence; without claims of its own it has to stand in the issue as it is."""
        for claim in claims or (Claim(kind=ClaimKind.TEXT),):
            self.claims.append(replace(claim, sentence=sentence))
        return sentence


def gives(
    place: AttachedPlace, outcome: VerdictAnswer, verdict: str | None = None
) -> tuple[Claim, ...]:
    """That an attached file does this there."""
    claims = [Claim(kind=ClaimKind.OUTCOME, place=place, expected=outcome.value)]
    claims += [Claim(kind=ClaimKind.VERDICT, place=place, expected=verdict)] if verdict else []
    return tuple(claims)


def ends_so(place: AttachedPlace, row: Row) -> Claim:
    """That the compiler's process ends there as it did for this row."""
    return Claim(kind=ClaimKind.END, place=place, expected=end_of(row))


def has_figures(row: Row) -> Claim:
    """That the evidence of a cell gives this verdict and these numbers."""
    return Claim(kind=ClaimKind.FIGURES, cell=row.cell, expected=figures(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsTrial:
    """What was found when the claims were put to the test.

    `rows` are the attached files, compiled, and `outcomes` what these say of the failure; `stored`
    the cells by id as their evidence is judged today, or as they came out when they were executed
    again; `runs` what was executed, by place or by cell; `files` the attached bytes. `counts` are
    the instructions and unwritten registers of attached PTX, and the lines of functions in attached
    source, by file. What could not be tried is not in them; `untried` says why not.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    rows: Mapping[AttachedPlace, Row] = field(default_factory=dict)
    outcomes: Mapping[AttachedPlace, VerdictAnswer] = field(default_factory=dict)
    stored: Mapping[str, Row] = field(default_factory=dict)
    runs: Mapping[AttachedPlace | str, RunRow] = field(default_factory=dict)
    counts: Mapping[ClaimKind, Mapping[str, int]] = field(default_factory=dict)
    untried: Mapping[AttachedPlace | str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsProof:
    """How many claims there are, how many could be checked, and what is false, in words.

    `unchecked` are the sentences of which something could not be tried, each with the reason;
    `unproved` those of them that the title rests on.
    """

    claims: int
    checked: int
    false: tuple[str, ...]
    unchecked: tuple[tuple[str, str], ...] = ()
    unproved: tuple[str, ...] = ()


def has_output(place: AttachedPlace | None, row: RunRow, facts: OutputFacts) -> Claim:
    """That a tensor comes out so, of the attached file or, with no place, of the cell."""
    cell = None if place else row.cell
    return Claim(kind=ClaimKind.OUTPUT, place=place, cell=cell, expected=_values(facts))


def is_seen(place: AttachedPlace | None, row: RunRow) -> Claim:
    """What it was held to, when it goes wrong, and which accesses nothing orders."""
    cell = None if place else row.cell
    return Claim(kind=ClaimKind.SEEN, place=place, cell=cell, expected=_seen(row))


def _values(facts: OutputFacts) -> tuple[object, ...]:
    numbers = (facts.differing, facts.elements, facts.max_abs, facts.expected, facts.actual)
    return (facts.name, facts.dtype, facts.where, *numbers)


def _seen(row: RunRow) -> tuple[object, ...]:
    races = [(r.kind, r.space, r.ptx_lines, r.source_lines) for r in row.counted_races]
    return (row.reference, row.schedule, tuple(races))


def figures(row: Row) -> tuple[object, ...]:
    """What a report states of a cell: its verdict, and the numbers in its tables.

    What was executed is one program: its PTX.
    """
    return (
        row.ptx_body_sha256 if row.ptxas == EMULATOR else None,
        *(row.verdict.value, row.signature, row.reason),
        *(row.n_regs, row.spill_stores, row.spill_loads),
        *(row.shared, row.tmem_size, row.occupancy),
    )


def end_of(row: Row) -> str:
    """How the compiler's process ended, in words; empty where none of its processes did."""
    if row.signal is not None:
        return f"signal {row.signal}"
    return "" if row.exit_code is None else f"exit code {row.exit_code}"


def prove(claims: Sequence[Claim], trial: ClaimsTrial, issue: str) -> ClaimsProof:
    """Hold every claim against what was found, and against the text that is to make it."""
    text = _plain(issue)
    distinct = list(dict.fromkeys(claims))
    checked = 0
    unchecked: list[tuple[str, str]] = []
    unproved: list[str] = []
    false = [
        f"{sentence!r} follows from the evidence, and the text does not say it"
        for sentence in dict.fromkeys(claim.sentence for claim in distinct)
        if _plain(without_folders(sentence)) not in text
    ]
    for claim in distinct:
        value = None if claim.reason else _evidence(claim, trial)
        if value is None:
            default = "the file cannot be read" if claim.file else "it was not executed again"
            reason = claim.reason or trial.untried.get(claim.subject, default)
            why = f"{claim.subject}: {reason}"
            unchecked.append((claim.sentence, why))
            if claim.is_bound:
                unproved.append(f"{claim.sentence!r} could not be checked: {why}")
            continue
        checked += 1
        if value != claim.expected and claim.kind is not ClaimKind.TEXT:
            false.append(f"{claim.sentence!r} is not so: {_difference(claim, value)}")
    return ClaimsProof(
        claims=len(distinct),
        checked=checked,
        false=tuple(dict.fromkeys(false)),
        unchecked=tuple(dict.fromkeys(unchecked)),
        unproved=tuple(dict.fromkeys(unproved)),
    )


def _plain(text: str) -> str:
    """Without what Markdown adds to a text, and with one blank where there are several."""
    return " ".join(re.sub(r"[\\`*|]", " ", text).split())


def _evidence(claim: Claim, trial: ClaimsTrial) -> object | None:
    """What the trial has in the place of what is claimed; None where it could not be tried."""
    kind, place, file, cell = claim.kind, claim.place, claim.file, claim.cell
    if kind is ClaimKind.TEXT:
        return ""
    if kind in (ClaimKind.OUTPUT, ClaimKind.SEEN):
        run = trial.runs.get(place or cell or "")
        if run is None or kind is ClaimKind.SEEN:
            return _seen(run) if run else None
        assert isinstance(claim.expected, tuple)
        name = claim.expected[0]
        outputs = (_values(output) for output in run.outputs if output.name == name)
        return next(outputs, "no such output")
    if place and place in trial.rows:
        row = trial.rows[place]
        if kind is ClaimKind.END:
            return end_of(row)
        return trial.outcomes[place].value if kind is ClaimKind.OUTCOME else row.verdict.value
    if cell and cell in trial.stored:
        return figures(trial.stored[cell])
    if file is None:
        return None
    if file not in trial.files:
        return "no such file"
    if kind is ClaimKind.SHA256:
        return hashlib.sha256(trial.files[file]).hexdigest()
    if kind is ClaimKind.BYTES:
        return len(trial.files[file])
    return trial.counts.get(kind, {}).get(file)


def _difference(claim: Claim, value: object) -> str:
    """What was found in the place of what is claimed."""
    where = claim.place or claim.file or claim.cell
    if isinstance(value, tuple) and isinstance(claim.expected, tuple):
        parts = [
            f"{ours!r} is stored, its evidence gives {theirs!r}"
            for ours, theirs in zip(claim.expected, value, strict=True)
            if ours != theirs
        ]
        return f"{where}: {'; '.join(parts)}"
    return f"{where} gives {value!r}, not {claim.expected!r}"
