"""`triage blame --run`: who made PTX that computes the wrong thing, when it is executed.

Every Triton's PTX gets the same inputs. Beside that, what may not change what a kernel computes is
varied (options of the compiler, the target), and a stage of one Triton is lowered by another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import structs
from packaging.version import Version

from harness.bisect.axes import plan_cells
from harness.bisect.bisection import tell_stages
from harness.bisect.contrast import other_options, other_targets
from harness.blame.blame_words import BlameReport
from harness.blame.blaming import BlameOptions, follow_case
from harness.blame.compiler_passes import Looked, find_pass
from harness.blame.grid import Contrasted, Grid, PairTrial, Varied
from harness.blame.lines import (
    BlameState,
    CompiledPtx,
    assemble_all,
    choose_columns,
    lines_of,
    make_all,
)
from harness.cells.evaluate import Evaluated, with_flags
from harness.cells.places import CompileOptions, work
from harness.cells.selection import for_target
from harness.frontends.base import CompileRequest
from harness.frontends.bench import Kept, Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import form_of, front_end
from harness.frontends.texts.ir_inputs import read_triton_ir
from harness.frontends.texts.python import OPTIONS
from harness.io.processes.tasks import in_parallel
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import FollowedFailure, follow
from harness.judging.ptxas.ptxas_options import level_change
from harness.run.executing import Executor, OnEmulator
from harness.run.executors import executor_of
from harness.run.inputs import record_like
from harness.run.judging import EMULATED_PTX
from harness.run.launch_sources import RecordedLaunch, small_selection
from harness.store.store import Store
from harness.values.cell import CellId, same_place
from harness.values.errors import CaptureError, TriageError, UsageError
from harness.values.kernel import ConfigFilter
from harness.values.outcome import Lowering
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, EXECUTOR_NAMES, compiler_name
from harness.values.verdict import VerdictKind

# What one version of the compiler came to at a stage, lowered on by another version.

# Which arguments the entry takes is decided where the source is read, and stays from there on.
_OF_THE_SOURCE = ("signature", "constants", "tensordesc_meta")


async def cross(
    bench: Workbench, maker: PlannedCell, taker: PlannedCell, stage: str
) -> Kept[Lowering] | str:
    """The PTX that the compiler of `taker` generates from the IR of `maker` at this stage.

    Where there is none, the reason: one version cannot always read what another wrote.

    Raises:
        InfrastructureError: the child could not be kept alive.
    """
    if maker.launch is None or maker.record is None or taker.launch is None:
        return "it was never IR"
    own = await front_end(maker.compiler.kind).lower(
        bench, maker.launch, maker.record, ptxas=maker.ptxas
    )
    artifact = own.artifacts.get(stage)
    if artifact is None:
        return f"it has no {stage}"
    text = bench.store.artifacts.get(artifact).decode(errors="replace")
    facts = read_triton_ir(text)
    settings = {**maker.record.config, **own.value.metadata}
    options = {
        name: settings[name]
        for name in OPTIONS
        if settings.get(name) is not None and getattr(facts, name, None) is None
    }
    request = CompileRequest(
        text=text, ptxas=taker.ptxas, limits=bench.limits, suffix=f".{stage}", options=options
    )
    lowered = await form_of(taker.launch.compiler.kind).compile(bench, taker.launch, request)
    if lowered is None or lowered.program is None:
        error = lowered.lowering.error if lowered else None
        message = error.message if error else "it comes to no PTX"
        return next(iter(message.strip().splitlines()), "")[:200]
    source = {name: own.value.metadata.get(name) for name in _OF_THE_SOURCE}
    lowered.lowering.metadata.update(source)
    ptx = bench.store.artifacts.put(lowered.program)
    return Kept(value=lowered.lowering, artifacts={"ptx": ptx})


@dataclass(slots=True, kw_only=True)
class _Case:
    state: BlameState
    executor: OnEmulator[RecordedLaunch]
    cell: PlannedCell
    focus: FollowedFailure
    results: dict[CellId, Evaluated]
    trials: list[PairTrial] = field(default_factory=list)
    contrast: Contrasted | None = None

    def keep(self, label: str, varied: Varied, version: str, result: Row | str) -> VerdictAnswer:
        """Keep the result of the case with something varied, or why it could not be tried."""
        outcome, verdict, reason = VerdictAnswer.UNTESTABLE, VerdictKind.NOT_RUN.value, result
        if isinstance(result, Row):
            outcome, verdict, reason = self.focus.of(result), result.verdict, result.reason
        self.state.tell(label, f"{verdict}: {reason}")
        trial = PairTrial(
            label=label,
            varied=varied,
            version=version,
            assembler=EMULATOR,
            after=outcome,
            verdict=verdict,
            reason=str(reason),
        )
        self.trials.append(trial)
        return outcome


async def find_run_blame(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BlameOptions,
    tell: Callable[[str, str], None],
) -> BlameReport:
    """Follow the first cell whose PTX computes the wrong thing; `tell` hears of each execution.

    Raises:
        UsageError: a ptxas is named, or the kernel has no inputs.
        EmptySelectionError: no config matches.
        TriageError: where the question begins, nothing could be tried.
    """
    if selection.ptxas != (None,):
        raise UsageError("--ptxas does not apply to --run: PTX is executed without ptxas")
    selection = small_selection(selection)
    results: dict[CellId, Evaluated] = {}
    async with work(store, how) as (bench, run_id):
        source = RecordedLaunch(bench=bench, selection=selection, tell=lambda text: tell(text, ""))
        executor = OnEmulator(source=source)

        async def evaluate(bench: Workbench, cell: PlannedCell) -> Evaluated:
            results[cell.cell] = await executor.evaluate(bench, cell)
            return results[cell.cell]

        state = BlameState(
            bench=bench,
            run=run_id,
            selection=selection,
            budget=options.budget,
            tell=tell,
            evaluate=evaluate,
        )
        case = partial(_Case, state=state, executor=executor, results=results)
        _, report = await follow_case(
            state,
            replace(options, looks_further=False),
            lambda cell, row, _: _grid(case(cell=cell, focus=follow(row)), row),
        )
    return replace(report, executed=tuple(result.row for result in results.values()))


async def _grid(case: _Case, row: Row) -> Grid:
    programs = await make_all(case.state, case.cell, row, case.focus)
    lines = []
    for line in lines_of(programs, case.focus):
        # One program does one thing, whichever ptxas its Triton bundles.
        first = next(iter(line.cells.values()), None)
        lines.append(replace(line, cells={EMULATOR: first} if first else {}))
    await _vary_options(case)
    await _vary_targets(case)
    # Of the Tritons that work, the nearest to the one that does not; the newer of two.
    ordered = sorted(programs, key=lambda program: Version(program.version or "0"), reverse=True)
    places = [program.version for program in ordered]
    working = [
        program
        for program in ordered
        if program.cell and program.row and case.focus.of(program.row) is VerdictAnswer.OK
    ]
    mine = places.index(case.cell.compiler.version)
    good = min(working, key=lambda program: abs(places.index(program.version) - mine), default=None)
    if good is not None:
        await _contrast(case, good.cell, compiler_name(case.cell.compiler.kind, good.version))
        await _cross(case, programs[0], good)
    if good is not None or any(trial.after is VerdictAnswer.OK for trial in case.trials):
        await _find_pass(case)
    return Grid(
        lines=tuple(lines),
        assemblers=(EMULATOR,),
        focus=case.focus,
        trials=tuple(case.trials),
        contrast=case.contrast,
    )


async def _vary_options(case: _Case) -> None:
    cell, record = case.cell, case.cell.record
    if record is None:
        return
    compiler = front_end(cell.compiler.kind)
    variants = other_options(record.config, compiler.options)
    configs = [config for _, config in variants]
    every = structs.replace(case.state.selection, config=ConfigFilter(), compilers=(cell.compiler,))
    try:
        plan = await compiler.plan(
            case.state.bench,
            every.place(
                target=cell.cell.target,
                adapt=lambda code: code.with_configs(record.kernel, configs),
            ),
        )
    except TriageError as error:
        case.state.notes.append(f"other options were not tried: {error}")
        return
    try:
        for words, config in variants:
            like = record_like(
                [near.record for near in plan.cells if near.record],
                record.kernel,
                record.arguments,
                config,
            )
            planned = next((near for near in plan.cells if like and near.record is like), None)
            if planned is None:
                continue
            result = await case.executor.evaluate(case.state.bench, planned, like=record)
            case.results[planned.cell] = result
            outcome = case.keep(words, Varied.OPTION, cell.compiler.version, result.row)
            if outcome is VerdictAnswer.OK and case.contrast is None:
                await _contrast(case, planned, words)
    finally:
        if plan.session:
            await case.state.bench.sessions.close(plan.session)


async def _vary_targets(case: _Case) -> None:
    cell, state = case.cell, case.state
    every = structs.replace(state.selection, compilers=(cell.compiler,))
    for target in other_targets(cell.cell.target):
        try:
            plan = await plan_cells(state.bench, for_target(every, target), None)
        except CaptureError:
            continue
        planned = next(
            (near for near in plan.cells if same_place(near.cell, cell.cell, across_targets=True)),
            None,
        )
        try:
            if planned:
                result = case.results[planned.cell] = await case.executor.evaluate(
                    state.bench, planned
                )
                case.keep(str(target), Varied.TARGET, cell.compiler.version, result.row)
        finally:
            if plan.session:
                await state.bench.sessions.close(plan.session)


async def _contrast(case: _Case, good: PlannedCell | None, name: str) -> None:
    if good is None:
        return
    sides = [(side, case.results[side.cell]) for side in (good, case.cell)]
    story = await tell_stages(case.state.bench, sides[0], sides[1])
    case.contrast = Contrasted(name=name, stages=story.stages)


async def _cross(case: _Case, bad: CompiledPtx, good: CompiledPtx) -> None:
    """Each Triton lowers what the other came to, from one stage on."""
    if bad.cell is None or good.cell is None:
        return
    stages = front_end(case.cell.compiler.kind).levels
    jobs = [
        (stage, maker, taker)
        for stage in ("ttgir", "ttir")
        if stage in stages
        for maker, taker in ((good.cell, bad.cell), (bad.cell, good.cell))
    ]

    async def one(stage: str, maker: PlannedCell, taker: PlannedCell) -> Row | str:
        lowering = await cross(case.state.bench, maker, taker, stage)
        if isinstance(lowering, str):
            return lowering
        # Named by its maker: what it takes is the maker's.
        result = await case.executor.evaluate(case.state.bench, maker, instead=lowering)
        return result.row

    rows = await in_parallel(one(*job) for job in jobs)
    for (stage, maker, taker), row in zip(jobs, rows, strict=True):
        words = f"the {stage.upper()} of {maker.compiler.name}, lowered by {taker.compiler.name}"
        case.keep(words, Varied.STAGE, taker.compiler.version, row)


async def _find_pass(case: _Case) -> None:
    async def look(lowering: Kept[Lowering]) -> Looked:
        result = await case.executor.evaluate(case.state.bench, case.cell, instead=lowering)
        row = result.row
        case.state.tell("with some of the passes", f"{row.verdict}: {row.reason}")
        return case.focus.of(row), str(row.verdict), row.reason

    for over in (Varied.MLIR, Varied.LLVM):
        if trial := await find_pass(case.state.bench, case.cell, EMULATOR, look, over):
            case.trials.append(trial)
            if trial.after is VerdictAnswer.OK:
                return


# `triage blame --run --on gpu`: who made cubins that compute the wrong thing on a GPU.
#
# Each PTX is given to several ptxas, byte for byte, and launched on the same inputs; one that goes
# wrong at every optimisation level, too. What one PTX does on one and not on the other is ptxas';
# what only one Triton's PTX does is Triton's, or LLVM's; what all do alike is the kernel's, or that
# of what it is compared with.

_LEVELS = (0, 1, 2, 3)


async def find_measured_blame(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BlameOptions,
    tell: Callable[[str, str], None],
    on: str | None,
    runner: str | None,
) -> BlameReport:
    """Follow the first cell whose cubin computes the wrong thing; `tell` hears of each result.

    `on` says what executes cubins, and `runner` reaches a GPU.

    Raises:
        UsageError: the kernel has no inputs.
        EmptySelectionError: no config matches.
        InfrastructureError: there is no GPU.
        TriageError: where the question begins, nothing could be tried.
    """
    selection = small_selection(selection, on)
    async with work(store, how) as (bench, run_id):
        launched = executor_of(
            bench,
            selection,
            lambda text: tell(EXECUTOR_NAMES[on or EMULATOR], text),
            on,
            runner=runner,
            command=how.command,
        )
        state = BlameState(
            bench=bench,
            run=run_id,
            selection=selection,
            budget=options.budget,
            tell=tell,
            evaluate=launched.evaluate,
        )
        state.notes += launched.source.notes
        _, report = await follow_case(
            state, options, lambda case, row, _: _measured_grid(state, launched, case, row)
        )
    return report


async def _measured_grid(
    state: BlameState, launched: Executor, case: PlannedCell, row: Row
) -> Grid:
    focus = follow(row)
    programs = await make_all(state, case, row, focus)
    bundled = [program.cell.ptxas for program in programs if program.cell]
    columns = choose_columns(state.selection, case.ptxas, bundled, state.troubles)
    await assemble_all(state, programs, columns, focus)
    lines = lines_of(programs, focus)
    used = {version for line in lines for version in line.cells}
    changes = [level_change(level) for level in _LEVELS]
    rows = await in_parallel(
        state.row(with_flags(case, change), is_stored=False) for change in changes
    )
    trials = tuple(
        PairTrial(
            label=change.label,
            varied=Varied.LEVEL,
            version=row.compiler_version,
            assembler=case.ptxas.version,
            after=focus.of(varied),
            verdict=varied.verdict,
            reason=varied.reason,
        )
        for change, varied in zip(changes, rows, strict=True)
    )
    return Grid(
        lines=lines,
        assemblers=tuple(sorted(used, key=Version)),
        focus=focus,
        trials=trials,
        device=launched.device,
        is_held_to_ptx=f"differ from {EMULATED_PTX}" in row.reason,
    )
