"""`triage bisect`: since when, and until when, along the versions of ptxas or of Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from packaging.version import Version

from harness.effects import toolchains
from harness.effects.process import Hub
from harness.effects.store import Store
from harness.effects.triton_sessions import TritonSessions
from harness.effects.workbench import Workbench
from harness.logic.bisect_report import BisectReport, Repeats
from harness.logic.bisection import Boundary, Finding, Outcome, Probe, conclude, next_probes
from harness.values.errors import (
    CaptureError,
    EmptySelectionError,
    InfrastructureError,
    TriageError,
    UsageError,
)
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.toolchain import Ptxas, Triton
from harness.values.verdict import VerdictKind
from harness.verbs.cells import PlannedCell, evaluate
from harness.verbs.planning import Plan, plan_launch, plan_ptx
from harness.verbs.selection import Selection
from harness.verbs.work import CompileOptions, record_of

__all__ = ["AXES", "BisectOptions", "bisect_versions"]

AXES = ("ptxas", "triton")
# Before that, Triton's capture works differently; see the README.
_OLDEST_TRITON = Version("3.2")


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """What to look for: `bad` is a version that fails, `good` one that works.

    `budget` is how many versions may be tried beside those; with `sweep` every one is. `repeat` is
    how often both sides of the boundary are run.
    """

    axis: str = "ptxas"
    good: str | None = None
    bad: str | None = None
    signature: str | None = None
    sweep: bool = False
    budget: int = 40
    repeat: int = 5


class _Axis(Protocol):
    """Versions in order, and the cell at each of them; `asked` is the one that the user named."""

    versions: tuple[str, ...]
    asked: str | None

    async def cells(self, bench: Workbench, version: str) -> list[PlannedCell]:
        """Every config that was selected, at this version.

        Raises:
            CaptureError: its Triton cannot be asked.
            TriageError: the toolchain cannot be had.
        """


@dataclass(slots=True, kw_only=True)
class _PtxasAxis:
    """One PTX, byte for byte, on every ptxas."""

    selection: Selection
    versions: tuple[str, ...]
    asked: str | None
    _plan: Plan | None = None

    async def cells(self, bench: Workbench, version: str) -> list[PlannedCell]:
        ptxas = await asyncio.to_thread(toolchains.install_ptxas, version)
        if self._plan is None:
            self._plan = await _plan(bench, self.selection, ptxas)
        return [_with_ptxas(cell, ptxas) for cell in self._plan.cells]


@dataclass(slots=True, kw_only=True)
class _TritonAxis:
    """Every Triton, with the ptxas that was named, or the one that each bundles."""

    selection: Selection
    versions: tuple[str, ...]
    asked: str | None

    async def cells(self, bench: Workbench, version: str) -> list[PlannedCell]:
        triton = await asyncio.to_thread(toolchains.install_triton, version)
        plan = await _plan(bench, replace(self.selection, tritons=(triton,)), None)
        return list(plan.cells)


async def _plan(bench: Workbench, selection: Selection, ptxas: Ptxas | None) -> Plan:
    launch, target = selection.launches[0], selection.targets[0]
    if selection.repro.ptx:
        return plan_ptx(bench, replace(selection, ptxas=(ptxas,)), target, launch)
    triton: Triton = selection.tritons[0]
    if ptxas is not None:
        selection = replace(selection, ptxas=(None,))
    return await plan_launch(bench, selection, target, triton, launch)


def _with_ptxas(cell: PlannedCell, ptxas: Ptxas) -> PlannedCell:
    frozen = cell.launch is not None
    label = f"{ptxas.label}-frozen" if frozen else ptxas.label
    return replace(cell, ptxas=ptxas, freeze_ptx=frozen, cell=replace(cell.cell, ptxas=label))


def _axis(selection: Selection, options: BisectOptions) -> _Axis:
    if options.axis == "ptxas":
        versions = tuple(str(version) for version, _ in toolchains.available_ptxas())
        named = selection.ptxas[0] if len(selection.ptxas) == 1 else None
        asked = named.version if named else None
        return _PtxasAxis(selection=selection, versions=versions, asked=asked)
    if selection.repro.ptx:
        raise UsageError(f"{selection.repro.name}: PTX has been through Triton; use --axis ptxas")
    tritons = [v for v in toolchains.available_triton() if v >= _OLDEST_TRITON]
    asked = selection.tritons[0].version if len(selection.tritons) == 1 else None
    return _TritonAxis(selection=selection, versions=tuple(map(str, tritons)), asked=asked)


@dataclass(slots=True, kw_only=True)
class _Search:
    bench: Workbench
    run: int
    axis: _Axis
    options: BisectOptions
    tell: Callable[[str, str], None]
    label: str | None = None
    signature: str | None = None
    rows: dict[int, Row] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    plans: dict[int, PlannedCell] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def index(self, version: str | None, option: str) -> int | None:
        """Where a version that the user named lies on the axis."""
        if version is None:
            return None
        wanted = {str(Version(version)), version}
        for index, known in enumerate(self.axis.versions):
            if known in wanted:
                return index
        raise UsageError(f"--{option} {version}: there is no such {self.options.axis}")

    @property
    def focus(self) -> int | None:
        """The version at which the failure is looked for."""
        if self.options.bad:
            return self.index(self.options.bad, "bad")
        asked = self.axis.asked
        return self.axis.versions.index(asked) if asked in self.axis.versions else None

    def known(self) -> dict[int, Probe]:
        """What is known, as the search sees it."""
        probes = {index: self._probe(row) for index, row in self.rows.items()}
        holes = {
            index: Probe(outcome=Outcome.UNTESTABLE, verdict=reason)
            for index, reason in self.reasons.items()
        }
        return {**probes, **holes}

    def _probe(self, row: Row) -> Probe:
        kind = VerdictKind(row.verdict)
        outcome = Outcome.OTHER
        if kind.compiles:
            outcome = Outcome.OK
        elif kind is VerdictKind.INFRA:
            outcome = Outcome.INFRA
        elif kind is VerdictKind.UNSUPPORTED:
            outcome = Outcome.UNTESTABLE
        elif row.signature == self.signature:
            outcome = Outcome.SAME
        return Probe(outcome=outcome, verdict=row.verdict, signature=row.signature)


async def bisect_versions(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BisectOptions,
    tell: Callable[[str, str], None],
) -> BisectReport:
    """Find where a failure began and ended; `tell` hears each version and what it did.

    Raises:
        UsageError: a version that was named does not exist, or the axis does not apply.
        EmptySelectionError: no config matches.
        TriageError: nothing could be tried at all.
    """
    axis = _axis(selection, options)
    run_id = store.begin_run(how.command)
    async with Hub() as hub:
        bench = Workbench(
            hub=hub,
            store=store,
            sessions=TritonSessions(hub, capture_timeout=how.timeout),
            jobs=how.workers,
            limits=how.limits,
            use_cache=how.use_cache,
        )
        search = _Search(
            bench=bench,
            run=run_id,
            axis=axis,
            options=options,
            tell=tell,
            signature=options.signature,
        )
        trouble = await _until_known(search)
        finding = conclude(
            len(axis.versions), search.known(), focus=search.index(options.bad, "bad")
        )
        repeats = None
        boundary = finding.regression or finding.fix
        if boundary and not trouble:
            repeats = await _repeat(search, boundary, finding)
    store.finish_run(run_id)
    return BisectReport(
        axis=options.axis,
        versions=axis.versions,
        rows={axis.versions[index]: row for index, row in sorted(search.rows.items())},
        reasons={axis.versions[index]: text for index, text in sorted(search.reasons.items())},
        finding=finding,
        signature=search.signature,
        config=next(iter(search.plans.values())).cell.config if search.plans else Config(),
        others=search.others,
        repeats=repeats,
        trouble=trouble,
    )


async def _until_known(search: _Search) -> str | None:
    """Probe until everything worth it is known; what stopped it, if something did."""
    size, options = len(search.axis.versions), search.options
    focus = search.focus
    good = search.index(options.good, "good")
    budget = size if options.sweep else options.budget
    for index in (focus, good):
        if index is not None and (trouble := await _try(search, index)):
            return trouble
    if focus is not None and search.signature is None and focus in search.rows:
        search.signature = search.rows[focus].signature
    while wanted := next_probes(size, search.known(), budget=budget, focus=focus):
        for index in wanted:
            budget -= 1
            if trouble := await _try(search, index):
                return trouble
        if search.signature is None:
            _adopt_newest_failure(search)
    return None


def _adopt_newest_failure(search: _Search) -> None:
    """Where nobody said which failure is meant, it is the one of the newest version that fails."""
    failing = [
        index
        for index, row in search.rows.items()
        if row.signature and not VerdictKind(row.verdict).tells_nothing
    ]
    if failing and len(search.rows) + len(search.reasons) == len(search.axis.versions):
        search.signature = search.rows[max(failing)].signature


async def _try(search: _Search, index: int) -> str | None:
    """Probe one version, once; the reason where this machine, not the version, is at fault."""
    if index in search.rows or index in search.reasons:
        return None
    version = search.axis.versions[index]
    try:
        cells = await search.axis.cells(search.bench, version)
        cell = await _chosen(search, cells)
        if cell is None:
            search.reasons[index] = "it does not make this config"
        else:
            search.plans[index] = cell
            search.rows[index] = await _evaluated(search, cell)
    except CaptureError as error:
        search.reasons[index] = str(error)
    except InfrastructureError as error:
        return f"{search.options.axis} {version}: {error}"
    except TriageError:
        raise
    row = search.rows.get(index)
    search.tell(version, f"{row.verdict}: {row.reason}" if row else search.reasons[index])
    if row and row.verdict == VerdictKind.INFRA.value:
        del search.rows[index]
        return f"{search.options.axis} {version}: {row.reason}"
    return None


async def _chosen(search: _Search, cells: Sequence[PlannedCell]) -> PlannedCell | None:
    """The cell that is followed: the first that fails where the search begins."""
    if not cells:
        raise EmptySelectionError("--config matches none of the configs")
    if search.label is None and search.focus is None and len(cells) > 1:
        raise UsageError(
            f"{len(cells)} configs match; name one by --config, or a version that fails by --bad"
        )
    if search.label is None:
        rows = [await _evaluated(search, cell) for cell in cells]
        failing = [
            (cell, row)
            for cell, row in zip(cells, rows, strict=True)
            if row.signature
            and not VerdictKind(row.verdict).tells_nothing
            and search.signature in (None, row.signature)
        ]
        cell = failing[0][0] if failing else cells[0]
        search.label = cell.cell.config.label
        search.others = tuple(c.cell.config.label for c in cells if c is not cell)
        return cell
    return next((cell for cell in cells if cell.cell.config.label == search.label), None)


async def _evaluated(search: _Search, cell: PlannedCell) -> Row:
    done = await evaluate(search.bench, cell)
    search.bench.store.put_result(search.run, record_of(done))
    return done.row


async def _repeat(search: _Search, boundary: Boundary, finding: Finding) -> Repeats:
    """Both sides again, from nothing."""
    begins = finding.regression is not None
    bad = boundary.after if begins else boundary.before
    good = boundary.before if begins else boundary.after
    counts = {bad: 1, good: 0}
    for _ in range(search.options.repeat - 1):
        for index in (bad, good):
            mine = search.bench.apart(limits=None, afresh=True)
            row = (await evaluate(mine, search.plans[index])).row
            search.bench.cpu_seconds += mine.cpu_seconds
            counts[index] += row.signature == search.signature
    return Repeats(bad=counts[bad], good=counts[good], runs=search.options.repeat)
