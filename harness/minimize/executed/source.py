"""`triage minimize --run`: the level, and the least source whose PTX computes the wrong thing."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace

from packaging.version import Version

from harness.bisect.axes import plan_cells
from harness.bisect.variations import other_targets
from harness.cells.evaluate import Evaluate
from harness.cells.selection import for_target, select
from harness.cells.spelling import SelectionOptions
from harness.frontends.base import Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import form_of, front_end
from harness.minimize.executed.ir import minimize_executed_ir
from harness.minimize.executed.launch_file import (
    LaunchForm,
    NoLaunchFileError,
    launch_text,
    recorded_name,
)
from harness.minimize.executed.oracle import ExecutedOracle, SourceForm, oracle_of
from harness.minimize.executed.ptx import RawCase, as_npy, executed_case, minimize_executed_ptx
from harness.minimize.levels import held_by_compilers, minimize_level
from harness.minimize.python.passes import python_format
from harness.minimize.reduction.result import LAUNCH_FILE, Minimization, Uninteresting
from harness.minimize.reduction.work import (
    Level,
    MinimizedFolder,
    MinimizeOptions,
    MinimizeTask,
    Watch,
)
from harness.minimize.texts import export_source
from harness.run.raw_ptx import RawInputs
from harness.run.same_inputs import SameInputs
from harness.values.errors import TriageError, UsageError
from harness.values.execution import LaunchVariant, RunRow, RunVerdict
from harness.values.verdict import VerdictKind


@dataclass(slots=True, kw_only=True)
class Executing:
    """What is reduced when candidates are executed: a kernel's launch, or a file of PTX."""

    selection: Selection
    options: MinimizeOptions
    evaluate: Evaluate
    same: SameInputs | None = None
    raw: RawCase | None = None

    @classmethod
    def of(
        cls, bench: Workbench, selection: Selection, options: MinimizeOptions, watch: Watch
    ) -> Executing:
        """For a selection.

        Raises:
            UsageError: it cannot be executed, or not reduced at this level.
        """
        if selection.repro.ptx:
            if options.level not in ("auto", "ptx"):
                raise UsageError(f"--level {options.level}: a file of PTX is reduced at ptx")
            raw = RawCase.of(bench, selection, options.inputs or RawInputs())
            return cls(selection=selection, options=options, evaluate=raw.evaluate, raw=raw)
        selection = SameInputs.small(selection)
        same = SameInputs(bench=bench, selection=selection, tell=watch.tell)
        return cls(selection=selection, options=options, evaluate=same.evaluate, same=same)

    async def minimize(self, task: MinimizeTask) -> Minimization | Uninteresting:
        """Reduce the subject.

        Raises:
            UsageError: the folder is taken, or it cannot be reduced at this level.
            TriageError: the machine failed before the reduction began.
        """
        if self.raw:
            assert self.raw.case is not None, "it was executed to be the subject"
            found = await minimize_executed_ptx(task, self.raw.case)
            if isinstance(found, Minimization):
                found = replace(found, notes=(*found.notes, *self.raw.notes))
            return found
        assert self.same is not None
        if self.options.level == "ttgir":
            return await minimize_executed_ir(task, self.same)
        if self.options.level == "ptx":
            case = await executed_case(task.bench, task.subject.cell, self.same)
            return await minimize_executed_ptx(task, case)
        return await minimize_executed(task, self.same)


async def minimize_executed(task: MinimizeTask, same: SameInputs) -> Minimization | Uninteresting:
    """Reduce the subject's source, whose candidates are executed on the subject's inputs.

    What is left is a launch file too, which `triage run` executes.

    Raises:
        UsageError: the source cannot be written as one file, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = task.bench, task.subject.cell
    folder, form = task.folder(".py"), form_of(cell.compiler.kind)
    standalone = await export_source(bench, cell)
    oracle, row = await oracle_of(
        bench, cell, same, SourceForm(launch=standalone.launch, layout=form)
    )
    verdict = row.run
    text = form.render(standalone)
    if verdict is RunVerdict.WRONG_RESULT:
        task.watch.stage("looking for a target, or a Triton, with which the same file is right")
        held = await _held_to(task, same, oracle, text)
        if isinstance(held, str):
            return Uninteresting(reason=f"{task.subject.row.reason}; {held}")
        oracle = held
    first = await oracle.react(text, cell.compiler)
    if first.verdict.value != verdict.value or first.key is None:
        reason = f"as one file it gives {first.verdict.value}: {first.reason}"
        return Uninteresting(reason=f"{task.subject.row.reason}; {reason}")
    # A fault says in which file it is, and this is another one.
    mine = replace(task.subject.row, signature=first.key)
    task = replace(task, subject=replace(task.subject, row=mine))
    python = python_format(form)
    level = Level(
        name="source",
        suffix=".py",
        original=text,
        size_of=python.size_of,
        reduce=python.reduce_text,
    )
    found = await minimize_level(task, level, held_by_compilers(task, oracle))
    if isinstance(found, Uninteresting):
        return found
    outputs = tuple(each.name for each in row.outputs)
    return await _with_launch(task, folder, found, oracle, outputs)


# A race is only the verdict where the values are right under every schedule.
_RIGHT_BY_VALUE = (RunVerdict.RIGHT, RunVerdict.RAN, RunVerdict.RACE)


async def _held_to(
    task: MinimizeTask, same: SameInputs, oracle: ExecutedOracle, text: str
) -> ExecutedOracle | str:
    """The oracle that compares with the first place where the cell is right and the file shows it.

    That is another target, or else another Triton, the newest first. Where none does: why.
    """
    seen: dict[str, list[str]] = {}
    cell, selection = task.subject.cell, task.selection
    mine = cell.compiler
    tritons = sorted(
        front_end(mine.kind).installed(), key=lambda each: Version(each.version), reverse=True
    )
    places = [(target, mine) for target in other_targets(cell.cell.target)]
    places += [(cell.cell.target, each) for each in tritons if each.version != mine.version]
    for target, triton in places:
        there = replace(selection, compilers=(triton,))
        try:
            plan = await plan_cells(task.bench, for_target(there, target), None)
            beside = next((c for c in plan.cells if c.cell.config == cell.cell.config), None)
            if beside is None:
                continue
            if (await same.execute(task.bench, beside)).row.run not in _RIGHT_BY_VALUE:
                continue
        except TriageError:
            continue
        is_mine = triton == mine
        held = replace(
            oracle,
            beside=beside.launch,
            beside_compiler=None if is_mine else triton,
            words=f"what it computes {f'for {target}' if is_mine else f'with {triton.name}'}",
        )
        reaction = await held.react(text, mine)
        if reaction.verdict is VerdictKind.WRONG_RESULT:
            return held
        said = f"as one file it gives {reaction.verdict.value}: {reaction.reason}"
        seen.setdefault(said, []).append(held.words)
    if not seen:
        return "it is right for no other target and with no installed Triton: what is right?"
    return "; ".join(f"held to {', '.join(names)}, {said}" for said, names in seen.items())


async def _with_launch(
    task: MinimizeTask,
    folder: MinimizedFolder,
    found: Minimization,
    oracle: ExecutedOracle,
    outputs: tuple[str, ...],
) -> Minimization:
    """The result with a launch file beside it, if one shows the same when it is run.

    `outputs` are the tensors that the original kernel writes.
    """
    task.watch.stage("writing a launch, and running it")
    compares = await _is_right_in_one_stage(oracle, found.text)
    allocates = await oracle.allocates(found.text)
    why = ""
    for exact in (False, True):
        form = LaunchForm(exact=exact, compares=compares, outputs=outputs, allocates=allocates)
        try:
            files = _launch_files(task, found, oracle.variant, form)
            shown = await _try_launch(task, folder, found, files)
        except (NoLaunchFileError, TriageError) as error:
            why = str(error)
            continue
        if isinstance(shown, RunRow):
            words = f"triage run --kernel {LAUNCH_FILE} --sm {found.target} --triton {found.triton}"
            words += " --formal" if task.selection.formal else ""
            return replace(
                found, run_command=words, run_files=files, shown=shown, is_comparing=compares
            )
        why = shown
    return replace(found, notes=(*found.notes, f"no launch of it shows the same: {why}"))


async def _is_right_in_one_stage(oracle: ExecutedOracle, text: str) -> bool:
    """Whether the same kernel without a pipeline does what it should: something to compare with."""
    form = form_of(oracle.cell.compiler.kind)
    standalone = form.read(text)
    options = {**standalone.launch.options, "num_stages": "1"}
    if options == standalone.launch.options:
        return False
    plain = replace(standalone, launch=replace(standalone.launch, options=options))
    return (await oracle.react(form.render(plain), oracle.cell.compiler)).is_accepted


def _launch_files(
    task: MinimizeTask, found: Minimization, variant: LaunchVariant, form: LaunchForm
) -> dict[str, bytes]:
    """The launch file, and the recorded values that it reads."""
    artifacts = task.bench.store.artifacts
    contents = {each.sha256: artifacts.get(each.sha256) for each in variant.buffers}
    standalone = form_of(task.subject.cell.compiler.kind).read(found.text)
    name = standalone.launch.kernel
    verdict = found.reaction.verdict.value.replace("_", " ") if found.reaction else "wrong"
    header = f"{name} by Triton {found.triton} for {found.target}, its PTX executed: {verdict}."
    text = launch_text(standalone, variant, contents, form, header=_wrapped(header))
    read = {
        recorded_name(number): as_npy(contents[each.sha256])
        for number, each in enumerate(variant.buffers)
        if f'"{recorded_name(number)}"' in text
    }
    return {LAUNCH_FILE: text.encode(), **read}


async def _try_launch(
    task: MinimizeTask, folder: MinimizedFolder, found: Minimization, files: Mapping[str, bytes]
) -> RunRow | str:
    """Write a launch file and run it; what it shows, or why that is not what it should be."""
    for name, data in files.items():
        folder.write_bytes(name, data)
    asked = SelectionOptions(
        kernel=str(folder.path / LAUNCH_FILE),
        sm=(found.target,),
        triton=(found.triton or "",),
        formal=task.selection.formal,
    )
    selection = SameInputs.small(select(asked))
    same = SameInputs(bench=task.bench, selection=selection, tell=task.watch.tell)
    plan = await plan_cells(task.bench, selection, None)
    rows = [(await same.execute(task.bench, cell)).row for cell in plan.cells]
    shown = next((each for each in rows if each.run_signature == found.fingerprint.signature), None)
    return shown or "; ".join(_said(row.run, row.run_reason) for row in rows)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 96))


def _said(verdict: RunVerdict, reason: str) -> str:
    return f"{verdict.value}: {reason}"
