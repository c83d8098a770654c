"""`triage bisect`: since when, and until when, along the versions of ptxas or of Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from packaging.version import InvalidVersion, Version

from harness.effects.bisect_log import BisectLog
from harness.effects.process import Hub
from harness.effects.script import run_script
from harness.effects.store import Store
from harness.effects.triton_sessions import TritonSessions
from harness.effects.workbench import Workbench
from harness.logic.answers import Outcome
from harness.logic.bisect_report import BisectReport, Evidence
from harness.logic.bisection import Finding, Probe, conclude, next_probes, outcome_of
from harness.logic.ir_difference import StageStory
from harness.logic.trust import Tally, runs_to_trust
from harness.values.errors import (
    CaptureError,
    EmptySelectionError,
    InfrastructureError,
    UsageError,
)
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.verbs.axes import Axis, version_axis
from harness.verbs.cells import Evaluated, PlannedCell, evaluate
from harness.verbs.selection import Selection
from harness.verbs.stage_story import tell_stages
from harness.verbs.work import CompileOptions, record_of

__all__ = ["BisectOptions", "bisect_versions", "open_bench"]

_SWEPT_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """What to look for: `bad` is a version that fails, `good` one that works.

    `budget` is how many versions may be tried beside those, by default as many as are installed
    plus one of each minor release plus what two searches by halving take; with `sweep` every one
    is. `repeat` is how often both sides of a boundary are run, at least. `script` is the user's own
    predicate, see `harness.effects.script`.
    """

    axis: str = "ptxas"
    good: str | None = None
    bad: str | None = None
    signature: str | None = None
    sweep: bool = False
    budget: int | None = None
    repeat: int = 5
    script: str | None = None


@dataclass(slots=True, kw_only=True)
class _Search:
    """What is known so far: probes by index, how often each was run, and the cells behind them."""

    bench: Workbench
    run: int
    axis: Axis
    options: BisectOptions
    log: BisectLog
    tell: Callable[[str, str], None]
    signature: str | None
    config: Config | None = None
    others: tuple[str, ...] = ()
    probes: dict[int, Probe] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    tallies: dict[int, Tally] = field(default_factory=dict)
    done: dict[int, Evaluated] = field(default_factory=dict)
    plans: dict[int, PlannedCell] = field(default_factory=dict)
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def index(self, version: str | None, option: str) -> int | None:
        """Where a version that the user named lies on the axis."""
        if version is None:
            return None
        try:
            wanted = {str(Version(version)), version}
        except InvalidVersion:
            wanted = {version}
        for index, known in enumerate(self.axis.versions):
            if known in wanted:
                return index
        raise UsageError(f"--{option} {version}: there is no such {self.axis.name}")

    @property
    def focus(self) -> int | None:
        """The version at which the failure is looked for."""
        if self.options.bad:
            return self.index(self.options.bad, "bad")
        asked = self.axis.asked
        return self.axis.versions.index(asked) if asked in self.axis.versions else None

    @property
    def runs_wanted(self) -> int:
        """How often a version must pass before it counts as one that works.

        By the failing version that fails least often, among those that were run often enough.
        """
        failing = (i for i, probe in self.probes.items() if probe.outcome is Outcome.SAME)
        tallies = (self.tallies.get(index, Tally()) for index in failing)
        known = (runs_to_trust(tally) for tally in tallies if tally.runs >= self.options.repeat)
        return max(known, default=1)

    def finding(self) -> Finding:
        """What the probes say."""
        return conclude(
            len(self.axis.versions), self.probes, focus=self.index(self.options.bad, "bad")
        )


def open_bench(hub: Hub, store: Store, how: CompileOptions) -> Workbench:
    """A bench for one command."""
    return Workbench(
        hub=hub,
        store=store,
        sessions=TritonSessions(hub, capture_timeout=how.timeout),
        jobs=how.workers,
        limits=how.limits,
        use_cache=how.use_cache,
    )


async def bisect_versions(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BisectOptions,
    tell: Callable[[str, str], None],
    log: BisectLog,
) -> BisectReport:
    """Find where a failure began and ended; `tell` hears each version and what it did.

    What `log` holds already is taken as it is, and everything new is added to it.

    Raises:
        UsageError: a version that was named does not exist, or the axis does not apply.
        EmptySelectionError: no config matches.
        TriageError: nothing could be tried at all.
    """
    run_id = store.begin_run(how.command)
    async with Hub() as hub:
        search = _Search(
            bench=open_bench(hub, store, how),
            run=run_id,
            axis=version_axis(selection, options.axis),
            options=options,
            log=log,
            tell=tell,
            signature=options.signature,
        )
        _take_up(search)
        trouble = await _search(search)
        stages = None
        if not trouble and not search.axis.frozen:
            stages = await _stages(search)
    store.finish_run(run_id)
    evidence = Evidence(
        axis=options.axis,
        versions=search.axis.versions,
        probes=search.probes,
        reasons=search.reasons,
        rows=search.rows,
        tallies=search.tallies,
        focus=search.index(options.bad, "bad"),
        signature=search.signature,
        config=search.config,
        others=search.others,
        stages=stages,
        trouble=trouble,
    )
    log.end(evidence)
    return evidence.report()


def _take_up(search: _Search) -> None:
    """Go on from what the log knows; a version that the index no longer has is left out."""
    known = search.log.known
    search.config, search.others = known.config, known.others
    search.signature = search.signature or known.signature
    for index, version in enumerate(search.axis.versions):
        if version not in known.probes:
            continue
        search.probes[index] = known.probes[version]
        search.tallies[index] = known.tallies.get(version, Tally())
        if version in known.rows:
            search.rows[index] = known.rows[version]
        if version in known.reasons:
            search.reasons[index] = known.reasons[version]


async def _search(search: _Search) -> str | None:
    """Probe until everything worth it is known; what stopped it, if something did."""
    size, options = len(search.axis.versions), search.options
    named = (search.focus, search.index(options.good, "good"))
    for index in named:
        if index is not None and (trouble := await _try(search, index)):
            return trouble
    # Beside one of each minor release, halving where the failure begins and where it ends.
    enough = search.axis.at_hand + 2 * size.bit_length()
    budget = size if options.sweep else options.budget or enough
    while True:
        while wanted := next_probes(
            size, search.probes, budget=budget, focus=search.focus, at_once=_at_once(search, budget)
        ):
            budget -= len(wanted)
            troubles = await asyncio.gather(*(_try(search, index) for index in wanted))
            if any(troubles):
                return next(filter(None, troubles))
            _adopt_newest_failure(search, budget)
        changed, trouble = await _confirm(search)
        if trouble or not changed:
            return trouble


def _at_once(search: _Search, budget: int) -> int:
    """How many versions to try side by side: in a sweep none waits for what another says.

    Not all at once, so that trouble with this machine still stops it early.
    """
    left = len(search.axis.versions) - len(search.probes)
    return search.bench.jobs * (_SWEPT_AT_ONCE if left <= budget else 1)


def _adopt_newest_failure(search: _Search, budget: int) -> None:
    """Where nobody said which failure is meant, it is the one of the newest version that fails."""
    if search.signature is not None or search.options.script:
        return
    if 0 < len(search.axis.versions) - len(search.probes) <= budget:
        return  # the rest will be tried as well: a newer one may fail
    failing = [
        index
        for index, row in search.rows.items()
        if row.signature and not VerdictKind(row.verdict).tells_nothing
    ]
    if not failing:
        return
    search.signature = search.rows[max(failing)].signature
    for index, row in search.rows.items():
        search.probes[index] = _probe_of(search, row)
        search.tallies[index] = _one(search.probes[index])


def _probe_of(search: _Search, row: Row) -> Probe:
    outcome = outcome_of(row, search.signature)
    return Probe(outcome=outcome, verdict=row.verdict, signature=row.signature)


def _one(probe: Probe) -> Tally:
    return Tally(failures=int(probe.outcome is Outcome.SAME), runs=1)


async def _try(search: _Search, index: int) -> str | None:
    """Probe one version; the reason where this machine, not the version, is at fault."""
    if index in search.probes:
        return None
    version = search.axis.versions[index]
    try:
        trouble = await _probe(search, index, version)
    except CaptureError as error:
        _cannot_tell(search, index, str(error))
        trouble = None
    except InfrastructureError as error:
        trouble = str(error)
    if trouble:
        return f"{search.axis.name} {version}: {trouble}"
    row, said = search.rows.get(index), search.reasons.get(index)
    search.tell(version, said or (f"{row.verdict}: {row.reason}" if row else ""))
    _note(search, index)
    return None


def _note(search: _Search, index: int) -> None:
    search.log.probe(
        search.axis.versions[index],
        search.probes[index],
        tally=search.tallies.get(index, Tally()),
        row=search.rows.get(index),
        reason=search.reasons.get(index, ""),
        config=search.config,
        signature=search.signature,
        others=search.others,
    )


def _cannot_tell(search: _Search, index: int, reason: str) -> None:
    search.reasons[index] = reason
    search.probes[index] = Probe(outcome=Outcome.UNTESTABLE, verdict=reason)


async def _probe(search: _Search, index: int, version: str) -> str | None:
    """Run the cell as often as it takes to believe what it did; what is wrong with this machine."""
    cells = await search.axis.cells(search.bench, version)
    async with search.choosing:
        cell = await _chosen(search, cells)
    if cell is None:
        _cannot_tell(search, index, "it does not make this config")
        return None
    search.plans[index] = cell
    is_focus = index == search.focus
    probe, trouble = await _run(search, index, again=False)
    if trouble:
        return trouble
    search.probes[index], search.tallies[index] = probe, _one(probe)
    if probe.outcome is Outcome.OK or (is_focus and probe.outcome is Outcome.SAME):
        return await _believe(search, index, search.options.repeat if is_focus else 1)
    return None


async def _believe(search: _Search, index: int, least: int) -> str | None:
    """Run a version until it has failed, or has passed often enough; one that fails, `least`."""
    while True:
        tally, outcome = search.tallies[index], search.probes[index].outcome
        wanted = least if outcome is Outcome.SAME else max(least, search.runs_wanted)
        if not outcome.moves_a_bound or tally.runs >= wanted:
            return None
        more = (_run(search, index, again=True) for _ in range(wanted - tally.runs))
        for probe, trouble in await asyncio.gather(*more):
            if trouble:
                return trouble
            search.tallies[index] += _one(probe)
            if search.probes[index].outcome is Outcome.OK:
                search.probes[index] = probe


async def _run(search: _Search, index: int, *, again: bool) -> tuple[Probe, str | None]:
    """One run of a cell; `again` from nothing, except for the PTX of an axis that froze it."""
    bench, plan = search.bench, await _plan_of(search, index)
    if again:
        bench = search.bench.apart(limits=None, afresh=True)
        if search.axis.frozen and index in search.done:
            bench.made.update(search.done[index].evidence.values())
            bench.made.discard(search.done[index].evidence.get("assemble", ""))
    done = await evaluate(bench, plan)
    if again:
        search.bench.cpu_seconds += bench.cpu_seconds
    if done.row.verdict == VerdictKind.INFRA.value:
        return Probe(outcome=Outcome.INFRA), done.row.reason
    if search.signature is None and index == search.focus:
        search.signature = done.row.signature
    probe = _probe_of(search, done.row)
    if search.options.script and probe.outcome is not Outcome.UNTESTABLE:
        probe = await run_script(search.bench, search.options.script, done.row, plan.ptxas)
        if probe.outcome is Outcome.INFRA:
            return probe, probe.verdict
    tally = search.tallies.get(index, Tally()) + _one(probe)
    if index not in search.rows or probe.outcome is Outcome.SAME:
        search.done[index], search.rows[index] = done, done.row
    if tally.is_flaky:
        search.rows[index] = replace(search.rows[index], flaky=True)
    record = record_of(replace(search.done[index], row=search.rows[index]))
    search.bench.store.put_result(search.run, record)
    return probe, None


async def _plan_of(search: _Search, index: int) -> PlannedCell:
    """The cell at a version; one that a log knows has none yet."""
    if index not in search.plans:
        cells = await search.axis.cells(search.bench, search.axis.versions[index])
        search.plans[index] = next(c for c in cells if c.cell.config == search.config)
        search.done[index] = await evaluate(search.bench, search.plans[index])
    return search.plans[index]


async def _chosen(search: _Search, cells: Sequence[PlannedCell]) -> PlannedCell | None:
    """The cell that is followed: the first that fails where the search begins."""
    if not cells:
        raise EmptySelectionError("--config matches none of the configs")
    if search.config is None and search.focus is None and len(cells) > 1:
        raise UsageError(
            f"{len(cells)} configs match; name one by --config, or a version that fails by --bad"
        )
    if search.config is None:
        done = await asyncio.gather(*(evaluate(search.bench, cell) for cell in cells))
        failing = [
            cell
            for cell, row in zip(cells, (each.row for each in done), strict=True)
            if row.signature
            and not VerdictKind(row.verdict).tells_nothing
            and search.signature in (None, row.signature)
        ]
        cell = failing[0] if failing else cells[0]
        search.config = cell.cell.config
        search.others = tuple(c.cell.config.label for c in cells if c is not cell)
        return cell
    return next((cell for cell in cells if cell.cell.config == search.config), None)


async def _confirm(search: _Search) -> tuple[bool, str | None]:
    """Run what the answer rests on again; whether a version changed its answer, and trouble."""
    before = {index: probe.outcome for index, probe in search.probes.items()}
    finding = search.finding()
    boundaries = filter(None, (finding.regression, finding.fix))
    sides = {index for boundary in boundaries for index in (boundary.before, boundary.after)}
    if trouble := await _believe_all(search, sides, search.options.repeat):
        return False, trouble
    # A failure that turned out to come now and then may have been missed before.
    doubtful = {
        index
        for index, probe in search.probes.items()
        if probe.outcome is Outcome.OK and search.tallies[index].runs < search.runs_wanted
    }
    if trouble := await _believe_all(search, doubtful, 1):
        return False, trouble
    after = {index: probe.outcome for index, probe in search.probes.items()}
    return before != after, None


async def _believe_all(search: _Search, indices: Collection[int], least: int) -> str | None:
    """Run versions side by side, each often enough; what is wrong with this machine."""
    troubles = await asyncio.gather(*(_believe(search, i, least) for i in sorted(indices)))
    for index in sorted(indices):
        _note(search, index)
    return next(filter(None, troubles), None)


async def _stages(search: _Search) -> StageStory | None:
    """What the two sides of the boundary made, where each lowered for itself."""
    finding = search.finding()
    boundary = finding.regression or finding.fix
    if boundary is None:
        return None
    sides = []
    for index in (boundary.before, boundary.after):
        plan = await _plan_of(search, index)
        sides.append((plan, search.done[index]))
    return await tell_stages(search.bench, sides[0], sides[1])
