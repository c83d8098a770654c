"""`triage minimize --run`: the least source, or IR of Triton's, whose PTX goes wrong.

A wrong result needs something that is right: what another target or another Triton makes of the
same file; of IR that has no layouts yet, also what is made of it without pipelining. So a candidate
may compute anything, as long as the two should agree.
"""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

from msgspec import structs
from packaging.version import Version

from harness.bisect.axes import plan_cells
from harness.bisect.contrast import other_targets
from harness.cells.evaluate import Evaluated
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import form_of, front_end
from harness.minimize.executed.launch_file import (
    LaunchForm,
    NoLaunchFileError,
    launch_text,
    recorded_name,
)
from harness.minimize.executed.oracle import (
    ExecutedOracle,
    IrForm,
    SourceForm,
    count_barriers,
    oracle_of,
)
from harness.minimize.executed.ptx_level import (
    RUN_PTX,
    as_npy,
    executed_case,
    hold,
    launch_files,
    minimize_executed_ptx,
)
from harness.minimize.levels import (
    IrText,
    cell_beside,
    export_source,
    held_by_compilers,
    held_minimization,
    ir_level,
    ir_texts,
    reduce_held,
)
from harness.minimize.python.python_passes import python_format
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.minimization import (
    LAUNCH_FILE,
    Minimization,
    MinimizedLaunch,
    NothingToReduce,
)
from harness.minimize.reduction.work import (
    Level,
    LevelReduction,
    MinimizeOptions,
    MinimizeTask,
    Watch,
)
from harness.run.executing import OnEmulator
from harness.run.executors import executor_of
from harness.run.launch_sources import RecordedLaunch, lower_cell, small_selection
from harness.values.errors import TriageError
from harness.values.execution import LaunchVariant, RunRow
from harness.values.toolchain import Compiler
from harness.values.verdict import Stage, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedKernel:
    """A kernel whose candidates are executed on the inputs of the original."""

    selection: Selection
    executor: OnEmulator[RecordedLaunch]
    level: str

    @classmethod
    def of(
        cls, bench: Workbench, selection: Selection, options: MinimizeOptions, watch: Watch
    ) -> ExecutedKernel:
        selection = small_selection(selection)
        source = RecordedLaunch(bench=bench, selection=selection, tell=watch.tell)
        return cls(selection=selection, executor=OnEmulator(source=source), level=options.level)

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        return await self.executor.evaluate(bench, cell)

    async def minimize(self, task: MinimizeTask) -> Minimization | NothingToReduce:
        if self.level == "ttgir":
            return await _minimize_ir(task, self.executor)
        if self.level == "ptx":
            case = await executed_case(task.bench, task.subject.cell, self.executor.source)
            return await minimize_executed_ptx(task, case)
        return await _minimize_source(task, self.executor)


async def _minimize_source(
    task: MinimizeTask, executor: OnEmulator[RecordedLaunch]
) -> Minimization | NothingToReduce:
    """Reduce the subject's source, whose candidates are executed on the subject's inputs.

    What is left is a launch file too, which `triage run` executes.
    """
    bench, cell = task.bench, task.subject.cell
    task.folder(".py")
    form = form_of(cell.compiler.kind)
    standalone = await export_source(bench, cell)
    text = form.render(standalone)
    source = SourceForm(launch=standalone.launch, layout=form, barriers=count_barriers(text))
    oracle, row = await oracle_of(bench, cell, executor, source)
    verdict = row.run
    if verdict is VerdictKind.WRONG_RESULT:
        task.watch.stage("looking for a target, or a Triton, with which the same file is right")
        comparing = await _source_held_to(task, executor, oracle, text)
        if isinstance(comparing, str):
            return NothingToReduce(reason=f"{task.subject.row.reason}; {comparing}")
        oracle = comparing
    first = await oracle.react(text, cell.compiler)
    if first.verdict.value != verdict.value or first.key is None:
        reason = f"as one file it gives {first.verdict.value}: {first.reason}"
        return NothingToReduce(reason=f"{task.subject.row.reason}; {reason}")
    # Held to something else, other outputs may differ.
    mine = structs.replace(task.subject.row, signature=first.key)
    task = replace(task, subject=replace(task.subject, row=mine))
    python = python_format(form)
    level = Level(
        name="source",
        suffix=".py",
        original=text,
        size_of=python.size_of,
        reduce=python.reduce_text,
    )
    work = await reduce_held(task, level, held_by_compilers(task, oracle))
    if isinstance(work, NothingToReduce):
        return work
    outputs = tuple(output.name for output in row.outputs)
    launch = await _launch_of(task, work, oracle, outputs)
    if isinstance(launch, str):
        why = f"no launch of it shows the same: {launch}"
        return held_minimization(task, work, last_notes=(why,))
    return held_minimization(task, work, launch=launch)


async def _source_held_to(
    task: MinimizeTask, executor: OnEmulator[RecordedLaunch], oracle: ExecutedOracle, text: str
) -> ExecutedOracle | str:
    """The oracle that compares with the first place where the cell is right and the file shows it.

    That is another target, or else another Triton, the newest first. Where none does: why.
    """
    places_by_reason: dict[str, list[str]] = {}
    mine, target = oracle.cell.compiler, oracle.cell.cell.target
    places = [(place, mine) for place in other_targets(target)]
    places += [(target, place) for place in _other_compilers(mine)]
    for there, compiler in places:
        beside = await cell_beside(task, there, compiler)
        try:
            if beside is None:
                continue
            run = (await executor.execute(task.bench, beside)).row.run
            # A race is only the verdict where the values are right under every schedule.
            if not (run.is_fine_run or run is VerdictKind.RACE):
                continue
        except TriageError:
            continue
        comparing = replace(
            oracle,
            beside=beside.launch,
            beside_compiler=compiler,
            is_free_of_races=run.is_fine_run,
            words=f"what it computes for {there} with {compiler.name}",
        )
        reaction = await comparing.react(text, mine)
        if reaction.verdict is VerdictKind.WRONG_RESULT:
            return comparing
        reason = f"as one file it gives {reaction.verdict.value}: {reaction.reason}"
        places_by_reason.setdefault(reason, []).append(comparing.words)
    if not places_by_reason:
        return "it is right for no other target and with no installed Triton: what is right?"
    return "; ".join(
        f"held to {', '.join(names)}, {reason}" for reason, names in places_by_reason.items()
    )


def _other_compilers(mine: Compiler) -> list[Compiler]:
    installed = front_end(mine.kind).installed()
    others = [version for version in installed if version.version != mine.version]
    return sorted(others, key=lambda version: Version(version.version), reverse=True)


async def _launch_of(
    task: MinimizeTask,
    work: LevelReduction[Compiler],
    oracle: ExecutedOracle,
    outputs: tuple[str, ...],
) -> MinimizedLaunch | str:
    """A launch file of what is left that shows the same when it is run; why there is none.

    `outputs` are the tensors that the original kernel writes.
    """
    task.watch.stage("writing a launch, and running it")
    compares = await _is_right_in_one_stage(oracle, work.best)
    allocates = await oracle.allocates(work.best)
    why = ""
    for exact in (False, True):
        form = LaunchForm(exact=exact, compares=compares, outputs=outputs, allocates=allocates)
        try:
            files = _launch_files(task, work, oracle.variant, form)
            shown = await _try_launch(task, work, files)
        except (NoLaunchFileError, TriageError) as error:
            why = str(error)
            continue
        if isinstance(shown, RunRow):
            row = task.subject.row
            words = f"triage run --kernel {LAUNCH_FILE} --sm {row.target}"
            words += f" --triton {row.compiler_version}"
            words += " --formal" if task.selection.formal else ""
            return MinimizedLaunch(command=words, files=files, shown=shown, is_comparing=compares)
        why = shown
    return why


async def _is_right_in_one_stage(oracle: ExecutedOracle, text: str) -> bool:
    """Whether the same kernel without a pipeline does what it should: something to compare with."""
    form = form_of(oracle.cell.compiler.kind)
    standalone = form.read(text)
    options = {**standalone.launch.options, "num_stages": "1"}
    if options == standalone.launch.options:
        return False
    plain = structs.replace(standalone, launch=structs.replace(standalone.launch, options=options))
    return (await oracle.react(form.render(plain), oracle.cell.compiler)).is_accepted


def _launch_files(
    task: MinimizeTask, work: LevelReduction[Compiler], variant: LaunchVariant, form: LaunchForm
) -> dict[str, bytes]:
    artifacts = task.bench.store.artifacts
    contents = {buffer.sha256: artifacts.get(buffer.sha256) for buffer in variant.buffers}
    standalone = form_of(task.subject.cell.compiler.kind).read(work.best)
    name, row = standalone.launch.kernel, task.subject.row
    reaction = work.interest.versions.reactions.get(work.interest.fingerprint.bad)
    verdict = reaction.verdict.value.replace("_", " ") if reaction else "wrong"
    made = f"{name} by Triton {row.compiler_version} for {row.target}"
    header = f"{made}, its PTX executed: {verdict}."
    text = launch_text(
        standalone, variant, contents, form, header="\n".join(textwrap.wrap(header, 96))
    )
    read = {
        recorded_name(number): as_npy(contents[buffer.sha256])
        for number, buffer in enumerate(variant.buffers)
        if f'"{recorded_name(number)}"' in text
    }
    return {LAUNCH_FILE: text.encode(), **read}


async def _try_launch(
    task: MinimizeTask, work: LevelReduction[Compiler], files: Mapping[str, bytes]
) -> RunRow | str:
    """Write a launch file and run it; what it shows, or why that is not what it should be."""
    work.folder.write_all(files)
    words = SelectionOptions(
        kernel=str(work.folder.path / LAUNCH_FILE),
        sm=(task.subject.row.target,),
        triton=(task.subject.row.compiler_version or "",),
        formal=task.selection.formal,
    )
    selection = small_selection(select(words))
    executor = executor_of(task.bench, selection, task.watch.tell)
    plan = await plan_cells(task.bench, selection, None)
    rows = [(await executor.execute(task.bench, cell)).row for cell in plan.cells]
    shown = next(
        (row for row in rows if row.run_signature == work.interest.fingerprint.signature), None
    )
    return shown or "; ".join(f"{row.run.value}: {row.run_reason}" for row in rows)


# The level of IR.


async def _minimize_ir(
    task: MinimizeTask, executor: OnEmulator[RecordedLaunch]
) -> Minimization | NothingToReduce:
    """Reduce the lowest IR of the subject that goes wrong, beside something that is right.

    What its PTX is launched with goes with what is left.
    """
    bench, cell, reason = task.bench, task.subject.cell, task.subject.row.reason
    reasons: list[str] = []

    def is_compared(row: RunRow) -> bool:
        return row.run is VerdictKind.WRONG_RESULT

    for ir in await ir_texts(bench, cell):
        task.watch.stage(f"executing what the {ir.role} becomes")
        oracle, row = await oracle_of(bench, cell, executor, IrForm.of(ir))
        comparing = await _ir_held_to(task, executor, oracle, ir) if is_compared(row) else oracle
        if isinstance(comparing, str):
            reasons.append(f"the {ir.role}: {comparing}")
            continue
        first = await comparing.react(ir.text, cell.compiler)
        if first.verdict.value == row.run.value and first.key is not None:
            break
        reasons.append(f"the {ir.role} gives {first.verdict.value}: {first.reason}")
    else:
        return NothingToReduce(reason="; ".join((reason, *reasons)))
    # Held to something else, other outputs may differ.
    mine = structs.replace(task.subject.row, signature=first.key)
    task = replace(task, subject=replace(task.subject, row=mine))
    work = await reduce_held(task, ir_level(ir), held_by_compilers(task, comparing))
    if isinstance(work, NothingToReduce):
        return work
    words = [f"what is held: it differs from {comparing.words}"] if is_compared(row) else []
    launch = await _ptx_of(task, work, comparing)
    if isinstance(launch, str):
        why = f"its PTX alone does not show the same: {launch}"
        return held_minimization(task, work, first_notes=words, last_notes=(why,))
    return held_minimization(task, work, launch=launch, first_notes=words)


async def _ir_held_to(
    task: MinimizeTask, executor: OnEmulator[RecordedLaunch], oracle: ExecutedOracle, ir: IrText
) -> ExecutedOracle | str:
    """The oracle that compares with the first place where this IR is right; else why none does."""
    cell = oracle.cell
    assert cell.record is not None
    source = executor.source
    launch = await source.launch_of(cell, await lower_cell(task.bench, cell))
    plain = replace(oracle, trusted=(await source.held(cell, launch)).trusted)
    alone = await plain.react(ir.text, cell.compiler)
    if alone.verdict is not VerdictKind.WRONG_RESULT:
        return f"it gives {alone.verdict.value}: {alone.reason}"
    task.watch.stage(f"looking for what is right, made of the same {ir.role}")
    async for comparing in _besides(task, oracle, ir):
        assert comparing.beside is not None
        tool = comparing.beside_compiler or cell.compiler
        there = replace(
            plain,
            cell=structs.replace(cell, launch=comparing.beside),
            form=replace(IrForm.of(ir), options=comparing.beside_options or ir.options),
        )
        if (await there.react(ir.text, tool)).is_accepted:
            return comparing
    return "it is right with no installed Triton, nor in another way: what is right?"


async def _besides(
    task: MinimizeTask, oracle: ExecutedOracle, ir: IrText
) -> AsyncIterator[ExecutedOracle]:
    """What the IR could be held to, the nearest first."""
    cell, mine = oracle.cell, oracle.cell.compiler
    assert cell.launch is not None
    same_launch = replace(oracle, beside=cell.launch)
    if ir.stage is Stage.TTIR:
        options = {**ir.options, "num_stages": 1}
        if options != ir.options:
            words = "what is made of it with num_stages=1"
            yield replace(same_launch, beside_options=options, words=words)
        for target in other_targets(cell.cell.target):
            if beside := await cell_beside(task, target, mine):
                words = f"what is made of it for {target}"
                yield replace(oracle, beside=beside.launch, words=words)
    for compiler in _other_compilers(mine):
        words = f"what {compiler.name} makes of it"
        yield replace(same_launch, beside_compiler=compiler, words=words)


async def _ptx_of(
    task: MinimizeTask, work: LevelReduction[Compiler], oracle: ExecutedOracle
) -> MinimizedLaunch | str:
    """The PTX of what is left with what it is launched with; why that does not show the same."""
    task.watch.stage("writing its PTX, and what that is launched with")
    case = await oracle.execute(work.best, oracle.cell.compiler)
    if isinstance(case, Reaction):
        return case.reason
    held = await hold(task.bench, case, is_followed=False)
    if isinstance(held, str):
        return held
    predicate, _ = held
    assert predicate.original is not None
    judgement = predicate.original.judgement
    if not judgement.signature or judgement.signature.key != work.interest.fingerprint.signature:
        return judgement.reason
    launch_parts = launch_files(predicate.launch, predicate.files, predicate.contents)
    files = {"min.ptx": case.text.encode(), **launch_parts}
    work.folder.write_all(files)
    return MinimizedLaunch(command=RUN_PTX, files=files)
