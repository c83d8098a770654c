"""What the files and the cells of a report do: compiled or executed again, from nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from harness.bisect.neighbours import contrast
from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress, at_bench
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.base import LaunchCode, Plan, PlannedCell, PlannedLaunch, Selection
from harness.frontends.bench.bench import TimeIsUpError, Workbench
from harness.frontends.registry import front_end
from harness.judging.conditions import Condition
from harness.report.claims import AttachedPlace
from harness.report.gather import executed_rows
from harness.run.executing import Executed
from harness.run.raw_ptx import LAUNCH_INPUTS, RawInputs, inputs_of, read_launch
from harness.run.recorded_launch import small_selection
from harness.store.store import Store
from harness.values.cell import LaunchLabel
from harness.values.errors import TriageError
from harness.values.execution import RunRow
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, GPU, assembler_name
from harness.values.verdict import VerdictKind
from harness.workaround.executed import Executions


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrial:
    """What is executed: the kernel of a selection with this compiler, for this target.

    `launch` is the label of the launch, `config` what the kernel is launched with; None: those of
    the selection, of which the first config is meant where none is as `like`.
    """

    compiler: str
    target: str
    launch: str | None = None
    config: Config | None = None
    like: Config | None = None


def retrial_of(row: Row) -> Retrial:
    """How a stored result came about."""
    return Retrial(
        compiler=row.compiler_version or "",
        target=row.target,
        launch=row.launch,
        config=Config.of(row.config),
    )


async def execute_again(
    selection: Selection,
    points: Iterable[Retrial],
    store: Store,
    how: CompileOptions,
    *,
    seconds: float,
) -> dict[Retrial, Executed | str]:
    """What comes out at each point, all on inputs that are recorded once; the first ones first.

    Where it cannot be tried, or not in these seconds: why.

    Raises:
        UsageError: the kernel has no launch that can be run with values.
    """
    selection = small_selection(selection)
    groups: dict[Retrial, list[Retrial]] = {}
    for point in dict.fromkeys(points):
        groups.setdefault(replace(point, config=None), []).append(point)
    results: dict[Retrial, Executed | str] = {}
    async with at_bench(store, structs.replace(how, use_cache=False)) as bench:
        bench.deadline = time.monotonic() + seconds
        executions = Executions(bench=bench, selection=selection, tell=lambda _: None)
        # Few at once: each holds a compiler's process with its launch.
        turns = asyncio.Semaphore(bench.jobs)

        async def one(group: Sequence[Retrial]) -> None:
            async with turns:
                try:
                    await _execute(bench, selection, executions, group, results)
                except (TriageError, TimeIsUpError) as error:
                    is_late = isinstance(error, TimeIsUpError)
                    why = (
                        f"the {seconds:.0f} s for all of them were over" if is_late else str(error)
                    )
                    for point in group:
                        results.setdefault(point, why)

        await asyncio.gather(*map(one, groups.values()))
    return results


async def _execute(
    bench: Workbench,
    selection: Selection,
    executions: Executions,
    group: Sequence[Retrial],
    results: dict[Retrial, Executed | str],
) -> None:
    """Points of one compiler, target and launch: of its own configs, then of others."""
    for adapts in (False, True):
        missing = [point for point in group if point not in results]
        if not missing:
            return
        plan = await _plan(bench, selection, missing, adapts=adapts)
        try:
            for point in missing:
                if cell := _meant(plan.cells, point):
                    executed = await executions.execute(bench, cell)
                    row = executed.done.row
                    is_told = row.verdict is not VerdictKind.INFRA
                    results[point] = executed if is_told else row.reason
        finally:
            if plan.session:
                await bench.sessions.close(plan.session)
    for point in group:
        results.setdefault(point, "the launch has no such config there")


async def _plan(
    bench: Workbench, selection: Selection, group: Sequence[Retrial], *, adapts: bool
) -> Plan:
    first, end = group[0], front_end(selection.repro.front_end)
    compiler = await asyncio.to_thread(end.install, first.compiler)
    launch = _launch(selection.launches[0], first.launch)
    every = replace(
        selection, config=ConfigFilter(), compilers=(compiler,), launches=(launch,), ptxas=(None,)
    )
    configs = [point.config.as_dict() for point in group if point.config]

    def adapted(code: LaunchCode) -> LaunchCode:
        return code.with_configs(selection.repro.kernel or "*", configs)

    target, adapt = Target.parse(first.target), adapted if adapts else None
    return await end.plan(bench, every.place(target=target, adapt=adapt))


def _launch(launch: PlannedLaunch, label: str | None) -> PlannedLaunch:
    if label is None:
        return launch
    parameters = {parameter.name: parameter for parameter in launch.spec.parameters}
    words = (text.partition("=") for text in LaunchLabel.parse(label).overrides)
    return replace(
        launch, overrides={name: parameters[name].read(value) for name, _, value in words}
    )


def _meant(cells: Sequence[PlannedCell], point: Retrial) -> PlannedCell | None:
    if point.config:
        return next((cell for cell in cells if cell.cell.config == point.config), None)
    same = [cell for cell in cells if cell.cell.config == point.like]
    return next(iter(same or cells), None)


# The attached files.

MINIMAL = "min.ptx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where the files lie and how to compile them: `case` is the failing cell they are to show.

    With a `condition`, it is what the case shows in the place of a failure; `formal` is that of the
    selection. Nothing that is
    compiled is taken from `store`; `seconds` is how long all of it may take.
    """

    folder: Path
    case: Row
    store: Store
    how: CompileOptions
    seconds: float
    condition: Condition | None = None
    formal: bool = False


async def compile_places(
    bench: Bench, places: Sequence[AttachedPlace], untried: dict[AttachedPlace | str, str]
) -> dict[AttachedPlace, Row]:
    """What each file does there; what could not be compiled, or not in time, is in `untried`.

    The places that come first are compiled first.
    """
    started = time.monotonic()
    compiled: dict[AttachedPlace, Row] = {}
    groups: dict[tuple[str, ...], list[AttachedPlace]] = {}
    for each in places:
        key: tuple[str, ...] = (each.file, each.version)
        if each.flag:
            key = (each.file, "flag")
        elif each.target != bench.case.target:
            key = (each.file, "target")
        groups.setdefault(key, []).append(each)
    for group in groups.values():
        why = f"the {bench.seconds:.0f} s for all of them were over"
        rows: dict[AttachedPlace, Row] = {}
        if time.monotonic() - started <= bench.seconds:
            try:
                rows = await _compiled(bench, group)
                why = "it is not compiled there"
            except TriageError as error:
                why = str(error)
        for place in group:
            row = rows.get(place)
            if row and row.verdict is not VerdictKind.INFRA:
                compiled[place] = row
            else:
                untried[place] = row.reason if row else why
    return compiled


async def _compiled(bench: Bench, group: Sequence[AttachedPlace]) -> dict[AttachedPlace, Row]:
    first = group[0]
    if first.flag or first.target != bench.case.target:
        axis = "flag" if first.flag else "target"
        selection = _selection(bench, first, bench.case.target)
        neighbours = await contrast(
            selection, bench.store, bench.how, axis, None, _silent, condition=bench.condition
        )
        rows = {point.label: point.row for point in neighbours.points}
        labels = {place: place.flag or place.target for place in group}
        return {place: row for place, label in labels.items() if (row := rows.get(label))}
    selection = _selection(bench, first, first.target)
    report = await compile_selections([selection], bench.store, bench.how, RunProgress())
    # The row of the case's config, where a file launches several.
    config = Config.of(bench.case.config)
    same = (row for row in report.rows if Config.of(row.config) == config)
    return dict.fromkeys(group, next(same, report.rows[0]))


async def execute_places(
    bench: Bench, places: Sequence[AttachedPlace], untried: dict[AttachedPlace | str, str]
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    """What each file computes there; what could not be executed, or not in time, is in `untried`.

    Every version gets the inputs that are recorded with the one of the case.
    """
    case = bench.case
    runs: dict[AttachedPlace | str, tuple[Row, RunRow]] = {}
    for file in dict.fromkeys(place.file for place in places):
        words = SelectionOptions(
            kernel=str(bench.folder / file),
            sm=[case.target],
            compiler=[f"{case.compiler}=={case.compiler_version}"],
            formal=bench.formal,
        )
        like = Config.of(case.config)
        points: dict[AttachedPlace | str, Retrial] = {
            place: Retrial(compiler=place.version, target=place.target, like=like)
            for place in places
            if place.file == file
        }
        try:
            results = await execute_again(
                select(words), points.values(), bench.store, bench.how, seconds=bench.seconds
            )
        except TriageError as error:
            untried |= dict.fromkeys(points, str(error))
        else:
            runs |= _told(results, points, untried)
    return runs


def _told(
    results: Mapping[Retrial, Executed | str],
    points: Mapping[AttachedPlace | str, Retrial],
    untried: dict[AttachedPlace | str, str],
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    runs: dict[AttachedPlace | str, tuple[Row, RunRow]] = {}
    for subject, point in points.items():
        executed = results[point]
        if isinstance(executed, str):
            untried[subject] = executed
        else:
            runs[subject] = executed.done.row, executed.row
    return runs


async def launch_places(
    bench: Bench,
    selection: Selection,
    places: Sequence[AttachedPlace],
    runner: str | None,
    untried: dict[AttachedPlace | str, str],
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    """What the cubin of each file computes on a GPU there; what cannot be tried is in `untried`.

    A file with a launch beside it gets that, any other what the repro of `given` says.
    """
    runs: dict[AttachedPlace | str, tuple[Row, RunRow]] = {}
    for file in dict.fromkeys(place.file for place in places):
        inputs = inputs_of(selection.repro)
        if file == MINIMAL and (bench.folder / LAUNCH_INPUTS).is_file():
            launch = read_launch((bench.folder / LAUNCH_INPUTS).read_bytes(), LAUNCH_INPUTS)
            inputs = RawInputs(launch=launch, folder=bench.folder)
        mine = [place for place in places if place.file == file]
        words = SelectionOptions(
            kernel=str(bench.folder / file),
            sm=[bench.case.target],
            ptxas=list(dict.fromkeys(place.version for place in mine)),
        )
        try:
            launches = await executed_rows(
                select(words), bench.store, bench.how, _silent, GPU, runner=runner, inputs=inputs
            )
        except TriageError as error:
            untried |= dict.fromkeys(mine, str(error))
            continue
        rows = {each.row.compiled.ptxas: each for each in launches if each.row.compiled}
        for place in mine:
            if executed := rows.get(place.version):
                runs[place] = executed.done.row, executed.row
            else:
                untried[place] = f"ptxas {place.version} made no cubin of it that was launched"
    return runs


async def execute_rows(
    bench: Bench, selection: Selection, rows: Sequence[Row], untried: dict[AttachedPlace | str, str]
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    """What the kernel itself computes, by cell; what cannot be tried in time is in `untried`."""
    points: dict[AttachedPlace | str, Retrial] = {row.cell: retrial_of(row) for row in rows}
    results = await execute_again(
        selection, points.values(), bench.store, bench.how, seconds=bench.seconds
    )
    return _told(results, points, untried)


def _selection(bench: Bench, place: AttachedPlace, target: str) -> Selection:
    """The file on this version; for the target as the command line names it."""
    case = bench.case
    is_ptx = place.file.endswith(".ptx")
    is_assembler = place.tool == assembler_name(case.assembler)
    names_it = is_assembler or case.ptxas_origin != BUNDLED
    assembler = place.version if is_assembler else case.ptxas
    version = case.compiler_version if is_assembler else place.version
    return select(
        SelectionOptions(
            kernel=str(bench.folder / place.file),
            sm=[target],
            compiler=[] if is_ptx or version is None else [f"{case.compiler}=={version}"],
            assembler=[f"{case.assembler}=={assembler}"] if names_it and assembler else [],
        )
    )


def _silent(*_: str) -> None:
    """Only the rows are wanted."""
