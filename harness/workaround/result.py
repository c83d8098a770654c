"""What a search for workarounds ends with: as values, as a table, and as a document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import structs

from harness.judging.ptxas.ptxas_options import lowers_optimisation
from harness.tables.rows import differing, grid_of, heading_of, numbers_of, share
from harness.tables.said import BLANK, Block, SaidGrid, SaidLine, Tone, say, verdict_said
from harness.tables.summary import plural
from harness.tables.survivors import survivors
from harness.values.cell import executed_by
from harness.values.kernel import Config, Scalar
from harness.values.row import SCHEMA, Row
from harness.values.toolchain import SASS
from harness.workaround.settings import Setting, SettingKind, SettingStep, spill_bytes_per_block


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


class Equivalence(StrEnum):
    """What is known of whether the same function is computed."""

    COMPILED = "compiled"
    INTERPRETED = "interpreted"
    EMULATED = "emulated"
    DIFFERS = "differs"
    NOT_CHECKED = "not checked"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """What is known, and why; the measures are those of `Checked`, of the worst tensor."""

    known: Equivalence
    reason: str
    tensor: str | None = None
    rel_err: float | None = None
    stable_max_rel: float | None = None
    bad_frac: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """What a GPU says of a candidate: so many `times` as fast as today's config, by the medians.

    None where today's config has no time. `is_ambiguous`: the intervals are not apart.
    `is_bit_identical`: it leaves the same bytes as today's config, None where either differs from
    run to run.
    """

    device: str
    times: float | None = None
    is_ambiguous: bool = False
    is_bit_identical: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A setting that is better, compiled again from nothing (`row`).

    `is_listed` says that the tuner has the config already: nothing has to be added for it.
    `explanation` has a line for each step, and `paste` what a user does to have it.
    """

    setting: Setting
    steps: tuple[SettingStep, ...]
    row: Row
    is_listed: bool
    explanation: tuple[str, ...]
    numerics: Numerics
    paste: tuple[str, ...]
    speedup: Speedup | None = None

    @property
    def is_for_today(self) -> bool:
        """Whether a user has it without a change of any source."""
        return all(
            step.kind.keeps_source or (step.kind is SettingKind.CONFIG and self.is_listed)
            for step in self.steps
        )

    @property
    def tier(self) -> tuple[bool, ...]:
        """What is shown before other candidates, whatever its figures: what sorts first.

        What is for today; what optimises as before, as the figures do not tell what slower code
        costs; for today, what leaves the compiler of other kernels alone, and a newer one of these
        before an older one.
        """
        tritons = [step for step in self.steps if step.kind is SettingKind.TRITON]
        return (
            not self.is_for_today,
            lowers_optimisation(self.setting.flags),
            self.is_for_today and bool(tritons),
            any(step.is_downgrade for step in tritons),
        )

    @property
    def change(self) -> str:
        """All steps in one line."""
        return ", ".join(step.words for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A change of the kernel's file; `proof` is what the patched file was seen to compile to.

    `is_proved`: it was applied to a copy, captured and compiled, and no config fails that is left.
    `left_out` are the configs that it leaves out on the Triton that was asked about.
    """

    file: str
    diff: str
    guard: Guard | None
    added: tuple[str, ...]
    is_proved: bool
    proof: str
    rows: tuple[Row, ...] = ()
    left_out: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkaroundReport:
    """`baseline` is the config that the search started from, `survivor` the best of today's list.

    `is_needed` is False where every config works: then there is nothing to work around. `left_out`
    are the kinds of change that the time did not suffice for to the end.
    """

    baseline: Row
    survivor: Row | None
    listed: tuple[Row, ...]
    candidates: tuple[Candidate, ...] = ()
    patch: Patch | None = None
    tried: int = 0
    seconds: float = 0.0
    is_needed: bool = True
    left_out: tuple[SettingKind, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_time_up(self) -> bool:
        """Whether some of what there is to try was not tried."""
        return bool(self.left_out)


_TODAY = "For today, without touching the source"
_BEST = "The best there is, with a change of the source"
_RANKING = (
    "By the verdict, spilled bytes of a block, occupancy and what changes less: this is not an\n"
    "order of times, nothing was run on a GPU. All were compiled again from nothing."
)
_MEASURED = (
    "In each list the fastest first, by the medians of times that a GPU measured. All were\n"
    "compiled again from nothing."
)
_EMULATED = "Each cubin was emulated: it says what is right. `--on gpu` says how long each takes."
_PROVED = {Equivalence.EMULATED: "compiled again from nothing, and executed"}
_TONES = {
    Equivalence.INTERPRETED: Tone.GOOD,
    Equivalence.EMULATED: Tone.GOOD,
    Equivalence.MEASURED: Tone.GOOD,
    Equivalence.DIFFERS: Tone.BAD,
}


_SPARE = {
    "numerics": 2,
    "regs": 5,
    "spill st": 1,
    "spill ld": 1,
    "spill/block": 4,
    "tmem": 1,
    "shared": 1,
    "occupancy": 3,
}
_Entry: TypeAlias = tuple[str, str, Row, Candidate | None]
"""The place in the order, what is changed, and what comes of it."""


def workarounds_said(report: WorkaroundReport) -> list[Block]:
    """What there is today, the candidates in order of rank, why they work, and what to paste."""
    parts: list[Block] = [
        say(heading_of([report.baseline]), Tone.HEAD),
        say(f"today: {survivors(report.listed).headline}"),
    ]
    if not report.is_needed:
        return [*parts, say("Nothing to work around: all compiled configs work.")]
    numbered = list(enumerate(report.candidates, start=1))
    best = report.survivor
    now = [report.baseline, *([best] if best and best.cell != report.baseline.cell else [])]
    # What both share stands in the heading.
    names = differing([row.config for row in now]) if now[1:] else [*report.baseline.config]
    today: list[_Entry] = [
        (
            "",
            f"{words}: "
            + (", ".join(f"{name}={row.config.get(name, 'none')}" for name in names) or "default"),
            row,
            None,
        )
        for words, row in zip(("now", "best you have"), now, strict=False)
    ]
    for_today, others = (
        [
            (str(n), each.change, each.row, each)
            for n, each in numbered
            if each.is_for_today is is_it
        ]
        for is_it in (True, False)
    )
    parts += [BLANK, say(_TODAY, Tone.HEAD), _grid(report, [*today, *for_today])]
    if numbered and not for_today:
        parts.append(say("Nothing that was tried helps without a change of the source."))
    if others:
        parts += [BLANK, say(_BEST, Tone.HEAD), _grid(report, others)]
    if report.candidates:
        parts.append(say(_MEASURED if _timed(report) else _RANKING, Tone.FAINT))
        if executed_by(report.baseline.cell) == SASS:
            parts.append(say(_EMULATED, Tone.FAINT))
    else:
        parts.append(say("Nothing better was found.", Tone.HEAD))
        parts += [say(f"  {note}") for note in report.notes]
    if report.is_time_up:
        kinds = ", ".join(kind.value for kind in report.left_out)
        parts.append(say(f"The time was up (--max-time) before all was tried of: {kinds}."))
    for number, candidate in numbered:
        numerics = candidate.numerics
        parts += [
            BLANK,
            say(f"{number}. {candidate.change}", Tone.HEAD),
            *(say(f"   {line}") for line in candidate.explanation),
            say(f"   {numerics.known.value}: {numerics.reason}", Tone.FAINT),
            *(say(f"     {line}", Tone.NOTE) for line in candidate.paste),
        ]
    if report.patch:
        parts += _patch(report.patch)
    return parts


def _grid(report: WorkaroundReport, entries: Sequence[_Entry]) -> SaidGrid:
    ranks, changes, rows, candidates = zip(*entries, strict=True)
    columns: dict[str, Sequence[str | SaidLine]] = {"": ranks, "change": changes}
    columns["verdict"] = [verdict_said(row.verdict) for row in rows]
    known = [each and each.numerics.known for each in candidates]
    columns["numerics"] = [say(word or "", _TONES.get(word, Tone.PLAIN)) for word in known]
    if _timed(report):
        columns["ms"] = [f"{row.time_ms.median:.3f}" if row.time_ms else "-" for row in rows]
        columns["faster"] = [_faster(each.speedup if each else None) for each in candidates]
    columns |= numbers_of(rows, "regs", "spill st", "spill ld")
    spilled = map(spill_bytes_per_block, rows)
    columns["spill/block"] = ["-" if n is None else f"{n / 1024:,.0f} KiB" for n in spilled]
    columns |= numbers_of(rows, "tmem", "shared")
    columns["occupancy"] = [share(row.occupancy) for row in rows]
    return grid_of(columns, _SPARE, ("change", "numerics"))


def _timed(report: WorkaroundReport) -> bool:
    rows = [report.baseline, *(candidate.row for candidate in report.candidates)]
    return any(row.time_ms for row in rows)


def _faster(speedup: Speedup | None) -> str:
    words = f"{speedup.times:.2f}x" if speedup and speedup.times else "-"
    return f"{words} ambiguous" if speedup and speedup.is_ambiguous else words


def _patch(patch: Patch) -> list[Block]:
    does = (
        [f"leaves out {plural(len(patch.left_out), 'config')} that fail"] if patch.left_out else []
    )
    does += [f"adds {config}" for config in patch.added]
    state = "proved" if patch.is_proved else "NOT proved"
    return [
        BLANK,
        say(f"Patch of {patch.file}: {', '.join(does)}", Tone.HEAD),
        say(f"{state}: {patch.proof}"),
        BLANK,
        say(patch.diff),
    ]


def workaround_document(report: WorkaroundReport) -> dict[str, Any]:
    """For `--json`: rows, each candidate's with `change` and `evidence` besides."""
    patch, guard = report.patch, None
    if patch and patch.guard:
        clauses = [
            {**asdict(clause), "first": clause.releases[0], "last": clause.releases[-1]}
            for clause in patch.guard.clauses
        ]
        guard = {**asdict(patch.guard), "clauses": clauses}
    return {
        "schema": SCHEMA,
        "needed": report.is_needed,
        "baseline": report.baseline,
        "survivor": report.survivor,
        "candidates": [_candidate(number, c) for number, c in enumerate(report.candidates, 1)],
        "patch": None
        if patch is None
        else {
            "file": patch.file,
            "diff": patch.diff,
            "added": patch.added,
            "guard": guard,
            "proved": patch.is_proved,
            "proof": patch.proof,
            "cells": patch.rows,
        },
        "tried": report.tried,
        "seconds": round(report.seconds, 1),
        "time_is_up": report.is_time_up,
        "left_out": [kind.value for kind in report.left_out],
        "notes": report.notes,
    }


def _candidate(rank: int, candidate: Candidate) -> dict[str, Any]:
    numerics = asdict(candidate.numerics)
    known, reason = numerics.pop("known"), numerics.pop("reason")
    return {
        **structs.asdict(candidate.row),
        "rank": rank,
        "change": [
            {"kind": step.kind.value, "name": step.name, "before": step.before, "after": step.after}
            for step in candidate.steps
        ],
        "evidence": {
            "change": candidate.change,
            "proved": _PROVED.get(known, "compiled again from nothing"),
            "explanation": candidate.explanation,
            "numerics": known,
            "numerics_reason": reason,
            **numerics,
            "list": "today" if candidate.is_for_today else "best",
            "measured": asdict(candidate.speedup) if candidate.speedup else None,
            "spill_bytes_per_block": spill_bytes_per_block(candidate.row),
            "in_list": candidate.is_listed,
            "paste": candidate.paste,
        },
    }
