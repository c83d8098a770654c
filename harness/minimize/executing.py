"""`triage minimize --run`: the least source whose PTX computes the wrong thing, and its launch."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.bisect.axes import plan_cells
from harness.bisect.variations import other_targets
from harness.cells.selection import SelectionOptions, select
from harness.frontends.base import CapturedLaunch, PlannedCell
from harness.frontends.triton.one_file import read_standalone, render
from harness.minimize.executed.launch_file import (
    NoLaunchFileError,
    launch_text,
    recorded_name,
)
from harness.minimize.executed.oracle import ExecutedOracle
from harness.minimize.levels import Level, minimize_level
from harness.minimize.python.run import export_source, size_of_source, source_driver
from harness.minimize.reduction.folder import MinimizedFolder
from harness.minimize.reduction.progress import Reducing
from harness.minimize.reduction.result import LAUNCH_FILE, Minimization, Uninteresting
from harness.runs.same_inputs import SameInputs
from harness.runs.schedules import read_schedules, trials_of
from harness.values.errors import TriageError
from harness.values.run import LaunchVariant, RunVerdict
from harness.values.verdict import VerdictKind

__all__ = ["minimize_executed"]


async def minimize_executed(reducing: Reducing, same: SameInputs) -> Minimization | Uninteresting:
    """Reduce the subject's source, whose candidates are executed on the subject's inputs.

    What is left is a launch file too, which `triage run` executes.

    Raises:
        UsageError: the source cannot be written as one file, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = reducing.bench, reducing.subject.cell
    folder = reducing.folder(".py")
    standalone = await export_source(bench, cell)
    assert cell.record is not None
    executed = await same.execute(bench, cell)
    verdict, schedule = executed.row.run, (executed.row.schedule or "").partition(",")[0]
    variant = await same.variant(cell.record)
    oracle = ExecutedOracle(
        bench=bench,
        cell=cell,
        variant=variant,
        trials=trials_of(read_schedules(schedule), races=verdict is RunVerdict.RACE),
        budget=same.budget,
        launch=standalone.launch,
    )
    text = render(standalone)
    if verdict is RunVerdict.WRONG_RESULT:
        reducing.watch.stage("looking for a target for which the same file is right")
        held = await _held_to(reducing, oracle, text)
        if held is None:
            reason = "the same file is right for no other target: nothing says what is right"
            return Uninteresting(reason=f"{reducing.subject.row.reason}; {reason}")
        oracle = held
    first = await oracle.react(text, cell.compiler)
    if first.verdict.value != verdict.value or first.key is None:
        reason = f"as one file it gives {first.verdict.value}: {first.reason}"
        return Uninteresting(reason=f"{reducing.subject.row.reason}; {reason}")
    # A fault says in which file it is, and this is another one.
    row = replace(reducing.subject.row, signature=first.key)
    reducing = replace(reducing, subject=replace(reducing.subject, row=row))
    level = Level(
        name="source",
        suffix=".py",
        original=text,
        size_of=size_of_source,
        oracle=oracle,
        driver=source_driver(),
    )
    found = await minimize_level(reducing, folder, level)
    if isinstance(found, Uninteresting):
        return found
    return await _with_launch(reducing, folder, found, variant)


async def _held_to(reducing: Reducing, oracle: ExecutedOracle, text: str) -> ExecutedOracle | None:
    """The oracle that compares with the first target for which the file shows what is meant."""
    subject = reducing.subject
    for target in other_targets(subject.cell.cell.target):
        try:
            plan = await plan_cells(reducing.bench, reducing.selection, None, target=target)
        except TriageError:
            continue
        beside = _same_config(plan.cells, subject.cell)
        if beside is None:
            continue
        words = f"what it computes for {target}, emulated"
        held = replace(oracle, beside=beside, words=words)
        reaction = await held.react(text, subject.cell.compiler)
        if reaction.verdict is VerdictKind.WRONG_RESULT:
            return held
    return None


def _same_config(cells: tuple[PlannedCell, ...], cell: PlannedCell) -> CapturedLaunch | None:
    return next((each.launch for each in cells if each.cell.config == cell.cell.config), None)


async def _with_launch(
    reducing: Reducing, folder: MinimizedFolder, found: Minimization, variant: LaunchVariant
) -> Minimization:
    """The result with a launch file beside it, if one shows the same when it is run."""
    reducing.watch.stage("writing a launch, and running it")
    why = ""
    for exact in (False, True):
        try:
            files = _launch_files(reducing, found, variant, exact=exact)
            why = await _try_launch(reducing, folder, found, files)
        except (NoLaunchFileError, TriageError) as error:
            why = str(error)
        if not why:
            words = f"triage run --kernel {LAUNCH_FILE} --sm {found.target} --triton {found.triton}"
            return replace(found, run_command=words, run_files=files)
    return replace(found, notes=(*found.notes, f"no launch of it shows the same: {why}"))


def _launch_files(
    reducing: Reducing, found: Minimization, variant: LaunchVariant, *, exact: bool
) -> dict[str, bytes]:
    """The launch file, and the recorded values that it reads."""
    artifacts = reducing.bench.store.artifacts
    contents = {each.sha256: artifacts.get(each.sha256) for each in variant.buffers}
    standalone = read_standalone(found.text)
    name = standalone.launch.kernel
    header = f"{name} for {found.target} by Triton {found.triton} is wrong: {found.reason}"
    text = launch_text(standalone, variant, contents, exact=exact, header=_wrapped(header))
    read = {
        recorded_name(number): _as_npy(contents[each.sha256])
        for number, each in enumerate(variant.buffers)
        if f'"{recorded_name(number)}"' in text
    }
    return {LAUNCH_FILE: text.encode(), **read}


async def _try_launch(
    reducing: Reducing, folder: MinimizedFolder, found: Minimization, files: Mapping[str, bytes]
) -> str:
    """Write a launch file and run it; why it does not show what it should, empty if it does."""
    for name, data in files.items():
        folder.write_bytes(name, data)
    asked = SelectionOptions(
        kernel=str(folder.path / LAUNCH_FILE), sm=(found.target,), triton=(found.triton or "",)
    )
    selection = SameInputs.small(select(asked))
    same = SameInputs(bench=reducing.bench, selection=selection, tell=reducing.watch.tell)
    plan = await plan_cells(reducing.bench, selection, None)
    rows = [(await same.execute(reducing.bench, cell)).row for cell in plan.cells]
    if any(row.run_signature == found.fingerprint.signature for row in rows):
        return ""
    return "; ".join(_said(row.run, row.run_reason) for row in rows)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 96))


def _said(verdict: RunVerdict, reason: str) -> str:
    return f"{verdict.value}: {reason}"


def _as_npy(data: bytes) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(data, np.uint8), allow_pickle=False)
    return stream.getvalue()
