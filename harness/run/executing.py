"""One cell from its coordinates to what came out when its PTX was executed, as it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated, cell_evidence
from harness.cells.places import record_of
from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.registry import front_end
from harness.judging.judge import judge as judge_compilation
from harness.run.comparing import types_in
from harness.run.emulating import Emulated, Emulation, emulate
from harness.run.jobs import Ran, RunTrial
from harness.run.judging import Judgement, RunEvidence, judge, result_of, row_of
from harness.run.launching import (
    EmptyGridError,
    NotRunError,
    effort_words,
    emulation_of,
    why_refused,
)
from harness.run.matching import find_variant
from harness.run.references import Another, Found, References
from harness.store.store import Store
from harness.values.errors import InfrastructureError
from harness.values.execution import Inputs, LaunchVariant, RunRow, RunVerdict, TraceFacts
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.verdict import Signature

Beside = Callable[[Another], Awaitable[tuple[Emulation, str]]]
"""Another PTX of the same launch, and how it is executed on the same inputs.

`NotRunError` where there is none.
"""

Follow = Callable[[Workbench, Emulation, str, RunEvidence, "Beside | None"], Awaitable[TraceFacts]]
"""Follows a value of what was executed back to where two runs first differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How cells are executed; `tell` hears what is done next, in words.

    `follow`, where a value is to be followed, gets what was executed and how it is judged.
    `lowering` is a bench of its own for the compiler, where it compiles again. `formal` is as in
    `RunEvidence`.
    """

    bench: Workbench
    trials: tuple[RunTrial, ...]
    budget: Budget
    tell: Callable[[str], None]
    lowering: Workbench | None = None
    formal: bool = False
    follow: Follow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """The row of a run; and the same as a result beside those of compiles."""

    row: RunRow
    done: Evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What a cell is executed with: the inputs of this record, and what it is compared with."""

    inputs: Inputs
    record: LaunchFacts | None
    references: References

    def variant(self) -> LaunchVariant:
        """What the kernel is given with the config of the record.

        Raises:
            NotRunError: the launch code does not come to it with values.
        """
        assert self.record is not None, "what was lowered was captured"
        if self.record.grid is None and not self.record.arguments:
            raise NotRunError("it is compiled and never launched: there are no inputs")
        found = find_variant(self.inputs, self.record)
        if found is not None:
            return found
        if error := self.inputs.error:
            said = next(iter(error.message.splitlines()), "")[:300]
            raise NotRunError(f"run with values, the launch raised {error.type}: {said}")
        raise NotRunError("run with values, the launch never comes to this kernel with this config")


@dataclass(slots=True, kw_only=True)
class _Trail:
    """What has been found out so far about one cell."""

    lowering: Kept[Lowering] | None = None
    emulated: Kept[Emulated] | None = None
    trouble: str | None = None
    trace: TraceFacts | None = None

    @property
    def runs(self) -> tuple[Ran, ...]:
        return self.emulated.value.runs if self.emulated else ()


async def execute(
    how: Execution,
    cell: PlannedCell,
    inputs: Inputs,
    references: References,
    *,
    like: LaunchFacts | None = None,
    instead: Kept[Lowering] | None = None,
) -> Executed:
    """Execute one cell with the inputs that were recorded for it, and judge what came out.

    `like` is another config of the same launch, whose inputs it gets. `instead` is PTX that came
    about in another way than by compiling the cell.
    """
    trail = _Trail(lowering=instead)
    try:
        given = _Given(inputs=inputs, record=like or cell.record, references=references)
        judgement = judge(await _evidence(how, cell, given, trail))
    except EmptyGridError as error:
        judgement = Judgement(verdict=RunVerdict.RAN, reason=str(error))
    except NotRunError as error:
        judgement = Judgement(verdict=RunVerdict.NOT_RUN, reason=str(error))
    except InfrastructureError as error:
        trail.trouble = str(error)
        judgement = Judgement(verdict=RunVerdict.NOT_RUN, reason=str(error))
    row = row_of(
        cell.cell,
        judgement,
        trail.runs,
        triton=cell.compiler.version,
        ptx_sha256=trail.lowering.artifacts.get("ptx") if trail.lowering else None,
    )
    row = replace(row, trace=trail.trace)
    return Executed(row=row, done=_result(how.bench, cell, row, judgement.signature, trail))


def keep_execution(store: Store, run: int, executed: Executed) -> None:
    """Keep what came out of a cell as history.

    Raises:
        StorageError: the database cannot be written.
    """
    store.put_execution(run, executed.row, executed.done.signature)
    store.put_result(run, record_of(executed.done))


async def _evidence(how: Execution, cell: PlannedCell, given: _Given, trail: _Trail) -> RunEvidence:
    bench = how.bench
    trail.lowering = trail.lowering or await _lowered(how.lowering or bench, cell)
    variant = given.variant()
    wanted = emulation_of(bench, trail.lowering, variant, how.trials, how.budget)
    ptx = bench.store.artifacts.get(wanted.ptx).decode(errors="replace")
    if refused := why_refused(ptx, trail.lowering.value, cell.cell.target, cell.limits):
        raise NotRunError(refused)
    where = f"{cell.cell.kernel} [{cell.cell.config.label}] on {cell.cell.target}"
    how.tell(f"{where}: {effort_words(wanted, ptx)}")
    trail.emulated = await emulate(bench, wanted, lambda text: how.tell(f"{where}: {text}"))
    problem = trail.emulated.value.problem
    assert cell.record is not None
    found = Found()
    if not problem and not any(each.not_run or each.faults for each in trail.runs):
        found = await given.references.of(cell.cell.target, cell.record, variant, ptx)
    evidence = run_evidence(
        bench.store.artifacts.get, variant, trail.runs, found, ptx, problem, formal=how.formal
    )
    if judge(evidence).verdict in (RunVerdict.WRONG_RESULT, RunVerdict.RAN):
        own = await given.references.own_interpreter(cell.compiler, cell.record, variant)
        evidence = replace(evidence, trusted=(*evidence.trusted, own)) if own else evidence
    if how.follow:
        target, record = cell.cell.target, cell.record

        def beside(another: Another) -> Awaitable[tuple[Emulation, str]]:
            return given.references.beside(target, record, variant, another)

        trail.trace = await how.follow(bench, wanted, ptx, evidence, beside)
    return evidence


async def _lowered(bench: Workbench, cell: PlannedCell) -> Kept[Lowering]:
    """The PTX of a cell.

    Raises:
        NotRunError: there is none.
    """
    if cell.launch is None or cell.record is None:
        raise NotRunError("a file of PTX is run by `triage run FILE.ptx`")
    end = front_end(cell.compiler.kind)
    lowering = await end.lower(bench, cell.launch, cell.record, ptxas=cell.ptxas)
    if lowering.value.error or not lowering.value.end.ok or "ptx" not in lowering.artifacts:
        verdict = judge_compilation(
            cell_evidence(
                kind=cell.compiler.kind,
                target=cell.cell.target,
                limits=cell.limits,
                lowering=lowering.value,
            )
        )
        raise NotRunError(f"it does not compile: {verdict.kind.value}, {verdict.reason}")
    return lowering


def run_evidence(
    get: Callable[[str], bytes],
    variant: LaunchVariant,
    ran: Sequence[Ran],
    found: Found,
    ptx: str,
    problem: str | None,
    *,
    formal: bool = False,
) -> RunEvidence:
    """Runs of a launch and what they are compared with; `get` has a buffer's bytes by sha256."""
    before = tuple(each.sha256 for each in variant.buffers)
    asserted = [name for each in variant.asserted for name in each.buffers if name]
    names = {*before, *(name for each in ran for name in each.buffers), *asserted}
    return RunEvidence(
        arguments=variant.arguments,
        before=before,
        runs=tuple(each for each in ran if not each.trial.schedule.garbage),
        garbage=tuple(each for each in ran if each.trial.schedule.garbage),
        contents={name: get(name) for name in names},
        trusted=found.trusted,
        is_clean=found.is_clean,
        types=types_in(ptx),
        unwritten=frozenset(n for n, each in enumerate(variant.buffers) if each.unwritten),
        problem=problem,
        formal=formal,
        asserted=variant.asserted,
    )


def _result(
    bench: Workbench, cell: PlannedCell, row: RunRow, signature: Signature | None, trail: _Trail
) -> Evaluated:
    """The run as a result beside those of compiles."""
    lowering = trail.lowering
    body = None
    if lowering and row.ptx_sha256:
        reading = front_end(cell.compiler.kind).read(bench, lowering, row.ptx_sha256)
        body = reading.value.body_sha256
    result = result_of(
        row,
        cell.cell,
        compiler=cell.compiler,
        ptx_body_sha256=body,
        cached=trail.emulated is not None and trail.emulated.cached,
        is_infra=trail.trouble is not None,
    )
    result = replace(result, file=cell.file)
    kept = {"lower": lowering, "run": trail.emulated}
    evidence = {kind: step.key for kind, step in kept.items() if step}
    return Evaluated(row=result, evidence=evidence, signature=signature)
