"""`triage run`: every selected cell is lowered, executed on real inputs, and judged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.bench.bench import Kept, Workbench
from harness.cells.evaluate import cell_evidence
from harness.cells.plan import plan_launch
from harness.cells.run import CompileOptions, open_bench
from harness.cells.selection import small_launch
from harness.emulator.values import Budget
from harness.frontends.base import LaunchCode, PlannedCell, PlannedLaunch, Selection
from harness.frontends.triton.lower import fetch_launch_code, lower
from harness.judging.judge import judge as judge_compilation
from harness.processes.hub import Hub
from harness.runs.emulating import emulate
from harness.runs.jobs import Ran, RunTrial
from harness.runs.judging import Judgement, RunEvidence, judge
from harness.runs.launching import NotRunError, effort_words, emulation_of
from harness.runs.matching import find_variant
from harness.runs.real_values import RealValues
from harness.runs.references import Found, References
from harness.runs.referring import REFERENCE_FILE
from harness.runs.rows import row_of
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, InfrastructureError, TriageError
from harness.values.outcome import Lowering
from harness.values.row import Row
from harness.values.run import Inputs, LaunchVariant, RunRow, RunVerdict
from harness.values.target import Target
from harness.values.toolchain import Compiler

__all__ = ["RunReport", "run_selections"]

PLAIN_TARGET = Target(capability=80)
"""Where values and references come from: asynchronous copies are all that it has of engines."""

_TYPES = {
    "bfloat16": re.compile(r"\.bf16"),
    "float16": re.compile(r"\.f16"),
    "tf32": re.compile(r"\.tf32"),
    "float8_e4m3fn": re.compile(r"\.e4m3"),
    "float8_e5m2": re.compile(r"\.e5m2"),
    "float32": re.compile(r"\.f32"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A row for each cell, in the order of the selection; `failures` could not be captured."""

    rows: tuple[RunRow, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Runs:
    """Runs at work; `together` are the kernels asked for of one launch file."""

    bench: Workbench
    trials: tuple[RunTrial, ...]
    budget: Budget
    tell: Callable[[str], None]
    together: dict[object, list[str]]
    number: int
    notes: list[str] = field(default_factory=list)
    _inputs: dict[object, Inputs] = field(default_factory=dict)

    async def inputs(
        self, selection: Selection, launch: PlannedLaunch, code: LaunchCode, target: Target
    ) -> Inputs:
        """What each kernel of a launch is given: the same for all targets and Tritons, if it can.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        triton = selection.compilers[0]
        kernels = self.together[selection.repro.file]
        failure: TriageError | None = None
        for place in dict.fromkeys((PLAIN_TARGET, target)):
            key = (selection.repro.file, launch.label, triton, place)
            if key not in self._inputs:
                upstream = RealValues(
                    bench=self.bench, target=place, budget=self.budget, tell=self.tell
                )
                try:
                    self._inputs[key] = await upstream.inputs(code, triton, kernels)
                except TriageError as error:
                    failure = error
                    continue
            found = self._inputs[key]
            if not found.error or place == target:
                return found
        assert failure is not None
        raise failure


async def run_selections(
    selections: Sequence[Selection],
    store: Store,
    options: CompileOptions,
    trials: tuple[RunTrial, ...],
    budget: Budget,
    tell: Callable[[str], None],
) -> RunReport:
    """Execute every cell of the selections on the emulator, on small real inputs.

    `tell` hears what is done next, in words.

    Raises:
        EmptySelectionError: no config matches the filter.
        TriageError: nothing could be captured.
    """
    rows: list[RunRow] = []
    failures: list[TriageError] = []
    number = store.begin_run(options.command)
    async with Hub() as hub:
        bench = open_bench(hub, store, options)
        together: dict[object, list[str]] = {}
        for selection in selections:
            kernels = together.setdefault(selection.repro.file, [])
            kernels.append(selection.repro.kernel or "*")
        runs = _Runs(
            bench=bench,
            trials=trials,
            budget=budget,
            tell=tell,
            together=together,
            number=number,
        )
        for selection in selections:
            for launch in selection.launches:
                for target in selection.targets:
                    for triton in selection.compilers:
                        try:
                            rows += await _place(runs, selection, launch, target, triton)
                        except TriageError as error:
                            failures.append(error)
    store.finish_run(number)
    if not rows:
        raise failures[0] if failures else EmptySelectionError("--config matches no config")
    return RunReport(
        rows=tuple(rows),
        failures=tuple(dict.fromkeys(str(error) for error in failures)),
        notes=tuple(dict.fromkeys(runs.notes)),
    )


async def _place(
    runs: _Runs, selection: Selection, launch: PlannedLaunch, target: Target, triton: Compiler
) -> list[RunRow]:
    """The rows of one launch on one target with one Triton."""
    small = small_launch(selection, launch)
    code = fetch_launch_code(selection.repro, launch.spec, small.overrides)
    runs.tell(f"{selection.repro.name}: inputs ({small.label})")
    inputs = await runs.inputs(selection, small, code, target)
    plan = await plan_launch(runs.bench, selection, target, triton, small)
    runs.notes.extend(plan.notes)
    references = References(
        bench=runs.bench,
        budget=runs.budget,
        code=code,
        target=PLAIN_TARGET,
        triton=triton,
        records=[cell.record for cell in plan.cells if cell.record],
        reference=_reference(selection),
        tell=runs.tell,
    )
    try:
        jobs = [_cell(runs, cell, inputs, references) for cell in plan.cells]
        return list(await asyncio.gather(*jobs))
    finally:
        for session in {plan.session, *references.sessions} - {None}:
            assert session is not None
            await runs.bench.sessions.close(session)


def _reference(selection: Selection) -> tuple[Path, str] | None:
    repro = selection.repro
    return (repro.folder / REFERENCE_FILE, repro.reference) if repro.reference else None


async def _cell(runs: _Runs, cell: PlannedCell, inputs: Inputs, references: References) -> RunRow:
    """One cell from its coordinates to the row of its run."""
    ran: tuple[Ran, ...] = ()
    try:
        lowering = await _lowered(runs.bench, cell)
        variant = _variant(cell, inputs)
        wanted = emulation_of(runs.bench, lowering, variant, runs.trials, runs.budget)
        ptx = runs.bench.store.artifacts.get(wanted.ptx).decode(errors="replace")
        runs.tell(
            f"{cell.cell.kernel} [{cell.cell.config.label}] on {cell.cell.target}: "
            f"{effort_words(wanted, ptx)}"
        )
        emulated = (await emulate(runs.bench, wanted)).value
        ran = emulated.runs
        assert cell.record is not None
        found = Found()
        if not any(each.not_run or each.faults for each in ran) and not emulated.problem:
            found = await references.of(cell.cell.target, cell.record, variant)
        evidence = _evidence(runs, variant, ran, found, ptx, emulated.problem)
        judgement = judge(evidence)
    except NotRunError as error:
        judgement = Judgement(verdict=RunVerdict.NOT_RUN, reason=str(error))
    except InfrastructureError as error:
        judgement = Judgement(verdict=RunVerdict.NOT_RUN, reason=str(error))
    return row_of(cell.cell, judgement, ran, triton=cell.compiler.version)


def _compiled(store: Store, cell: str) -> Row | None:
    """What `triage compile` last said of the cell, if it is stored."""
    for record in store.find_cells(cell):
        if record.cell == cell:
            return msgspec.json.decode(record.row, type=Row)
    return None


async def _lowered(bench: Workbench, cell: PlannedCell) -> Kept[Lowering]:
    """The PTX of a cell.

    Raises:
        NotRunError: there is none.
    """
    if cell.launch is None or cell.record is None:
        raise NotRunError("a file of PTX is run by `triage run FILE.ptx`")
    lowering = await lower(bench, cell.launch, cell.record, ptxas=cell.ptxas)
    if lowering.value.error or not lowering.value.end.ok or "ptx" not in lowering.artifacts:
        verdict = judge_compilation(
            cell_evidence(target=cell.cell.target, limits=cell.limits, lowering=lowering.value)
        )
        raise NotRunError(f"it does not compile: {verdict.kind.value}, {verdict.reason}")
    return lowering


def _variant(cell: PlannedCell, inputs: Inputs) -> LaunchVariant:
    """What the kernel is given with the config of a cell.

    Raises:
        NotRunError: the launch code does not come to it with values.
    """
    assert cell.record is not None
    if cell.record.grid is None and not cell.record.arguments:
        raise NotRunError("it is compiled and never launched: there are no inputs")
    found = find_variant(inputs, cell.record)
    if found is not None:
        return found
    if inputs.error:
        said = next(iter(inputs.error.message.splitlines()), "")[:300]
        raise NotRunError(f"run with values, the launch raised {inputs.error.type}: {said}")
    raise NotRunError("run with values, the launch never comes to this kernel with this config")


def _evidence(
    runs: _Runs,
    variant: LaunchVariant,
    ran: Sequence[Ran],
    found: Found,
    ptx: str,
    problem: str | None,
) -> RunEvidence:
    artifacts = runs.bench.store.artifacts
    before = tuple(each.sha256 for each in variant.buffers)
    names = {*before, *(name for each in ran for name in each.buffers)}
    return RunEvidence(
        arguments=variant.arguments,
        before=before,
        runs=tuple(each for each in ran if not each.trial.schedule.garbage),
        garbage=tuple(each for each in ran if each.trial.schedule.garbage),
        contents={name: artifacts.get(name) for name in names},
        trusted=found.trusted,
        is_clean=found.is_clean,
        types=frozenset(name for name, pattern in _TYPES.items() if pattern.search(ptx)),
        unwritten=frozenset(n for n, each in enumerate(variant.buffers) if each.unwritten),
        problem=problem,
    )
