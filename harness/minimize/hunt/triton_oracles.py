"""Asks one Triton and the emulator about generated kernels; of most, no evidence is kept.

Each kernel is captured and compiled in all its configs for one target, the PTX of each is executed
under the schedules that show the most, and held to Triton's interpreter. Who is accused is asked
again in the way of `triage run`, with all schedules and other references, before it counts.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_emulator.values import Budget
from harness.cells.evaluate import cell_evidence
from harness.cells.places import in_parallel
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end, plan_launch
from harness.io.files.writing import scratch_disk
from harness.judging.judge import judge as judge_compilation
from harness.minimize.hunt.oracles import Asked
from harness.minimize.hunt.voting import SOME_ORDERS, Answer, Vote
from harness.run.emulating import emulate
from harness.run.executing import OnEmulator
from harness.run.judging import judge
from harness.run.launch import Trusted, evidence_of
from harness.run.launching import NotRunError, why_refused
from harness.run.recorded_launch import RecordedLaunch
from harness.run.schedules import (
    DEFAULT,
    INSTRUCTIONS,
    PROGRAMS,
    default_trials,
    read_schedules,
    trials_of,
)
from harness.store.store import Store
from harness.values.errors import InfrastructureError, StorageError, TriageError
from harness.values.execution import RunRow, RunVerdict
from harness.values.target import Target
from harness.values.toolchain import Compiler, without_evidence
from harness.values.verdict import VerdictKind

_QUICK = "first/early,last/late"
# Of so many kernels one is looked at for races: a race of another changes values in some order, or
# goes unseen. To watch costs the emulator as much again.
_RACES = 4
_ORDERS = len(DEFAULT.split(","))
_FAILURES = (
    VerdictKind.PASS_FAILURE,
    VerdictKind.COMPILER_CRASH,
    VerdictKind.TIMEOUT,
    VerdictKind.OUT_OF_MEMORY,
)
_BUDGET = Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS)


@dataclass(slots=True, kw_only=True)
class TritonOracles:
    """One Triton; a program is compiled for one of the targets, by its seed."""

    bench: Workbench
    compiler: Compiler
    targets: Sequence[Target]

    @property
    def jobs(self) -> int:
        """How many compilers may run at once."""
        return self.bench.jobs

    async def ask(self, programs: Sequence[Asked], *, is_thorough: bool = False) -> list[Answer]:
        """An answer for each program.

        Raises:
            InfrastructureError: a tool cannot be started, or the disk is full.
        """
        return await in_parallel(self._answer(one, is_thorough=is_thorough) for one in programs)

    async def _answer(self, asked: Asked, *, is_thorough: bool) -> Answer:
        hub = self.bench.hub
        folder = hub.new_folder("hunt")
        try:
            with scratch_disk():
                (folder / "generated.py").write_text(asked.text)
            with Store.open(folder / "store") as store:
                bench = copy.copy(self.bench)
                bench.store, bench.cpu_seconds = store, 0.0
                try:
                    words = SelectionOptions(
                        kernel=str(folder / "generated.py"),
                        sm=(str(self.targets[asked.seed % len(self.targets)]),),
                        triton=(self.compiler.version,),
                    )
                    races = asked.seed // len(self.targets) % _RACES == 0
                    return await self._of_cells(
                        bench, select(words), races=races, is_thorough=is_thorough
                    )
                except (InfrastructureError, StorageError):
                    raise
                except TriageError as error:
                    return Answer(vote=Vote.REFUSED, words=str(error).splitlines()[0])
                finally:
                    self.bench.cpu_seconds += bench.cpu_seconds
        finally:
            hub.drop_folder(folder)

    async def _of_cells(
        self, bench: Workbench, selection: Selection, *, races: bool, is_thorough: bool
    ) -> Answer:
        # Garbage is tried where somebody is accused.
        quick = trials_of(read_schedules(_QUICK), races=races)[:2]
        source = RecordedLaunch(
            bench=bench,
            selection=selection,
            tell=lambda words: None,  # noqa: ARG005
            is_voted=True,
            is_interpreted=True,
            trials=default_trials() if is_thorough else quick,
            budget=_BUDGET,
        )
        plan = await plan_launch(bench, selection.place())
        async with bench.closing(plan.session):
            try:
                answers = await in_parallel(
                    self._of_cell(bench, source, cell, is_thorough=is_thorough)
                    for cell in plan.cells
                )
            finally:
                for opened in source.sessions():
                    await bench.sessions.close(opened)
        order = (Vote.FAILS, Vote.WRONG, Vote.RIGHT, Vote.LEFT_OUT, Vote.UNTOLD, Vote.REFUSED)
        return min(answers, key=lambda answer: order.index(answer.vote))

    async def _of_cell(
        self, bench: Workbench, source: RecordedLaunch, cell: PlannedCell, *, is_thorough: bool
    ) -> Answer:
        assert cell.launch is not None
        assert cell.record is not None
        lowering = await front_end(self.compiler.kind).lower(
            bench, cell.launch, cell.record, ptxas=cell.seen_ptxas
        )
        where = cell.cell.config.label
        if lowering.value.error or not lowering.value.end.ok or "ptx" not in lowering.artifacts:
            verdict = judge_compilation(
                cell_evidence(
                    kind=self.compiler.kind,
                    target=cell.cell.target,
                    limits=cell.limits,
                    lowering=lowering.value,
                )
            )
            if verdict.kind is VerdictKind.INFRA:
                raise InfrastructureError(verdict.reason)
            is_failure = verdict.kind in _FAILURES
            return Answer(
                vote=Vote.FAILS if is_failure else Vote.REFUSED,
                words=f"{where}: {verdict.reason}",
                signature=verdict.signature.key if verdict.signature else None,
            )
        if is_thorough:
            return self._of_row((await OnEmulator(source=source).execute(bench, cell)).row)
        try:
            get = bench.store.artifacts.get
            ptx = get(lowering.artifacts["ptx"]).decode(errors="replace")
            if refused := why_refused(ptx, lowering.value, cell.cell.target, cell.limits):
                return Answer(vote=Vote.REFUSED, words=refused)
            launch = await source.launch_of(cell, lowering)
            variant = await source.variant(cell.record, cell.cell.target)
            emulated = (await emulate(bench, launch.emulation)).value
            interpreted = variant.interpreted or variant.interpreted_otherwise
            trusted = Trusted(
                words=f"the interpreter of {self.compiler.name}",
                buffers=tuple(buffer.sha256 for buffer in interpreted),
            )
            evidence = evidence_of(
                replace(launch, trusted=(trusted,) if interpreted else ()), emulated, get
            )
            judgement = judge(evidence)
        except NotRunError as error:
            return Answer(vote=Vote.UNTOLD, words=str(error))
        if not judgement.verdict.is_wrong:
            is_right = judgement.verdict is RunVerdict.RIGHT
            return Answer(vote=Vote.RIGHT if is_right else Vote.UNTOLD, words=judgement.reason)
        return self._of_row(
            (
                await OnEmulator(source=replace(source, trials=default_trials())).execute(
                    bench, cell
                )
            ).row
        )

    def _of_row(self, row: RunRow) -> Answer:
        config = ",".join(f"{name}={value}" for name, value in row.config.items())
        words = f"{config}: {without_evidence(row.run_reason)}"
        if not row.run.is_wrong:
            is_right = row.run in (RunVerdict.RIGHT, RunVerdict.CONSISTENT)
            return Answer(vote=Vote.RIGHT if is_right else Vote.UNTOLD, words=words)
        kind = row.run.value
        wrong = (row.schedule or "").split(", ")
        if row.run is RunVerdict.WRONG_RESULT and len(wrong) < _ORDERS:
            kind = f"{kind} {SOME_ORDERS}"
        elif row.run in (RunVerdict.RACE, RunVerdict.NONDETERMINISTIC):
            kind = f"{kind}, {SOME_ORDERS}"
        return Answer(vote=Vote.WRONG, words=words, signature=kind)
