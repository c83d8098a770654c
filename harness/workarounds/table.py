"""Workarounds as a table, with what is known of each, and as a document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.tables.rows import heading_of
from harness.tables.said import verdict_said
from harness.tables.survivors import survivors
from harness.tables.terminal import text_of
from harness.values.row import SCHEMA, Row
from harness.workarounds.guard import Guard
from harness.workarounds.rank import spill_bytes_per_block
from harness.workarounds.result import Candidate, Equivalence, Patch, WorkaroundReport

__all__ = ["render_workarounds", "workaround_document"]

_RANKING = (
    "First what needs no change of source and takes away half of the spills or more. Then best "
    "first: verdict,\nspilled bytes of a block, occupancy, instruction mix, tensor and shared "
    "memory, then the fewest changes.\nAll were compiled again from nothing; nothing was run on a "
    "GPU."
)
_PROVED = {Equivalence.EMULATED: "compiled again from nothing, and executed"}
_STYLES = {
    Equivalence.INTERPRETED: "green",
    Equivalence.EMULATED: "green",
    Equivalence.MEASURED: "green",
    Equivalence.DIFFERS: "red",
}


def render_workarounds(report: WorkaroundReport) -> RenderableType:
    """What there is today, the candidates in order of rank, why they work, and what to paste."""
    parts: list[RenderableType] = [
        Text(heading_of([report.baseline]), style="bold"),
        Text(f"today: {survivors(report.listed).headline}"),
    ]
    if not report.is_needed:
        return Group(*parts, Text("Nothing to work around: all compiled configs work."))
    parts.append(_table(report))
    if report.candidates:
        parts.append(Text(_RANKING, style="dim"))
    else:
        parts.append(Text("Nothing better was found.", style="bold"))
    for number, candidate in enumerate(report.candidates, start=1):
        parts += _details(number, candidate)
    if report.patch:
        parts += _patch(report.patch)
    return Group(*parts)


def _table(report: WorkaroundReport) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("", justify="right")
    table.add_column("change", overflow="fold")
    for title in ("verdict", "numerics"):
        table.add_column(title, no_wrap=True)
    for title in ("regs", "spill st", "spill ld", "spill/block", "tmem", "shared", "occupancy"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row("", f"now: {_config(report.baseline)}", *_cells(report.baseline, ""))
    best = report.survivor
    if best and best.cell != report.baseline.cell:
        table.add_row("", f"best you have: {_config(best)}", *_cells(best, ""))
    for number, candidate in enumerate(report.candidates, start=1):
        known = candidate.numerics.known
        word = Text(known.value, style=_STYLES.get(known, ""))
        table.add_row(str(number), candidate.change, *_cells(candidate.row, word))
    return table


def _config(row: Row) -> str:
    return ",".join(f"{name}={value}" for name, value in row.config.items()) or "default"


def _cells(row: Row, known: Text | str) -> list[Text | str]:
    spilled = spill_bytes_per_block(row)
    return [
        text_of(verdict_said(row.verdict)),
        known,
        *(_number(value) for value in (row.n_regs, row.spill_stores, row.spill_loads)),
        "-" if spilled is None else f"{spilled / 1024:,.0f} KiB",
        _number(row.tmem_size),
        _number(row.shared),
        "-" if row.occupancy is None else f"{row.occupancy:.1%}",
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _details(number: int, candidate: Candidate) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(""), Text(f"{number}. {candidate.change}", style="bold")]
    lines += [Text(f"   {line}") for line in candidate.explanation]
    known = candidate.numerics
    lines.append(Text(f"   {known.known.value}: {known.reason}", style="dim"))
    lines += [Text(f"     {line}", style="cyan") for line in candidate.paste]
    return lines


def _patch(patch: Patch) -> list[RenderableType]:
    does = [f"leaves out {_configs(len(patch.left_out))} that fail"] if patch.left_out else []
    does += [f"adds {each}" for each in patch.added]
    state = "proved" if patch.is_proved else "NOT proved"
    return [
        Text(""),
        Text(f"Patch of {patch.file}: {', '.join(does)}", style="bold"),
        Text(f"{state}: {patch.proof}"),
        Text(""),
        Text(patch.diff),
    ]


def _configs(count: int) -> str:
    return "1 config" if count == 1 else f"{count:,} configs"


def workaround_document(report: WorkaroundReport) -> dict[str, Any]:
    """For `--json`: rows, each candidate's with `change` and `evidence` besides."""
    patch = report.patch
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
            "guard": _guard(patch.guard),
            "proved": patch.is_proved,
            "proof": patch.proof,
            "cells": patch.rows,
        },
        "tried": report.tried,
        "seconds": round(report.seconds, 1),
        "time_is_up": report.is_time_up,
        "notes": report.notes,
    }


def _guard(guard: Guard | None) -> dict[str, Any] | None:
    """Each clause with the first and the last of its releases besides."""
    if guard is None:
        return None
    ends = [{"first": c.releases[0], "last": c.releases[-1]} for c in guard.clauses]
    clauses = [{**asdict(c), **end} for c, end in zip(guard.clauses, ends, strict=True)]
    return {**asdict(guard), "clauses": clauses}


def _candidate(rank: int, candidate: Candidate) -> dict[str, Any]:
    numerics = candidate.numerics
    return {
        **asdict(candidate.row),
        "rank": rank,
        "change": [
            {
                "kind": step.kind.value,
                "name": step.name,
                "before": step.before,
                "after": step.after,
            }
            for step in candidate.steps
        ],
        "evidence": {
            "change": candidate.change,
            "proved": _PROVED.get(numerics.known, "compiled again from nothing"),
            "explanation": candidate.explanation,
            "numerics": numerics.known.value,
            "numerics_reason": numerics.reason,
            "tensor": numerics.tensor,
            "rel_err": numerics.rel_err,
            "stable_max_rel": numerics.stable_max_rel,
            "bad_frac": numerics.bad_frac,
            "spill_bytes_per_block": spill_bytes_per_block(candidate.row),
            "in_list": candidate.is_listed,
            "paste": candidate.paste,
        },
    }
