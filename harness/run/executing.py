"""Executes cells: an `Executor` for the emulator, a GPU, and whatever executes cubins next."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from harness.cells.evaluate import Evaluated, evaluate
from harness.cells.places import record_of
from harness.frontends.bench import Kept, Workbench
from harness.frontends.plan import PlannedCell
from harness.frontends.registry import front_end
from harness.run.emulating import emulate
from harness.run.emulator_jobs import Emulated, Emulation
from harness.run.inputs import LaunchSource
from harness.run.judging import BY_VALUE, Judgement, beside_gpu, judge, run_row
from harness.run.launch import (
    EmptyGridError,
    Launch,
    NotRunError,
    RunEvidence,
    effort_words,
    may_lack_registers,
    waits_for_others,
    why_refused,
)
from harness.run.launch_sources import EmulatedSource, lower_cell
from harness.run.references import Another
from harness.store.store import Store
from harness.tables.samples import Sample
from harness.values.cell import CellId
from harness.values.errors import InfrastructureError
from harness.values.execution import RunRow, TraceFacts
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, GPU, TRITON, Compiler
from harness.values.verdict import Signature, Stage, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """The row of a run; and the same as a result beside those of compiles."""

    row: RunRow
    evaluated: Evaluated

    @classmethod
    def of(
        cls,
        row: RunRow,
        compiled: Row,
        signature: Signature | None,
        evidence: dict[str, str] | None = None,
        *,
        is_infra: bool = False,
    ) -> Executed:
        """A row, and what was compiled with the verdict of the run.

        `is_infra`: this machine failed, and the row says nothing of the kernel.
        """
        kind = VerdictKind.INFRA if is_infra else row.run
        result = replace(
            compiled,
            cell=row.cell,
            short=row.short,
            launch=row.launch,
            verdict=kind,
            reason=row.run_reason,
            stage=None if kind.compiles else Stage.RUN.value,
            signature=row.run_signature,
            code=None,
            seconds=row.seconds,
            time_ms=row.time_ms,
        )
        evaluated = Evaluated(row=result, evidence=evidence or {}, signature=signature)
        return cls(row=row, evaluated=evaluated)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A row for each cell, in the order of the selection; `failures` could not be captured.

    `notes` say what is missing, `samples` which configs were left out; `device` names the GPU.
    """

    rows: tuple[RunRow, ...]
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    device: str = ""


Beside = Callable[[Another], Awaitable[Emulation]]
"""Another PTX of the same launch, on the same inputs; `NotRunError` where there is none."""

Follow = Callable[[Workbench, RunEvidence, "Beside | None"], Awaitable[TraceFacts]]
"""Follows a value of what was executed back to where two runs first differ."""


class Executor(ABC):
    """Executes cells as a source of launches says; `device` is the name of a GPU, once reached."""

    source: LaunchSource
    device: str = ""

    @abstractmethod
    async def execute(self, bench: Workbench, cell: PlannedCell) -> Executed:
        """Compile a cell on `bench`, execute it and judge it.

        Raises:
            TriageError: it cannot be done on this machine, or not for this kernel.
        """

    async def evaluate(self, bench: Workbench, cell: PlannedCell, **more: Any) -> Evaluated:  # noqa: ANN401 - as `execute` takes it
        """As `execute`; what came out as a result like a compile's."""
        return (await self.execute(bench, cell, **more)).evaluated


S = TypeVar("S", bound=EmulatedSource)

NOT_LAUNCHED = (VerdictKind.OUT_OF_RESOURCES, VerdictKind.UNSUPPORTED)
"""What a driver refuses: no emulator launches it either."""


@dataclass(slots=True, kw_only=True)
class OnEmulator(Executor, Generic[S]):
    """Executes the PTX of cells of one launch on the emulator.

    `follow`, where a value is to be followed, gets what was executed and how it is judged.
    """

    source: S
    follow: Follow | None = None

    async def execute(
        self,
        bench: Workbench,
        cell: PlannedCell,
        *,
        like: LaunchFacts | None = None,
        instead: Kept[Lowering] | None = None,
    ) -> Executed:
        """As in `Executor`.

        `like` is another config of the same launch, whose inputs it gets. `instead` is PTX that
        came about in another way than by compiling the cell.
        """
        source, lowering, is_infra = self.source, instead, False
        emulated: Kept[Emulated] | None = None
        trace: TraceFacts | None = None
        where = f"{cell.cell.kernel} [{cell.cell.config.label}] on {cell.cell.target}"
        try:
            lowering = lowering or await lower_cell(bench, cell)
            launch = await source.launch_of(cell, lowering, like)
            text = source.bench.store.artifacts.get(launch.emulation.ptx).decode(errors="replace")
            if refused := why_refused(text, lowering.value, cell.cell.target, cell.limits):
                raise NotRunError(refused)
            launch = await _within_target(bench, cell, launch, text, is_compiled=instead is None)
            source.tell(f"{where}: {effort_words(launch.emulation, text)}")
            emulated = await emulate(
                source.bench, launch.emulation, lambda words: source.tell(f"{where}: {words}")
            )
            evidence = await source.held_evidence(cell, launch, emulated.value, like)
            if self.follow:

                async def beside(another: Another) -> Emulation:
                    return await source.beside(cell, another, like)

                trace = await self.follow(source.bench, evidence, beside)
            judgement = judge(evidence)
            if judgement.verdict in BY_VALUE:
                measured = source.bench.store.executions(str(replace(cell.cell, on=GPU)))
                judgement = beside_gpu(judgement, measured, evidence.launch.emulation.ptx)
            if not instead:
                words = await source.remark(cell, lowering)
                reason = "; ".join(filter(None, (judgement.reason, words)))
                judgement = dataclasses.replace(judgement, reason=reason)
        except EmptyGridError as error:
            judgement = Judgement(verdict=VerdictKind.RAN, reason=str(error))
        except (NotRunError, InfrastructureError) as error:
            is_infra = isinstance(error, InfrastructureError)
            judgement = Judgement(verdict=VerdictKind.NOT_RUN, reason=str(error))
        body = None
        ptx = lowering.artifacts.get("ptx") if lowering else None
        if lowering and ptx:
            reading = front_end(cell.compiler.kind).read(source.bench, lowering, ptx)
            body = reading.value.body_sha256
        return executed_of(
            cell.cell,
            judgement,
            emulated,
            compiler=cell.compiler,
            lowering=lowering,
            ptx=ptx,
            body=body,
            trace=trace,
            is_infra=is_infra,
            file=cell.file,
            suspect=(cell.record and cell.record.suspect) or None,
        )


async def _within_target(
    bench: Workbench, cell: PlannedCell, launch: Launch, text: str, *, is_compiled: bool
) -> Launch:
    """The launch, run besides with as many blocks as fit where blocks wait for one another.

    Raises:
        NotRunError: it `is_compiled` for a block that then lacks registers.
    """
    waits = waits_for_others(text, launch.emulation.entry)
    lacks = may_lack_registers(text, launch.emulation.block, cell.limits)
    fits = None
    if is_compiled and (lacks or waits):
        # How many registers it needs, ptxas alone can say.
        compiled = await evaluate(bench, cell)
        if lacks and compiled.row.verdict in NOT_LAUNCHED:
            raise NotRunError(f"{compiled.row.verdict}: it {compiled.row.reason}")
        fits = compiled.fits
    return launch.with_fewer_blocks(fits) if waits else launch


def executed_of(
    cell: CellId,
    judgement: Judgement,
    emulated: Kept[Emulated] | None,
    *,
    compiler: Compiler | None = None,
    lowering: Kept[Lowering] | None = None,
    ptx: str | None,
    body: str | None = None,
    trace: TraceFacts | None = None,
    is_infra: bool = False,
    file: str | None = None,
    suspect: str | None = None,
) -> Executed:
    """What came out of a cell on the emulator, which stands in ptxas' place.

    `compiler` is None for raw PTX; `ptx` and `body` are the sha256 of it and of its instructions.
    `is_infra` is as in `Executed.of`, `file` and `suspect` as in `Row`.
    """
    runs = emulated.value.runs if emulated else ()
    executed = [ran for ran in runs if ran.executed]
    cell = replace(cell, ptxas=EMULATOR)
    row = run_row(
        cell,
        judgement,
        on=EMULATOR,
        triton=compiler.version if compiler and compiler.kind == TRITON else None,
        ptx_sha256=ptx,
        printed=next((ran.printed for ran in runs if ran.printed), ()),
        instructions_run=sum(ran.executed for ran in executed) or None,
        ctas_run=max((ran.ctas for ran in executed), default=None),
        ctas=max((ran.ctas_of for ran in executed), default=None),
        seconds=round(sum(ran.seconds for ran in runs), 3) if runs else None,
        trace=trace,
        suspect=suspect,
    )
    compiled = Row(
        **cell.names,
        triton=row.triton,
        ptxas=EMULATOR,
        ptxas_origin=EMULATOR,
        verdict=row.run,
        reason=row.run_reason,
        ptx_sha256=ptx,
        ptx_body_sha256=body,
        cached=emulated is not None and emulated.cached,
        compiler=compiler.kind if compiler else None,
        compiler_version=compiler.version if compiler else None,
        file=file,
    )
    evidence = {kind: step.key for kind, step in (("lower", lowering), ("run", emulated)) if step}
    return Executed.of(row, compiled, judgement.signature, evidence, is_infra=is_infra)


def keep_execution(store: Store, run: int, executed: Executed) -> None:
    """Keep what came out of a cell as history.

    Raises:
        StorageError: the database cannot be written.
    """
    store.put_execution(run, executed.row, executed.evaluated.signature)
    store.put_result(run, record_of(executed.evaluated))
