"""`triage bisect`: since when, and until when, along the versions of ptxas or of Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from harness.effects.bisect_log import BisectLog
from harness.effects.process import Hub
from harness.effects.script import check_script
from harness.effects.store import Store
from harness.effects.triton_sessions import TritonSessions
from harness.effects.workbench import Workbench
from harness.logic.answers import Outcome
from harness.logic.bisect_report import BisectReport, Evidence
from harness.logic.bisection import next_probes
from harness.logic.ir_difference import StageStory
from harness.verbs.axes import version_axis
from harness.verbs.bisect_probing import believe_all, plan_of, try_version
from harness.verbs.bisect_state import BisectOptions, Search
from harness.verbs.selection import Selection
from harness.verbs.stage_story import tell_stages
from harness.verbs.work import CompileOptions

__all__ = ["BisectOptions", "bisect_versions", "open_bench"]

_SWEPT_AT_ONCE = 4


def open_bench(hub: Hub, store: Store, how: CompileOptions) -> Workbench:
    """A bench for one command."""
    return Workbench(
        hub=hub,
        store=store,
        sessions=TritonSessions(hub, capture_timeout=how.timeout, capture_memory=how.memory),
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
    """Find where a failure began and ended; `tell` is as in `Search`.

    What `log` holds already is taken as it is, and everything new is added to it.

    Raises:
        UsageError: a version that was named does not exist, the axis does not apply, or the
            command of `script` cannot be run.
        EmptySelectionError: no config matches.
        TriageError: nothing could be tried at all.
    """
    run_id = store.begin_run(how.command)
    async with Hub() as hub:
        axis = version_axis(selection, options.axis)
        search = Search.begin(open_bench(hub, store, how), run_id, axis, options, log, tell)
        if options.script:
            await check_script(search.bench, options.script)
        trouble = await _search(search)
        stages = None
        if not trouble and not axis.frozen:
            stages = await _stages(search)
    store.finish_run(run_id)
    evidence = Evidence(
        axis=options.axis,
        versions=axis.versions,
        probes=search.probes,
        reasons=search.reasons,
        rows=search.rows,
        tallies=search.tallies,
        focus=search.meant,
        followed=search.followed,
        config=search.config,
        others=search.others,
        stages=stages,
        trouble=trouble,
    )
    log.end(evidence)
    return evidence.report()


async def _search(search: Search) -> str | None:
    """Probe until everything worth it is known; what stopped it, if something did."""
    named = [search.focus, search.index(search.options.good, "good")]
    for index in dict.fromkeys(named):
        if index is not None and (trouble := await try_version(search, index)):
            return trouble
    search.relearn()
    planned = search.log.planned
    budget = _budget(search) if planned is None else planned.budget
    pending = [i for i, v in enumerate(search.axis.versions) if planned and v in planned.versions]
    while True:
        while wanted := pending or _next(search, budget):
            # Written down first: a search that is resumed goes on with the same batch.
            search.log.plan([search.axis.versions[index] for index in wanted], budget)
            if trouble := await _try_all(search, wanted):
                return trouble
            search.relearn()
            budget -= len(wanted)
            pending = []
        changed, trouble = await _confirm(search)
        if trouble or not changed:
            return trouble


def _budget(search: Search) -> int:
    """How many versions may be tried, beside those that were named."""
    size = len(search.axis.versions)
    # Beside one of each minor release, halving where the failure begins and where it ends.
    enough = search.axis.at_hand + 2 * size.bit_length()
    return size if search.options.sweep else search.options.budget or enough


def _next(search: Search, budget: int) -> list[int]:
    """The versions to try next, side by side."""
    size = len(search.axis.versions)
    left = size - len(search.probes)
    # In a sweep none waits for what another says. Not all at once: trouble stops it early.
    at_once = search.bench.jobs * (_SWEPT_AT_ONCE if left <= budget else 1)
    return next_probes(size, search.probes, budget=budget, focus=search.focus, at_once=at_once)


async def _try_all(search: Search, wanted: Sequence[int]) -> str | None:
    troubles = await asyncio.gather(*(try_version(search, index) for index in wanted))
    return next(filter(None, troubles), None)


async def _confirm(search: Search) -> tuple[bool, str | None]:
    """Run what the answer rests on again; whether a version changed its answer, and trouble."""
    before = {index: probe.outcome for index, probe in search.probes.items()}
    finding = search.finding()
    boundaries = filter(None, (finding.regression, finding.fix))
    sides = {index for boundary in boundaries for index in (boundary.before, boundary.after)}
    if trouble := await believe_all(search, sides, search.options.repeat):
        return False, trouble
    # A failure that turned out to come now and then may have been missed before.
    doubtful = {
        index
        for index, probe in search.probes.items()
        if probe.outcome is Outcome.OK and search.tallies[index].runs < search.runs_wanted
    }
    if trouble := await believe_all(search, doubtful, 1):
        return False, trouble
    after = {index: probe.outcome for index, probe in search.probes.items()}
    return before != after, None


async def _stages(search: Search) -> StageStory | None:
    """What the two sides of the boundary made, where each lowered for itself."""
    finding = search.finding()
    boundary = finding.regression or finding.fix
    if boundary is None:
        return None
    sides = []
    for index in (boundary.before, boundary.after):
        plan = await plan_of(search, index)
        sides.append((plan, search.done[index]))
    return await tell_stages(search.bench, sides[0], sides[1])
