"""Which failure is to be reduced: the first config that shows it, its PTX, its flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.effects.workbench import Workbench
from harness.logic.minimization import Uninteresting
from harness.logic.properties import Condition, holds, row_fields
from harness.logic.ptx import PtxError, read_ptx, retarget
from harness.values.errors import EmptySelectionError
from harness.values.row import Row
from harness.values.verdict import Stage, VerdictKind
from harness.verbs.cells import PlannedCell, evaluate
from harness.verbs.planning import Plan, plan_launch, plan_ptx
from harness.verbs.ptx_oracle import Question
from harness.verbs.selection import Selection
from harness.verbs.work import record_of

__all__ = ["Subject", "find_subject", "is_before_ptxas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A cell that shows what is looked for, and its row.

    `text` is its PTX with the target that was asked for; None where the pipeline did not come so
    far. `names` are all that its config and those beside it set. `others` counts the configs that
    come after it and were not looked at.
    """

    cell: PlannedCell
    row: Row
    text: str | None
    question: Question
    names: tuple[str, ...] = ()
    others: int = 0


async def find_subject(
    bench: Workbench,
    selection: Selection,
    run: int,
    condition: Condition | None,
    *,
    any_will_do: bool,
    at_ptxas: bool,
    tell: Callable[[str], None],
) -> Subject | Uninteresting:
    """The first config that fails, or meets the condition; with `any_will_do` the very first.

    With `at_ptxas`, what went wrong before ptxas saw anything does not count.

    Raises:
        CaptureError: the launch cannot be captured.
        EmptySelectionError: no config matches.
        TriageError: a toolchain cannot be had, or results cannot be kept.
    """
    cells = (await _plan(bench, selection)).cells
    if not cells:
        raise EmptySelectionError("--config matches none of the configs")
    rows: list[Row] = []
    for index, cell in enumerate(cells):
        done = await evaluate(bench, cell)
        bench.store.put_result(run, record_of(done))
        row = done.row
        rows.append(row)
        if len(cells) > 1:
            tell(f"{cell.cell.config.label}: {row.verdict}: {row.reason[:100]}")
        counts = not at_ptxas or (row.ptx_sha256 is not None and not is_before_ptxas(row))
        if counts and (any_will_do or _is_wanted(row, condition)):
            found = _subject(bench, cell, row)
            names = [name for each in cells for name in each.cell.config.as_dict()]
            names += [name for name, _ in selection.config.wanted]
            return replace(found, names=tuple(dict.fromkeys(names)), others=len(cells) - index - 1)
    return Uninteresting(reason=_why_not(rows, condition, at_ptxas=at_ptxas))


async def _plan(bench: Workbench, selection: Selection) -> Plan:
    launch, target = selection.launches[0], selection.targets[0]
    if selection.repro.ptx:
        return plan_ptx(bench, selection, target, launch)
    return await plan_launch(bench, selection, target, selection.tritons[0], launch)


def _is_wanted(row: Row, condition: Condition | None) -> bool:
    if condition is not None:
        return holds(condition, row_fields(row))
    kind = VerdictKind(row.verdict)
    return row.signature is not None and not kind.compiles and not kind.tells_nothing


def _why_not(rows: list[Row], condition: Condition | None, *, at_ptxas: bool) -> str:
    """Why no config will do, by the first of them."""
    early = [row for row in rows if _is_wanted(row, condition) and is_before_ptxas(row)]
    if at_ptxas and early:
        return (
            f"it goes wrong before ptxas, in stage {early[0].stage}: {early[0].reason}; "
            "PTX cannot show that"
        )
    row = rows[0]
    told = f"{row.verdict}: {row.reason}"
    many = f" (so the first of {len(rows)} configs)" if len(rows) > 1 else ""
    if condition is not None:
        return f"--while does not hold: {told}{many}"
    if any(row.verdict == VerdictKind.SICK.value for row in rows):
        sick = next(row for row in rows if row.verdict == VerdictKind.SICK.value)
        spills = f"spill_stores>={sick.spill_stores}" if sick.spill_stores else "verdict=sick"
        return (
            f"nothing fails; {sick.reason}. What a success has to keep is said by "
            f'--while, for example --while "{spills}"'
        )
    return f"nothing fails: {told}{many}"


def _subject(bench: Workbench, cell: PlannedCell, row: Row) -> Subject:
    target = cell.cell.target
    text = None
    if row.ptx_sha256:
        text = bench.store.artifacts.get(row.ptx_sha256).decode(errors="replace")
        if cell.launch and target.suffix:
            text = _for_target(text, str(target))
    flags = row.ptxas_flags or ("-v", f"--gpu-name={target}")
    question = Question(target=target, flags=flags, entry=cell.entry)
    return Subject(
        cell=cell,
        row=replace(row, ptxas_flags=flags),
        text=text,
        question=question,
    )


def _for_target(text: str, target: str) -> str:
    """What `harness.effects.assembling` hands to ptxas: Triton may have written another target."""
    try:
        return text if read_ptx(text).target == target else retarget(text, target=target)
    except PtxError:
        return text


def is_before_ptxas(row: Row) -> bool:
    """Whether it went wrong before ptxas saw anything; of raw PTX, nothing does."""
    return (
        row.triton is not None
        and row.stage is not None
        and Stage(row.stage) not in (Stage.CUBIN, Stage.LAUNCH)
    )
