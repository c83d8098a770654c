"""`triage workaround`: what can be done today, proved by compiling it again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

from msgspec import structs

from harness.bisect.axes import plan_cells
from harness.cells.evaluate import Evaluate, evaluate
from harness.cells.places import CompileOptions, record_of, work
from harness.frontends.bench import TimeIsUpError, Workbench, until
from harness.frontends.plan import Plan, PlannedCell, Selection
from harness.frontends.registry import front_end
from harness.io.processes.hub import Hub
from harness.io.processes.tasks import in_parallel
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import follow
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, InfrastructureError, TriageError, UsageError
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, SASS
from harness.values.verdict import VerdictKind
from harness.workaround.executed_trials import (
    EXECUTED_KINDS,
    Executions,
    emulated_numerics,
    judge_kept,
    keep,
    keep_packed,
    measure_candidates,
)
from harness.workaround.numerics import Judge
from harness.workaround.result import Candidate, Equivalence, WorkaroundReport
from harness.workaround.search import explore
from harness.workaround.settings import (
    Setting,
    SettingKind,
    UserSetting,
    best_of,
    choose,
    halved_and_doubled,
    is_gain,
    passed_on,
    rank_key,
    without,
)
from harness.workaround.trials import Attempt, Trials, explained, paste_lines

if TYPE_CHECKING:
    from harness.run.gpu.packing import GpuWay


# Of the budget: when the search ends, when steps are no longer taken back, when no proof begins,
# and when no other Triton is asked for the patch; it is compiled in what is left.
_SEARCH, _REFINE, _PROVE, _ASK = 0.56, 0.61, 0.74, 0.83
# What takes a compiler so many times as long as the slowest of the list is not waited for; what is
# quick may take some seconds.
_PATIENCE, _LEAST_PATIENCE = 2.0, 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkaroundOptions:
    """`budget` is in seconds: for the search, the proofs and the patch together.

    `kinds` are what may be changed. `on` names what executes settings, where what is looked at is
    what they compute: the PTX, or what ptxas makes of it. With a `gpu`, the candidates are launched
    there, and what is measured decides their order.
    """

    budget: float = 240.0
    kinds: tuple[SettingKind, ...] = tuple(SettingKind)
    at_most: int = 8
    on: str | None = None
    gpu: GpuWay | None = None


async def find_workarounds(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: WorkaroundOptions,
    tell: Callable[[str], None],
    open_hub: Callable[[], Hub] = Hub,
) -> WorkaroundReport:
    """Search, prove what was found, and write it as a patch; `tell` hears what is tried.

    Raises:
        MachinesGoneError: those that the hub runs tools on are gone.
        EmptySelectionError: no config matches.
        UsageError: the selection names several kernels, or no config of it can be tested.
        TriageError: the launch cannot be captured, or a toolchain is not available.
    """
    started = time.monotonic()
    if options.on and not (options.on == SASS and selection.repro.ptx):
        from harness.run.launch_sources import small_selection  # noqa: PLC0415 - the emulator: 0.2 s

        selection = small_selection(selection)
    async with work(store, how, open_hub) as (bench, run):
        how_it_is: Evaluate = evaluate
        if options.on:
            executions = Executions(bench=bench, selection=selection, tell=tell, on=options.on)
            how_it_is = executions.evaluate
        begun = _begin(bench, selection, run, how_it_is, tell)
        try:
            trials, listed, plan = await until(started + options.budget, begun)
        except TimeIsUpError:
            raise InfrastructureError(
                f"{options.budget:.0f} s (--max-time) are over, your configs are not compiled yet"
            ) from None
        trials.stop_at = started + options.budget
        home = trials.start
        survivor = best_of(trials.origin, [attempt.pair for attempt in listed])
        report = WorkaroundReport(
            baseline=home.row,
            survivor=survivor[1] if survivor else None,
            listed=tuple(attempt.row for attempt in listed),
            is_needed=_is_trouble(home.row),
        )
        if report.is_needed:
            search = _Search(trials, plan, listed, options, started)
            report, pack = await search.improved(report, how.command)
    report = replace(report, tried=len(trials.results), seconds=time.monotonic() - started)
    if not report.is_needed:
        return replace(report, survivor=home.row)
    if not options.on:
        # A night compiles again what is kept, and executes nothing.
        keep(store, report, selection)
    return keep_packed(store, pack, selection, report) if pack else report


async def _begin(
    bench: Workbench,
    selection: Selection,
    run: int,
    how_it_is: Evaluate,
    tell: Callable[[str], None],
) -> tuple[Trials, list[Attempt], Plan]:
    """The configs that were selected, compiled; the first that is in trouble is the origin."""
    plan = await plan_cells(bench, selection, None)
    kernels = {cell.cell.kernel for cell in plan.cells}
    if not plan.cells:
        raise EmptySelectionError("--config matches none of the configs")
    if len(kernels) > 1:
        raise UsageError(f"{', '.join(sorted(kernels))}: name one kernel, as FILE.py::KERNEL")
    tell(f"compiling what you have: {len(plan.cells)} configs")
    evaluated = await in_parallel(how_it_is(bench, cell) for cell in plan.cells)
    for outcome in evaluated:
        bench.store.put_result(run, record_of(outcome))
    if plan.session:
        await bench.sessions.close(plan.session)
    rows = [outcome.row for outcome in evaluated]
    if all(row.verdict.tells_nothing for row in rows):
        broken = rows[0].verdict is VerdictKind.INFRA
        raise (InfrastructureError if broken else UsageError)(
            f"no config could be tested: {rows[0].reason}"
        )
    home = _home(plan.cells, rows)
    # What a user can take instead is of the same launch; a call without a tuner has one config.
    is_own = [cell is home or home.record is None for cell in plan.cells]
    if home.record and home.record.autotuned:
        is_own = [cell.cell.launch == home.cell.launch for cell in plan.cells]
    evaluated = list(compress(evaluated, is_own))
    cells = tuple(compress(plan.cells, is_own))
    if home.record and not home.record.autotuned:
        plan = structs.replace(plan, configs=(home.cell.config,))
    launch = selection.launches[0]
    trials = Trials(
        bench=bench,
        selection=selection,
        run=run,
        home=home,
        origin=UserSetting(
            setting=Setting(config=home.cell.config),
            defaults={
                **{parameter.name: parameter.default for parameter in launch.spec.parameters},
                **launch.overrides,
                "ptxas": home.ptxas.version,
                "triton": home.compiler.version or None,
            },
            row=rows[plan.cells.index(home)],
            kind=home.compiler.kind,
            assembler=home.ptxas.kind,
            options=front_end(home.compiler.kind).options,
        ),
        selected=frozenset(row.cell.rpartition("@")[0] for row in rows),
        tell=tell,
        how_it_is=how_it_is,
        patience=max(_LEAST_PATIENCE, _PATIENCE * max(row.seconds or 0 for row in rows)),
    )
    for cell, result in zip(cells, evaluated, strict=True):
        attempt = Attempt(setting=Setting(config=cell.cell.config), cell=cell, evaluated=result)
        trials.results.setdefault(attempt.setting.key, attempt)
    listed = list(trials.results.values())
    counts = Counter(attempt.row.verdict for attempt in listed)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    tell(f"the list as it is: {words}")
    return trials, listed, plan


def _home(cells: Sequence[PlannedCell], rows: Sequence[Row]) -> PlannedCell:
    """The first config in trouble, in the order of the list; one that compiles, where any does."""
    troubled = [(cell, row) for cell, row in zip(cells, rows, strict=True) if _is_trouble(row)]
    if not troubled:
        return cells[0]
    healthy = any(row.verdict.is_healthy for row in rows)
    compiling = [pair for pair in troubled if pair[1].verdict.compiles]
    # Where something works, what fails is the trouble; else what is left to a user is.
    return (compiling if compiling and not healthy else troubled)[0][0]


def _is_trouble(row: Row) -> bool:
    return not row.verdict.tells_nothing and not row.verdict.is_healthy


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for, from when on (by `time.monotonic`)."""

    trials: Trials
    plan: Plan
    listed: Sequence[Attempt]
    options: WorkaroundOptions
    started: float

    def _at(self, share: float) -> float:
        return self.started + share * self.options.budget

    async def improved(
        self, report: WorkaroundReport, command: str
    ) -> tuple[WorkaroundReport, str | None]:
        """The report with what was found; and the name of the pack, where one was written."""
        trials, options = self.trials, self.options
        home = trials.start
        kinds = [k for k in options.kinds if options.on != EMULATOR or k in EXECUTED_KINDS]
        settings = [attempt.setting for attempt in self.listed]
        left_out = await explore(
            trials, settings, self.plan.configs, kinds=kinds, until=self._at(_SEARCH)
        )
        trials.bench.deadline = self._at(_REFINE)
        chosen = await self._refined()
        trials.bench.deadline = self._at(_PROVE)
        trials.tell(f"proving {len(chosen)} of {len(trials.results)} that were tried")
        candidates, notes = await self._proved(chosen)
        notes = [*self.plan.notes, *self._fixed(kinds), *notes]
        pack = None
        if options.gpu:
            trials.bench.deadline = None
            cells = [
                (trials.results[candidate.setting.key].cell, candidate) for candidate in candidates
            ]
            measured = await measure_candidates(
                trials.bench, options.gpu, (home.cell, home.row), cells, command, trials.tell
            )
            if isinstance(measured, str):
                pack = measured
            else:
                baseline, candidates, more = measured
                report = replace(report, baseline=baseline)
                notes += more
        elif not options.on:
            baseline, candidates, more = judge_kept(trials.bench.store, home.row, candidates)
            report = replace(report, baseline=baseline)
            notes += more
        patch = None
        if not options.on:
            from harness.workaround.patch import make_patch  # noqa: PLC0415 - libcst: 0.3 s

            patch, more = await make_patch(
                trials,
                self.plan,
                candidates,
                best_of(trials.origin, [attempt.pair for attempt in self.listed]),
                ask_until=self._at(_ASK),
                on_tritons=SettingKind.TRITON in options.kinds,
            )
            notes += more
        return replace(
            report,
            candidates=tuple(candidates),
            patch=patch,
            left_out=tuple(left_out),
            notes=tuple(dict.fromkeys(notes)),
        ), pack

    def _fixed(self, kinds: Collection[SettingKind]) -> list[str]:
        """Which meta-parameters keep their values, for a launch without a tuner computes them."""
        origin = self.trials.origin
        if self.trials.is_tuned or SettingKind.CONFIG not in kinds:
            return []
        config = origin.setting.config
        followed = {name.lower() for name in passed_on(origin.defaults, config)}
        fixed = [
            name
            for name, value in config.items
            if name not in origin.options
            and name.lower() not in followed
            and halved_and_doubled(value)
        ]
        if not fixed:
            return []
        return [f"no other value was tried of what the launch code itself sets: {', '.join(fixed)}"]

    async def _refined(self) -> list[Attempt]:
        """The settings worth showing, each without the steps that gain it nothing."""
        trials, at_most = self.trials, self.options.at_most
        trials.is_time_up = False
        own = [attempt.pair for attempt in self.listed]
        chosen = choose(trials.origin, trials.pairs(), own, at_most=at_most)
        steps = [(setting, trials.steps(setting)) for setting, _ in chosen]
        await trials.attempt(
            without(setting, step, trials.origin.setting)
            for setting, several in steps
            for step in several
            if len(several) > 1
        )
        again = choose(trials.origin, trials.pairs(), own, at_most=at_most)
        shown = [trials.results[setting.key] for setting, _ in again]
        if self.options.gpu:
            # Figures do not tell what options of ptxas alone cost; a GPU does.
            shown += [
                attempt
                for attempt in trials.results.values()
                if attempt not in shown
                and {step.kind for step in trials.steps(attempt.setting)} == {SettingKind.FLAGS}
                and attempt.row.verdict.compiles
            ]
        return shown

    async def _proved(self, chosen: Sequence[Attempt]) -> tuple[list[Candidate], list[str]]:
        trials = self.trials
        judge = Judge(trials=trials, until=self._at(_ASK))
        home = trials.start
        own = {*self.plan.configs, *(attempt.setting.config for attempt in self.listed)}
        notes: list[str] = []
        candidates: list[Candidate] = []
        proofs: list[Attempt | str] = []
        # The best first: where time is short, it is not the best that stays without a proof.
        for at in range(0, len(chosen), trials.bench.jobs):
            several = chosen[at : at + trials.bench.jobs]
            proofs += await in_parallel(self._prove(attempt.setting) for attempt in several)
        for attempt, proof in zip(chosen, proofs, strict=True):
            setting, steps = attempt.setting, trials.steps(attempt.setting)
            words = ", ".join(step.words for step in steps)
            if isinstance(proof, str):
                notes.append(f"{words}: not shown, for it is not proved: {proof}")
                continue
            gain = is_gain(trials.origin, proof.pair, home.pair)
            if not proof.row.verdict.compiles or not gain:
                notes.append(f"{words}: did not come out again: {proof.row.verdict}")
                continue
            if not self.options.on:
                numerics = await judge.numerics(setting)
            elif follow(home.row).of(proof.row) is VerdictAnswer.OK:
                numerics = emulated_numerics(proof.row)
            else:
                notes.append(
                    f"{words}: not shown, for nothing says that it is right: {proof.row.reason}"
                )
                continue
            if numerics.known is Equivalence.DIFFERS:
                notes.append(f"{words}: computes something else: {numerics.reason}")
                continue
            is_listed = setting.config in own
            candidates.append(
                Candidate(
                    setting=setting,
                    steps=steps,
                    row=proof.row,
                    is_listed=is_listed,
                    explanation=explained(trials, proof),
                    numerics=numerics,
                    paste=paste_lines(steps, proof, is_listed=is_listed),
                )
            )
        candidates.sort(
            key=lambda candidate: (
                candidate.tier,
                rank_key(trials.origin, candidate.setting, candidate.row),
            )
        )
        return candidates, notes

    async def _prove(self, setting: Setting) -> Attempt | str:
        try:
            proof = await self.trials.prove(setting)
        except TimeIsUpError:
            return "the time is up (--max-time)"
        except TriageError as error:
            return str(error)
        return proof or "the launch does not make this config"
