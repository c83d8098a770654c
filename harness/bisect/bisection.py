"""`triage bisect`: since when, and until when, along the versions of ptxas or of Triton."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from msgspec import structs

from harness.bisect.axes import Axis, version_axis
from harness.bisect.ir_difference import StageStory, compare_stages, first_trap
from harness.bisect.log import BisectLog, VersionAnswer
from harness.bisect.search import Finding, Probe, Tally, conclude, next_probes, runs_to_trust
from harness.bisect.words import BisectReport, ProbeEvidence
from harness.cells.elsewhere import Elsewhere
from harness.cells.evaluate import Evaluate, Evaluated, evaluate
from harness.cells.places import CompileOptions, record_of, work
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.io.files.writing import scratch_disk
from harness.io.packages.versions import parse_version
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition
from harness.judging.followed import Followed, follow, gravest, is_followable, rank, read_while
from harness.store.artifacts import UnusableArtifactError
from harness.store.store import Store
from harness.values.errors import CaptureError, EmptySelectionError, InfrastructureError, UsageError
from harness.values.kernel import Config, ConfigFilter
from harness.values.outcome import Lowering
from harness.values.row import Row
from harness.values.toolchain import GPU, PTXAS, Assembler
from harness.values.verdict import Stage, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """What to look for: `bad` is a version that fails, `good` one that works.

    `signature` names the failure, `condition` (as of `--while`) what is followed in its place.
    `budget` is how many versions may be tried beside those, by default as many as are installed
    plus one of each minor release plus what two searches by halving take; with `sweep` every one
    is. `repeat` is how often both sides of a boundary are run, at least. `script` is the user's own
    predicate, see `harness.bisect.bisection`. With `run` the PTX is executed, and what comes out is
    followed; with `on` gpu the cubins are launched, by the command `runner` where there is one.
    `package_version` names the releases that lie on the axis of releases, all by default.
    """

    axis: str = "ptxas"
    package_version: str | None = None
    good: str | None = None
    bad: str | None = None
    signature: str | None = None
    condition: str | None = None
    sweep: bool = False
    budget: int | None = None
    repeat: int = 5
    script: str | None = None
    run: bool = False
    on: str | None = None
    runner: str | None = None


@dataclass(slots=True, kw_only=True)
class BisectSearch:
    """What is known so far: probes by index, how often each was run, and the cells behind them.

    `tell` hears each version as it is started, with no word, and then what it did. `followed` is
    derived from the rows, see `relearn`.
    """

    bench: Workbench
    run: int
    axis: Axis
    options: BisectOptions
    log: BisectLog
    tell: Callable[[str, str], None]
    condition: Condition | None
    followed: Followed
    config: Config | None = None
    others: tuple[str, ...] = ()
    probes: dict[int, Probe] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    tallies: dict[int, Tally] = field(default_factory=dict)
    done: dict[int, Evaluated] = field(default_factory=dict)
    plans: dict[int, PlannedCell] = field(default_factory=dict)
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)
    evaluate: Evaluate = evaluate
    elsewhere: Elsewhere | None = None

    @property
    def at_once(self) -> int:
        """How many versions can be tried side by side."""
        return self.elsewhere.at_once if self.elsewhere else self.bench.jobs

    @classmethod
    def begin(
        cls,
        bench: Workbench,
        run: int,
        axis: Axis,
        options: BisectOptions,
        log: BisectLog,
        tell: Callable[[str, str], None],
    ) -> BisectSearch:
        """A search that goes on from what the log knows.

        A version that the index no longer has is left out.

        Raises:
            UsageError: the condition is malformed.
        """
        condition = read_while(options.condition)
        search = cls(
            bench=bench,
            run=run,
            axis=axis,
            options=options,
            log=log,
            tell=tell,
            condition=condition,
            followed=Followed(signature=options.signature, condition=condition),
        )
        known = log.known
        search.config, search.others = known.config, known.others
        for index, version in enumerate(axis.versions):
            if version not in known.probes:
                continue
            search.probes[index] = known.probes[version]
            search.tallies[index] = known.tallies.get(version, Tally())
            if version in known.rows:
                search.rows[index] = known.rows[version]
            if version in known.reasons:
                search.reasons[index] = known.reasons[version]
        search.relearn()
        return search

    def index(self, version: str | None, option: str) -> int | None:
        """Where a version that the user named lies on the axis.

        Raises:
            UsageError: it is not there.
        """
        if version is None:
            return None
        wanted = {str(parse_version(version)), version}
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
    def is_named(self) -> bool:
        """Whether the user named the version at which the failure is looked for."""
        return self.focus is not None and (self.options.bad is not None or self.axis.is_named)

    @property
    def meant(self) -> int | None:
        """The version whose failure is asked about: the one that was named, if it shows it."""
        return self.focus if self.is_named else None

    @property
    def runs_wanted(self) -> int:
        """How often a version must pass before it counts as one that works.

        By the failing version that fails least often, among those that were run often enough.
        """
        failing = (i for i, probe in self.probes.items() if probe.outcome is VerdictAnswer.SAME)
        tallies = (self.tallies.get(index, Tally()) for index in failing)
        known = (runs_to_trust(tally) for tally in tallies if tally.runs >= self.options.repeat)
        return max(known, default=1)

    def finding(self) -> Finding:
        """What the probes say."""
        return conclude(len(self.axis.versions), self.probes, focus=self.meant)

    def probe_of(self, row: Row) -> Probe:
        """What a row says of what is followed."""
        outcome = self.followed.of(row)
        return Probe(outcome=outcome, verdict=row.verdict, signature=row.signature)

    def relearn(self) -> None:
        """Derive what is followed from all rows, and judge every one of them by it.

        A function of what the user asks and of the rows alone: a search that was interrupted and
        resumed follows the same. How often a version was run stays known while its answer does.
        """
        if self.options.script:
            return
        lead = self._lead()
        if lead is not None:
            others = [row for _, row in sorted(self.rows.items()) if row is not lead]
            self.followed = follow(lead, condition=self.condition, others=others)
        for index, row in self.rows.items():
            before, now = self.probes.get(index), self.probe_of(row)
            if before is not None and before != now:
                self.probes[index], self.tallies[index] = now, tally_of(now)

    def _lead(self) -> Row | None:
        """The row whose failure is meant; None where nothing is seen of it yet.

        The failure that the user names; else that of the version that was named, or where it was
        seen; else the gravest of all, in the newest version that shows it.
        """
        rows = [row for _, row in sorted(self.rows.items())]
        if self.condition is not None or self.options.signature is not None:
            asked = Followed(signature=self.options.signature, condition=self.condition)
            return next((row for row in rows[::-1] if asked.of(row) is VerdictAnswer.SAME), None)
        seen = self.rows.get(self.focus) if self.focus is not None else None
        if seen is not None and seen.signature is not None:
            is_outright = is_followable(seen) and not VerdictKind(seen.verdict).compiles
            if self.is_named or is_outright:
                return seen
        return gravest(rows) or (seen if seen is not None and seen.signature else None)

    def note(self, index: int) -> None:
        """Write down what is known of a version."""
        answer = VersionAnswer(
            version=self.axis.versions[index],
            probe=self.probes[index],
            tally=self.tallies.get(index, Tally()),
            row=self.rows.get(index),
            reason=self.reasons.get(index, ""),
            config=self.config.as_dict() if self.config else None,
            signature=self.followed.signature,
            others=self.others,
        )
        self.log.probe(answer)


def tally_of(probe: Probe) -> Tally:
    """One run with this answer."""
    return Tally(failures=int(probe.outcome is VerdictAnswer.SAME), runs=1)


_SKIP, _ABORT = 125, 128
_READ = 4096
# What a shell ends with where a command is not executable, or not found.
_CANNOT_RUN = (126, 127)


async def check_script(bench: Workbench, script: str) -> None:
    """Refuse a command that the shell cannot read: it would end every version with an error.

    Raises:
        UsageError: it is malformed.
        InfrastructureError: the shell cannot be started.
    """
    folder = bench.hub.new_folder("script")
    words = ["/bin/sh", "-n", "-c", script]
    async with bench.slot():
        end = await bench.hub.execute(words, folder=folder, limits=bench.limits)
    complaint = _last_line(folder / "stderr")
    bench.hub.drop_folder(folder)
    if not end.ok:
        raise UsageError(f"--script: the shell cannot read it: {complaint or end.words}")


def _last_line(file: Path) -> str:
    with scratch_disk(), file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _READ))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


async def run_script(bench: Workbench, script: str, row: Row, ptxas: Assembler) -> Probe:
    """Ask the user's command, run by the shell in the user's folder, what this cell is.

    It gets `TRIAGE_ROW` (a file: the row as JSON), `TRIAGE_PTX` and `TRIAGE_CUBIN` (files; unset
    where there is none) and `TRIAGE_PTXAS` (the executable); of another assembler than ptxas,
    `TRIAGE_PROGRAM` and `TRIAGE_ASSEMBLER`. Exit code 0 means that it works,
    125 that it cannot be tested; 126 and 127 (it cannot be run), 128 and above end the search; any
    other that it fails. Ended at the time limit, it cannot be tested.

    Raises:
        UsageError: the command cannot be run.
        InfrastructureError: the shell cannot be started.
        UnusableArtifactError: what it would be shown is damaged.
    """
    folder = bench.hub.new_folder("script")
    tool = "TRIAGE_PTXAS" if ptxas.kind == PTXAS else "TRIAGE_ASSEMBLER"
    env = {**os.environ, "TRIAGE_ROW": str(folder / "row.json"), tool: str(ptxas.path)}
    files = {"ptx": row.ptx_sha256, "program": row.program_sha256, "cubin": row.cubin_sha256}
    with scratch_disk():
        (folder / "row.json").write_bytes(msgspec.json.encode(row))
        for name, sha256 in files.items():
            if sha256:
                (folder / f"kernel.{name}").write_bytes(bench.store.artifacts.get(sha256))
                env[f"TRIAGE_{name.upper()}"] = str(folder / f"kernel.{name}")
    # In a subshell: an `exec` or `exit` of the user's ends that only.
    # On lines of its own: a comment at its end is not a comment on the parenthesis.
    words = ["/bin/sh", "-c", f"cd {shlex.quote(str(Path.cwd()))} && (\n{script}\n)"]
    async with bench.slot():
        end = await bench.hub.execute(words, folder=folder, limits=bench.limits, env=env)
    complaint = _last_line(folder / "stderr")
    bench.hub.drop_folder(folder)
    said = f"script: {end.words}"
    if end.killed_by_us or end.exit_code == _SKIP:
        return Probe(outcome=VerdictAnswer.UNTESTABLE, verdict=said)
    if end.exit_code in _CANNOT_RUN:
        raise UsageError(f"the command of --script cannot be run: {complaint or end.words}")
    if end.exit_code is None or end.exit_code >= _ABORT:
        return Probe(outcome=VerdictAnswer.INFRA, verdict=said)
    return Probe(outcome=VerdictAnswer.SAME if end.exit_code else VerdictAnswer.OK, verdict=said)


async def tell_stages(
    bench: Workbench, before: tuple[PlannedCell, Evaluated], after: tuple[PlannedCell, Evaluated]
) -> StageStory:
    """Compare the two sides of a boundary, stage by stage; what cannot be read is left out.

    Where Triton itself does not name the pass that fails, the failing side is lowered once more,
    with a dump of every pass.

    Raises:
        InfrastructureError: that could not be done.
    """
    end = front_end(after[0].compiler.kind)
    texts = [_texts(bench, done, end.stages) for _, done in (before, after)]
    # Where the failure came, it is the later side's; where it went, the earlier one's.
    failing = 0 if before[1].row.signature else 1
    plan, done = (before, after)[failing]
    trap_stage = first_trap(texts[failing], texts[1 - failing])
    return StageStory(
        stages=tuple(compare_stages(texts[0], texts[1], done.row.reason)),
        failing_pass=await _failing_pass(bench, plan, done, traps=trap_stage is not None),
        trap_stage=trap_stage,
        llvm=(end.built_with(before[0].compiler), end.built_with(after[0].compiler)),
        ptxas=(_bundled(before[0]), _bundled(after[0])),
    )


async def _failing_pass(
    bench: Workbench, plan: PlannedCell, done: Evaluated, *, traps: bool
) -> str | None:
    if done.signature and done.signature.failing_pass:
        return done.signature.failing_pass
    died = done.row.verdict == VerdictKind.COMPILER_CRASH.value and done.row.stage != "cubin"
    if not (traps or died) or plan.launch is None or plan.record is None:
        return None
    # The dump is MLIR's. Where LLVM died later, its last pass succeeded.
    if not traps and (done.row.stage == Stage.PTX.value or "LLVM ERROR" in done.row.reason):
        return None
    return await front_end(plan.compiler.kind).failing_pass(
        bench, plan.launch, plan.record, ptxas=plan.bundled or plan.ptxas, traps=traps
    )


def _texts(bench: Workbench, done: Evaluated, stages: Sequence[str]) -> dict[str, str]:
    key = done.evidence.get("lower")
    kept = bench.read("lower", key, Lowering) if key else None
    texts = {}
    for stage in stages:
        sha256 = kept.artifacts.get(stage) if kept else None
        if sha256 is None:
            continue
        try:
            texts[stage] = bench.store.artifacts.get(sha256).decode(errors="replace")
        except UnusableArtifactError:
            continue
    return texts


def _bundled(cell: PlannedCell) -> str | None:
    return cell.bundled.version if cell.bundled else None


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
    finding = search.finding()
    boundary = finding.regression or finding.fix
    if boundary is None:
        return None
    sides = []
    for index in (boundary.before, boundary.after):
        plan = await plan_of(search, index)
        sides.append((plan, search.done[index]))
    return await tell_stages(search.bench, sides[0], sides[1])
