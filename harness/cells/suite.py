"""The files of a suite of tests: what each test launches, compiled for each target.

Each file is captured in a child, as `triage compile FILE` does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

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
from harness.frontends.plan import CapturePlace, Plan, PlannedCell, Selection
from harness.io.processes.tasks import in_parallel
from harness.store.store import Store
from harness.tables.said import Block, Counted, GridColumn, SaidGrid, Tone, say
from harness.tables.summary import plural
from harness.values.errors import CaptureError, TriageError
from harness.values.execution import RunRow
from harness.values.outcome import TestFacts
from harness.values.row import SCHEMA, CellNames, Row
from harness.values.verdict import VerdictKind

TO_THE_END = "to the end"


class TestOnTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A test of a file as one target saw it, and the results of the configs that it launched."""

    file: Path
    target: str
    facts: TestFacts
    rows: tuple[Row, ...] = ()
    runs: tuple[RunRow, ...] = ()

    @property
    def launches(self) -> int:
        """How many were reached; front ends that do not count them tell what was recorded."""
        return max(self.facts.launches, len(self.facts.records))

    @property
    def captured(self) -> int:
        """How many of them are recorded."""
        return self.launches - sum(self.facts.refused.values())

    @property
    def failing(self) -> list[Row]:
        """Configs that do not work."""
        return [row for row in self.rows if row.verdict.fails]

    @property
    def wrong(self) -> list[RunRow]:
        """Configs whose PTX was executed, and something was found."""
        return [row for row in self.runs if row.run.is_failure]

    @property
    def words(self) -> str:
        """How far it came, and why no further."""
        return ": ".join(filter(None, [self.facts.outcome, self.facts.reason]))


class FileResult(msgspec.Struct, frozen=True, kw_only=True):
    """A file of tests; `problems` are of the file, not of one of its tests."""

    file: Path
    tests: tuple[TestOnTarget, ...] = ()
    rows: tuple[Row, ...] = ()
    runs: tuple[RunRow, ...] = ()
    problems: tuple[str, ...] = ()


Execute = Callable[[Sequence[Selection]], Any]
"""Executes what is selected, as `run_selections` does."""


class _Listening(RunPolicy):
    """Takes every cell, and remembers the plans."""

    def __init__(self) -> None:
        self.plans: list[tuple[CapturePlace, Plan]] = []

    def choose(self, place: CapturePlace, plan: Plan) -> Sequence[PlannedCell]:
        self.plans.append((place, plan))
        return plan.cells


async def compile_suite(
    files: Sequence[Sequence[Selection]],
    store: Store,
    options: CompileOptions,
    heard: Callable[[FileResult], None],
    execute: Execute | None = None,
) -> None:
    """Capture each file (its selections) on each target and compile all; `heard` gets each result.

    Where there is `execute`, what was compiled is executed, too.

    Raises:
        StorageError: results cannot be kept.
    """
    async with work(store, options) as (bench, number):
        # An open capture holds memory, and there is one for each target.
        turns = asyncio.Semaphore(max(1, options.workers // len(files[0][0].targets)))

        async def one(selections: Sequence[Selection]) -> None:
            async with turns:
                policy, rows = _Listening(), list[Row]()
                run = Run(bench=bench, run=number, progress=RunProgress(), policy=policy)
                places = [place for selection in selections for place in places_of(selection)]
                await work_off(run, places, captures_of(places), lambda _, some: rows.extend(some))
                runs: Sequence[RunRow] = ()
                problems = list(map(str, run.failures))
                if execute and rows:
                    try:
                        report = await execute(selections)
                        runs, problems = report.rows, [*problems, *report.failures]
                    except TriageError as error:
                        problems.append(f"not executed: {error}")
            heard(_result(selections[0].repro.file, policy.plans, rows, runs, run, problems))

        await in_parallel(map(one, files))


def _result(
    file: Path,
    plans: Sequence[tuple[CapturePlace, Plan]],
    rows: Sequence[Row],
    runs: Sequence[RunRow],
    run: Run,
    problems: list[str],
) -> FileResult:
    tests: list[TestOnTarget] = []
    by_cell = {row.cell: row for row in rows}
    executed = {_place(row): row for row in runs}
    for place, plan in plans:
        if not plan.cells or not (launch := plan.cells[0].launch):
            continue
        value = launch.capture.value
        problems += [f"{file}: {note}" for note in value.notes if note.startswith("with values, ")]
        if value.is_late:
            problems.append(f"{file}: {place.target}: later tests are not known: its time is up")
        cells: dict[int, list[Row]] = {}
        for cell in plan.cells:
            if row := by_cell.get(str(cell.cell)):
                cells.setdefault(id(cell.record), []).append(row)
        for facts in value.tests:
            own = [row for n in facts.records for row in cells.get(id(value.records[n]), ())]
            tests.append(
                TestOnTarget(
                    file=file,
                    target=str(place.target),
                    facts=facts,
                    rows=tuple(own),
                    runs=tuple(executed[_place(row)] for row in own if _place(row) in executed),
                )
            )
    for error in run.failures:
        if isinstance(error, CaptureError) and error.tests:
            tests += [TestOnTarget(file=file, target="", facts=facts) for facts in error.tests]
            problems.remove(str(error))
    return FileResult(
        file=file,
        tests=tuple(tests),
        rows=tuple(rows),
        runs=tuple(runs),
        problems=tuple(dict.fromkeys(problems)),
    )


def _place(row: CellNames) -> tuple[str, ...]:
    return row.kernel, row.launch, str(row.config), row.target


def refusals(results: Sequence[FileResult]) -> Counter[str]:
    """Why launches were not captured, tests did not come to their end, and files have none."""
    found = Counter[str]()
    for result in results:
        for test in result.tests:
            found.update({f"launch: {why}": n for why, n in test.facts.refused.items()})
            if test.facts.outcome != TO_THE_END:
                found[f"test: {test.words}"] += 1
        found.update(f"file: {problem}" for problem in result.problems)
    return found


def suite_document(results: Sequence[FileResult]) -> dict[str, Any]:
    """As `--triage-json` writes it."""
    tests = [test for result in results for test in result.tests]
    return {
        "schema": SCHEMA,
        "files": len(results),
        "launches": sum(test.launches for test in tests),
        "captured": sum(test.captured for test in tests),
        "refusals": refusals(results),
        "tests": [
            {
                "test": f"{test.file}::{test.facts.name}",
                "target": test.target,
                "outcome": test.facts.outcome,
                "reason": test.facts.reason,
                "launches": test.launches,
                "captured": test.captured,
                "cells": [row.cell for row in test.rows],
            }
            for test in tests
        ],
        "cells": [row for result in results for row in result.rows],
        "runs": [row for result in results for row in result.runs],
    }


def suite_said(results: Sequence[FileResult]) -> list[Block]:
    """As a report of coverage: how much was reached, the results, what is missing."""
    tests = [test for result in results for test in result.tests]
    reached, captured = sum(t.launches for t in tests), sum(t.captured for t in tests)
    ended = sum(test.facts.outcome == TO_THE_END for test in tests)
    share = f" ({captured * 100 // reached} %)" if reached else ""
    blocks: list[Block] = [
        say(
            f"{captured:,} of {reached:,} launches captured{share}; "
            f"{ended:,} of {plural(len(tests), 'test')} finished, in "
            f"{plural(len(results), 'file')}"
        )
    ]
    if rows := list(_lines(results)):
        titles = ("kernel", "target", "ok", "sick", "failing", "not known", "executed", "wrong")
        count = len(titles) if any(result.runs for result in results) else len(titles) - 2
        columns = tuple(
            GridColumn(title=t, is_number=n > 1, folds=n < 1) for n, t in enumerate(titles)
        )
        blocks.append(SaidGrid(columns=columns[:count], rows=tuple(row[:count] for row in rows)))
    failures = Counter(
        f"{_name(row)}, {row.target}: {row.verdict.value}: {row.reason}"
        for result in results
        for row in result.rows
        if row.verdict.fails
    )
    failures.update(
        f"{_name(row)}, {row.target}: {row.run.value}: {row.run_reason}"
        for result in results
        for row in result.runs
        if row.run.is_failure
    )
    for title, lines in (("Failing:", failures), ("Not captured:", refusals(results))):
        if lines:
            blocks.append(say(title, Tone.HEAD))
            blocks += [Counted(count, say(words)) for words, count in lines.most_common()]
    return blocks


def _lines(results: Sequence[FileResult]) -> Iterator[tuple[Any, ...]]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        for row in result.rows:
            kind = row.verdict
            word = kind.value if kind in (VerdictKind.OK, VerdictKind.SICK) else "failing"
            word = word if kind.compiles or kind.fails else "not known"
            counts.setdefault((_name(row), row.target), Counter())[word] += 1
        for executed in result.runs:
            own = counts.setdefault((_name(executed), executed.target), Counter())
            own["executed"] += executed.run.is_fine_run or executed.run.is_failure
            own["wrong"] += executed.run.is_failure
    tones = {"sick": Tone.POOR, "failing": Tone.BAD, "wrong": Tone.BAD, "ok": Tone.GOOD}
    for (kernel, target), own in sorted(counts.items()):
        yield (
            say(kernel),
            say(target),
            *(
                say(f"{own[word]:,}" if own[word] else "", tones.get(word, Tone.PLAIN))
                for word in ("ok", "sick", "failing", "not known", "executed", "wrong")
            ),
        )


def _name(row: CellNames) -> str:
    return row.kernel.rpartition("::")[2]
