"""`triage bisect`: since when, and until when, along the versions of ptxas or of Triton."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import structs

from harness.bisect.axes import Axis, version_axis
from harness.bisect.bisect_log import Answers, BisectLog, BisectOptions, in_order
from harness.bisect.bisect_words import BisectReport
from harness.bisect.ir_difference import StageStory, compare_stages, first_trap
from harness.bisect.search import Finding, Probe, Tally, next_probes, runs_to_trust
from harness.cells.evaluate import Evaluate, Evaluated, evaluate
from harness.cells.places import CompileOptions, Elsewhere, record_of, work
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import front_end
from harness.io.files.writing import scratch_disk
from harness.io.packages.versions import exact_of_distribution
from harness.io.processes.tasks import in_parallel
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import (
    FollowedFailure,
    follow,
    gravest,
    is_followable,
    rank,
    read_while,
)
from harness.store.artifacts import UnusableArtifactError
from harness.store.store import Store
from harness.values.errors import CaptureError, EmptySelectionError, InfrastructureError, UsageError
from harness.values.kernel import Config, ConfigFilter
from harness.values.outcome import Lowering
from harness.values.row import Row
from harness.values.toolchain import (
    EMULATOR,
    EXECUTOR_NAMES,
    PTXAS,
    TRITON,
    Assembler,
    assembler_name,
    takes_cubins,
)
from harness.values.verdict import Stage, VerdictKind


@dataclass(slots=True, kw_only=True)
class BisectSearch:
    """One search, and the cells behind what its log knows, by version.

    It goes on from what the log knows; a version that the index no longer has is left out. `tell`
    hears each version as it is started, with no word, and then what it did. `followed` is derived
    from the rows, see `relearn`.

    Raises:
        UsageError: the condition is malformed.
    """

    bench: Workbench
    run: int
    axis: Axis
    options: BisectOptions
    log: BisectLog
    tell: Callable[[str, str], None]
    evaluate: Evaluate = evaluate
    elsewhere: Elsewhere | None = None
    question: FollowedFailure = field(init=False)
    followed: FollowedFailure = field(init=False)
    results: dict[str, Evaluated] = field(default_factory=dict)
    plans: dict[str, PlannedCell] = field(default_factory=dict)
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        condition = read_while(self.options.condition)
        self.question = self.followed = FollowedFailure(
            signature=self.options.signature, condition=condition
        )
        self.answers.leave_out(self.axis.versions)
        self.relearn()

    @property
    def answers(self) -> Answers:
        """What the versions said."""
        return self.log.answers

    @property
    def at_once(self) -> int:
        """How many versions can be tried side by side."""
        return self.elsewhere.at_once if self.elsewhere else self.bench.jobs

    def named(self, version: str | None, option: str) -> str | None:
        """A version that the user named, as the axis has it.

        Raises:
            UsageError: it is not there.
        """
        if version is None:
            return None
        names = (str(exact_of_distribution(version)), version)
        match = next((point for point in self.axis.versions if point in names), None)
        if match is None:
            raise UsageError(f"--{option} {version}: there is no such {self.axis.name}")
        return match

    @property
    def focus(self) -> str | None:
        """The version at which the failure is looked for."""
        if self.options.bad:
            return self.named(self.options.bad, "bad")
        return self.axis.origin if self.axis.origin in self.axis.versions else None

    @property
    def is_named(self) -> bool:
        """Whether the user named the version at which the failure is looked for."""
        return self.focus is not None and (self.options.bad is not None or self.axis.is_named)

    @property
    def named_focus(self) -> str | None:
        """The version whose failure is asked about: the one that was named, if it shows it."""
        return self.focus if self.is_named else None

    @property
    def runs_to_pass(self) -> int:
        """How often a version must pass before it counts as one that works.

        By the failing version that fails least often, among those that were run often enough.
        """
        failing = (
            self.answers.tallies[version]
            for version, probe in self.answers.probes.items()
            if probe.outcome is VerdictAnswer.SAME
        )
        runs = (runs_to_trust(tally) for tally in failing if tally.runs >= self.options.repeat)
        return max(runs, default=1)

    def finding(self) -> Finding:
        """What the probes say."""
        return self.answers.finding(self.axis.versions, self.named_focus)

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
        rows = in_order(self.axis.versions, self.answers.rows)
        lead = self._lead(list(rows.values()))
        if lead is not None:
            others = [row for row in rows.values() if row is not lead]
            self.followed = follow(lead, condition=self.question.condition, others=others)
        for version, row in rows.items():
            before, now = self.answers.probes.get(version), self.probe_of(row)
            if before is not None and before != now:
                self.answers.probes[version], self.answers.tallies[version] = now, tally_of(now)
                self.note(version)

    def _lead(self, rows: Sequence[Row]) -> Row | None:
        """The row whose failure is meant; None where nothing is seen of it yet.

        The failure that the user names; else that of the version that was named, or where it was
        seen; else the gravest of all, in the newest version that shows it.
        """
        question = self.question
        if question.condition is not None or question.signature is not None:
            return next((row for row in rows[::-1] if question.of(row) is VerdictAnswer.SAME), None)
        own = self.answers.rows.get(self.focus) if self.focus is not None else None
        if own is not None and own.signature is not None:
            is_outright = is_followable(own) and not own.verdict.compiles
            if self.is_named or is_outright:
                return own
        return gravest(rows) or (own if own is not None and own.signature else None)

    @property
    def where(self) -> str:
        """The config and the launch that are followed, for people."""
        cell = self.answers.cell
        return f"{cell.config.label} of launch {cell.launch}" if cell else "that was asked for"

    def counterpart(self, cells: Sequence[PlannedCell]) -> PlannedCell | None:
        """The cell that is followed, among those of another version; None where it has none."""
        followed = self.answers.cell
        assert followed is not None, "a cell is chosen before another version is asked"
        place = self.axis.place(followed)
        return next((cell for cell in cells if self.axis.place(cell.cell) == place), None)

    def note(self, version: str) -> None:
        """Write down what is known of a version."""
        self.log.note(version, self.followed.signature)


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
    words = ["/bin/sh", "-n", "-c", script]
    with bench.hub.folder("script") as folder:
        async with bench.slot():
            process = await bench.hub.execute(words, folder=folder, limits=bench.limits)
        complaint = _last_line(folder / "stderr")
    if not process.ok:
        raise UsageError(f"--script: the shell cannot read it: {complaint or process.words}")


def _last_line(file: Path) -> str:
    with scratch_disk(), file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _READ))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


async def run_script(bench: Workbench, script: str, row: Row, assembler: Assembler) -> Probe:
    """Ask the user's command, run by the shell in the user's folder, what this cell is.

    It gets `TRIAGE_ROW` (a file: the row as JSON), `TRIAGE_PTX` and `TRIAGE_CUBIN` (files; unset
    where there is none) and `TRIAGE_PTXAS` (the executable); of another assembler than ptxas,
    `TRIAGE_PROGRAM` and `TRIAGE_ASSEMBLER`. Exit code 0 means that it works,
    125 that it cannot be tested; 126 and 127 (it cannot be run), 128 and above end the search; any
    other that it fails. Ended at the time limit, it cannot be tested.

    Raises:
        UsageError: the command cannot be run.
        InfrastructureError: the shell cannot be started, or the command ends the search.
        UnusableArtifactError: what it would be shown is damaged.
    """
    folder = bench.hub.new_folder("script")
    tool = "TRIAGE_PTXAS" if assembler.kind == PTXAS else "TRIAGE_ASSEMBLER"
    env = {**os.environ, "TRIAGE_ROW": str(folder / "row.json"), tool: str(assembler.path)}
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
        process = await bench.hub.execute(words, folder=folder, limits=bench.limits, env=env)
    complaint = _last_line(folder / "stderr")
    bench.hub.drop_folder(folder)
    code, verdict = process.exit_code, f"script: {process.words}"
    if process.killed_by_us or code == _SKIP:
        return Probe(outcome=VerdictAnswer.UNTESTABLE, verdict=verdict)
    if code in _CANNOT_RUN:
        raise UsageError(f"the command of --script cannot be run: {complaint or process.words}")
    if code is None or code >= _ABORT:
        raise InfrastructureError(verdict)
    return Probe(outcome=VerdictAnswer.SAME if code else VerdictAnswer.OK, verdict=verdict)


async def tell_stages(
    bench: Workbench, before: tuple[PlannedCell, Evaluated], after: tuple[PlannedCell, Evaluated]
) -> StageStory:
    """Compare the two sides of a boundary, stage by stage; what cannot be read is left out.

    Where the compiler itself does not name the pass that fails, the failing side is lowered once
    more, with a dump of every pass.

    Raises:
        InfrastructureError: that could not be done.
    """
    compiler = front_end(after[0].compiler.kind)
    texts = [_texts(bench, result, compiler.stages) for _, result in (before, after)]
    # Where the failure came, it is the later side's; where it went, the earlier one's.
    failing = 0 if before[1].row.signature else 1
    plan, result = (before, after)[failing]
    trap_stage = first_trap(texts[failing], texts[1 - failing])
    bundled = [cell.bundled.version if cell.bundled else None for cell, _ in (before, after)]
    return StageStory(
        stages=tuple(compare_stages(texts[0], texts[1], result.row.reason)),
        failing_pass=await _failing_pass(bench, plan, result, traps=trap_stage is not None),
        trap_stage=trap_stage,
        llvm=(compiler.built_with(before[0].compiler), compiler.built_with(after[0].compiler)),
        ptxas=(bundled[0], bundled[1]),
    )


async def _failing_pass(
    bench: Workbench, plan: PlannedCell, result: Evaluated, *, traps: bool
) -> str | None:
    if result.signature and result.signature.failing_pass:
        return result.signature.failing_pass
    row = result.row
    died = row.verdict is VerdictKind.COMPILER_CRASH and row.stage != "cubin"
    if not (traps or died) or plan.launch is None or plan.record is None:
        return None
    # The dump is MLIR's. Where LLVM died later, its last pass succeeded.
    if not traps and (row.stage == Stage.PTX.value or "LLVM ERROR" in row.reason):
        return None
    return await front_end(plan.compiler.kind).failing_pass(
        bench, plan.launch, plan.record, ptxas=plan.bundled or plan.ptxas, traps=traps
    )


def _texts(bench: Workbench, result: Evaluated, stages: Sequence[str]) -> dict[str, str]:
    key = result.evidence.get("lower")
    lowering = bench.read("lower", key, Lowering) if key else None
    texts = {}
    for stage in stages:
        sha256 = lowering.artifacts.get(stage) if lowering else None
        if sha256 is None:
            continue
        with suppress(UnusableArtifactError):
            texts[stage] = bench.store.artifacts.get(sha256).decode(errors="replace")
    return texts


# Probing one version of a bisection: which cell, what it does, and how often to run it.


async def try_version(search: BisectSearch, version: str) -> str | None:
    """Probe one version; the reason where this machine, not the version, is at fault."""
    if version in search.answers.probes:
        return None
    name = f"{search.axis.name} {version}"
    search.tell(name, "")
    try:
        await _probe(search, version)
    except CaptureError as error:
        _untestable(search, version, str(error))
    except InfrastructureError as error:
        return f"{name}: {error}"
    row, reason = search.answers.rows.get(version), search.answers.reasons.get(version)
    search.tell(name, reason or (f"{row.verdict}: {row.reason}" if row else ""))
    search.note(version)
    return None


def _untestable(search: BisectSearch, version: str, reason: str) -> None:
    search.answers.reasons[version] = reason
    search.answers.probes[version] = Probe(outcome=VerdictAnswer.UNTESTABLE, verdict=reason)


async def _probe(search: BisectSearch, version: str) -> None:
    answers = search.answers
    if search.elsewhere and answers.cell:
        await _compile_elsewhere(search, search.elsewhere, version, answers.cell.config)
    cells = await search.axis.cells(search.bench, version)
    async with search.choosing:
        cell = await _chosen(search, cells)
    if cell is None:
        _untestable(search, version, "it does not make this config")
        return
    search.plans[version] = cell
    is_focus = version == search.focus
    probe = await _run(search, version, again=False)
    answers.probes[version], answers.tallies[version] = probe, tally_of(probe)
    if is_focus:
        # What is followed is known from here on.
        search.relearn()
    outcome = answers.probes[version].outcome
    if outcome is VerdictAnswer.OK or (is_focus and outcome is VerdictAnswer.SAME):
        await _believe(search, version, search.options.repeat if is_focus else 1)


async def _compile_elsewhere(
    search: BisectSearch, elsewhere: Elsewhere, version: str, config: Config
) -> None:
    selection = await asyncio.to_thread(search.axis.at, version)
    # One that has no parameters has no filter.
    only = ConfigFilter.parse(config.label if config.items else "")
    for failure in await elsewhere.make(search.bench, structs.replace(selection, config=only)):
        search.tell(f"{search.axis.name} {version}", failure)


async def _believe(search: BisectSearch, version: str, least: int) -> None:
    """Run a version until it has failed, or has passed often enough; one that fails, `least`."""
    probes, tallies = search.answers.probes, search.answers.tallies
    while True:
        tally, outcome = tallies[version], probes[version].outcome
        runs = least if outcome is VerdictAnswer.SAME else max(least, search.runs_to_pass)
        if not outcome.moves_a_bound or tally.runs >= runs:
            return
        more = (_run(search, version, again=True) for _ in range(runs - tally.runs))
        for probe in await in_parallel(more):
            tallies[version] += tally_of(probe)
            if probes[version].outcome is VerdictAnswer.OK:
                probes[version] = probe


async def _run(search: BisectSearch, version: str, *, again: bool) -> Probe:
    answers, results = search.answers, search.results
    bench, plan = search.bench, await plan_of(search, version)
    if again:
        bench = search.bench.apart(limits=None, uncached=True)
        if search.axis.frozen and version in results:
            bench.made.update(results[version].evidence.values())
            bench.made.discard(results[version].evidence.get("assemble", ""))
    result = await search.evaluate(bench, plan)
    if again:
        search.bench.cpu_seconds += bench.cpu_seconds
    if result.row.verdict is VerdictKind.INFRA:
        raise InfrastructureError(result.row.reason)
    probe = search.probe_of(result.row)
    if search.options.script and probe.outcome is not VerdictAnswer.UNTESTABLE:
        probe = await run_script(search.bench, search.options.script, result.row, plan.ptxas)
    tally = answers.tallies.get(version, Tally()) + tally_of(probe)
    before = answers.probes.get(version)
    if before is None or before.outcome is VerdictAnswer.OK or probe.outcome is VerdictAnswer.SAME:
        results[version], answers.rows[version] = result, result.row
    if tally.is_flaky:
        answers.rows[version] = structs.replace(answers.rows[version], flaky=True)
    record = record_of(structs.replace(results[version], row=answers.rows[version]))
    search.bench.store.put_result(search.run, record)
    return probe


async def plan_of(search: BisectSearch, version: str) -> PlannedCell:
    """The cell at a version; one that a log knows has none yet."""
    if version not in search.plans:
        cell = search.counterpart(await search.axis.cells(search.bench, version))
        if cell is None:
            raise UsageError(
                f"{search.axis.name} {version} no longer makes the config {search.where}, which "
                "the log follows; begin without --resume"
            )
        search.plans[version] = cell
        search.results[version] = await search.evaluate(search.bench, cell)
    return search.plans[version]


async def _chosen(search: BisectSearch, cells: Sequence[PlannedCell]) -> PlannedCell | None:
    if search.answers.cell is not None:
        return search.counterpart(cells)
    if not cells:
        raise EmptySelectionError("--config matches none of the configs")
    if search.focus is None and len(cells) > 1:
        raise UsageError(
            f"{len(cells)} cells match; name one by --config and --launch, or a version that "
            "fails by --bad"
        )
    results = await in_parallel(search.evaluate(search.bench, cell) for cell in cells)
    # Of two that fail, an assembler's versions can only tell of one that it sees.
    is_assembled = search.axis.frozen and not search.options.run
    unseen = [is_assembled and _is_unseen(result.row) for result in results]
    ranks = [
        (rank(result.row, search.followed), hidden)
        for result, hidden in zip(results, unseen, strict=True)
    ]
    index = ranks.index(min(ranks))
    cell, row = cells[index], results[index].row
    if unseen[index]:
        raise UsageError(
            f"{row.kernel}, {cell.cell.config.label}: {row.verdict} in stage {row.stage}, before "
            f"{assembler_name(row.assembler)} sees anything; use --axis "
            f"{TRITON if row.compiler == TRITON else 'compiler'}"
        )
    search.answers.cell = cell.cell
    search.answers.others = tuple(other.cell for other in cells if other is not cell)
    return cell


def _is_unseen(row: Row) -> bool:
    """Whether no assembler has a part in what came of it."""
    if row.stage is None or row.compiler is None or row.verdict is VerdictKind.INFRA:
        return False
    return FollowedFailure(stage=row.stage).before_ptxas and row.program is None


async def _believe_all(search: BisectSearch, versions: Collection[str], least: int) -> None:
    """Run versions side by side, each often enough."""
    ordered = [version for version in search.axis.versions if version in versions]
    try:
        await in_parallel(_believe(search, version, least) for version in ordered)
    finally:
        for version in ordered:
            search.note(version)


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
    """Find where a failure began and ended; `tell` is as in `BisectSearch`.

    What `log` holds already is taken as it is, and everything new is added to it. Versions are
    compiled `elsewhere`, but for the first one and what is run again to believe it.

    Raises:
        UsageError: a version that was named does not exist, the axis does not apply, or the
            command of `script` cannot be run.
        EmptySelectionError: no config matches.
        TriageError: nothing could be tried at all.
    """
    async with work(store, how) as (bench, run_id):
        search = BisectSearch(
            bench=bench,
            run=run_id,
            axis=version_axis(selection, options.axis, options.package_version),
            options=options,
            log=log,
            tell=tell,
            elsewhere=elsewhere,
        )
        if options.run:
            search.evaluate = _executor(search, how.command)
        if options.script:
            await check_script(search.bench, options.script)
        trouble = await _search(search)
        stages = None if trouble or search.axis.frozen else await _stages(search)
    return log.end(
        search.followed,
        axis=search.axis.name,
        versions=search.axis.versions,
        has_all=search.axis.has_all,
        focus=search.named_focus,
        stages=stages,
        trouble=trouble,
    )


def _executor(search: BisectSearch, command: str) -> Evaluate:
    from harness.run.executors import executor_of  # noqa: PLC0415 - numpy: 0.2 s

    options, selection = search.options, search.axis.selection

    def hear(text: str) -> None:
        name = EXECUTOR_NAMES[options.on or EMULATOR]
        search.tell(*((name, text) if takes_cubins(options.on) else (text, "")))

    return executor_of(
        search.bench, selection, hear, options.on, runner=options.runner, command=command
    ).evaluate


async def _search(search: BisectSearch) -> str | None:
    for version in dict.fromkeys((search.focus, search.named(search.options.good, "good"))):
        if version is not None and (trouble := await try_version(search, version)):
            return trouble
    search.relearn()
    planned, versions = search.log.planned, search.axis.versions
    # Beside one of each minor release, halving where the failure begins and where it ends.
    enough = search.axis.at_hand + 2 * len(versions).bit_length()
    budget = len(versions) if search.options.sweep else search.options.budget or enough
    budget = planned.budget if planned else budget
    pending = [version for version in versions if planned and version in planned.versions]
    while True:
        while batch := pending or _next(search, budget):
            # Written down first: a search that is resumed goes on with the same batch.
            search.log.plan(batch, budget)
            troubles = await in_parallel(try_version(search, version) for version in batch)
            if trouble := next(filter(None, troubles), None):
                return trouble
            search.relearn()
            budget -= len(batch)
            pending = []
        try:
            if not await _confirm(search):
                return None
        except InfrastructureError as error:
            return str(error)


def _next(search: BisectSearch, budget: int) -> list[str]:
    versions = search.axis.versions
    # In a sweep none waits for what another says. Not all at once: trouble stops it early.
    is_sweep = len(versions) - len(search.answers.probes) <= budget
    indices = next_probes(
        len(versions),
        search.answers.by_index(versions),
        budget=budget,
        focus=versions.index(search.focus) if search.focus else None,
        at_once=search.at_once * (_SWEPT_AT_ONCE if is_sweep else 1),
    )
    return [versions[index] for index in indices]


async def _confirm(search: BisectSearch) -> bool:
    """Run what the answer rests on again; whether a version changed its answer."""
    answers, versions = search.answers, search.axis.versions
    before = {version: probe.outcome for version, probe in answers.probes.items()}
    finding = search.finding()
    boundaries = filter(None, (finding.regression, finding.fix))
    sides = {versions[i] for boundary in boundaries for i in (boundary.before, boundary.after)}
    await _believe_all(search, sides, search.options.repeat)
    # A failure that turned out to come now and then may have been missed before.
    doubtful = {
        version
        for version, probe in answers.probes.items()
        if probe.outcome is VerdictAnswer.OK and answers.tallies[version].runs < search.runs_to_pass
    }
    await _believe_all(search, doubtful, 1)
    return before != {version: probe.outcome for version, probe in answers.probes.items()}


async def _stages(search: BisectSearch) -> StageStory | None:
    finding = search.finding()
    boundary = finding.regression or finding.fix
    if boundary is None:
        return None
    sides = []
    for index in (boundary.before, boundary.after):
        version = search.axis.versions[index]
        plan = await plan_of(search, version)
        sides.append((plan, search.results[version]))
    return await tell_stages(search.bench, sides[0], sides[1])
