"""One cell from its coordinates to its row: lower, assemble, inspect, judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import asdict

from harness.frontends.assemble import Inspection
from harness.frontends.back_end import LoweredProgram
from harness.frontends.bench import Kept, Workbench
from harness.frontends.plan import PlannedCell
from harness.frontends.readings import PtxReading, read_stored
from harness.frontends.registry import back_end, front_end
from harness.frontends.sessions import CapturedLaunch
from harness.judging.judge import CellEvidence, judge
from harness.judging.ptxas.occupancy import Occupancy, theoretical_occupancy
from harness.judging.ptxas.ptxas_log import parse_ptxas_log
from harness.judging.ptxas.ptxas_options import FlagChange
from harness.store.artifacts import UnusableArtifactError
from harness.values.errors import InfrastructureError, StorageError
from harness.values.limits import Limits
from harness.values.outcome import Assembly, LaunchFacts, Lowering, ProcessEnd, Resources
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import NO_ASSEMBLER, PTX, PTXAS, TRITON, compiler_name
from harness.values.verdict import Signature, Stage, Verdict, VerdictKind

_GPU_NAME = "--gpu-name="


def with_flags(cell: PlannedCell, change: FlagChange) -> PlannedCell:
    """The cell with a change of ptxas' flags, which its name tells."""
    name = structs.replace(cell.cell, ptxas=flagged(cell.cell.ptxas, change))
    return structs.replace(cell, cell=name, change=change)


def flagged(ptxas: str, change: FlagChange) -> str:
    """A ptxas in the name of a cell, with a change of its flags."""
    return f"{ptxas},{change.label.replace(' ', '_')}"


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """A row, the keys of the evidence it was judged from by kind, and what else to tell.

    `fits`: so many blocks of it are on the GPU at once, None where that is not known.
    """

    row: Row
    evidence: dict[str, str]
    signature: Signature | None = None
    note: str | None = None
    fits: int | None = None


Evaluate = Callable[[Workbench, PlannedCell], Coroutine[Any, Any, Evaluated]]
"""From a cell to its result: it is compiled, or its PTX is executed."""


@dataclass(slots=True, kw_only=True)
class _Trail:
    """What has been found out so far about one cell."""

    plan: PlannedCell
    instead: Kept[Lowering] | None = None
    lowering: Kept[Lowering] | None = None
    reading: Kept[PtxReading] | None = None
    same_as_bundled: bool | None = None
    assembly: Kept[Assembly] | None = None
    inspection: Kept[Inspection] | None = None
    flags: tuple[str, ...] = ()
    trouble: str | None = None


async def evaluate(
    bench: Workbench, plan: PlannedCell, *, instead: Kept[Lowering] | None = None
) -> Evaluated:
    """Compile one cell, or read what is stored of it, and judge it.

    `instead` is what it is to be lowered to, in the place of what its compiler makes of it.
    Evidence whose artifact turns out to be damaged is made again. A machine that fails us makes
    the verdict `infra`, except where results cannot be stored at all.

    Raises:
        StorageError: results cannot be read or written.
    """
    for attempt in (1, 2, 3):
        trail = _Trail(plan=plan, instead=instead)
        try:
            await _follow(bench, trail)
        except UnusableArtifactError:
            if attempt == 3:
                raise
            continue
        except StorageError:
            raise
        except InfrastructureError as error:
            trail.trouble = str(error)
        break
    return _conclude(trail)


def not_evaluated(plan: PlannedCell, trouble: str) -> Evaluated:
    """The result of a cell that our machines failed to work on, with what to say of that."""
    return _conclude(_Trail(plan=plan, trouble=trouble))


async def _follow(bench: Workbench, trail: _Trail) -> None:
    plan = trail.plan
    if plan.launch and plan.record:
        program = await _lower(bench, trail, plan.launch, plan.record)
        bench.lowered()
    else:
        assert plan.raw_ptx is not None
        trail.reading = read_stored(bench, plan.raw_ptx, entry=plan.entry)
        trail.flags = ("-v", f"{_GPU_NAME}{plan.cell.target}", *plan.options)
        program = plan.raw_ptx
    if program is None or trail.reading is None or trail.reading.value.problem is not None:
        return
    if plan.change:
        trail.flags = plan.change.apply(trail.flags)
    target, facts = plan.cell.target, trail.reading.value.facts
    # The compiler may have written another target than the one that was asked for.
    is_other = plan.launch and facts and target.suffix and facts.target != str(target)
    source = LoweredProgram(
        sha256=program,
        reading=trail.reading.value,
        flags=trail.flags,
        target=str(target) if is_other else None,
    )
    back = back_end(plan.compiler.kind, target)
    trail.assembly = await back.assemble(bench, source, plan.ptxas)
    if code := trail.assembly.artifacts.get("cubin"):
        trail.inspection = await back.inspect(bench, code, plan.nvdisasms)


async def _lower(
    bench: Workbench, trail: _Trail, launch: CapturedLaunch, record: LaunchFacts
) -> str | None:
    """Lower for the assembler that the compiler is to see; the sha256 of what it is to take."""
    plan = trail.plan
    bundled = plan.bundled or plan.ptxas
    front = front_end(launch.compiler.kind)
    takes = front.back_end(plan.cell.target).takes
    trail.lowering = trail.instead or await front.lower(
        bench, launch, record, ptxas=plan.seen_ptxas
    )
    program = trail.lowering.artifacts.get(takes)
    if not trail.lowering.value.end.ok or trail.lowering.value.error or program is None:
        return None
    trail.reading = front.read(bench, trail.lowering, program)
    trail.same_as_bundled = True if plan.bundled else None
    if plan.seen_ptxas.version != bundled.version:
        twin = await front.lower(bench, launch, record, ptxas=bundled)
        trail.same_as_bundled = None
        if takes in twin.artifacts:
            body = front.read(bench, twin, twin.artifacts[takes]).value.body_sha256
            trail.same_as_bundled = body == trail.reading.value.body_sha256
    trail.flags = ptxas_flags(plan.cell.target, trail.lowering.value.flags)
    return program


def ptxas_flags(target: Target, flags: tuple[str, ...]) -> tuple[str, ...]:
    """Triton's flags for ptxas, for the target as it was asked for where that has a suffix.

    Triton compiles for `sm_90a` whether or not the `a` was asked for; families it does not know.
    """
    if not target.suffix:
        return flags
    return tuple(f"{_GPU_NAME}{target}" if flag.startswith(_GPU_NAME) else flag for flag in flags)


def _conclude(trail: _Trail) -> Evaluated:
    steps = {
        "lower": trail.lowering,
        "ptx": trail.reading,
        "assemble": trail.assembly,
        "inspect": trail.inspection,
    }
    evidence = cell_evidence(
        kind=trail.plan.compiler.kind,
        target=trail.plan.cell.target,
        limits=trail.plan.limits,
        lowering=trail.lowering.value if trail.lowering else None,
        reading=trail.reading.value if trail.reading else None,
        assembly=trail.assembly.value if trail.assembly else None,
        inspection=trail.inspection.value if trail.inspection else None,
        trouble=trail.trouble,
    )
    verdict = judge(evidence)
    return Evaluated(
        row=_row(trail, evidence, verdict),
        evidence={kind: step.key for kind, step in steps.items() if step},
        signature=verdict.signature,
        note=trail.inspection.value.problem if trail.inspection else None,
        fits=_fits(trail, evidence) or None,
    )


def cell_evidence(
    *,
    kind: str = TRITON,
    target: Target,
    limits: Limits | None,
    lowering: Lowering | None = None,
    reading: PtxReading | None = None,
    assembly: Assembly | None = None,
    inspection: Inspection | None = None,
    trouble: str | None = None,
) -> CellEvidence:
    """What each step left, in the form in which it is judged; None where a step was not run.

    `kind` is the compiler's.
    """
    front = front_end(kind)
    back = front.back_end(target)
    facts, promises = reading.facts if reading else None, reading or PtxReading()
    # Each stream is parsed whole: a line that its end cuts off must not run into the other stream.
    log = None
    if assembly and back.kind == PTXAS:
        log = parse_ptxas_log(f"{assembly.stderr}\n{assembly.stdout}")
    if reading and reading.problem and not trouble:
        trouble = f"{compiler_name(kind)}'s {back.code} cannot be read: {reading.problem}"
    evidence = CellEvidence(
        target=target,
        lowering=lowering,
        assembly=assembly,
        ptx=facts,
        ttir_effects=promises.effects,
        has_trap=promises.has_trap,
        unknown_effects=promises.unknown_effects,
        lost_assembly=promises.lost_assembly,
        log=log,
        limits=limits,
        trouble=trouble,
        compiler=compiler_name(kind),
        judge_lowering=front.judge,
        code=back.code,
        takes=Stage(back.takes),
        is_assembled=back.kind != NO_ASSEMBLER,
        judge_code=back.judge,
        kernel=reading.kernel if reading else None,
    )
    if assembly is None:
        return evidence
    needs = back.resources(evidence, inspection)
    return structs.replace(evidence, resources=needs, occupancy=_occupancy(limits, needs))


def compiler_end(lowering: Lowering | None, assembly: Assembly | None) -> ProcessEnd | None:
    """How the last compiler's process ended: ptxas, or the one in which Triton died.

    None where Triton raised an exception: the process that ends then is ours, with an exit code of
    ours.
    """
    if assembly:
        return assembly.end
    if lowering is None or lowering.error or lowering.end.ok:
        return None
    return lowering.end


def _occupancy(limits: Limits | None, needs: Resources) -> Occupancy | None:
    if limits is None or needs.n_regs is None or needs.shared is None or not needs.threads:
        return None
    return theoretical_occupancy(
        limits,
        n_regs=needs.n_regs,
        shared=needs.shared,
        threads_per_block=needs.threads,
        barriers=needs.barriers,
        tmem_columns=needs.tmem_columns or 0,
    )


def _fits(trail: _Trail, evidence: CellEvidence) -> int:
    """How many blocks are on the GPU at once; 0 where it is not known."""
    limits, occupancy = trail.plan.limits, evidence.occupancy
    if limits is None or occupancy is None:
        return 0
    return occupancy.blocks_per_sm * (limits.multiprocessors or 0)


def _suspect(trail: _Trail, evidence: CellEvidence) -> str | None:
    """What reading the source, or the PTX, finds wrong with the config; None for nothing."""
    record, limits, fit = trail.plan.record, trail.plan.limits, _fits(trail, evidence)
    if record is None or record.suspect:
        return record.suspect if record else None
    if not (evidence.ptx and evidence.ptx.waits and record.grid and limits):
        return None
    blocks = math.prod(record.grid)
    if not 0 < fit < blocks:
        return None
    return (
        "may wait for a block that is not resident: a loop reads memory until another block writes "
        f"it, and {fit:,} of {blocks:,} blocks fit on {limits.product} at once"
    )


def _row(trail: _Trail, evidence: CellEvidence, verdict: Verdict) -> Row:
    plan, cell, needs = trail.plan, trail.plan.cell, evidence.resources
    facts = evidence.ptx
    process = compiler_end(evidence.lowering, evidence.assembly)
    # A stub's occupancy is that of an empty kernel: true, and of no use.
    stub = verdict.kind is VerdictKind.TRAP_STUB
    occupancy = None if stub else evidence.occupancy
    mixes = trail.inspection.value.mixes if trail.inspection else {}
    back = back_end(plan.compiler.kind, cell.target)
    body = trail.reading.value.body_sha256 if trail.reading else None
    artifacts = trail.lowering.artifacts if trail.lowering else {PTX: plan.raw_ptx}
    steps = [step for step in (trail.lowering, trail.assembly) if step]
    return Row(
        **cell.names,
        triton=plan.compiler.version if plan.compiler.kind == TRITON else None,
        ptxas=plan.ptxas.version or None,
        ptxas_origin=plan.ptxas.origin if plan.ptxas.version else None,
        verdict=verdict.kind,
        reason=verdict.reason,
        stage=verdict.stage.value if verdict.stage else None,
        signature=verdict.signature.key if verdict.signature else None,
        code=verdict.code,
        signal=process.signal if process else None,
        exit_code=process.exit_code if process else None,
        **needs.columns,
        occupancy=occupancy.fraction if occupancy else None,
        occupancy_limiter=occupancy.limiter if occupancy else None,
        instructions=asdict(mixes[evidence.entry]) if evidence.entry in mixes else None,
        ptx_version=facts.version if facts else None,
        ptx_sha256=artifacts.get(PTX),
        ptx_body_sha256=body if back.takes == PTX else None,
        ptx_same_as_bundled=trail.same_as_bundled,
        frozen=plan.freeze_ptx,
        ptxas_flags=trail.flags,
        cubin_sha256=trail.assembly.artifacts.get("cubin") if trail.assembly else None,
        suspect=_suspect(trail, evidence),
        values=plan.record.values or None if plan.record else None,
        attempts=max((step.value.attempts for step in steps), default=1),
        cached=bool(steps) and all(step.cached for step in steps),
        seconds=round(sum(step.value.end.wall for step in steps), 3) if steps else None,
        compiler=None if plan.compiler.kind == PTX else plan.compiler.kind,
        compiler_version=plan.compiler.version or None,
        partners=plan.compiler.partners,
        assembler=plan.ptxas.kind,
        file=plan.file,
        program_sha256=None
        if back.takes == PTX or back.kind == NO_ASSEMBLER
        else artifacts.get(back.takes),
    )
