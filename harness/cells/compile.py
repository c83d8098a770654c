"""`triage compile`: every config of the kernels on every toolchain and target selected.

What comes of it is a report, the document that `--json` prints, and (`--out`) files.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from harness.cells.places import (
    CompileOptions,
    Run,
    RunProgress,
    Steering,
    captures_of,
    places_of,
    work,
    work_off,
)
from harness.cells.spelling import SelectionOptions, spell_command
from harness.frontends.base import CapturePlace, Plan, PlannedCell, Selection
from harness.io.files.locations import storage_error
from harness.store.stages import STAGES, stage_bytes
from harness.store.store import Store
from harness.tables.survivors import group_rows, survivors
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.outcome import LaunchFacts
from harness.values.row import SCHEMA, Row


class CompileReport(msgspec.Struct, frozen=True, kw_only=True):
    """The rows in plan order, and what else a reader should know.

    `failures` are the captures that failed where others succeeded. `cpu_seconds` is what the
    compilers used in this run, `wall_seconds` the run as a whole.
    """

    rows: tuple[Row, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    wall_seconds: float
    cpu_seconds: float


_MOST_CONFIGS = 32


class Survey(Steering):
    """Of a file that launches a kernel in very many ways, as tests do, those that differ the most.

    Of each kernel whole launches are taken, each with all configs of its tuner: always the one
    that shows most facts of arguments (types, alignments, constants) that none before it shows,
    and again from the beginning where all are shown. It ends before there are more than 32 configs
    of a kernel. A kernel that is named, or a `--config`, gets every launch. `words` spell commands
    of this `verb`, which has something `done` to configs.
    """

    def __init__(
        self, words: SelectionOptions, verb: str = "compile", done: str = "compiled"
    ) -> None:
        self._words, self._verb, self._done = words, verb, done
        self.notes: list[str] = []

    def choose(self, place: CapturePlace, plan: Plan) -> Sequence[PlannedCell]:
        """All but those of the launches that are left out."""
        repro = place.selection.repro
        if repro.kernel or repro.group or place.selection.config.wanted:
            return plan.cells
        kernels: dict[str, dict[str, dict[str, set[str]]]] = {}
        for cell in plan.cells:
            if cell.record:
                launch = kernels.setdefault(cell.record.kernel, {}).setdefault(_launch_of(cell), {})
                launch[cell.cell.config.label] = _facts(cell.record)
        taken = {kernel: _most_different(launches) for kernel, launches in kernels.items()}
        for kernel, launches in kernels.items():
            if len(taken[kernel]) < len(launches):
                few = sum(len(launches[launch]) for launch in taken[kernel])
                every = sum(map(len, launches.values()))
                words = structs.replace(self._words, kernel=f"{self._words.kernel}::{kernel}")
                self.notes.append(
                    f"{kernel}: {few:,} of {every:,} configs are {self._done}, of launches that "
                    f"differ the most; all: {spell_command(self._verb, words)}"
                )
        return [
            cell
            for cell in plan.cells
            if cell.record is None or _launch_of(cell) in taken[cell.record.kernel]
        ]


def _launch_of(cell: PlannedCell) -> str:
    """What the configs of one launch of a tuner share; without a tuner, each is of its own."""
    return cell.record.key if cell.record and not cell.record.autotuned else cell.cell.launch


def _facts(record: LaunchFacts) -> set[str]:
    """What decides the code, argument by argument: the exact shape or integer does not."""
    facts = [
        {n: v for n, v in argument.items() if n not in ("shape", "value")}
        for argument in record.arguments
    ]
    return {json.dumps(fact, sort_keys=True) for fact in facts}


def _most_different(launches: dict[str, dict[str, set[str]]]) -> set[str]:
    """The launches, each with the facts of its configs, that a survey takes; one at least."""
    facts = {name: set().union(*configs.values()) for name, configs in launches.items()}
    taken: list[str] = []
    count, shown = 0, set[str]()
    while rest := [name for name in launches if name not in taken]:
        best = max(rest, key=lambda name: len(facts[name] - shown))
        if shown and not facts[best] - shown:
            shown = set()
            continue
        count += len(launches[best])
        if taken and count > _MOST_CONFIGS:
            break
        taken.append(best)
        shown |= facts[best]
    return set(taken)


async def compile_selections(
    selections: Sequence[Selection],
    store: Store,
    options: CompileOptions,
    progress: RunProgress,
    steering: Steering | None = None,
) -> CompileReport:
    """Compile the cells of the selections, or those that `steering` chooses, and store each.

    Raises:
        CaptureError: no launch could be captured.
        EmptySelectionError: no config matches the filter.
        StorageError: results cannot be kept.
    """
    started = time.monotonic()
    async with work(store, options) as (bench, run_id):
        steering = steering or Steering()
        run = Run(bench=bench, run=run_id, progress=progress, steering=steering)
        run.notes.extend(note for selection in selections for note in selection.notes)
        places = [place for selection in selections for place in places_of(selection)]
        by_place: dict[int, list[Row]] = {}
        await work_off(run, places, captures_of(places), keep=by_place.__setitem__)
        run.notes += steering.notes
        rows = [row for index in range(len(places)) for row in by_place[index]]
        if not rows:
            raise _nothing(run, selections[0])
        cpu_seconds = bench.cpu_seconds
    return CompileReport(
        rows=tuple(rows),
        failures=tuple(dict.fromkeys(str(error) for error in run.failures)),
        notes=tuple(dict.fromkeys(run.notes)),
        wall_seconds=time.monotonic() - started,
        cpu_seconds=cpu_seconds,
    )


def _nothing(run: Run, selection: Selection) -> TriageError:
    """Why there is not one cell."""
    if run.failures:
        return run.failures[0]
    values: dict[str, set[str]] = {}
    for config in run.configs:
        for name, value in config.items:
            values.setdefault(name, set()).add(str(value))
    configs = "; ".join(f"{name}: {', '.join(sorted(texts))}" for name, texts in values.items())
    words = ",".join(f"{name}={'|'.join(allowed)}" for name, allowed in selection.config.wanted)
    return EmptySelectionError(
        f"--config {words} matches none of the configs, which have {configs}"
    )


def compile_document(report: CompileReport) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "schema": SCHEMA,
        "cells": report.rows,
        "summary": {
            "verdicts": Counter(row.verdict for row in report.rows),
            "survivorship": [
                {
                    "kernel": rows[0].kernel,
                    "target": rows[0].target,
                    "launch": rows[0].launch,
                    "triton": rows[0].triton,
                    "ptxas": rows[0].ptxas,
                    "compiler": rows[0].compiler,
                    "compiler_version": rows[0].compiler_version,
                    "assembler": rows[0].assembler,
                    "headline": survived.headline,
                    "groups": [
                        {
                            "verdict": fate.verdict.value,
                            "count": len(fate.rows),
                            "where": fate.where,
                            "reason": fate.reason,
                            "at_fault": fate.at_fault,
                        }
                        for fate in survived.fates
                    ],
                }
                for rows in group_rows(report.rows)
                for survived in [survivors(rows)]
            ],
            "notes": report.notes,
            "failures": report.failures,
            "wall_seconds": round(report.wall_seconds, 3),
            "cpu_seconds": round(report.cpu_seconds, 3),
        },
    }


def save_cells(store: Store, rows: Sequence[Row], folder: Path) -> int:
    """Write `FOLDER/CELL/STAGE` and `row.json` for each row; how many files were written.

    Raises:
        StorageError: the folder cannot be written.
    """
    count = 0
    for row in rows:
        # A cell id has slashes and signs that a shell or a file system minds.
        place = folder / (re.sub(r"[^\w.=,@+-]+", "_", row.cell)[:180] + f"-{row.short}")
        files = {"row.json": msgspec.json.format(msgspec.json.encode(row), indent=2)}
        record = store.find_cells(row.cell)[0]
        for stage in STAGES:
            data = stage_bytes(store, record, stage)
            if data is not None:
                files[f"kernel.{stage}"] = data
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (place / name).write_bytes(data)
        except OSError as error:
            raise storage_error(error, place, "write", option="--out") from error
        count += len(files)
    return count
