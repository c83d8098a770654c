"""`triage minimize --run`: the least source, or IR of Triton's, whose PTX goes wrong.

A wrong result needs something that is right: what another target or another Triton makes of the
same file; of IR that has no layouts yet, also what is made of it without pipelining. So a candidate
may compute anything, as long as the two should agree.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import structs
from packaging.version import Version

from gpu_emulator.values import Budget, Schedule
from harness.bisect.axes import plan_cells
from harness.bisect.contrast import other_targets
from harness.cells.evaluate import Evaluated, cell_evidence
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.base import CompileRequest, Lowered
from harness.frontends.bench import Workbench
from harness.frontends.one_file import StandaloneError
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import form_of, front_end
from harness.frontends.sessions import CapturedLaunch
from harness.io.processes.hub import ResourceLimits
from harness.judging.judge import judge as judge_compilation
from harness.minimize.executed.launch_file import (
    LaunchForm,
    NoLaunchFileError,
    launch_text,
    recorded_name,
)
from harness.minimize.executed.ptx_level import (
    RUN_PTX,
    ExecutedCase,
    as_npy,
    executed_case,
    hold,
    launch_files,
    minimize_executed_ptx,
    reaction_of_run,
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
from harness.minimize.reduction.interest import Oracle
from harness.minimize.reduction.minimization import (
    LAUNCH_FILE,
    Minimization,
    MinimizedLaunch,
    NothingToReduce,
)
from harness.minimize.reduction.work import Level, LevelReduction, MinimizeTask, Watch
from harness.minimize.ttgir import IrModule, argument_names
from harness.run.emulating import emulate_once
from harness.run.emulator_jobs import Ran, RunTrial
from harness.run.executing import OnEmulator
from harness.run.executors import executor_of
from harness.run.inputs import launch_of_text
from harness.run.judging import Judgement, is_formal, judge, race_words
from harness.run.launch import NotRunError, RunEvidence, Trusted
from harness.run.launch_sources import RecordedLaunch, lower_cell, small_selection
from harness.run.schedules import read_schedules, trials_of
from harness.values.errors import TriageError
from harness.values.execution import LaunchVariant, RunRow
from harness.values.standalone import FileLaunch, FileLayout
from harness.values.toolchain import Compiler
from harness.values.verdict import Stage, VerdictKind

# What any Triton's PTX of a kernel's file computes, on inputs that were recorded once.

_PLAIN = Schedule(warps="lockstep", completion="early")
_BARRIER = re.compile(r"\b(?:debug_barrier|thread_barrier)\(")


def count_barriers(text: str) -> int:
    """How many barriers of Triton's, or Gluon's, a file of Python asks for itself."""
    return len(_BARRIER.findall(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextForm:
    """How the texts of a level are compiled: as files with a `suffix`, with `options`.

    `is_possible` says whether a text may be a candidate. `described` is what Triton said of the
    arguments when it lowered the original, where it does not know that of a candidate.
    """

    suffix: str
    is_possible: Callable[[str], bool]
    options: Mapping[str, object] = field(default_factory=dict)
    described: Mapping[str, object] = field(default_factory=dict)


def source_form(original: FileLaunch, layout: FileLayout, barriers: int = 0) -> TextForm:
    """Standalone files of Python; `original` is the launch of the original.

    What a candidate says of its arguments has to be true of what they are. All of the `barriers`
    stay that the original asks for: without them a candidate may leave open itself what it
    computes, whether or not that shows elsewhere.
    """

    def is_possible(text: str) -> bool:
        try:
            launch = layout.read(text).launch
        except StandaloneError:
            return False
        attributes = {p: w for p, w in original.attributes.items() if p[0] in launch.signature}
        return (
            launch.attributes == attributes
            and launch.options.keys() >= original.options.keys()
            and count_barriers(text) >= barriers
        )

    return TextForm(suffix=".py", is_possible=is_possible)


def ir_form(ir: IrText) -> TextForm:
    """Modules of Triton's IR with the arguments of the original."""
    arguments = argument_names(IrModule.read(ir.text))
    return TextForm(
        suffix=ir.suffix,
        is_possible=lambda text: argument_names(IrModule.read(text)) == arguments,
        options=ir.options,
        described={name: ir.metadata.get(name) for name in ("signature", "constants")},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedOracle(Oracle[Compiler]):
    """Compiles a text as the cell is compiled, and executes it as `variant` says.

    The `trials` are all orders; those of a `glance` show the failure of the original.
    `beside` is the launch captured for the target that the result is compared with; where there is
    none, with what is `trusted`, if anything is. It is compiled by the same compiler, or always by
    that of `beside_compiler`; with the options of the form, or `beside_options`. Where the original
    `is_free_of_races` there, so is each text: what races in itself is right nowhere. `formal` is as
    in `RunEvidence`.
    """

    bench: Workbench
    cell: PlannedCell
    variant: LaunchVariant
    trials: tuple[RunTrial, ...]
    glance: tuple[RunTrial, ...]
    budget: Budget
    form: TextForm
    trusted: tuple[Trusted, ...] = ()
    beside: CapturedLaunch | None = None
    beside_compiler: Compiler | None = None
    beside_options: Mapping[str, object] | None = None
    is_free_of_races: bool = False
    words: str = "the same file"
    formal: bool = False

    def is_possible(self, text: str) -> bool:
        return self.form.is_possible(text)

    async def react(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> Reaction:
        case = await self.execute(text, tool, limits)
        return case if isinstance(case, Reaction) else reaction_of_run(case.judgement)

    async def look(self, text: str, tool: Compiler) -> Reaction:
        return await replace(self, trials=self.glance).react(text, tool)

    async def execute(
        self, text: str, tool: Compiler, limits: ResourceLimits | None = None
    ) -> ExecutedCase | Reaction:
        """What comes of executing the PTX of this Triton; a reaction where it cannot be."""
        assert self.cell.launch is not None
        limits = limits or self.bench.limits
        launch = structs.replace(self.cell.launch, compiler=tool)
        lowering = await self._lower(launch, text, self.form.options, limits)
        if isinstance(lowering, Reaction):
            return lowering
        try:
            evidence = await self._run(lowering, self.trials)
            trusted, contents = await self._trusted(text, tool, limits)
        except NotRunError as error:
            return reaction_of_run(Judgement(verdict=VerdictKind.NOT_RUN, reason=str(error)))
        evidence = evidence.held_to(*trusted)
        evidence = replace(evidence, contents={**contents, **evidence.contents})
        judgement = judge(evidence)
        is_wrong = judgement.verdict is VerdictKind.WRONG_RESULT
        # Beside it the same text is free of garbage: then garbage is the compiler's doing.
        if is_wrong and self.beside is None and _has_garbage(evidence.ran):
            reason = "it depends on what nothing wrote"
            judgement = Judgement(verdict=VerdictKind.UNINITIALISED, reason=reason)
        return ExecutedCase(text=lowering.ptx or "", evidence=evidence, judgement=judgement)

    async def allocates(self, text: str) -> bool:
        """Whether what comes of a text asks its launch for memory."""
        assert self.cell.launch is not None
        lowering = await self._lower(self.cell.launch, text, self.form.options, self.bench.limits)
        if isinstance(lowering, Reaction):
            return False
        return bool(lowering.lowering.metadata.get("global_scratch_size"))

    async def _lower(
        self,
        launch: CapturedLaunch,
        text: str,
        options: Mapping[str, object],
        limits: ResourceLimits,
    ) -> Lowered | Reaction:
        request = CompileRequest(
            text=text, ptxas=None, limits=limits, suffix=self.form.suffix, options=options
        )
        lowered = await form_of(launch.compiler.kind).compile(self.bench, launch, request)
        assert lowered is not None, "it is compiled to the end"
        if lowered.ptx is None:
            evidence = cell_evidence(
                kind=self.cell.compiler.kind,
                target=self.cell.cell.target,
                limits=self.cell.limits,
                lowering=lowered.lowering,
            )
            verdict = judge_compilation(evidence)
            reason = f"it does not compile: {verdict.kind.value}, {verdict.reason}"
            return reaction_of_run(Judgement(verdict=VerdictKind.NOT_RUN, reason=reason))
        return lowered

    async def _run(self, lowered: Lowered, trials: tuple[RunTrial, ...]) -> RunEvidence:
        metadata, ptx = {**lowered.lowering.metadata, **self.form.described}, lowered.ptx or ""
        launch = launch_of_text(ptx, metadata, self.variant)
        launch = launch.run_as(trials, self.budget, formal=self.formal)
        contents = {name: self.bench.store.artifacts.get(name) for name in launch.artifacts}
        return await emulate_once(self.bench, launch, ptx, contents)

    async def _trusted(
        self, text: str, tool: Compiler, limits: ResourceLimits
    ) -> tuple[tuple[Trusted, ...], Mapping[str, bytes]]:
        """What the file computes for the other target or by the other compiler; bytes by sha256."""
        if self.beside is None:
            names = {name for trusted in self.trusted for name in trusted.buffers if name}
            return self.trusted, {name: self.bench.store.artifacts.get(name) for name in names}
        launch = structs.replace(self.beside, compiler=self.beside_compiler or tool)
        options = self.form.options if self.beside_options is None else self.beside_options
        lowering = await self._lower(launch, text, options, limits)
        if isinstance(lowering, Reaction):
            raise NotRunError(f"{self.words} does not compile: {lowering.reason}")
        # One run, and one with other garbage, which must leave the same.
        trials = trials_of((_PLAIN,), races=self.is_free_of_races)
        evidence = await self._run(lowering, trials)
        runs = evidence.ran
        is_fine = len(runs) == len(trials) and all(ran.ended for ran in runs)
        if not is_fine or runs[0].buffers != runs[1].buffers:
            raise NotRunError(f"{self.words} depends on what nothing wrote, or cannot be run")
        races = [r for r in runs[0].races if not is_formal(r, is_alike=True, is_near=False)]
        if self.is_free_of_races and races:
            raise NotRunError(f"{self.words} has a race: {race_words(races[0])}")
        trusted = Trusted(words=self.words, buffers=runs[0].buffers, is_final=True)
        return (trusted,), evidence.contents


async def oracle_of(
    bench: Workbench, cell: PlannedCell, executor: OnEmulator[RecordedLaunch], form: TextForm
) -> tuple[ExecutedOracle, RunRow]:
    """An oracle that compares with nothing, and what came out of the cell; on the same inputs.

    Raises:
        TriageError: the launch cannot be run with values.
    """
    assert cell.record is not None
    row = (await executor.execute(bench, cell)).row
    schedules = read_schedules((row.schedule or "").partition(",")[0])
    oracle = ExecutedOracle(
        bench=bench,
        cell=cell,
        variant=await executor.source.variant(cell.record),
        trials=executor.source.trials,
        glance=trials_of(schedules, races=row.run is VerdictKind.RACE),
        budget=executor.source.budget,
        form=form,
        formal=executor.source.selection.formal,
    )
    return oracle, row


def _has_garbage(runs: tuple[Ran, ...]) -> bool:
    """Whether a run with other garbage left something else."""
    plain = {run.trial.schedule: run.buffers for run in runs if not run.trial.schedule.garbage}
    return any(
        plain.get(replace(run.trial.schedule, garbage=0)) != run.buffers
        for run in runs
        if run.trial.schedule.garbage
    )


# The levels of source and of IR.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedKernel:
    """A kernel whose candidates are executed on the inputs of the original."""

    selection: Selection
    executor: OnEmulator[RecordedLaunch]

    @classmethod
    def of(cls, bench: Workbench, selection: Selection, watch: Watch) -> ExecutedKernel:
        selection = small_selection(selection)
        source = RecordedLaunch(bench=bench, selection=selection, tell=watch.tell)
        return cls(selection=selection, executor=OnEmulator(source=source))

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        return await self.executor.evaluate(bench, cell)

    async def minimize(self, task: MinimizeTask) -> Minimization | NothingToReduce:
        if task.options.level == "ttgir":
            return await _minimize_ir(task, self.executor)
        if task.options.level == "ptx":
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
    source = source_form(standalone.launch, form, count_barriers(text))
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
    python = python_format(form)
    level = Level(
        name="source",
        suffix=".py",
        original=text,
        size_of=python.size_of,
        reduce=python.reduce_text,
    )
    launched = partial(_launch_of, outputs=tuple(output.name for output in row.outputs))
    return await _reduced(task, level, oracle, first, launched, "no launch of it shows the same")


async def _reduced(
    task: MinimizeTask,
    level: Level,
    oracle: ExecutedOracle,
    first: Reaction,
    launched: Callable[
        [MinimizeTask, LevelReduction[Compiler], ExecutedOracle], Awaitable[MinimizedLaunch | str]
    ],
    without_launch: str,
    notes: Sequence[str] = (),
) -> Minimization | NothingToReduce:
    """Reduce what gives `first`, and what is `launched` of what is left; else say why nothing."""
    # Held to something else, other outputs may differ.
    mine = structs.replace(task.subject.row, signature=first.key)
    task = replace(task, subject=replace(task.subject, row=mine))
    work = await reduce_held(task, level, held_by_compilers(task, oracle))
    if isinstance(work, NothingToReduce):
        return work
    launch = await launched(task, work, oracle)
    if isinstance(launch, str):
        why = f"{without_launch}: {launch}"
        return held_minimization(task, work, first_notes=notes, last_notes=(why,))
    return held_minimization(task, work, launch=launch, first_notes=notes)


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
        oracle, row = await oracle_of(bench, cell, executor, ir_form(ir))
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
    words = [f"what is held: it differs from {comparing.words}"] if is_compared(row) else []
    why = "its PTX alone does not show the same"
    return await _reduced(task, ir_level(ir), comparing, first, _ptx_of, why, words)


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
            form=replace(ir_form(ir), options=comparing.beside_options or ir.options),
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
