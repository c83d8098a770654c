"""`triage check`: do all configs of a launch compute the same function? In Triton's interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from harness.cells.places import CompileOptions, at_bench, places_of
from harness.cells.selection import small_launch
from harness.frontends.base import CapturePlace, PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.launch_code import fetch_launch_code
from harness.frontends.registry import front_end, interpreter_for, plan_launch
from harness.store.store import Store
from harness.tables.rows import suspect_lines
from harness.tables.said import BLANK, Block, Counted, Tone, say
from harness.tables.survivors import common_ground
from harness.values.check import Agreement, CheckRow, Interpretation, LaunchComparison, SameProgram
from harness.values.errors import EmptySelectionError, TriageError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """A row for each config, in the order of the launch; `failures` could not be captured."""

    rows: tuple[CheckRow, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]


async def check_selections(
    selections: Sequence[Selection], store: Store, options: CompileOptions
) -> CheckReport:
    """Run every config of the selected launches in the interpreter, on the same small input.

    The target decides only what pruning functions and the like see of it.

    Raises:
        UsageError: there is no source that could be interpreted, or no interpreter.
        EmptySelectionError: no config matches the filter.
        TriageError: nothing could be captured.
    """
    rows: list[CheckRow] = []
    failures: list[TriageError] = []
    notes: list[str] = []
    # By launch file: one run in the interpreter serves all of its kernels.
    kernels: dict[Path, list[str]] = {}
    for selection in selections:
        kernels.setdefault(selection.repro.file, []).append(selection.repro.kernel or "*")
    async with at_bench(store, options) as bench:
        for selection in selections:
            repro = selection.repro
            try:
                if repro.ptx:
                    raise UsageError(f"{repro.name}: PTX has no source that could be interpreted")
                compiler = front_end(repro.front_end)
                if compiler.interpreter is None:
                    raise UsageError(
                        f"{repro.name}: {compiler.title} has no interpreter that could run it"
                    )
                # One row a config: ptxas has no part in this.
                rows += [
                    row
                    for place in places_of(structs.replace(selection, ptxas=(None,)))
                    for row in await _check_place(bench, place, kernels[repro.file], notes)
                ]
            except TriageError as error:
                failures.append(error)
    if not rows:
        raise failures[0] if failures else EmptySelectionError("--config matches no config")
    return CheckReport(
        rows=tuple(rows),
        failures=tuple(str(error) for error in failures),
        notes=tuple(dict.fromkeys(notes)),
    )


async def _check_place(
    bench: Workbench, place: CapturePlace, kernels: Sequence[str], notes: list[str]
) -> list[CheckRow]:
    """The configs of the launch as it is, each with what a small one of its kind says of it."""
    plan = await plan_launch(bench, place)
    notes += plan.notes
    if plan.session:
        await bench.sessions.close(plan.session)
    small = small_launch(place.selection, place.launch)
    interpretation = await interpreter_for(place.compiler).compare_configs(
        bench,
        fetch_launch_code(place.selection.repro, small.spec, small.overrides),
        kernels=kernels,
        target=place.target,
        compiler=place.compiler,
    )
    cells: dict[tuple[str, str], PlannedCell] = {}
    for cell in plan.cells:
        cells.setdefault((cell.cell.kernel, cell.cell.config.label), cell)
    counts = Counter(kernel for kernel, _ in cells)
    return [
        _row(cell, small.label, interpretation, alone=counts[cell.cell.kernel] == 1)
        for cell in cells.values()
    ]


def _row(
    cell: PlannedCell, launch: str, interpretation: Interpretation, *, alone: bool
) -> CheckRow:
    assert cell.record is not None
    config = cell.cell.config.as_dict()
    row = CheckRow(
        kernel=cell.cell.kernel,
        launch=launch,
        config=config,
        target=str(cell.cell.target),
        triton=cell.compiler.version,
        status=Agreement.NOT_CHECKED,
        reason="it is the only config: there is nothing to compare it with",
        suspect=cell.record.suspect or None,
    )
    if alone:
        return row
    rows = [
        _judged(row, finding, variant)
        for finding in interpretation.findings
        for variant in finding.variants
        if finding.kernel == cell.record.kernel and config in variant.configs
    ]
    why = _why_not(cell.record.kernel, interpretation)
    order = [Agreement.AGREES, Agreement.NOT_CHECKED, Agreement.DIFFERS]
    return max(
        rows,
        key=lambda row: (order.index(row.status), row.stable_max_rel or 0.0),
        default=structs.replace(row, reason=why),
    )


def _judged(row: CheckRow, finding: LaunchComparison, variant: SameProgram) -> CheckRow:
    if finding.level == "source":
        reason = "the configs differ in nothing that the source reads"
        return structs.replace(
            row, status=Agreement.AGREES, reason=reason, level=finding.level, group=0
        )
    if row.suspect and not variant.suspect:
        reason = "the small launch does not reach what is suspect; keep that size with --set"
        return structs.replace(row, reason=reason)
    if variant.group is None:
        return structs.replace(row, reason=variant.error)
    scope = "all that is returned" if finding.level == "results" else "all that it writes"
    if variant.group == 0:
        peers = sum(peer.group == 0 for peer in finding.variants)
        reason = f"interpreted: {scope} agrees"
        if peers == 1:
            reason = "interpreted: the reference for the others"
        return structs.replace(
            row, status=Agreement.AGREES, reason=reason, level=finding.level, group=0
        )
    return structs.replace(
        row,
        status=Agreement.DIFFERS,
        reason=f"interpreted: {variant.tensor} differs, beyond what rounding explains",
        level=finding.level,
        group=variant.group,
        tensor=variant.tensor,
        rel_err=variant.rel_err,
        stable_max_rel=variant.stable_max_rel,
        bad_frac=variant.bad_frac,
        unequal=variant.unequal,
        within_1e_3=variant.within_1e_3,
        within_1_percent=variant.within_1_percent,
    )


def _why_not(kernel: str, interpretation: Interpretation) -> str:
    if any(finding.kernel == kernel for finding in interpretation.findings):
        return "the small launch prunes it away; choose other sizes with --set"
    if kernel in interpretation.skipped:
        return f"the interpreter cannot run it: {interpretation.skipped[kernel]}"
    if error := interpretation.error:
        message = next(iter(error.message.splitlines()), "")[:300]
        return f"the small launch raised {error.type}: {message}"
    return "the reduced launch does not reach it, or not through an autotuner"


# What `triage check` found, for people: a line for each group of configs that agree.

_TONES = {
    Agreement.AGREES: Tone.GOOD,
    Agreement.DIFFERS: Tone.BAD,
    Agreement.NOT_CHECKED: Tone.FAINT,
}


def checks_said(rows: Sequence[CheckRow]) -> list[Block]:
    """A heading for each kernel and launch, and under it its groups, the differing ones first."""
    kernels: dict[tuple[str, ...], list[CheckRow]] = {}
    for row in rows:
        kernels.setdefault((row.kernel, row.launch, row.target, row.triton), []).append(row)
    parts: list[Block] = []
    for (kernel, launch, target, triton), group in kernels.items():
        heading = f"{kernel} · {launch} · as {target} would see it · Triton {triton}, interpreted"
        suspects = suspect_lines([row.suspect for row in group])
        parts += [say(heading, Tone.HEAD), *_groups(group), *suspects, BLANK]
    return parts


def _groups(rows: Sequence[CheckRow]) -> list[Block]:
    groups: dict[tuple[Agreement, object, str], list[CheckRow]] = {}
    for row in rows:
        groups.setdefault((row.status, row.group, row.reason), []).append(row)
    order = list(reversed(Agreement))
    lines: list[Block] = []
    for (status, _, reason), group in sorted(groups.items(), key=lambda x: order.index(x[0][0])):
        others = [row.config for row in rows if row not in group]
        where = common_ground([row.config for row in group], others)
        words = f"{f' [{where}]' if where else ''}: {reason}{_numbers(group)}"
        lines.append(Counted(len(group), say(status.value, _TONES[status]) + say(words)))
    return lines


def _numbers(rows: Sequence[CheckRow]) -> str:
    worst = max(rows, key=lambda row: row.stable_max_rel or 0.0)
    if worst.status is not Agreement.DIFFERS:
        return ""
    names = ("rel_err", "stable_max_rel", "bad_frac")
    numbers = [(name, getattr(worst, name)) for name in names]
    return "; " + ", ".join(
        f"{name} {'infinite' if value is None else format(value, '.2g')}" for name, value in numbers
    )
