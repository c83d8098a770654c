"""`triage run`: every selected cell is executed and judged; and what executes it, by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from gpu_emulator.values import Budget
from harness.cells.compile import SamplePolicy, launch_of
from harness.cells.places import CompileOptions, places_of, work
from harness.cells.selection import small_launch
from harness.frontends.bench import Workbench
from harness.frontends.launch_code import fetch_launch_code
from harness.frontends.plan import CapturePlace, PlannedCell, Selection, raised_words
from harness.frontends.registry import interpreter_for, plan_launch
from harness.io.processes.tasks import in_parallel
from harness.run.emulating import emulate
from harness.run.emulator_jobs import RunTrial
from harness.run.executing import (
    Executed,
    Executor,
    Follow,
    OnEmulator,
    RunReport,
    executed_of,
    keep_execution,
)
from harness.run.gpu.evaluating import OnCubins
from harness.run.gpu.sass_emulator import destination_of
from harness.run.inputs import PLAIN_TARGET, LaunchSource, find_variant, visible
from harness.run.judging import judge
from harness.run.launch import effort_words, evidence_of, waits_for_others
from harness.run.launch_sources import NamedLaunch, RecordedLaunch, require_values, takes_inputs
from harness.run.raw import RawInputs, RawReport, inputs_of, raw_launch
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.execution import (
    Agreement,
    Checked,
    Inputs,
    Interpretation,
    LaunchComparison,
    Measures,
    RunRow,
    SameProgram,
)
from harness.values.kernel import Repro
from harness.values.outcome import LaunchFacts
from harness.values.toolchain import EMULATOR, SASS, takes_cubins


def executor_on(
    on: str | None,
    bench: Workbench,
    source: LaunchSource,
    tell: Callable[[str], None],
    *,
    runner: str | None = None,
    command: str = "",
    follow: Follow | None = None,
) -> Executor:
    """What executes the cells of a source: the emulator, or what `--on` names.

    `command` is what asks; a GPU is reached by the `runner`, and the emulator follows a value.

    Raises:
        UsageError: the runner is not a command.
        InfrastructureError: there is no GPU.
    """
    if takes_cubins(on):
        place = destination_of(on, runner, tell)
        return OnCubins(bench=bench, source=source, destination=place, tell=tell, command=command)
    assert isinstance(source, RecordedLaunch | NamedLaunch), "`run_ptx` executes files of PTX"
    return OnEmulator(source=source, follow=follow)


def executor_of(
    bench: Workbench,
    selection: Selection,
    tell: Callable[[str], None],
    on: str | None = EMULATOR,
    *,
    runner: str | None = None,
    inputs: RawInputs | None = None,
    command: str = "",
) -> Executor:
    """As `executor_on`, of the first launch of a selection.

    A file of PTX gets these `inputs`, else those that its repro names.

    Raises:
        UsageError: the inputs do not fit, or the runner is not a command.
        InfrastructureError: there is no GPU.
    """
    source: LaunchSource = RecordedLaunch(
        bench=bench, selection=selection, tell=tell, is_held=on == SASS
    )
    if (path := selection.repro.ptx) and takes_cubins(on):
        inputs = inputs or inputs_of(selection.repro)
        source = raw_launch(path, selection.repro.kernel, inputs, bench.store)
    return executor_on(on, bench, source, tell, runner=runner, command=command)


async def run_ptx(
    path: Path,
    entry: str | None,
    inputs: RawInputs,
    store: Store,
    options: CompileOptions,
    trials: Sequence[RunTrial],
    budget: Budget,
    tell: Callable[[str], None],
    follow: Follow | None = None,
    *,
    formal: bool = False,
) -> RawReport:
    """Execute one entry of a PTX file; `follow` follows a value of it.

    `formal` is as in `RunEvidence`.

    Raises:
        UsageError: the file is not PTX, or the inputs do not fit its parameters.
        InfrastructureError: the emulator's process cannot be started.
    """
    raw = raw_launch(path, entry, inputs, store, trials, budget, formal=formal)
    launch, cell = raw.launch, raw.cell(entry)
    if waits_for_others(path.read_text(), launch.emulation.entry):
        launch = launch.with_fewer_blocks(None)
    for note in (*raw.notes, effort_words(launch.emulation, path.read_text())):
        tell(note)
    async with work(store, options) as (bench, number):
        emulated = await emulate(bench, launch.emulation, tell)
        evidence = evidence_of(launch, emulated.value, store.artifacts.get)
        executed = executed_of(
            raw.named(cell),
            judge(evidence),
            emulated,
            ptx=launch.emulation.ptx,
            trace=await follow(bench, evidence, None) if follow else None,
        )
        row = replace(executed.row, launch=cell.launch)
        keep_execution(store, number, dataclasses.replace(executed, row=row))

    return RawReport.of(row, raw.notes, launch, evidence)


async def run_selections(
    selections: Sequence[Selection],
    store: Store,
    options: CompileOptions,
    trials: tuple[RunTrial, ...],
    budget: Budget,
    tell: Callable[[str], None],
    heard: Callable[[RunRow], None] = lambda row: None,  # noqa: ARG005
    follow: Follow | None = None,
    survey: SamplePolicy | None = None,
    given: Callable[[Repro], RawInputs] = inputs_of,
) -> RunReport:
    """Execute the PTX of every cell of the selections on small real inputs.

    `tell` hears what is done next, in words; `heard` each row as soon as it is known. `follow`
    follows a value of each. A `survey` chooses cells; one of a launch whose values the file refuses
    is never left out. `given` are the inputs of kernels whose files launch nothing.

    Raises:
        EmptySelectionError: no config matches the filter.
        TriageError: nothing could be captured.
    """
    rows: list[RunRow] = []
    failures: list[TriageError] = []
    notes: list[str] = []
    # Kernels of one launch file are interpreted in one run of it.
    together: dict[object, list[str]] = {}
    for selection in selections:
        if not takes_inputs(selection.repro):
            require_values(selection)
        names = together.setdefault(selection.repro.file, [])
        names.append(selection.repro.kernel or "*")
    done: dict[int, RunRow] = {}
    async with work(store, options) as (bench, number):

        async def keep(nth: int, job: Awaitable[Executed], check: Checked | None) -> None:
            try:
                executed = await job
            except TriageError as error:
                # The other cells go on.
                failures.append(error)
                return
            row = replace(executed.row, check=check)
            keep_execution(store, number, dataclasses.replace(executed, row=row))
            done[nth] = row
            heard(row)

        for selection in selections:
            for launch in selection.launches:
                small = replace(selection, launches=(small_launch(selection, launch),))
                source: RecordedLaunch | NamedLaunch = RecordedLaunch(
                    bench=bench,
                    selection=small,
                    tell=tell,
                    is_voted=True,
                    kernels=together[selection.repro.file],
                    trials=trials,
                    budget=budget,
                )
                if takes_inputs(selection.repro):
                    source = NamedLaunch(
                        bench=bench,
                        selection=small,
                        tell=tell,
                        inputs=given(selection.repro),
                        trials=trials,
                        budget=budget,
                    )
                executor = executor_on(EMULATOR, bench, source, tell, follow=follow)
                for place in places_of(source.selection):
                    session = None
                    done.clear()
                    try:
                        plan = await plan_launch(bench, place)
                        session = plan.session
                        notes += (*plan.notes, *plan.warnings)
                        refused, checks = list[PlannedCell](), dict[str, Checked]()
                        if isinstance(source, NamedLaunch):
                            pass
                        elif launch.spec.file:
                            words = "its arguments are guessed by their types, and one program runs"
                            notes.append(f"{selection.repro.name}: {words}")
                        else:
                            inputs = await source.inputs(PLAIN_TARGET, place.target)
                            tell(f"{selection.repro.name}: its configs, interpreted")
                            checks = await check_place(bench, place, plan.cells, source.kernels)
                            refused = [cell for cell in plan.cells if _is_refused(inputs, cell)]
                        cells = survey.choose(place, plan, refused) if survey else plan.cells
                        jobs = [executor.execute(bench, cell) for cell in cells]
                        await in_parallel(
                            keep(nth, job, checks.get(str(cell.cell)))
                            for nth, (cell, job) in enumerate(zip(cells, jobs, strict=True))
                        )
                    except TriageError as error:
                        failures.append(error)
                    finally:
                        rows += [row for _, row in sorted(done.items())]
                        for opened in filter(None, {session, *source.sessions()}):
                            await bench.sessions.close(opened)
                notes += source.notes
                for inputs in source.recordings:
                    notes += [f"with values: {line}" for line in inputs.tests]
                    notes += [
                        f"with values: {launch_inputs.kernel} was not executed whole "
                        f"({launch_inputs.values}): no assertion on what it leaves counts"
                        for launch_inputs in inputs.launches
                        if not launch_inputs.is_whole
                    ]
                    if inputs.error and inputs.launches:
                        words = raised_words(selection.repro, inputs.error)
                        where = f"{selection.repro.name}, launch {launch.label}, with values"
                        words = f"{words}, after the launches that are executed ({where})"
                        if not all(launch_inputs.is_whole for launch_inputs in inputs.launches):
                            words += "; no finding: values are missing that were not computed"
                        notes.append(words)
    if not rows:
        raise failures[0] if failures else EmptySelectionError("--config matches no config")
    return RunReport(
        rows=tuple(rows),
        failures=tuple(dict.fromkeys(str(error) for error in failures)),
        notes=tuple(dict.fromkeys(notes)),
        samples=tuple(survey.samples) if survey else (),
    )


def _is_refused(inputs: Inputs, cell: PlannedCell) -> bool:
    """Whether an assertion of the launch code fails on what this launch leaves."""
    variant = find_variant(inputs, cell.record) if cell.record else None
    return variant is not None and not all(one.holds for one in variant.asserted)


# Do all configs of a launch compute the same? In the interpreter, whatever compilers do.


async def check_place(
    bench: Workbench, place: CapturePlace, cells: Sequence[PlannedCell], kernels: Sequence[str]
) -> dict[str, Checked]:
    """Hold the configs of each launch to one another, on one small input; by the id of the cell.

    A launch with one config has nothing to hold it to, and is left out; so is each launch without a
    tuner. `cells` are all of the place; `kernels` those of its launch file that are interpreted
    together.

    Raises:
        InfrastructureError: the interpreter cannot be started here.
        TriageError: the launch code cannot be fetched.
    """
    launches: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        launch = (cell.cell.kernel, launch_of(cell))
        launches.setdefault(launch, set()).add(cell.cell.config.label)
    compared = [cell for cell in cells if len(launches[cell.cell.kernel, launch_of(cell)]) > 1]
    if not compared:
        return {}
    planned = place.launch
    interpretation = await interpreter_for(place.compiler).compare_configs(
        bench,
        fetch_launch_code(place.selection.repro, planned.spec, planned.overrides),
        kernels=kernels,
        target=place.target,
        compiler=place.compiler,
    )
    return {
        str(cell.cell): check_of(cell.record, interpretation) for cell in compared if cell.record
    }


def check_of(record: LaunchFacts, interpretation: Interpretation) -> Checked:
    """What a launch with one config computes against its other configs, of what was interpreted."""
    found = [
        _judged(record, finding, variant)
        for finding in interpretation.findings
        for variant in finding.variants
        if finding.kernel == record.kernel and _is_of(record, variant)
    ]
    why = Checked(status=Agreement.NOT_CHECKED, reason=_why_not(record.kernel, interpretation))
    order = [Agreement.AGREES, Agreement.NOT_CHECKED, Agreement.DIFFERS]
    return max(
        found,
        key=lambda check: (order.index(check.status), check.stable_max_rel or 0.0),
        default=why,
    )


def _is_of(record: LaunchFacts, variant: SameProgram) -> bool:
    """Whether what was interpreted has the config, the types and the constants of this one."""
    if record.config not in variant.configs:
        return False
    names = [argument["name"] for argument in variant.described]
    own = [argument for argument in record.arguments if argument["name"] in names]
    return visible(own) == visible(variant.described)


def _judged(record: LaunchFacts, finding: LaunchComparison, variant: SameProgram) -> Checked:
    if finding.level == "source":
        reason = "the configs differ in nothing that the source reads"
        return Checked(status=Agreement.AGREES, reason=reason, level=finding.level, group=0)
    if record.suspect and not variant.suspect:
        reason = "the small launch does not reach what is suspect; keep that size with --set"
        return Checked(status=Agreement.NOT_CHECKED, reason=reason)
    if variant.group is None:
        return Checked(status=Agreement.NOT_CHECKED, reason=variant.error)
    scope = "all that is returned" if finding.level == "results" else "all that it writes"
    if variant.group == 0:
        peers = sum(peer.group == 0 for peer in finding.variants)
        reason = f"interpreted: {scope} agrees"
        if peers == 1:
            reason = "interpreted: the reference for the others"
        return Checked(status=Agreement.AGREES, reason=reason, level=finding.level, group=0)
    return Checked(
        status=Agreement.DIFFERS,
        reason=f"interpreted: {variant.tensor} differs from that of the other configs, beyond what "
        "rounding explains",
        level=finding.level,
        group=variant.group,
        **{name: getattr(variant, name) for name in Measures.__struct_fields__},
    )


def _why_not(kernel: str, interpretation: Interpretation) -> str:
    if kernel in interpretation.skipped:
        return f"the interpreter cannot run it: {interpretation.skipped[kernel]}"
    if error := interpretation.error:
        return f"the small launch raised {error.words}"
    return "the interpreted launch does not reach it; choose other sizes with --set"
