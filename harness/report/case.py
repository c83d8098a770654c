"""The failing cell that a report is of, and whether its upstream is the one to hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.bisect.axes import plan_cells
from harness.cells.places import CompileOptions, work
from harness.frontends.base import Selection
from harness.frontends.registry import front_end, kinds
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition
from harness.judging.followed import Followed, follow
from harness.report.dossier import Dossier, Upstream
from harness.report.forms import REQUIRED
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.toolchain import GPU, PTXAS, TRITON
from harness.values.verdict import Stage, VerdictKind

if TYPE_CHECKING:
    from harness.run.executing import Executed
    from harness.run.raw_ptx import RawInputs


# A case whose PTX is executed, or whose cubins are launched on a GPU: its rows.


async def executed_rows(
    selection: Selection, store: Store, how: CompileOptions, tell: Callable[[str], None]
) -> tuple[Executed, ...]:
    """Every selected config, executed on the same inputs and kept.

    Raises:
        UsageError: it is a file of PTX.
        TriageError: the launch cannot be captured, or run with values.
    """
    from harness.run.executing import keep_execution  # noqa: PLC0415 - numpy: 0.1 s
    from harness.run.executors import executor_of  # noqa: PLC0415 - as above
    from harness.run.recorded_launch import small_selection  # noqa: PLC0415 - as above

    selection = small_selection(selection)
    async with work(store, how) as (bench, run):
        plan = await plan_cells(bench, selection, None)
        executor = executor_of(bench, selection, tell)
        found = await asyncio.gather(*(executor.execute(bench, cell) for cell in plan.cells))
        for executed in found:
            keep_execution(store, run, executed)
    return tuple(found)


async def launched_rows(
    selection: Selection,
    inputs: RawInputs,
    store: Store,
    how: CompileOptions,
    tell: Callable[[str], None],
    runner: str | None,
) -> tuple[Executed, ...]:
    """A file of PTX by every selected ptxas, launched on a GPU in one trip and kept.

    Raises:
        UsageError: it is not a file of PTX, or the inputs do not fit.
        InfrastructureError: there is no GPU, or no results came back.
        TriageError: nothing could be assembled.
    """
    from harness.run.executing import keep_execution  # noqa: PLC0415 - numpy: 0.1 s
    from harness.run.executors import executor_of  # noqa: PLC0415 - as above

    if selection.repro.ptx is None:
        raise UsageError(
            f"{selection.repro.name}: --on gpu reports a file of PTX; `triage show --stage ptx` "
            "prints that of a kernel"
        )
    async with work(store, how) as (bench, run):
        plan = await plan_cells(bench, selection, None)
        launched = executor_of(
            bench, selection, tell, GPU, runner=runner, inputs=inputs, command=how.command
        )
        found = await asyncio.gather(*(launched.execute(bench, cell) for cell in plan.cells))
        for executed in found:
            keep_execution(store, run, executed)
    return tuple(found)


def find_case(
    selection: Selection,
    rows: Sequence[Row],
    *,
    signature: str | None = None,
    condition: Condition | None = None,
) -> Row:
    """The first failing row of those that were selected, or the first that meets the condition.

    Raises:
        EmptySelectionError: no config matches.
        UsageError: nothing that was selected fails.
    """
    found = [row for row in rows if selection.config.matches(Config.of(row.config))]
    if not found:
        raise EmptySelectionError("--config matches none of the configs")
    if condition:
        followed = Followed(condition=condition)
        held = [row for row in found if followed.of(row) is VerdictAnswer.SAME]
        if not held:
            raise UsageError(f"--while holds for none of the {len(found)} selected cells")
        return held[0]
    failing = [row for row in found if row.signature and not VerdictKind(row.verdict).tells_nothing]
    for row in failing:
        if signature in (None, row.signature):
            return row
    meant = f" with signature {signature}" if signature else ""
    raise UsageError(f"none of the {len(found)} cells that were selected fails{meant}")


def check_upstream(
    selection: Selection,
    case: Row,
    upstream: Upstream,
    condition: Condition | None,
    *,
    on_gpu: bool = False,
) -> None:
    """Refuse a report to somebody whose program never ran, or did what it should.

    Raises:
        UsageError: it says to whom to report instead.
    """
    stage = follow(case, condition=condition).stage
    if on_gpu and upstream is not Upstream.NVIDIA:
        raise UsageError(
            "--on gpu: cubins of one PTX that disagree are a matter of ptxas; report it with "
            "--for nvidia"
        )
    maintainers = _maintainers(case)
    if upstream is Upstream.NVIDIA and stage != Stage.CUBIN.value and not on_gpu:
        raise UsageError(
            f"--for nvidia: this is not a failure of ptxas: {case.verdict} in stage {case.stage}, "
            f"before ptxas has the kernel; report it with --for {maintainers}"
        )
    if upstream is Upstream.NVIDIA and case.assembler != PTXAS:
        raise UsageError(
            f"--for nvidia: {selection.repro.name} is assembled by {case.tool}; report it with "
            f"--for {maintainers}"
        )
    if upstream is Upstream.TRITON and case.compiler not in (None, TRITON):
        raise UsageError(
            f"--for triton: {selection.repro.name} is compiled by {case.compiler_name}; report it "
            f"with --for {maintainers}"
        )
    if upstream is Upstream.TRITON and selection.repro.ptx:
        raise UsageError(
            f"--for triton: Triton has no part in it: {selection.repro.name} is PTX, and "
            f"ptxas {case.ptxas} fails on it; report it with --for nvidia"
        )


def check_blamed(d: Dossier, upstream: Upstream) -> None:
    """Refuse a report to NVIDIA of what blame lays to the compiler that wrote the PTX.

    Raises:
        UsageError: it says to whom to report instead.
    """
    if upstream is Upstream.NVIDIA and d.is_compilers and not d.on_gpu and d.blame:
        raise UsageError(
            f"--for nvidia: {' '.join((d.blame.headline, *d.blame.reasons[:1]))} Report it with "
            f"--for {_maintainers(d.case)}"
        )


def _maintainers(case: Row) -> str:
    """Those of the compiler, where their form is known; else those of the kernel."""
    if case.compiler == TRITON:
        return Upstream.TRITON.value
    has_form = case.compiler in kinds() and front_end(case.compiler).issue_fields
    return case.compiler if has_form and case.compiler else Upstream.PROJECT.value


def only(case: Row, rows: Sequence[Row]) -> ConfigFilter:
    """The filter that means this config and no other."""
    names = dict.fromkeys(name for row in rows for name in row.config)
    words = {name: str(case.config.get(name, "none")).lower() for name in names}
    return ConfigFilter(wanted=tuple((name, (word,)) for name, word in words.items()))


def required_fields(upstream: Upstream, compiler: str | None) -> Sequence[str]:
    """The headings of a report for this upstream; `compiler` is the kind of the kernel's."""
    if upstream is Upstream.COMPILER and compiler is not None:
        return front_end(compiler).issue_fields
    return REQUIRED[upstream]
