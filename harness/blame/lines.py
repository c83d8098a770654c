"""The lines of a blame's grid: one config compiled by each Triton, on every ptxas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs
from packaging.version import Version

from harness.bisect.axes import version_axis, with_ptxas
from harness.blame.grid import Cell, Line, fold, order_for_others, order_for_the_first, worth_trying
from harness.cells.evaluate import Evaluate, evaluate
from harness.cells.places import record_of
from harness.frontends.back_end import BackEnd
from harness.frontends.bench import Workbench
from harness.frontends.plan import Plan, PlannedCell, Selection
from harness.frontends.registry import back_end, front_end, plan_launch
from harness.io.packages.versions import newest_of_minor
from harness.io.processes.tasks import in_parallel
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import FollowedFailure, toolchain_of
from harness.values.cell import same_place
from harness.values.errors import CaptureError, InfrastructureError, TriageError
from harness.values.row import Row
from harness.values.toolchain import (
    BUNDLED,
    NO_ASSEMBLER,
    PTXAS,
    TRITON,
    Assembler,
    Compiler,
    assembler_name,
    compiler_name,
    program_name,
)

# Which Tritons and which ptxas a blame tries, and where each comes from.

# Lowering takes seconds, and a Triton that is not there yet is a large download.
_MOST_COMPILERS = 8


@dataclass(slots=True, kw_only=True)
class Columns:
    """The ptxas to try, the most telling first; `chosen` says that the user named them."""

    versions: list[str]
    chosen: bool
    troubles: list[str]
    back_end: BackEnd
    at_hand: dict[str, Assembler] = field(default_factory=dict)

    @property
    def ordered(self) -> list[str]:
        """As versions, oldest first."""
        return sorted(self.versions, key=Version)

    async def get(self, version: str) -> Assembler | None:
        """That ptxas, installed if it is not yet; None where it is not available."""
        if version not in self.at_hand:
            try:
                tool = await asyncio.to_thread(self.back_end.install, version)
            except TriageError as error:
                self.troubles.append(f"{self.back_end.title} {version}: {error}")
                return None
            self.at_hand[version] = tool
        return self.at_hand[version]


def choose_compilers(selection: Selection, case: Compiler | None, troubles: list[str]) -> list[str]:
    """The Tritons to try, the case's first: those that were named, else one of each minor.

    Where there is room, also the others that are installed: a compiler may have one minor alone.
    """
    if case is None:
        return []
    if len(selection.compilers) > 1:
        named = [triton.version for triton in selection.compilers]
        return list(dict.fromkeys([case.version, *named]))
    versions = known_versions(selection, "compiler", troubles)
    here = [tool.version for tool in front_end(selection.repro.front_end).installed()]
    minors = newest_of_minor(versions, map(Version, here))
    tried = [
        version
        for group in (map(str, minors), here)
        for version in worth_trying([*group], case.version, _MOST_COMPILERS)
    ]
    return list(dict.fromkeys(tried))[:_MOST_COMPILERS]


def choose_columns(
    selection: Selection, case: Assembler, bundled: Iterable[Assembler], troubles: list[str]
) -> Columns:
    """The ptxas to try: those that were named, else the bundled, all installed, each minor.

    None where nothing assembles.
    """
    back = back_end(selection.repro.front_end, selection.targets[0])
    if back.kind == NO_ASSEMBLER:
        return Columns(versions=[], chosen=True, troubles=troubles, back_end=back)
    at_hand = {
        ptxas.version: (structs.replace(ptxas, origin=TRITON) if ptxas.origin == BUNDLED else ptxas)
        for ptxas in (*bundled, case)
    }
    named = [ptxas.version if ptxas else case.version for ptxas in selection.ptxas]
    if len(named) > 1:
        at_hand |= {ptxas.version: ptxas for ptxas in selection.ptxas if ptxas}
        versions = list(dict.fromkeys([case.version, *named]))
        return Columns(
            versions=versions, chosen=True, troubles=troubles, back_end=back, at_hand=at_hand
        )
    here = {*map(Version, at_hand), *back.installed()}
    minors = newest_of_minor(here | set(known_versions(selection, "assembler", troubles)), here)
    versions = order_for_the_first(
        case=case.version,
        bundled=at_hand,
        minors=[str(version) for version in minors],
        installed=[str(tool) for tool in here],
    )
    return Columns(
        versions=versions, chosen=False, troubles=troubles, back_end=back, at_hand=at_hand
    )


def known_versions(selection: Selection, kind: str, troubles: list[str]) -> list[Version]:
    """All that there are; where the index does not answer, those that are installed."""
    try:
        return list(map(Version, version_axis(selection, kind).versions))
    except InfrastructureError as error:
        compiler = front_end(selection.repro.front_end)
        back = compiler.back_end(selection.targets[0])
        is_assembler = kind == "assembler"
        tool = back.kind if is_assembler else compiler.kind
        troubles.append(f"what versions of {tool} there are: {error}")
        own = sorted({Version(installed.version) for installed in compiler.installed()})
        return back.installed() if is_assembler else own


# So many unsupported ones in a row, going back in time, and older ones are not asked.
_ENOUGH_HOLES = 3
# What every line gets of the budget, at least.
_SHARE = 4


@dataclass(slots=True, kw_only=True)
class BlameState:
    """One blame at work; `tell` hears of each pair, and what it did.

    `budget` is how many pairs of PTX and ptxas may be tried. `troubles` are the toolchains that are
    not available, `notes` what was left out.
    """

    bench: Workbench
    run: int
    selection: Selection
    budget: int
    tell: Callable[[str, str], None]
    evaluate: Evaluate = evaluate
    troubles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def row(self, cell: PlannedCell, *, is_stored: bool = True) -> Row:
        """The row of a cell; `is_stored` also for history."""
        result = await self.evaluate(self.bench, cell)
        if is_stored:
            self.bench.store.put_result(self.run, record_of(result))
        row = result.row
        self.tell(toolchain_of(row), f"{row.verdict}: {row.reason}")
        return row

    async def plan(
        self, compiler: Compiler, *, bundled: bool = False, ptxas: tuple[Assembler, ...] = ()
    ) -> Plan:
        """The cells of the launch, for the ptxas that were named, for the `bundled` one or `ptxas`.

        Triton is pointed at each of `ptxas`, and writes its PTX for that one.
        """
        selection = self.selection
        back = back_end(compiler.kind, selection.targets[0])
        if bundled and back.default == BUNDLED:
            selection = structs.replace(selection, ptxas=(None,))
        if ptxas:
            selection = structs.replace(selection, ptxas=ptxas, freeze_ptx=False)
        return await plan_launch(self.bench, selection.place(compiler=compiler))


@dataclass(slots=True, kw_only=True)
class CompiledPtx:
    """The PTX that one version of the compiler compiled the config to, and its rows by assembler.

    `cell` is the one with the ptxas that the PTX was compiled for; None where there is none, and
    `stopped` says why.
    """

    version: str | None
    cell: PlannedCell | None = None
    row: Row | None = None
    made_for: str | None = None
    stopped: Cell | None = None
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def program(self) -> tuple[object, ...] | None:
        """Equal for the same program under the same flags; None where there is no PTX."""
        row = self.row
        if row is None or row.program is None:
            return None
        return row.program, row.ptx_version, row.ptxas_flags

    def all_rows(self) -> list[Row]:
        """Every row of it."""
        own = [self.row] if self.row else []
        return [*own, *(row for row in self.rows.values() if row is not self.row)]


async def make_all(
    state: BlameState, case: PlannedCell, row: Row, followed: FollowedFailure
) -> list[CompiledPtx]:
    """What each Triton makes, the case's first; what no version of a compiler makes is there."""
    if case.launch is None or not case.compiler.version:
        return [CompiledPtx(version=None, cell=case, row=row, rows={case.ptxas.version: row})]
    turns = asyncio.Semaphore(state.bench.jobs + 1)
    own = case.launch.compiler

    async def one(version: str) -> CompiledPtx:
        async with turns:
            return await _make(state, own if version == own.version else version, case)

    versions = choose_compilers(state.selection, own, state.troubles)
    programs = list(await in_parallel(one(version) for version in versions))
    # What the compiler makes for the ptxas that it bundles may not show it.
    own_row = programs[0].row
    if row.program is not None and programs[0].program is not None:
        own_row = await _at(state, programs[0], case.ptxas)
    shows = own_row is not None and followed.of(own_row) is VerdictAnswer.SAME
    return programs if shows else [as_seen(case, row), *programs]


def as_seen(case: PlannedCell, row: Row) -> CompiledPtx:
    """What Triton makes when it is pointed at the case's ptxas: only that fails."""
    version = case.ptxas.version
    return CompiledPtx(
        version=row.compiler_version,
        cell=structs.replace(case, bundled=case.ptxas, freeze_ptx=True),
        row=row,
        made_for=version,
        rows={version: row} if row.program else {},
    )


async def _make(state: BlameState, compiler: Compiler | str, case: PlannedCell) -> CompiledPtx:
    version = compiler if isinstance(compiler, str) else compiler.version
    name = compiler_name(case.compiler.kind, version)
    try:
        if isinstance(compiler, str):
            compiler = await asyncio.to_thread(front_end(case.compiler.kind).install, compiler)
        plan = await state.plan(compiler, bundled=True)
    except InfrastructureError as error:
        state.troubles.append(f"{name}: {error}")
        stopped = Cell(outcome=VerdictAnswer.INFRA, reason=str(error))
        return CompiledPtx(version=version, stopped=stopped)
    except (CaptureError, TriageError) as error:
        state.tell(name, str(error))
        stopped = Cell(outcome=VerdictAnswer.UNTESTABLE, reason=str(error))
        return CompiledPtx(version=version, stopped=stopped)
    cell = next((cell for cell in plan.cells if same_place(cell.cell, case.cell)), None)
    if cell is None:
        reason = "it does not make this config"
        stopped = Cell(outcome=VerdictAnswer.UNTESTABLE, reason=reason)
        return CompiledPtx(version=version, stopped=stopped)
    try:
        row = await state.row(cell)
    finally:
        if plan.session:
            await state.bench.sessions.close(plan.session)
    rows = {cell.ptxas.version: row} if row.program else {}
    return CompiledPtx(version=version, cell=cell, row=row, rows=rows)


async def _at(state: BlameState, program: CompiledPtx, ptxas: Assembler) -> Row:
    if ptxas.version in program.rows:
        return program.rows[ptxas.version]
    assert program.cell is not None
    # `frozen` in a cell's name means the PTX for the bundled one: another is not for history.
    row = await state.row(with_ptxas(program.cell, ptxas), is_stored=program.made_for is None)
    program.rows[ptxas.version] = row
    return row


async def look_along(
    state: BlameState, case: PlannedCell, row: Row, is_meant: Callable[[Row], bool]
) -> tuple[PlannedCell, Row] | None:
    """The newest ptxas on which the PTX of a cell that works is as `is_meant`; None if on none."""
    bundled = [case.bundled] if case.bundled else []
    columns = choose_columns(state.selection, case.ptxas, bundled, state.troubles)
    program = CompiledPtx(version=row.compiler_version, cell=case, row=row)
    neutral = FollowedFailure()
    await _walk_back(state, program, columns, columns.versions[: state.budget], neutral)
    for version in sorted(program.rows, key=Version, reverse=True):
        if is_meant(program.rows[version]):
            return with_ptxas(case, columns.at_hand[version]), program.rows[version]
    return None


async def assemble_all(
    state: BlameState, compiled: Sequence[CompiledPtx], columns: Columns, focus: FollowedFailure
) -> None:
    """What every ptxas makes of every program, within the budget.

    What the first program did says what is worth asking of the others.
    """
    first, *others = programs = distinct(compiled)
    room = len(columns.versions)
    if not columns.chosen:
        room = min(room, max(state.budget // 2, state.budget - _SHARE * len(others)))
    await _walk_back(state, first, columns, columns.versions[:room], focus)
    if room < len(columns.versions):
        state.notes.append(f"{len(columns.versions) - room} ptxas were not tried (--max-tries)")
    answers = {version: focus.of(row) for version, row in first.rows.items()}
    versions = [version for version in columns.ordered if version in answers]
    order = order_for_others(columns.versions[0], answers, versions)
    for number, program in enumerate(others):
        budget = max(state.budget - sum(len(program_done.rows) for program_done in programs), 0)
        # What ptxas has no part in, a few of them confirm.
        fair = budget // (len(others) - number) if focus.stage == "cubin" else 0
        share = len(order) if columns.chosen else min(max(fair, _SHARE), budget)
        await _ask(state, program, columns, order[:share])


def distinct(programs: Sequence[CompiledPtx]) -> list[CompiledPtx]:
    """One for each program, the first that made it."""
    firsts: dict[object, CompiledPtx] = {}
    for compiled in programs:
        if compiled.program:
            firsts.setdefault(compiled.program, compiled)
    return list(firsts.values())


async def _walk_back(
    state: BlameState,
    program: CompiledPtx,
    columns: Columns,
    versions: Sequence[str],
    focus: FollowedFailure,
) -> None:
    """From the newest to the oldest; where one after the other is unsupported, no older ones."""
    later = sorted(versions, key=Version, reverse=True)
    holes = 0
    while later and holes < _ENOUGH_HOLES:
        batch, later = later[: state.bench.jobs], later[state.bench.jobs :]
        await _ask(state, program, columns, batch)
        for version in batch:
            row = program.rows.get(version)
            is_hole = row is not None and focus.of(row) is VerdictAnswer.UNTESTABLE
            holes = holes + 1 if is_hole and not columns.chosen else 0
    if untried := [version for version in later if version not in program.rows]:
        kind = program.row.compiler if program.row else None
        of = f" of {compiler_name(kind, program.version)}" if kind and program.version else ""
        state.notes.append(
            f"The PTX{of} was not tried with ptxas {fold(untried, columns.ordered)}: {holes} newer "
            "versions in a row do not support it"
        )


async def _ask(
    state: BlameState, program: CompiledPtx, columns: Columns, versions: Sequence[str]
) -> None:
    async def one(version: str) -> None:
        ptxas = await columns.get(version)
        if ptxas is not None:
            await _at(state, program, ptxas)

    await in_parallel(one(version) for version in versions)


def lines_of(programs: Sequence[CompiledPtx], focus: FollowedFailure) -> tuple[Line, ...]:
    """The lines of the grid; Tritons that make the same program share one."""
    groups: dict[object, list[CompiledPtx]] = {}
    for compiled in programs:
        groups.setdefault(compiled.program or id(compiled), []).append(compiled)
    rows = [compiled.row for compiled in programs if compiled.row]
    kinds = (row.compiler for row in rows if row.compiler)
    title = compiler_name(next(kinds, TRITON))
    tool = assembler_name(rows[0].assembler if rows else PTXAS)
    code = program_name(any(row.program_sha256 for row in rows))
    lines = (_line(group, focus, title) for group in groups.values())
    return tuple(replace(line, tool=tool, code=code) for line in lines)


def _line(group: Sequence[CompiledPtx], focus: FollowedFailure, title: str) -> Line:
    first, row = group[0], group[0].row
    compilers = tuple(dict.fromkeys(program.version for program in group if program.version))
    title = title if compilers or row is None else compiler_name(row.compiler)
    if row is None or row.program is None:
        stopped = first.stopped or (_cell(row, focus) if row else None)
        return Line(compilers=compilers, title=title, made_for=first.made_for, stopped=stopped)
    rows = {version: row for program in group for version, row in program.rows.items()}
    return Line(
        compilers=compilers,
        title=title,
        body=row.program,
        version=row.ptx_version,
        flags=row.ptxas_flags,
        made_for=first.made_for,
        cells={version: _cell(rows[version], focus) for version in sorted(rows, key=Version)},
    )


def _cell(row: Row, focus: FollowedFailure) -> Cell:
    return Cell(
        outcome=focus.of(row),
        verdict=row.verdict,
        reason=row.reason,
        signature=row.signature,
        row=row,
    )
