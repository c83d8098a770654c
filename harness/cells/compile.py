"""`triage compile`: every config of the kernels on every toolchain and target selected.

What comes of it is a report, the document that `--json` prints, and (`--out`) files.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from harness.cells.places import (
    CompileOptions,
    Run,
    RunPolicy,
    RunProgress,
    captures_of,
    places_of,
    work,
    work_off,
)
from harness.cells.spelling import SelectionOptions, spell_command
from harness.frontends.plan import CapturePlace, Plan, PlannedCell, Selection
from harness.io.files.locations import storage_error
from harness.store.stages import STAGES, stage_bytes
from harness.store.store import Store
from harness.tables.samples import Sample, untried
from harness.tables.survivors import group_rows, survivors
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.outcome import LaunchFacts
from harness.values.row import SCHEMA, Row


class CompileReport(msgspec.Struct, frozen=True, kw_only=True):
    """The rows in plan order, and what else a reader should know.

    `failures` are the captures that failed where others succeeded, `samples` say which configs were
    left out, `launches` are as in `RunPolicy`. `cpu_seconds` is what the compilers used in this
    run, `wall_seconds` the run as a whole.
    """

    rows: tuple[Row, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    samples: tuple[Sample, ...]
    wall_seconds: float
    cpu_seconds: float
    launches: Mapping[str, str] = {}


_MOST_CONFIGS = 32


class SamplePolicy(RunPolicy):
    """Of a file that launches a kernel in very many ways, as tests do, some configs of each launch.

    The heaviest config of each launch is taken, then all configs of those launches for which there
    is room within 32 of a kernel: first the launch with the heaviest config of all, then always the
    one that shows most facts of arguments (types, alignments, constants) that none before it shows.
    A kernel that is named, or a `--config`, gets every launch. `samples` say what was left out;
    `words` spell the command of this `verb` for all, which has something `done` to configs.
    """

    def __init__(
        self, words: SelectionOptions, verb: str = "compile", done: str = "compiled"
    ) -> None:
        self._words, self._verb, self._done = words, verb, done
        self.samples: list[Sample] = []
        self.launches: dict[str, str] = {}

    def choose(
        self, place: CapturePlace, plan: Plan, kept: Container[PlannedCell] = ()
    ) -> Sequence[PlannedCell]:
        """All but the configs that are left out, of which none is among those that are `kept`."""
        self.launches |= _distinctions(plan.cells)
        repro = place.selection.repro
        if repro.kernel or repro.group or place.selection.config.wanted:
            return plan.cells
        kernels: dict[str, dict[str, dict[str, LaunchFacts]]] = {}
        for cell in plan.cells:
            if cell.record:
                launch = kernels.setdefault(cell.record.kernel, {}).setdefault(launch_of(cell), {})
                launch[cell.cell.config.label] = cell.record
        taken = {kernel: _taken(launches) for kernel, launches in kernels.items()}
        chosen: list[PlannedCell] = []
        left: dict[str, dict[tuple[str, str], PlannedCell]] = {}
        for cell in plan.cells:
            name, label = launch_of(cell), cell.cell.config.label
            if cell.record is None or (name, label) in taken[cell.record.kernel]:
                chosen.append(cell)
            elif cell in kept:
                taken[cell.record.kernel].add((name, label))
                chosen.append(cell)
            else:
                left.setdefault(cell.record.kernel, {})[name, label] = cell
        for kernel, cells in left.items():
            words = structs.replace(self._words, kernel=f"{self._words.kernel}::{kernel}")
            cell = next(iter(cells.values()))
            self.samples.append(
                Sample(
                    kernel=cell.cell.kernel,
                    target=str(cell.cell.target),
                    compiler=place.compiler.name,
                    done=self._done,
                    tried=len(taken[kernel]),
                    of=len(taken[kernel]) + len(cells),
                    left_out=Counter(cell.cell.launch for cell in cells.values()),
                    command=spell_command(self._verb, words),
                )
            )
        return chosen


# What is said of an argument: constants first, which decide the most.
_SAID = ("constexpr", "tensor", "descriptor", "none", "scalar", "value")
_MOST_SAID = 4
_LONGEST_SAID = 24


def _distinctions(cells: Sequence[PlannedCell]) -> dict[str, str]:
    """By cell: the arguments that all configs of its launch share, and not every other launch.

    `BLOCK=8192, x=float16`. Of the cells of one place; cells of which nothing can be said are none.
    """
    kernels: dict[str, dict[str, dict[str, str]]] = {}
    for cell in cells:
        said = _said(cell.record) if cell.record else {}
        launches = kernels.setdefault(cell.cell.kernel, {})
        shared = launches.setdefault(cell.cell.launch, said)
        launches[cell.cell.launch] = {n: word for n, word in shared.items() if said.get(n) == word}
    differing: dict[str, set[str]] = {}
    for kernel, launches in kernels.items():
        facts = Counter(fact for said in launches.values() for fact in said.items())
        differing[kernel] = {n for (n, _), times in facts.items() if times < len(launches)}
    distinctions: dict[str, str] = {}
    for cell in cells:
        name = cell.cell.kernel
        said = kernels[name][cell.cell.launch]
        words = [f"{n}={word}" for n, word in said.items() if n in differing[name]]
        if words:
            more = ["..."] if len(words) > _MOST_SAID else []
            distinctions[str(cell.cell)] = ", ".join([*words[:_MOST_SAID], *more])
    return distinctions


def _said(record: LaunchFacts) -> dict[str, str]:
    said: dict[str, str] = {}
    for kind in _SAID:
        for argument in record.arguments:
            word = "None" if kind == "none" else f"{argument.get(kind)}"
            # Parameters of a config have their own place in a heading.
            if kind in argument and argument["name"] not in record.config:
                said |= {str(argument["name"]): word} if len(word) <= _LONGEST_SAID else {}
    return said


def launch_of(cell: PlannedCell) -> str:
    """What the configs of one launch of a tuner share; without a tuner, each is of its own."""
    return cell.record.key if cell.record and not cell.record.autotuned else cell.cell.launch


def _facts(record: LaunchFacts) -> set[str]:
    """What decides the code, argument by argument: the exact shape or integer does not."""
    facts = [
        {n: v for n, v in argument.items() if n not in ("shape", "value")}
        for argument in record.arguments
    ]
    return {json.dumps(fact, sort_keys=True) for fact in facts}


_WIDTH = re.compile(r"\d+")


def _weight(record: LaunchFacts) -> float:
    """How much a warp is likely to hold: constants x stages x the widest type (bits) / warps."""
    constants = {str(a["name"]): str(a["constexpr"]) for a in record.arguments if "constexpr" in a}
    constants.update({name: str(value) for name, value in record.config.items()})
    numbers = {name: int(text) for name, text in constants.items() if text.isdecimal()}
    warps = numbers.pop("num_warps", 1) or 1
    numbers.pop("maxnreg", None)
    types = (str(a["tensor"]) for a in record.arguments if "tensor" in a)
    widths = [int(width[0]) for text in types if (width := _WIDTH.search(text))]
    return math.prod(filter(None, numbers.values())) * max(widths, default=1) / warps


def _taken(launches: dict[str, dict[str, LaunchFacts]]) -> set[tuple[str, str]]:
    """The configs, each with its launch, that a survey takes."""
    heaviest = {name: max(c, key=lambda label: _weight(c[label])) for name, c in launches.items()}
    facts = {name: set().union(*map(_facts, c.values())) for name, c in launches.items()}
    first = max(launches, key=lambda name: _weight(launches[name][heaviest[name]]))
    order, shown = [first], set(facts[first])
    while len(order) < _MOST_CONFIGS and (rest := [n for n in launches if n not in order]):
        best = max(rest, key=lambda name: len(facts[name] - shown))
        if shown and not facts[best] - shown:
            shown = set()
            continue
        order.append(best)
        shown |= facts[best]
    taken = {(name, heaviest[name]) for name in order}
    for name in order:
        whole = taken | {(name, label) for label in launches[name]}
        if name == first or len(whole) <= _MOST_CONFIGS:
            taken = whole
    return taken


async def compile_selections(
    selections: Sequence[Selection],
    store: Store,
    options: CompileOptions,
    progress: RunProgress,
    policy: RunPolicy | None = None,
) -> CompileReport:
    """Compile the cells of the selections, or those that `policy` chooses, and store each.

    Raises:
        CaptureError: no launch could be captured.
        EmptySelectionError: no config matches the filter.
        StorageError: results cannot be kept.
    """
    started = time.monotonic()
    async with work(store, options) as (bench, run_id):
        policy = policy or RunPolicy()
        run = Run(bench=bench, run=run_id, progress=progress, policy=policy)
        run.notes.extend(note for selection in selections for note in selection.notes)
        places = [place for selection in selections for place in places_of(selection)]
        by_place: dict[int, list[Row]] = {}
        await work_off(run, places, captures_of(places), keep=by_place.__setitem__)
        rows = [row for index in range(len(places)) for row in by_place[index]]
        if not rows:
            raise _nothing(run, selections[0])
        cpu_seconds = bench.cpu_seconds
    return CompileReport(
        rows=tuple(rows),
        failures=tuple(dict.fromkeys(str(error) for error in run.failures)),
        notes=tuple(dict.fromkeys(run.notes)),
        samples=tuple(policy.samples),
        launches=policy.launches,
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
                for survived in [survivors(rows, untried(rows, report.samples))]
            ],
            "not_tried": report.samples,
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
