"""`triage bisect`: since when, and until when, along the versions of ptxas or of Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from msgspec import structs

from harness.bisect.axes import version_axis
from harness.bisect.ir_difference import StageStory
from harness.bisect.log import BisectLog
from harness.bisect.predicate import check_script, run_script
from harness.bisect.search import Probe, Tally, next_probes
from harness.bisect.stages import tell_stages
from harness.bisect.state import BisectOptions, BisectSearch, tally_of
from harness.bisect.words import BisectReport, ProbeEvidence
from harness.cells.elsewhere import Elsewhere
from harness.cells.places import CompileOptions, record_of, work
from harness.frontends.base import PlannedCell, Selection
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import rank
from harness.store.store import Store
from harness.values.errors import CaptureError, EmptySelectionError, InfrastructureError, UsageError
from harness.values.kernel import ConfigFilter
from harness.values.toolchain import GPU
from harness.values.verdict import VerdictKind

# Probing one version of a bisection: which cell, what it does, and how often to run it.


async def try_version(search: BisectSearch, index: int) -> str | None:
    """Probe one version; the reason where this machine, not the version, is at fault."""
    if index in search.probes:
        return None
    version = search.axis.versions[index]
    name = f"{search.axis.name} {version}"
    search.tell(name, "")
    try:
        trouble = await _probe(search, index, version)
    except CaptureError as error:
        _untestable(search, index, str(error))
        trouble = None
    except InfrastructureError as error:
        trouble = str(error)
    if trouble:
        return f"{name}: {trouble}"
    row, said = search.rows.get(index), search.reasons.get(index)
    search.tell(name, said or (f"{row.verdict}: {row.reason}" if row else ""))
    search.note(index)
    return None


def _untestable(search: BisectSearch, index: int, reason: str) -> None:
    search.reasons[index] = reason
    search.probes[index] = Probe(outcome=VerdictAnswer.UNTESTABLE, verdict=reason)


async def _probe(search: BisectSearch, index: int, version: str) -> str | None:
    """Run the cell as often as it takes to believe what it did; what is wrong with this machine."""
    if search.elsewhere and search.config:
        await _made_elsewhere(search, search.elsewhere, version)
    cells = await search.axis.cells(search.bench, version)
    async with search.choosing:
        cell = await _chosen(search, cells)
    if cell is None:
        _untestable(search, index, "it does not make this config")
        return None
    search.plans[index] = cell
    is_focus = index == search.focus
    probe, trouble = await _run(search, index, again=False)
    if trouble:
        return trouble
    search.probes[index], search.tallies[index] = probe, tally_of(probe)
    if is_focus:
        # What is followed is known from here on.
        search.relearn()
    outcome = search.probes[index].outcome
    if outcome is VerdictAnswer.OK or (is_focus and outcome is VerdictAnswer.SAME):
        return await _believe(search, index, search.options.repeat if is_focus else 1)
    return None


async def _made_elsewhere(search: BisectSearch, elsewhere: Elsewhere, version: str) -> None:
    """Have the one config that is followed compiled; what does not come back is made here."""
    assert search.config is not None
    selection = await asyncio.to_thread(search.axis.at, version)
    # One that has no parameters has no filter.
    config = ConfigFilter.parse(search.config.label if search.config.items else "")
    for said in await elsewhere.make(search.bench, replace(selection, config=config)):
        search.tell(f"{search.axis.name} {version}", said)


async def _believe(search: BisectSearch, index: int, least: int) -> str | None:
    """Run a version until it has failed, or has passed often enough; one that fails, `least`."""
    while True:
        tally, outcome = search.tallies[index], search.probes[index].outcome
        wanted = least if outcome is VerdictAnswer.SAME else max(least, search.runs_wanted)
        if not outcome.moves_a_bound or tally.runs >= wanted:
            return None
        more = (_run(search, index, again=True) for _ in range(wanted - tally.runs))
        for probe, trouble in await asyncio.gather(*more):
            if trouble:
                return trouble
            search.tallies[index] += tally_of(probe)
            if search.probes[index].outcome is VerdictAnswer.OK:
                search.probes[index] = probe


async def _run(search: BisectSearch, index: int, *, again: bool) -> tuple[Probe, str | None]:
    bench, plan = search.bench, await plan_of(search, index)
    if again:
        bench = search.bench.apart(limits=None, uncached=True)
        if search.axis.frozen and index in search.done:
            bench.made.update(search.done[index].evidence.values())
            bench.made.discard(search.done[index].evidence.get("assemble", ""))
    done = await search.evaluate(bench, plan)
    if again:
        search.bench.cpu_seconds += bench.cpu_seconds
    if done.row.verdict == VerdictKind.INFRA.value:
        return Probe(outcome=VerdictAnswer.INFRA), done.row.reason
    probe = search.probe_of(done.row)
    if search.options.script and probe.outcome is not VerdictAnswer.UNTESTABLE:
        probe = await run_script(search.bench, search.options.script, done.row, plan.ptxas)
        if probe.outcome is VerdictAnswer.INFRA:
            return probe, probe.verdict
    tally = search.tallies.get(index, Tally()) + tally_of(probe)
    stands = search.probes.get(index)
    if stands is None or stands.outcome is VerdictAnswer.OK or probe.outcome is VerdictAnswer.SAME:
        search.done[index], search.rows[index] = done, done.row
    if tally.is_flaky:
        search.rows[index] = replace(search.rows[index], flaky=True)
    record = record_of(structs.replace(search.done[index], row=search.rows[index]))
    search.bench.store.put_result(search.run, record)
    return probe, None


async def plan_of(search: BisectSearch, index: int) -> PlannedCell:
    """The cell at a version; one that a log knows has none yet."""
    if index not in search.plans:
        cells = await search.axis.cells(search.bench, search.axis.versions[index])
        found = next((cell for cell in cells if cell.cell.config == search.config), None)
        if found is None:
            label = search.config.label if search.config else ""
            raise UsageError(
                f"{search.axis.name} {search.axis.versions[index]} no longer makes the config "
                f"{label}, which the log follows; begin without --resume"
            )
        search.plans[index] = found
        search.done[index] = await search.evaluate(search.bench, search.plans[index])
    return search.plans[index]


async def _chosen(search: BisectSearch, cells: Sequence[PlannedCell]) -> PlannedCell | None:
    """The cell that is followed: the first that fails where the search begins."""
    if not cells and search.config is None:
        raise EmptySelectionError("--config matches none of the configs")
    if search.config is None and search.focus is None and len(cells) > 1:
        raise UsageError(
            f"{len(cells)} configs match; name one by --config, or a version that fails by --bad"
        )
    if search.config is None:
        done = await asyncio.gather(*(search.evaluate(search.bench, cell) for cell in cells))
        rows = [each.row for each in done]
        ranks = [rank(row, search.followed) for row in rows]
        cell = cells[ranks.index(min(ranks))]
        search.config = cell.cell.config
        search.others = tuple(c.cell.config.label for c in cells if c is not cell)
        return cell
    return next((cell for cell in cells if cell.cell.config == search.config), None)


async def believe_all(search: BisectSearch, indices: Collection[int], least: int) -> str | None:
    """Run versions side by side, each often enough; what is wrong with this machine."""
    troubles = await asyncio.gather(*(_believe(search, i, least) for i in sorted(indices)))
    for index in sorted(indices):
        search.note(index)
    return next(filter(None, troubles), None)


_SWEPT_AT_ONCE = 4


async def bisect_versions(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: BisectOptions,
    tell: Callable[[str, str], None],
    log: BisectLog,
    elsewhere: Elsewhere | None = None,
) -> BisectReport:
    """Find where a failure began and ended; `tell` is as in `Search`.

    What `log` holds already is taken as it is, and everything new is added to it. Versions are
    compiled `elsewhere`, but for the first one and what is run again to believe it.

    Raises:
        UsageError: a version that was named does not exist, the axis does not apply, or the
            command of `script` cannot be run.
        EmptySelectionError: no config matches.
        TriageError: nothing could be tried at all.
    """
    if options.run:
        from harness.run.executors import executed_selection, executor_of  # noqa: PLC0415 - numpy

        selection = executed_selection(selection, options.on)
    async with work(store, how) as (bench, run_id):
        axis = version_axis(selection, options.axis, options.package_version)
        search = BisectSearch.begin(bench, run_id, axis, options, log, tell)
        search.elsewhere = elsewhere
        if options.run:
            is_on_gpu = options.on == GPU

            def hear(text: str) -> None:
                tell(*(("the GPU", text) if is_on_gpu else (text, "")))

            search.evaluate = executor_of(
                bench, selection, hear, options.on, runner=options.runner, command=how.command
            ).evaluate
        if options.script:
            await check_script(search.bench, options.script)
        trouble = await _search(search)
        stages = None
        if not trouble and not axis.frozen:
            stages = await _stages(search)
    evidence = ProbeEvidence(
        axis=axis.name,
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
        has_all=axis.has_all,
    )
    log.end(evidence)
    return evidence.report()


async def _search(search: BisectSearch) -> str | None:
    named = [search.focus, search.index(search.options.good, "good")]
    for index in dict.fromkeys(named):
        if index is not None and (trouble := await try_version(search, index)):
            return trouble
    search.relearn()
    planned = search.log.planned
    size = len(search.axis.versions)
    # Beside one of each minor release, halving where the failure begins and where it ends.
    enough = search.axis.at_hand + 2 * size.bit_length()
    budget = size if search.options.sweep else search.options.budget or enough
    budget = planned.budget if planned else budget
    pending = [i for i, v in enumerate(search.axis.versions) if planned and v in planned.versions]
    while True:
        while wanted := pending or _next(search, budget):
            # Written down first: a search that is resumed goes on with the same batch.
            search.log.plan([search.axis.versions[index] for index in wanted], budget)
            troubles = await asyncio.gather(*(try_version(search, index) for index in wanted))
            if trouble := next(filter(None, troubles), None):
                return trouble
            search.relearn()
            budget -= len(wanted)
            pending = []
        changed, trouble = await _confirm(search)
        if trouble or not changed:
            return trouble


def _next(search: BisectSearch, budget: int) -> list[int]:
    size = len(search.axis.versions)
    left = size - len(search.probes)
    # In a sweep none waits for what another says. Not all at once: trouble stops it early.
    at_once = search.at_once * (_SWEPT_AT_ONCE if left <= budget else 1)
    return next_probes(size, search.probes, budget=budget, focus=search.focus, at_once=at_once)


async def _confirm(search: BisectSearch) -> tuple[bool, str | None]:
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
        if probe.outcome is VerdictAnswer.OK and search.tallies[index].runs < search.runs_wanted
    }
    if trouble := await believe_all(search, doubtful, 1):
        return False, trouble
    after = {index: probe.outcome for index, probe in search.probes.items()}
    return before != after, None


async def _stages(search: BisectSearch) -> StageStory | None:
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
