"""`triage blame`: several Tritons, each PTX on every ptxas, and which component is to blame."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs
from packaging.version import Version

from gpu_emulator.ptx.text.facts import PtxError, body_sha256, harmless_variants, read_ptx
from harness.blame.blame_words import BlameReport, blame
from harness.blame.compiler_passes import Looked, find_pass
from harness.blame.grid import PASSES, Grid, PairTrial, Varied
from harness.blame.lines import (
    BlameState,
    Columns,
    CompiledPtx,
    as_seen,
    assemble_all,
    choose_columns,
    distinct,
    known_versions,
    lines_of,
    look_along,
    make_all,
)
from harness.cells.evaluate import cell_evidence, evaluate, with_flags
from harness.cells.places import CompileOptions, work
from harness.frontends.back_end import PTXAS_BACK_END, LoweredProgram
from harness.frontends.bench import Kept, Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.readings import PtxReading
from harness.frontends.registry import front_end
from harness.io.packages.versions import newest_of_minor
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import available_wheels, install_ptxas
from harness.io.toolchains.installed import installed_versions
from harness.judging.answers import VerdictAnswer, works
from harness.judging.conditions import Condition
from harness.judging.followed import FollowedFailure, follow, rank, severity
from harness.judging.judge import judge
from harness.judging.ptxas.help import options_of
from harness.judging.ptxas.ptxas_options import PtxasOption, single_changes
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.interest import reaction_of
from harness.store.store import Store
from harness.values.cell import CellId, place_of, same_place
from harness.values.errors import (
    CaptureError,
    EmptySelectionError,
    InfrastructureError,
    TriageError,
)
from harness.values.outcome import Lowering
from harness.values.row import Row
from harness.values.toolchain import PTXAS, TRITON, Assembler, compiler_name
from harness.values.verdict import Stage, VerdictKind
from harness.workaround.trials import ptxas_environment

# Versions that do not go together: the pair as a user would run it, and how to set up one.

# Each one lowers the kernel again.
_MOST_PAIRS = 8
# Where a failure is seen that what LLVM makes of the kernel may bring about.
_LLVM_DECIDES = (Stage.LLIR.value, Stage.PTX.value, Stage.CUBIN.value)
# Nine more of these take too long.
_OF_TIME = (VerdictKind.TIMEOUT, VerdictKind.OUT_OF_MEMORY)


async def as_users_pair(
    state: BlameState, case: PlannedCell, programs: Sequence[CompiledPtx]
) -> list[CompiledPtx]:
    """The case's Triton pointed at another ptxas, the nearest newer one with which it works.

    Pointed at a ptxas, Triton writes the PTX version of that one: the PTX that it writes for its
    own ptxas may be too old for the target as well as too new for a ptxas. Empty where the case
    works with a ptxas already, where there is no Triton, or where no pair works.
    """
    if case.launch is None or case.bundled is None:
        return []
    own = case.launch.compiler.version
    mine = (row for program in programs if program.version == own for row in program.all_rows())
    if any(works(row.verdict, row.stage) for row in mine):
        return []
    bundled = Version(case.bundled.version)
    versions = known_versions(state.selection, "assembler", state.troubles)
    minors = newest_of_minor(versions, installed_versions("ptxas"))
    newer = [version for version in minors if version > bundled][:_MOST_PAIRS]
    tools = []
    for version in newer:
        try:
            tools.append(await asyncio.to_thread(install_ptxas, version))
        except InfrastructureError as error:
            state.troubles.append(f"ptxas {version}: {error}")
    candidates = tuple(tools)
    try:
        cells = (await state.plan(case.launch.compiler, ptxas=candidates)).cells
    except (CaptureError, InfrastructureError):
        return []
    for cell in (cell for cell in cells if same_place(cell.cell, case.cell)):
        row = await state.row(cell)
        if works(row.verdict, row.stage):
            return [as_seen(cell, row)]
    return []


def remedy_of(grid: Grid, kind: str | None, version: str | None) -> tuple[str, ...]:
    """What a user types: the combination that works, with the case's compiler if it has one."""
    fitting = [line for line in grid.lines if line.has(VerdictAnswer.OK)]
    mine = [line for line in fitting if version in line.compilers]
    if version is not None and mine:
        line = next((working for working in mine if working.made_for), mine[0])
        assembler = line.made_for or line.ptxas(VerdictAnswer.OK)[-1]
        try:
            packages = {str(wheel.version): wheel.name for wheel in available_wheels(PTXAS)}
        except InfrastructureError:
            packages = {}
        if assembler not in packages:
            return (f"export TRITON_PTXAS_PATH=...  # ptxas {assembler}",)
        return tuple(ptxas_environment(packages[assembler], assembler))
    if version is not None and fitting:
        newest = max((name for line in fitting for name in line.compilers), key=Version)
        return (front_end(kind or TRITON).install_line(newest),)
    return ()


# Small experiments beside a blame's grid: one pair of PTX and ptxas again, with something varied.
#
# What must not matter (the entry's name, line information), the flags, and the level of
# optimisation.

_AGAIN = "again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A PTX on a ptxas, and its result; `flags` are others worth a try, with their name."""

    cell: PlannedCell
    row: Row
    ptxas: Assembler
    outcome: VerdictAnswer
    flags: tuple[tuple[tuple[str, ...], str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    label: str
    varied: Varied
    text: str
    entry: str | None
    flags: tuple[str, ...]


async def run_trials(
    bench: Workbench, failing: Pair | None, working: Pair | None, focus: FollowedFailure
) -> tuple[PairTrial, ...]:
    """Vary the failing pair and a working neighbour; nothing where PTX or ptxas has no part."""
    if failing is None or failing.row.ptx_sha256 is None:
        return ()
    if focus.stage != "cubin" or focus.kind is VerdictKind.UNSUPPORTED:
        return ()
    trials: list[PairTrial] = []
    for pair in filter(None, (failing, working)):
        trials += await _trials(bench, pair, focus, is_failing=pair is failing)
    return tuple(trials)


async def _trials(
    bench: Workbench, pair: Pair, focus: FollowedFailure, *, is_failing: bool
) -> Sequence[PairTrial]:
    assert pair.row.ptx_sha256 is not None
    text = bench.store.artifacts.get(pair.row.ptx_sha256).decode(errors="replace")
    variants = list(_variants(text, pair, is_failing=is_failing))
    reactions = await in_parallel(_react(bench, pair, variant) for variant in variants)
    # Judged as the others are: without what Triton said of its launch.
    baseline = next(
        reaction
        for variant, reaction in zip(variants, reactions, strict=True)
        if variant.varied is Varied.NOTHING
    )
    if baseline is None:
        return []
    is_alike = baseline.verdict is focus.kind and baseline.key is not None
    mine = structs.replace(focus, signature=baseline.key if is_alike else focus.signature)
    before = _outcome(mine, baseline)
    return [
        PairTrial(
            label=variant.label,
            varied=variant.varied,
            version=pair.row.compiler_version,
            assembler=pair.ptxas.version,
            before=pair.outcome if variant.varied is Varied.NOTHING else before,
            after=_outcome(mine, reaction),
            verdict=reaction.verdict.value,
            reason=reaction.reason,
        )
        for variant, reaction in zip(variants, reactions, strict=True)
        if reaction is not None
    ]


def _outcome(focus: FollowedFailure, reaction: Reaction) -> VerdictAnswer:
    stage = reaction.stage.value if reaction.stage else None
    return focus.outcome(reaction.verdict, stage, reaction.key, reaction.fields, reaction.reason)


def _variants(text: str, pair: Pair, *, is_failing: bool) -> Iterator[_Variant]:
    flags = pair.row.ptxas_flags
    entry = read_ptx(text, pair.cell.entry).entry
    yield _Variant(label=_AGAIN, varied=Varied.NOTHING, text=text, entry=entry, flags=flags)
    for label, varied_text, name in harmless_variants(text, entry):
        yield _Variant(
            label=label, varied=Varied.NAME_OR_LINES, text=varied_text, entry=name, flags=flags
        )
    if not is_failing:
        return
    for change in single_changes(flags):
        is_level = change.label.startswith("-O")
        if is_level or not change.added:
            yield _Variant(
                label=change.label,
                varied=Varied.LEVEL if is_level else Varied.FLAGS,
                text=text,
                entry=entry,
                flags=change.apply(flags),
            )
    for others, label in pair.flags:
        yield _Variant(label=label, varied=Varied.FLAGS, text=text, entry=entry, flags=others)


async def _react(bench: Workbench, pair: Pair, variant: _Variant) -> Reaction | None:
    try:
        facts = read_ptx(variant.text, variant.entry)
    except PtxError:
        return None
    sha256 = bench.store.artifacts.put(variant.text.encode())
    target = pair.cell.cell.target
    is_retargeted = target.suffix and facts.target != str(target) and pair.cell.launch
    program = LoweredProgram(
        sha256=sha256,
        # By its bytes, not by its program: line information is what is varied.
        reading=PtxReading(facts=facts, body_sha256=f"bytes {sha256}"),
        flags=variant.flags,
        target=str(target) if is_retargeted else None,
    )
    assembled = await PTXAS_BACK_END.assemble(bench, program, pair.ptxas)
    reading = PtxReading(facts=facts, body_sha256=body_sha256(variant.text))
    evidence = cell_evidence(
        target=target, limits=pair.cell.limits, reading=reading, assembly=assembled.value
    )
    return reaction_of(judge(evidence), evidence)


NOT_MEANT = 3
"""Rows of this rank (see `rank`), and of those behind it, do not show the failure in question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameOptions:
    """Which failure is meant, and how many pairs of PTX and ptxas may be tried for it.

    With a `condition`, what is followed is that in the place of a failure.

    `looks_further`: where the one config that is meant works, or is only sick, its PTX is tried on
    other ptxas for one that fails.
    """

    signature: str | None = None
    condition: Condition | None = None
    budget: int = 60
    looks_further: bool = True


async def find_blame(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BlameOptions,
    tell: Callable[[str, str], None],
) -> BlameReport:
    """Follow the first cell that fails through the grid; `tell` hears of each pair.

    Raises:
        EmptySelectionError: no config matches.
        TriageError: where the question begins, nothing could be tried.
    """
    async with work(store, how) as (bench, run_id):
        state = BlameState(
            bench=bench, run=run_id, selection=selection, budget=options.budget, tell=tell
        )
        case, report = await follow_case(state, options, partial(_grid, state))
        row, lifting = report.case, await _lifted(bench, case, report.case)
    if report.grid.focus.kind is VerdictKind.UNSUPPORTED:
        report = replace(report, remedy=remedy_of(report.grid, row.compiler, row.compiler_version))
    reasons = (*report.blame.reasons, *lifting)
    return replace(report, blame=replace(report.blame, reasons=reasons))


async def _lifted(bench: Workbench, cell: PlannedCell, row: Row) -> tuple[str, ...]:
    """Which options of ptxas at least halve the spills of a sick cell, in words."""
    if row.assembler != PTXAS or row.verdict is not VerdictKind.SICK or not row.spill_stores:
        return ()
    # One of each kind.
    by_kind: dict[str, PtxasOption] = {}
    try:
        known = await asyncio.to_thread(options_of, cell.ptxas)
    except InfrastructureError:
        # Whom to blame is known without it.
        return ()
    for option in known:
        by_kind.setdefault(option.needs[0][0], option)
    options = [*by_kind.values()]
    results = await in_parallel(evaluate(bench, with_flags(cell, each.change)) for each in options)
    return tuple(
        f"With ptxas {option.words}, {row.n_regs} -> {after.n_regs} registers, "
        f"{row.spill_stores:,} -> {after.spill_stores:,} B of spill stores (same PTX, byte for "
        "byte)."
        for option, after in zip(options, (result.row for result in results), strict=True)
        if after.ptx_sha256 == row.ptx_sha256
        and after.spill_stores is not None
        and 2 * after.spill_stores <= row.spill_stores
    )


async def follow_case(
    state: BlameState,
    options: BlameOptions,
    grid_of: Callable[[PlannedCell, Row, FollowedFailure], Awaitable[Grid]],
) -> tuple[PlannedCell, BlameReport]:
    """The first cell that shows the failure, and what the grid says that is made of it.

    `grid_of` is not asked where no cell shows it.

    Raises:
        EmptySelectionError: no config matches.
        TriageError: where the question begins, nothing could be tried.
    """
    question = FollowedFailure(signature=options.signature, condition=options.condition)
    case, row, others = await _find_case(state, question)
    if options.looks_further and not others and rank(row, question) in (1, NOT_MEANT):
        match = await look_along(state, case, row, lambda beside: rank(beside, question) == 0)
        case, row = match or (case, row)
    grid = Grid(lines=(), assemblers=(), focus=_follow(case, row, question))
    if rank(row, question) < NOT_MEANT:
        grid = await grid_of(case, row, question)
    return case, BlameReport(
        case=row,
        cell=case.cell,
        grid=grid,
        blame=blame(grid),
        others=others,
        remedy=(),
        troubles=tuple(dict.fromkeys(state.troubles)),
        notes=tuple(dict.fromkeys(state.notes)),
    )


def _follow(
    case: PlannedCell, row: Row, question: FollowedFailure, others: Iterable[Row] = ()
) -> FollowedFailure:
    has = case.limits.tensor_memory_columns if case.limits else None
    is_over_limit = has is not None and row.tmem_size is not None and row.tmem_size > has
    return follow(row, condition=question.condition, others=others, is_over_limit=is_over_limit)


async def _find_case(
    state: BlameState, question: FollowedFailure
) -> tuple[PlannedCell, Row, tuple[CellId, ...]]:
    """The first cell that fails, of all that were selected, and one of each config beside it.

    Where nothing fails outright, the sickest; and an unsupported one where nothing is sick.
    """
    results: list[tuple[PlannedCell, Row]] = []
    configs: dict[str, CellId] = {}
    refusals: list[TriageError] = []
    own = state.selection.repro.version
    for compiler in sorted(state.selection.compilers, key=lambda compiler: compiler.version != own):
        try:
            cells = (await state.plan(compiler)).cells
        except CaptureError as error:
            refusals.append(error)
            continue
        configs |= {place_of(cell.cell): cell.cell for cell in cells}
        results += await _until_one_fails(state, cells, question)
        if any(rank(row, question) == 0 for _, row in results):
            break
    if not results:
        raise (refusals or [EmptySelectionError("--config matches none of the configs")])[0]
    cell, row = min(results, key=lambda pair: (rank(pair[1], question), -severity(pair[1])))
    if row.verdict is VerdictKind.INFRA:
        raise InfrastructureError(row.reason)
    del configs[place_of(cell.cell)]
    return cell, row, tuple(configs.values())


async def _until_one_fails(
    state: BlameState, cells: Sequence[PlannedCell], question: FollowedFailure
) -> list[tuple[PlannedCell, Row]]:
    results: list[tuple[PlannedCell, Row]] = []
    for first in range(0, len(cells), state.bench.jobs):
        batch = cells[first : first + state.bench.jobs]
        rows = await in_parallel(state.row(cell) for cell in batch)
        results += zip(batch, rows, strict=True)
        if any(rank(row, question) == 0 for row in rows):
            break
    return results


async def _grid(state: BlameState, case: PlannedCell, row: Row, question: FollowedFailure) -> Grid:
    def follow_now() -> FollowedFailure:
        rows = (beside for program in programs for beside in program.all_rows())
        return _follow(case, row, question, [beside for beside in rows if beside is not row])

    programs = await make_all(state, case, row, _follow(case, row, question))
    if row.verdict is VerdictKind.UNSUPPORTED and question.condition is None:
        programs += await as_users_pair(state, case, programs)
    focus = follow_now()
    bundled = [program.cell.ptxas for program in programs if program.cell]
    columns = choose_columns(state.selection, case.ptxas, bundled, state.troubles)
    if programs[0].program:
        await assemble_all(state, programs, columns, focus)
        focus = follow_now()
    lines = lines_of(programs, focus)
    used = {version for line in lines for version in line.cells}
    grid = Grid(lines=lines, assemblers=tuple(sorted(used, key=Version)), focus=focus)
    failing, working = await _pairs(distinct(programs), columns, focus)
    trials = list(await run_trials(state.bench, failing, working, focus))

    async def look(lowering: Kept[Lowering]) -> Looked:
        result = (await evaluate(state.bench, case, instead=lowering)).row
        state.tell(PASSES[Varied.LLVM], f"{result.verdict}: {result.reason}")
        return focus.of(result), str(result.verdict), result.reason

    if focus.stage in _LLVM_DECIDES and focus.kind not in _OF_TIME and not focus.is_pairing:
        trial = await find_pass(state.bench, case, case.ptxas.version, look, Varied.LLVM)
        trials += [trial] if trial else []
    return replace(grid, trials=tuple(trials))


async def _pairs(
    programs: Sequence[CompiledPtx], columns: Columns, focus: FollowedFailure
) -> tuple[Pair | None, Pair | None]:
    """A failing pair, if it can be the one that the question begins with, and a working neighbour.

    The neighbour is the same PTX on the nearest ptxas that takes it, else other PTX on this one.
    """
    if not programs:
        return None, None
    ordered = columns.ordered
    first = _first(programs, VerdictAnswer.SAME, focus, [columns.versions[0], *ordered[::-1]])
    if first is None:
        return None, None
    program, version = first
    place = ordered.index(version)
    near = sorted(ordered, key=lambda near_version: abs(ordered.index(near_version) - place))
    beside = _first([program], VerdictAnswer.OK, focus, near)
    beside = beside or _first(programs, VerdictAnswer.OK, focus, [version])
    others = {
        other.row.ptxas_flags: "with the flags of "
        + compiler_name(other.row.compiler, other.version)
        for other in reversed(programs)
        if other.row and program.row and other.row.ptxas_flags != program.row.ptxas_flags
    }
    failing = await _pair(first, columns, VerdictAnswer.SAME)
    working = await _pair(beside, columns, VerdictAnswer.OK) if beside else None
    return failing and replace(failing, flags=tuple(others.items())), working


def _first(
    programs: Sequence[CompiledPtx],
    outcome: VerdictAnswer,
    focus: FollowedFailure,
    versions: Sequence[str],
) -> tuple[CompiledPtx, str] | None:
    for program in programs:
        for version in versions:
            row = program.rows.get(version)
            if row and focus.of(row) is outcome:
                return program, version
    return None


async def _pair(
    pair: tuple[CompiledPtx, str], columns: Columns, outcome: VerdictAnswer
) -> Pair | None:
    program, version = pair
    ptxas = await columns.get(version)
    if ptxas is None or program.cell is None:
        return None
    return Pair(cell=program.cell, row=program.rows[version], ptxas=ptxas, outcome=outcome)
