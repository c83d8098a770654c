"""`triage run`: every selected cell is lowered, executed on real inputs, and judged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from packaging.version import Version

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions, work
from harness.cells.selection import small_launch
from harness.frontends.base import LaunchCode, PlannedCell, PlannedLaunch, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.launch_code import fetch_launch_code
from harness.frontends.planning import raised_words
from harness.frontends.registry import plan_launch
from harness.run.executing import Execution, Follow, execute, keep_execution
from harness.run.jobs import RunTrial
from harness.run.matching import find_variant
from harness.run.recording import PLAIN_TARGET, recorded
from harness.run.references import References, reference_of
from harness.run.same_inputs import require_values
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.execution import Inputs, RunRow
from harness.values.target import Target
from harness.values.toolchain import Compiler


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
    follow: Follow | None = None
    notes: list[str] = field(default_factory=list)
    _inputs: dict[object, Inputs] = field(default_factory=dict)

    async def inputs(
        self, selection: Selection, launch: PlannedLaunch, code: LaunchCode, *places: Target
    ) -> Inputs:
        """What each kernel of a launch is given on the first of these targets that it runs for.

        The same for all Tritons.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        triton = selection.compilers[0]
        key = (selection.repro.file, launch.label, triton, places)
        if key not in self._inputs:
            self._inputs[key] = await recorded(
                self.bench,
                code,
                triton,
                self.together[selection.repro.file],
                places,
                budget=self.budget,
                tell=self.tell,
            )
        return self._inputs[key]

    async def inputs_of(
        self,
        selection: Selection,
        launch: PlannedLaunch,
        code: LaunchCode,
        target: Target,
        cells: Sequence[PlannedCell],
    ) -> list[Inputs]:
        """The inputs of each cell: the same for all targets, where it is the same launch there.

        Launch code may choose blocks by the device; what it launches on this target alone gets its
        inputs there.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        found = await self.inputs(selection, launch, code, PLAIN_TARGET, target)
        known = [
            cell.record is None or find_variant(found, cell.record) is not None for cell in cells
        ]
        own = found
        if not all(known) and target != PLAIN_TARGET:
            with contextlib.suppress(TriageError):
                own = await self.inputs(selection, launch, code, target)
        return [found if is_known else own for is_known in known]


async def run_selections(
    selections: Sequence[Selection],
    store: Store,
    options: CompileOptions,
    trials: tuple[RunTrial, ...],
    budget: Budget,
    tell: Callable[[str], None],
    heard: Callable[[RunRow], None] = lambda row: None,  # noqa: ARG005
    follow: Follow | None = None,
) -> RunReport:
    """Execute every cell of the selections on the emulator, on small real inputs.

    `tell` hears what is done next, in words; `heard` each row as soon as it is known. `follow`
    follows a value of each.

    Raises:
        EmptySelectionError: no config matches the filter.
        TriageError: nothing could be captured.
    """
    rows: list[RunRow] = []
    failures: list[TriageError] = []
    async with work(store, options) as (bench, number):
        together: dict[object, list[str]] = {}
        for selection in selections:
            require_values(selection)
            kernels = together.setdefault(selection.repro.file, [])
            kernels.append(selection.repro.kernel or "*")
        runs = _Runs(
            bench=bench,
            trials=trials,
            budget=budget,
            tell=tell,
            together=together,
            number=number,
            follow=follow,
        )
        for selection in selections:
            for launch in selection.launches:
                for target in selection.targets:
                    for triton in selection.compilers:
                        try:
                            found = await _place(runs, selection, launch, target, triton)
                        except TriageError as error:
                            failures.append(error)
                            continue
                        rows += found
                        for row in found:
                            heard(row)
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
    plan = await plan_launch(
        runs.bench, selection.place(target=target, compiler=triton, launch=small)
    )
    runs.notes.extend((*plan.notes, *plan.warnings))
    references = References(
        bench=runs.bench,
        budget=runs.budget,
        code=code,
        target=PLAIN_TARGET,
        triton=triton,
        records=[cell.record for cell in plan.cells if cell.record],
        reference=reference_of(selection.repro),
        tell=runs.tell,
        interpreter=selection.compilers[0],
        others=sorted(
            (each for each in selection.compilers if each != triton),
            key=lambda each: Version(each.version),
            reverse=True,
        ),
    )
    try:
        inputs = await runs.inputs_of(selection, small, code, target, plan.cells)
        for error in dict.fromkeys(each.error for each in inputs if each.error and each.launches):
            said = raised_words(selection.repro, error)
            where = f"{selection.repro.name}, launch {launch.label}, with values"
            runs.notes.append(f"{said}, after the launches that are executed ({where})")
        how = Execution(
            bench=runs.bench,
            trials=runs.trials,
            budget=runs.budget,
            tell=runs.tell,
            follow=runs.follow,
            formal=selection.formal,
        )
        jobs = [
            execute(how, cell, given, references)
            for cell, given in zip(plan.cells, inputs, strict=True)
        ]
        found = await asyncio.gather(*jobs)
        for each in found:
            keep_execution(runs.bench.store, runs.number, each)
        return [each.row for each in found]
    finally:
        for session in {plan.session, *references.sessions} - {None}:
            assert session is not None
            await runs.bench.sessions.close(session)
