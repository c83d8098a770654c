"""Asks one Triton and the emulator about generated kernels; of most, no evidence is kept.

Each kernel is captured and compiled in all its configs for one target, the PTX of each is executed
under the schedules that show the most, and held to Triton's interpreter. Who is accused is asked
again in the way of `triage run`, with all schedules and other references, before it counts.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from gpu_emulator.values import Budget
from harness.cells.evaluate import cell_evidence, evaluate
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import Kept, Workbench
from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import front_end, plan_launch
from harness.frontends.sessions import CapturedLaunch
from harness.hunt.growth import slowest_pass, triton_seconds_allowed
from harness.hunt.oracles import ENDS, HuntCase
from harness.hunt.voting import SOME_ORDERS, HuntAnswer, Vote
from harness.io.files.writing import scratch_disk
from harness.io.processes.tasks import in_parallel
from harness.judging.judge import judge as judge_compilation
from harness.minimize.ptx.reduce import count_instructions
from harness.run.comparing import ELEMENTS, Array, as_tensor
from harness.run.emulating import emulate
from harness.run.executing import OnEmulator
from harness.run.executors import executor_on
from harness.run.judging import judge
from harness.run.launch import NotRunError, Trusted, evidence_of, tensors_of, why_refused
from harness.run.launch_sources import RecordedLaunch
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
from harness.values.execution import LaunchVariant, RaceFacts, RunRow
from harness.values.outcome import Lowering
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, Compiler, takes_cubins, without_evidence
from harness.values.verdict import VerdictKind

_QUICK = ("first/early", "last/late")
# One in this many kernels is looked at for races: a race of another changes values in some order,
# or goes unseen. To watch costs the emulator as much again.
_RACES = 4
_ORDERS = len(DEFAULT.split(","))
FAILURES = frozenset({VerdictKind.PASS_FAILURE, *ENDS})
"""The verdicts by which Triton is accused of what it does when it compiles."""
_BUDGET = Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS)


class Care(Enum):
    """How much is executed for an answer.

    `QUICK`: two orders, held to the interpreter. `FAIR`: who is accused so is asked again with all
    orders and other references. `THOROUGH`: these at once.
    """

    QUICK = auto()
    FAIR = auto()
    THOROUGH = auto()


@dataclass(slots=True, kw_only=True)
class TritonOracles:
    """One Triton; a program is compiled for one of the targets, by its seed.

    `on` executes it; a GPU is reached by the `runner`, or is this machine's.
    """

    bench: Workbench
    compiler: Compiler
    targets: Sequence[Target]
    on: str = EMULATOR
    runner: str | None = None

    async def ask(
        self, programs: Sequence[HuntCase], *, care: Care = Care.FAIR
    ) -> list[HuntAnswer]:
        """An answer for each program.

        Raises:
            InfrastructureError: a tool cannot be started, or the disk is full.
        """
        return await in_parallel(self.answer_of(one, care) for one in programs)

    @property
    def front(self) -> CapturedFrontEnd:
        """The front end of Triton."""
        front = front_end(self.compiler.kind)
        assert isinstance(front, CapturedFrontEnd)
        return front

    async def answer_of(self, asked: HuntCase, care: Care) -> HuntAnswer:
        with self.bench.hub.folder("hunt") as folder:
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
                    return await self._of_cells(bench, select(words), care, races=races)
                except (InfrastructureError, StorageError):
                    raise
                except TriageError as error:
                    return HuntAnswer(vote=Vote.REFUSED, words=str(error).splitlines()[0])
                finally:
                    self.bench.cpu_seconds += bench.cpu_seconds

    async def _of_cells(
        self, bench: Workbench, selection: Selection, care: Care, *, races: bool
    ) -> HuntAnswer:
        # Garbage is tried where somebody is accused.
        quick = trials_of(read_schedules(",".join(_QUICK)), races=races)[: len(_QUICK)]
        source = RecordedLaunch(
            bench=bench,
            selection=selection,
            tell=lambda words: None,  # noqa: ARG005
            is_voted=True,
            is_interpreted=True,
            trials=default_trials() if care is Care.THOROUGH else quick,
            budget=_BUDGET,
        )
        plan = await plan_launch(bench, selection.place())
        async with bench.closing(plan.session):
            try:
                left: list[Trusted] = []
                answers = await in_parallel(
                    self._of_cell(bench, source, cell, care, left) for cell in plan.cells
                )
            finally:
                for opened in source.sessions():
                    await bench.sessions.close(opened)
        return min(answers, key=lambda answer: list(Vote).index(answer.vote))

    async def _of_cell(
        self,
        bench: Workbench,
        source: RecordedLaunch,
        cell: PlannedCell,
        care: Care,
        left: list[Trusted],
    ) -> HuntAnswer:
        assert cell.launch is not None
        assert cell.record is not None
        launch, record = cell.launch, cell.record
        front = self.front
        assert isinstance(launch, CapturedLaunch)
        lowering = await front.lower(bench, launch, record, ptxas=cell.seen_ptxas)
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
            is_failure = verdict.kind in FAILURES
            return HuntAnswer(
                vote=Vote.FAILS if is_failure else Vote.REFUSED,
                words=f"{where}: {verdict.reason}",
                signature=verdict.signature.key if verdict.signature else None,
            )

        async def again() -> Lowering:
            message = {"op": "lower", "timing": True, **front.asked(cell.seen_ptxas)}
            job = await front.on_record(bench, launch, record, message, alone=True)
            try:
                return front.evidence(launch, job)
            finally:
                bench.hub.drop_folder(job.folder)

        ptx = bench.store.artifacts.get(lowering.artifacts["ptx"]).decode(errors="replace")
        count = count_instructions(ptx)
        if grown := await grown_time(lowering.value, count, again, where):
            return grown
        reading = front.read(bench, lowering, lowering.artifacts["ptx"])
        if reading.value.facts and reading.value.facts.is_trap_stub:
            # Whose the trap is `triage compile` says; executed, it is a launch that failed.
            stub = await evaluate(bench, cell)
            if stub.row.verdict is VerdictKind.TRAP_STUB:
                key = stub.signature.key if stub.signature else None
                words = f"{where}: {stub.row.verdict.value}, {stub.row.reason}"
                return HuntAnswer(vote=Vote.FAILS, words=words, signature=key)
        answer = await self._executed(bench, source, cell, lowering, care, left)
        if answer.signature == VerdictKind.WRONG_RESULT.value:
            variant = await source.variant(cell.record, cell.cell.target)
            if overflows(variant, bench.store.artifacts.get):
                words = f"{where}: the interpreter's values overflow: the order of sums decides"
                return HuntAnswer(vote=Vote.UNTOLD, words=words)
        return answer

    async def _executed(
        self,
        bench: Workbench,
        source: RecordedLaunch,
        cell: PlannedCell,
        lowering: Kept[Lowering],
        care: Care,
        left: list[Trusted],
    ) -> HuntAnswer:
        """What a cell comes to; `left` has what the other configs of a Gluon kernel leave."""
        assert cell.record is not None
        if takes_cubins(self.on):
            executor = executor_on(self.on, bench, source, source.tell, runner=self.runner)
            return _of_row((await executor.execute(bench, cell)).row)
        is_gluon = "glir" in lowering.artifacts
        if care is Care.THOROUGH:
            answer = _of_row((await OnEmulator(source=source).execute(bench, cell)).row)
            if answer.is_hit or not is_gluon:
                return answer
        try:
            get = bench.store.artifacts.get
            ptx = get(lowering.artifacts["ptx"]).decode(errors="replace")
            if refused := why_refused(ptx, lowering.value, cell.cell.target, cell.limits):
                return HuntAnswer(vote=Vote.REFUSED, words=refused)
            launch = await source.launch_of(cell, lowering)
            variant = await source.variant(cell.record, cell.cell.target)
            emulated = (await emulate(bench, launch.emulation)).value
            interpreted = variant.interpreted or variant.interpreted_otherwise
            trusted = Trusted(
                words=f"the interpreter of {self.compiler.name}",
                buffers=tuple(buffer.sha256 for buffer in interpreted),
            )
            rivals = (trusted,) if interpreted else tuple(left[:1])
            if is_gluon and emulated.runs and emulated.runs[0].ended:
                # The interpreter takes no Gluon; its configs differ in layouts, and vote.
                words = f"{cell.cell.config.label}, emulated"
                left.append(Trusted(words=words, buffers=emulated.runs[0].buffers))
            evidence = evidence_of(replace(launch, trusted=rivals), emulated, get)
            judgement = judge(evidence)
        except NotRunError as error:
            return HuntAnswer(vote=Vote.UNTOLD, words=str(error))
        if judgement.verdict.is_failure and care is Care.FAIR:
            thorough = replace(source, trials=default_trials())
            answer = _of_row((await OnEmulator(source=thorough).execute(bench, cell)).row)
            if answer.is_hit or not is_gluon:
                return answer
        words = f"{cell.cell.config.label}: {judgement.reason}"
        return as_answer(judgement.verdict, words, judgement.schedule, orders=len(_QUICK))


async def grown_time(
    lowering: Lowering, count: int, again: Callable[[], Awaitable[Lowering]], where: str
) -> HuntAnswer | None:
    """An answer where Triton takes too long for `count` instructions or operations, twice.

    `again` has it done once more, with the times of all passes.
    """
    allowed = triton_seconds_allowed(count)
    if lowering.end.cpu <= allowed:
        return None
    timed = await again()
    seconds = min(lowering.end.cpu, timed.end.cpu)
    if seconds <= allowed:
        return None
    name = slowest_pass(timed.log) or timed.stage
    took = f"Triton takes {seconds:.1f} s of CPU, twice, where {allowed:.1f} are plenty"
    return HuntAnswer(
        vote=Vote.GROWS,
        words=f"{where}: {took}, and the longest in {name}",
        signature=f"compile time out of proportion ({name})",
    )


def overflows(variant: LaunchVariant, get: Callable[[str], bytes]) -> bool:
    """Whether the interpreter leaves an infinity or a NaN; `get` has bytes by sha256.

    Inputs are small whole numbers, so values have overflowed. A sum then depends on its order,
    which Triton leaves open: parts of it are infinities of other signs, or stay finite. Where some
    order of warps and copies leaves the interpreter's values all the same, its sums are in order.
    """
    for buffers in (variant.interpreted, variant.interpreted_otherwise):
        for tensor in tensors_of(variant.arguments) if buffers else ():
            if tensor.dtype in ELEMENTS:
                values = as_tensor(tensor, get(buffers[tensor.buffer].sha256))
                if not is_finite(values):
                    return True
    return False


def is_finite(values: Array) -> bool:
    """Whether no value has overflowed: the order of its parts would decide."""
    return values.dtype.kind in "iub" or bool(np.isfinite(values).all())


def _of_row(row: RunRow) -> HuntAnswer:
    config = ",".join(f"{name}={value}" for name, value in row.config.items())
    words = f"{config}: {without_evidence(row.run_reason)}"
    orders = 1 if takes_cubins(row.on) else _ORDERS
    return as_answer(row.run, words, row.schedule, orders=orders, races=row.counted_races)


def as_answer(
    verdict: VerdictKind,
    words: str,
    schedule: str | None,
    *,
    orders: int,
    races: Iterable[RaceFacts] = (),
) -> HuntAnswer:
    """What a launch came to in some `orders`; `schedule` lists those in which it is wrong."""
    if not verdict.is_failure:
        is_right = verdict.is_fine_run and verdict is not VerdictKind.RAN
        return HuntAnswer(vote=Vote.RIGHT if is_right else Vote.UNTOLD, words=words)
    kind = verdict.value
    if verdict is VerdictKind.WRONG_RESULT and len((schedule or "").split(", ")) < orders:
        kind = f"{kind} {SOME_ORDERS}"
    elif verdict in (VerdictKind.RACE, VerdictKind.NONDETERMINISTIC):
        kind = f"{kind}, {SOME_ORDERS}"
    elif verdict is not VerdictKind.WRONG_RESULT and schedule not in (None, _QUICK[0]):
        # No order is tried behind a fault; those before came to their end.
        kind = f"{kind} {SOME_ORDERS}"
    # What goes wrong on a chip may show in memory, too.
    _, race = min(((one.space == "global", one.words) for one in races), default=(False, ""))
    return HuntAnswer(vote=Vote.WRONG, words=words, signature=kind, race=race)
