"""What the files and the cells of a report do: compiled or executed again, from nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from harness.bisect.neighbours import contrast
from harness.cells.compile import compile_selections
from harness.cells.places import RunProgress, at_bench
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import TimeIsUpError, Workbench
from harness.frontends.plan import Plan, PlannedCell, PlannedLaunch, Selection
from harness.frontends.registry import front_end
from harness.frontends.sessions import LaunchCode
from harness.frontends.texts.ir_inputs import OPTIONS_ARGUMENT
from harness.io.processes.tasks import in_parallel
from harness.report.claims import AttachedPlace
from harness.report.dossier import Dossier
from harness.report.gather import Case, executed_rows
from harness.run.executing import Executed
from harness.run.launch_sources import small_selection
from harness.run.raw import RawInputs, inputs_of, read_launch
from harness.values.cell import LaunchLabel, same_place
from harness.values.errors import TriageError
from harness.values.execution import RunRow
from harness.values.kernel import LAUNCH_INPUTS, Config, ConfigFilter
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, assembler_name
from harness.values.verdict import VerdictKind
from harness.workaround.executed_trials import Executions

_Point: TypeAlias = tuple[str, Config]
"""A launch, and a config of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrial:
    """What is executed: the kernel of a selection with this compiler, for this target.

    `cell` is the id of the cell that is executed again, `launch` and `config` are its own; None:
    of what the selection launches the one that is most `like` the case.
    """

    compiler: str
    target: str
    cell: str | None = None
    launch: str | None = None
    config: Config | None = None
    like: _Point | None = None


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
                    row = executed.evaluated.row
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
    first, front = group[0], front_end(selection.repro.front_end)
    compiler = await asyncio.to_thread(front.install, first.compiler)
    launch = _launch(selection.launches[0], first.launch)
    every = structs.replace(
        selection, config=ConfigFilter(), compilers=(compiler,), launches=(launch,), ptxas=(None,)
    )
    configs = [point.config.as_dict() for point in group if point.config]

    def adapted(code: LaunchCode) -> LaunchCode:
        return code.with_configs(selection.repro.kernel or "*", configs)

    target, adapt = Target.parse(first.target), adapted if adapts else None
    return await front.plan(bench, every.place(target=target, adapt=adapt))


def _launch(launch: PlannedLaunch, label: str | None) -> PlannedLaunch:
    if label is None:
        return launch
    parameters = {parameter.name: parameter for parameter in launch.spec.parameters}
    words = (text.partition("=") for text in LaunchLabel.parse(label).overrides)
    return structs.replace(
        launch, overrides={name: parameters[name].read(value) for name, _, value in words}
    )


def _meant(cells: Sequence[PlannedCell], point: Retrial) -> PlannedCell | None:
    if point.cell is not None:
        return next((cell for cell in cells if same_place(cell.cell, point.cell)), None)
    return max(
        cells,
        key=lambda cell: _likeness((cell.cell.launch, cell.cell.config), point.like),
        default=None,
    )


def _likeness(own: _Point, case: _Point | None) -> tuple[bool, bool]:
    """How near a launch and config of an attached file are to the case's.

    The file is a reduction: its kernel, and its launch, may have other names.
    """
    return case is not None and own[1] == case[1], own == case


MINIMAL = "min.ptx"
_Subject: TypeAlias = AttachedPlace | str


@dataclass(slots=True, kw_only=True)
class AttachedTrial:
    """The files of a report, compiled or executed again in `folder`, for at most `seconds`.

    `asked` has a store from which nothing that is compiled is taken. `rows` and `runs` are what
    came out by place, or by cell where the kernel itself was executed; `untried` says why something
    was not.
    """

    folder: Path
    dossier: Dossier
    asked: Case
    seconds: float
    rows: dict[_Subject, Row] = field(default_factory=dict)
    runs: dict[_Subject, RunRow] = field(default_factory=dict)
    untried: dict[_Subject, str] = field(default_factory=dict)

    @property
    def late(self) -> str:
        """Why something was not tried where there was no time."""
        return f"the {self.seconds:.0f} s for all of them were over"

    async def compile(self, places: Sequence[AttachedPlace]) -> None:
        """Compile each file there, those that come first first."""
        started, target = time.monotonic(), self.dossier.case.target
        groups: dict[tuple[str, ...], list[AttachedPlace]] = {}
        for place in places:
            axis = "flag" if place.flag else "target" if place.target != target else ""
            key = (place.file, axis) if axis else (place.file, "", place.version)
            groups.setdefault(key, []).append(place)
        for (_, axis, *_), group in groups.items():
            why, rows = self.late, dict[AttachedPlace, Row]()
            if time.monotonic() - started <= self.seconds:
                try:
                    rows = await self._compiled(axis, group)
                    why = "it is not compiled there"
                except TriageError as error:
                    why = str(error)
            for place in group:
                row = rows.get(place)
                if row and row.verdict is not VerdictKind.INFRA:
                    self.rows[place] = row
                else:
                    self.untried[place] = row.reason if row else why

    async def _compiled(
        self, axis: str, group: Sequence[AttachedPlace]
    ) -> dict[AttachedPlace, Row]:
        dossier, case, place = self.dossier, self.dossier.case, group[0]
        is_assembler = place.tool == assembler_name(case.assembler)
        names_it = is_assembler or case.ptxas_origin != BUNDLED
        assembler = place.version if is_assembler else case.ptxas
        version = case.compiler_version if is_assembler else place.version
        is_ptx = place.file.endswith(".ptx")
        options = (
            self.asked.selection.launches[0].overrides.get(OPTIONS_ARGUMENT) if is_ptx else None
        )
        settings = [f"{OPTIONS_ARGUMENT}={options}"] if options else []
        if dossier.minimized and place.file == dossier.minimized.shown_file:
            # What a module of IR is compiled with, as far as it does not say so itself.
            settings += dossier.minimized.options.split()[1::2]
        words = SelectionOptions(
            kernel=str(self.folder / place.file),
            sm=[case.target],
            set=settings,
            compiler=[] if is_ptx or version is None else [f"{case.compiler}=={version}"],
            assembler=[f"{case.assembler}=={assembler}"] if names_it and assembler else [],
        )
        if axis:
            rows = await self._neighbours(select(words), axis)
            labels = {place: place.flag or place.target for place in group}
            return {place: row for place, label in labels.items() if (row := rows.get(label))}
        report = await compile_selections(
            [select(words)], self.asked.store, self.asked.how, RunProgress()
        )
        like = case.launch, Config.of(case.config)
        # Where the file launches several.
        nearest = max(
            report.rows, key=lambda row: _likeness((row.launch, Config.of(row.config)), like)
        )
        return dict.fromkeys(group, nearest)

    async def _neighbours(
        self, selection: Selection, axis: str, inputs: RawInputs | None = None
    ) -> dict[str, Row | None]:
        """What its neighbours along an axis do, by label; executed where the case was."""
        executed = self.dossier.executed
        found = await contrast(
            selection,
            self.asked.store,
            self.asked.how,
            axis,
            None,
            lambda *_: None,
            condition=self.dossier.condition,
            run=executed is not None,
            on=executed.on if executed else None,
            inputs=inputs,
        )
        return {point.label: point.row for point in found.points}

    async def execute(self, places: Sequence[AttachedPlace]) -> None:
        """Execute each file there, all versions on the inputs that the case's records."""
        case = self.dossier.case
        for file in dict.fromkeys(place.file for place in places):
            words = SelectionOptions(
                kernel=str(self.folder / file),
                sm=[case.target],
                compiler=[f"{case.compiler}=={case.compiler_version}"],
                formal=self.asked.selection.formal,
            )
            like = case.launch, Config.of(case.config)
            points: dict[_Subject, Retrial] = {
                place: Retrial(compiler=place.version, target=place.target, like=like)
                for place in places
                if place.file == file
            }
            try:
                await self._execute_again(select(words), points)
            except TriageError as error:
                self.untried |= dict.fromkeys(points, str(error))

    async def execute_cells(self, rows: Sequence[Row]) -> None:
        """Execute the kernel itself, as these stored results came about."""
        points: dict[_Subject, Retrial] = {
            row.cell: Retrial(
                compiler=row.compiler_version or "",
                target=row.target,
                cell=row.cell,
                launch=row.launch,
                config=Config.of(row.config),
            )
            for row in rows
        }
        await self._execute_again(self.asked.selection, points)

    async def _execute_again(
        self, selection: Selection, points: Mapping[_Subject, Retrial]
    ) -> None:
        """All on inputs that are recorded once; the first ones first.

        Raises:
            UsageError: the kernel has no launch that can be run with values.
        """
        selection = small_selection(selection)
        groups: dict[Retrial, list[Retrial]] = {}
        for point in dict.fromkeys(points.values()):
            groups.setdefault(replace(point, cell=None, config=None), []).append(point)
        results: dict[Retrial, Executed | str] = {}
        async with at_bench(self.asked.store, self.asked.how) as bench:
            bench.deadline = time.monotonic() + self.seconds
            executions = Executions(bench=bench, selection=selection, tell=lambda _: None)
            # Few at once: each holds a compiler's process with its launch.
            turns = asyncio.Semaphore(bench.jobs)

            async def one(group: Sequence[Retrial]) -> None:
                async with turns:
                    try:
                        await _execute(bench, selection, executions, group, results)
                    except (TriageError, TimeIsUpError) as error:
                        why = self.late if isinstance(error, TimeIsUpError) else str(error)
                        for point in group:
                            results.setdefault(point, why)

            await in_parallel(map(one, groups.values()))
        for subject, point in points.items():
            result = results[point]
            if isinstance(result, str):
                self.untried[subject] = result
            else:
                self.rows[subject], self.runs[subject] = result.evaluated.row, result.row

    async def launch(self, places: Sequence[AttachedPlace]) -> None:
        """Launch the cubin of each file, and those of all cells that are named, as the case's was.

        A file with a launch beside it gets that, any other what the repro says.
        """
        case, executed = self.dossier.case, self.dossier.executed
        assert executed, "what is reported was executed"
        cells = {
            row.cell: self.dossier.ptx_place(row.ptxas or "", row.target)
            for row in self.dossier.executed_rows
        }
        every = dict.fromkeys((*places, *cells.values()))
        for file in dict.fromkeys(place.file for place in every):
            inputs = inputs_of(self.asked.selection.repro)
            if file == MINIMAL and (self.folder / LAUNCH_INPUTS).is_file():
                launch = read_launch((self.folder / LAUNCH_INPUTS).read_bytes(), LAUNCH_INPUTS)
                inputs = RawInputs(launch=launch, folder=self.folder)
            mine = [place for place in every if place.file == file]
            here = [place for place in mine if place.target == case.target]
            words = SelectionOptions(
                kernel=str(self.folder / file),
                sm=[case.target],
                ptxas=list(dict.fromkeys(place.version for place in here)),
            )
            try:
                asked = replace(self.asked, selection=select(words), on=executed.on)
                launches = await executed_rows(asked, inputs)
                elsewhere = {}
                if len(here) < len(mine):
                    own = select(structs.replace(words, ptxas=[case.ptxas or ""]))
                    elsewhere = await self._neighbours(own, "target", inputs)
            except TriageError as error:
                self.untried |= dict.fromkeys(mine, str(error))
                continue
            by_ptxas = {x.row.compiled.ptxas: x for x in launches if x.row.compiled}
            for place in mine:
                if place.target != case.target and (row := elsewhere.get(place.target)):
                    self.rows[place] = row
                elif launched := by_ptxas.get(place.version):
                    self.rows[place], self.runs[place] = launched.evaluated.row, launched.row
                else:
                    why = f"ptxas {place.version} made no cubin of it that was launched"
                    self.untried[place] = why
        for cell, place in cells.items():
            if place in self.untried:
                self.untried[cell] = self.untried[place]
                continue
            self.rows[cell] = self.rows[place]
            if place in self.runs:
                self.runs[cell] = self.runs[place]
