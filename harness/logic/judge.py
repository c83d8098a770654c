"""What an outcome means. Pure: evidence in, verdict out, so that history can be re-judged.

Order of questions: did the machine fail us; did Triton finish; did ptxas; is what came out the
kernel; does it fit the target; is it healthy. How a process *ended* decides; words on stderr only
tell failures of one kind apart, since compilers print the same words when they recover.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.logic.occupancy import Occupancy
from harness.logic.ptx import PtxFacts
from harness.logic.ptxas_log import Message, PtxasLog, overflow_of
from harness.logic.signature import failing_pass, make_signature
from harness.values.limits import Limits
from harness.values.outcome import Assembly, Lowering, ProcessEnd, RaisedError
from harness.values.resources import Resources
from harness.values.target import Target
from harness.values.thresholds import DEFAULT_THRESHOLDS, Thresholds
from harness.values.verdict import Stage, Verdict, VerdictKind

__all__ = ["CellEvidence", "count_effects", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvidence:
    """All that is known of one cell; None where the pipeline did not come so far.

    `ttir_effects` counts operations of the IR before optimisation that write memory or call out;
    None where there is no IR (raw PTX). `trouble` says why our own side failed.
    """

    target: Target
    lowering: Lowering | None = None
    assembly: Assembly | None = None
    ptx: PtxFacts | None = None
    ttir_effects: int | None = None
    log: PtxasLog | None = None
    resources: Resources = Resources()
    occupancy: Occupancy | None = None
    limits: Limits | None = None
    trouble: str | None = None


# Phrases with which a toolchain says that it cannot do a target, a PTX version or a partner, whatever
# the kernel. Wordings of ptxas 11.7 - 13.5 and Triton 3.2 - 3.9.
_UNSUPPORTED = re.compile(
    r"Unsupported \.version"
    r"|Unsupported \.target"
    r"|PTX \.version [\d.]+ does not support"
    r"|is not defined for option"
    r"|not a recognized processor"
    r"|SM version specified by \.target is higher than default"
    r"|only support CUDA [\d.]+ or higher"
    r"|Unsupported (?:gpu|GPU) architecture"
    r"|\.target '?sm_\w+'? (?:is )?not supported"
    r"|requires \.target sm_\w+ or higher"
    r"|Keyword argument \w+ was specified but unrecognised",
)
_PASS_FAILED = re.compile(r"PassManager::run failed|pass pipeline|Pipeline failed")
_CALLS_FOR_TRAP = re.compile(r"inline_asm[^\n]*\btrap\b")
_EFFECT_OPS = re.compile(
    r"\btt\.(?:store|atomic_\w+|descriptor_(?:store|reduce|scatter)\w*|experimental_descriptor_store"
    r"|print|assert|call)\b|\btt\.elementwise_inline_asm\b[^\n]*pure = false"
    r"|\btt(?:ng|g)\.(?:async_tma_(?:copy_local_to_global|reduce|scatter)|barrier)\w*"
)
# Severity by which the line that says what failed is chosen from a log.
_FATAL = ("fatal", "error")


def count_effects(ttir: str) -> int | None:
    """Operations of a Triton IR module that could be observed from outside.

    None when the kernel itself asks for a trap in inline assembly: a trap is then no surprise.
    """
    if _CALLS_FOR_TRAP.search(ttir):
        return None
    return len(_EFFECT_OPS.findall(ttir))


def judge(evidence: CellEvidence, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Verdict:
    """The verdict on one cell, its reason in words, and the signature where something failed."""
    if evidence.trouble:
        return Verdict(kind=VerdictKind.INFRA, reason=evidence.trouble)
    lowering, assembly = evidence.lowering, evidence.assembly
    if lowering and (lowering.error or not lowering.end.ok):
        return _judge_lowering(lowering)
    if assembly and not (assembly.end.ok and assembly.has_cubin):
        return _judge_assembly(assembly, evidence)
    return (
        _judge_stub(evidence)
        or _judge_fit(evidence)
        or _judge_health(evidence, thresholds)
        or Verdict(kind=VerdictKind.OK, reason="compiled" + _caveats(evidence))
    )


def _failed(
    kind: VerdictKind,
    stage: Stage,
    reason: str,
    *,
    message: str | None = None,
    code: str | None = None,
    log: str = "",
) -> Verdict:
    signature = None
    if not kind.tells_nothing or kind is VerdictKind.UNSUPPORTED:
        signature = make_signature(
            stage=stage, kind=kind, message=message or reason, code=code, log=log
        )
    return Verdict(kind=kind, reason=reason, stage=stage, code=code, signature=signature)


def _stopped_by_us(end: ProcessEnd, stage: Stage, who: str) -> Verdict | None:
    if end.timed_out:
        return _failed(
            VerdictKind.TIMEOUT, stage, f"{who} was {end.words}", message=f"{who} timed out"
        )
    if end.over_memory:
        return _failed(
            VerdictKind.OUT_OF_MEMORY, stage, f"{who} was {end.words}", message=f"{who} ate memory"
        )
    if end.flooded:
        return _failed(
            VerdictKind.PTXAS_ERROR if stage is Stage.CUBIN else VerdictKind.PASS_FAILURE,
            stage,
            f"{who} was {end.words}",
            message=f"{who} flooded its output",
        )
    return None


def _judge_lowering(lowering: Lowering) -> Verdict:
    stage = Stage(lowering.stage)
    stopped = _stopped_by_us(lowering.end, stage, f"Triton ({stage.value})")
    if stopped:
        return stopped
    if lowering.error is None:
        said = _last_words(lowering.log)
        ended = lowering.end.words
        return _failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"Triton {ended} in stage {stage.value}" + (f": {said}" if said else ""),
            message=f"{_end_kind(lowering.end)}: {said}",
            log=lowering.log,
        )
    return _judge_raised(lowering.error, stage, lowering.log)


def _judge_raised(error: RaisedError, stage: Stage, log: str) -> Verdict:
    line = _essence(error)
    if "MemoryError" in error.kinds:
        return _failed(VerdictKind.OUT_OF_MEMORY, stage, f"Triton ran out of memory: {line}")
    if "OSError" in error.kinds:
        return Verdict(kind=VerdictKind.INFRA, reason=f"Triton could not write: {line}", stage=stage)
    if _UNSUPPORTED.search(error.message) or _UNSUPPORTED.search(log):
        found = _UNSUPPORTED.search(error.message) or _UNSUPPORTED.search(log)
        assert found is not None
        said = line if found.string is error.message else _line_of(log, found.start())
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    if _PASS_FAILED.search(error.message) or stage is not Stage.TTIR:
        culprit = failing_pass(log)
        said = _first_error(log) or line
        where = f"pass {culprit}" if culprit else f"stage {stage.value}"
        return _failed(
            VerdictKind.PASS_FAILURE, stage, f"{where} failed: {said}", message=said, log=log
        )
    return _failed(VerdictKind.REJECTED, stage, f"Triton rejects the kernel: {line}", message=line)


def _judge_assembly(assembly: Assembly, evidence: CellEvidence) -> Verdict:
    end, stage = assembly.end, Stage.CUBIN
    stopped = _stopped_by_us(end, stage, "ptxas")
    if stopped:
        return stopped
    message = _worst(evidence.log)
    said = message.text if message else _last_words(assembly.stderr or assembly.stdout)
    code = message.code if message else None
    if end.signal is not None or (end.exit_code or 0) > 128 and end.exit_code != 255:
        return _failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"ptxas {end.words}" + (f": {said}" if said else ", saying nothing"),
            message=f"{_end_kind(end)}: {said}",
            code=code,
        )
    if end.ok:
        return _failed(
            VerdictKind.PTXAS_ERROR, stage, "ptxas ended with exit code 0 and left no readable cubin"
        )
    overflow = overflow_of(message) if message else None
    if overflow:
        reason = (
            f"{overflow.resource}: needs {overflow.used:,}, "
            f"{evidence.target} allows {overflow.limit:,} (ptxas)"
        )
        return _failed(
            VerdictKind.OUT_OF_RESOURCES, stage, reason, message=f"{overflow.resource} over the limit"
        )
    if _UNSUPPORTED.search(said):
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this ptxas cannot do it: {said}")
    ice = code is not None and "internal" in said.lower()
    kind = VerdictKind.PTXAS_ICE if ice else VerdictKind.PTXAS_ERROR
    shown = f"({code}) {said}" if code else said
    return _failed(
        kind, stage, f"ptxas {end.words}: {shown or 'it said nothing'}", message=said, code=code
    )


def _judge_stub(evidence: CellEvidence) -> Verdict | None:
    ptx, expected = evidence.ptx, evidence.ttir_effects
    if ptx is None or not ptx.does_nothing or (evidence.lowering and not expected):
        return None
    raw = evidence.lowering is None
    if not ptx.is_trap_stub:
        if raw:
            return None
        return _failed(
            VerdictKind.SICK,
            Stage.LLIR,
            f"the entry does nothing: {expected} stores or calls of the source are gone "
            "(statically suspect)",
            message="the entry does nothing",
        )
    why = _tmem_overflow(evidence)
    if why:
        reason = f"{why}, and the kernel was lowered to a trap"
        message = "tensor memory over the limit, lowered to a trap"
    else:
        reason = message = "the kernel was lowered to a trap"
    reason += "; nothing in the PTX to compare with" if raw else "; ptxas never saw the real kernel"
    return _failed(VerdictKind.TRAP_STUB, Stage.PTX if raw else Stage.LLIR, reason, message=message)


def _tmem_overflow(evidence: CellEvidence) -> str | None:
    columns, limits = evidence.resources.tmem_columns, evidence.limits
    if columns is None or limits is None or columns <= limits.tensor_memory_columns:
        return None
    return (
        f"asks for {columns} columns of tensor memory, "
        f"{evidence.target} has {limits.tensor_memory_columns}"
    )


def _judge_fit(evidence: CellEvidence) -> Verdict | None:
    needs, limits, target = evidence.resources, evidence.limits, evidence.target
    if limits is None:
        return None
    over = []
    if needs.shared is not None and needs.shared > limits.max_shared_per_block:
        over.append(
            (
                "shared memory",
                f"needs {needs.shared:,} B of shared memory, "
                f"{target} allows {limits.max_shared_per_block:,} B",
            )
        )
    tmem = _tmem_overflow(evidence)
    if tmem:
        over.append(("tensor memory", tmem))
    if needs.threads is not None and needs.threads > limits.max_threads_per_block:
        said = f"has {needs.threads} threads a block, {target} allows {limits.max_threads_per_block}"
        over.append(("threads", said))
    occupancy = evidence.occupancy
    if not over and occupancy and occupancy.blocks_per_sm == 0:
        over.append((occupancy.limiter, f"not one block fits on {target}: {occupancy.limiter}"))
    if not over:
        return None
    return _failed(
        VerdictKind.OUT_OF_RESOURCES,
        Stage.LAUNCH,
        "; ".join(said for _, said in over) + ": the launch would be refused",
        message=", ".join(what for what, _ in over) + " over the limit",
    )


def _judge_health(evidence: CellEvidence, thresholds: Thresholds) -> Verdict | None:
    needs, complaints = evidence.resources, []
    if needs.spills is not None and needs.spills >= thresholds.spill_bytes:
        complaints.append(
            (
                "spills",
                f"spills {needs.spill_stores:,} B stores and {needs.spill_loads:,} B loads a thread "
                f"at {needs.n_regs} registers",
            )
        )
    elif needs.stack is not None and needs.stack >= thresholds.stack_bytes:
        complaints.append(("local memory", f"keeps {needs.stack:,} B a thread in local memory"))
    occupancy = evidence.occupancy
    if occupancy and occupancy.fraction < thresholds.occupancy:
        said = f"occupancy {occupancy.fraction:.1%}, limited by {occupancy.limiter}"
        complaints.append(("occupancy", said))
    if not complaints:
        return None
    return _failed(
        VerdictKind.SICK,
        Stage.CUBIN,
        "; ".join(said for _, said in complaints) + _caveats(evidence),
        message=", ".join(what for what, _ in complaints),
    )


def _caveats(evidence: CellEvidence) -> str:
    notes = list(evidence.resources.disagreements)
    if evidence.limits is None:
        notes.append(f"limits of {evidence.target} are not known, so fit was not checked")
    return "".join(f"; {note}" for note in notes)


def _end_kind(end: ProcessEnd) -> str:
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.exit_code}"


def _essence(error: RaisedError) -> str:
    """One line for an exception: Triton quotes source code first and says what is wrong last."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    words = [line for line in lines if not set(line) <= set("^~ ")]
    said = words[-1] if words else ""
    return f"{error.type}: {said[:300]}" if said else error.type


def _last_words(log: str) -> str:
    """The line of a log that says why a process died."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in reversed(lines):
        if re.search(r"LLVM ERROR|Assertion|fatal|error|terminate called|UNREACHABLE", line):
            return line[:300]
    return ""


def _first_error(log: str) -> str:
    for line in log.splitlines():
        match = re.search(r"\berror: (.+)", line)
        if match:
            return match[1].strip()[:300]
    return ""


def _line_of(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:300]


def _worst(log: PtxasLog | None) -> Message | None:
    """The message that says what failed: the first fatal one with a code, a fatal one, an error.

    ptxas ends every failed run with a fatal line that only says so; the errors before it tell why.
    """
    messages: Mapping[str, list[Message]] = {
        severity: [m for m in (log.messages if log else ()) if m.severity == severity]
        for severity in _FATAL
    }
    coded = [m for m in messages["fatal"] if m.code]
    return next(iter([*coded, *messages["error"], *messages["fatal"]]), None)
