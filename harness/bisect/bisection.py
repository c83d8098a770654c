"""`triage bisect`: since when, and until when, along the versions of ptxas or of Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from harness.bisect.axes import version_axis
from harness.bisect.ir_difference import StageStory
from harness.bisect.log import BisectLog
from harness.bisect.predicate import check_script
from harness.bisect.probing import believe_all, plan_of, try_version
from harness.bisect.report import BisectReport, ProbeEvidence
from harness.bisect.search import next_probes
from harness.bisect.stages import tell_stages
from harness.bisect.state import BisectOptions, BisectSearch
from harness.cells.elsewhere import Elsewhere
from harness.cells.evaluate import Evaluate
from harness.cells.places import CompileOptions, open_bench
from harness.frontends.base import Selection
from harness.frontends.bench.bench import Workbench
from harness.io.processes.hub import Hub
from harness.judging.answers import VerdictAnswer
from harness.store.store import Store
from harness.values.toolchain import GPU

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
    is_on_gpu = options.on == GPU
    if options.run and not (is_on_gpu and selection.repro.ptx):
        from harness.run.same_inputs import SameInputs  # noqa: PLC0415 - the emulator: 0.2 s

        selection = SameInputs.small(selection)
    run_id = store.begin_run(how.command)
    async with Hub() as hub:
        axis = version_axis(selection, options.axis, options.package_version)
        bench = open_bench(hub, store, how)
        search = BisectSearch.begin(bench, run_id, axis, options, log, tell)
        search.elsewhere = elsewhere
        if is_on_gpu:
            search.evaluate = _launched(bench, selection, options, how, tell)
        elif options.run:
            search.evaluate = _executed(bench, selection, tell)
        if options.script:
            await check_script(search.bench, options.script)
        trouble = await _search(search)
        stages = None
        if not trouble and not axis.frozen:
            stages = await _stages(search)
    store.finish_run(run_id)
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


def _executed(bench: Workbench, selection: Selection, tell: Callable[[str, str], None]) -> Evaluate:
    """Cells are executed on the same inputs."""
    from harness.run.same_inputs import SameInputs  # noqa: PLC0415 - the emulator: 0.2 s

    return SameInputs(bench=bench, selection=selection, tell=lambda text: tell(text, "")).evaluate


def _launched(
    bench: Workbench,
    selection: Selection,
    options: BisectOptions,
    how: CompileOptions,
    tell: Callable[[str, str], None],
) -> Evaluate:
    """Cubins are launched on a GPU, many in one trip."""
    from harness.run.gpu.evaluating import OnGpu  # noqa: PLC0415 - the emulator: 0.2 s
    from harness.run.gpu.places import place_of  # noqa: PLC0415
    from harness.run.raw_ptx import inputs_of  # noqa: PLC0415

    return OnGpu(
        bench=bench,
        selection=selection,
        inputs=inputs_of(selection.repro),
        destination=place_of(options.runner),
        tell=lambda text: tell("the GPU", text),
        command=how.command,
    ).evaluate


async def _search(search: BisectSearch) -> str | None:
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


def _budget(search: BisectSearch) -> int:
    """How many versions may be tried, beside those that were named."""
    size = len(search.axis.versions)
    # Beside one of each minor release, halving where the failure begins and where it ends.
    enough = search.axis.at_hand + 2 * size.bit_length()
    return size if search.options.sweep else search.options.budget or enough


def _next(search: BisectSearch, budget: int) -> list[int]:
    """The versions to try next, side by side."""
    size = len(search.axis.versions)
    left = size - len(search.probes)
    # In a sweep none waits for what another says. Not all at once: trouble stops it early.
    at_once = search.at_once * (_SWEPT_AT_ONCE if left <= budget else 1)
    return next_probes(size, search.probes, budget=budget, focus=search.focus, at_once=at_once)


async def _try_all(search: BisectSearch, wanted: Sequence[int]) -> str | None:
    troubles = await asyncio.gather(*(try_version(search, index) for index in wanted))
    return next(filter(None, troubles), None)


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
