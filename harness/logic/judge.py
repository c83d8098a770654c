"""What an outcome means. Pure: evidence in, verdict out, so that history can be re-judged.

Order of questions: did the machine fail us; did Triton finish; did ptxas; is what came out the
kernel; does it fit the target; is it healthy. How a process *ended* decides; words on stderr only
tell failures of one kind apart, since compilers print the same words when they recover.
"""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.logic.ptx import PtxFacts, opcodes, writes_outside
from harness.logic.ptxas_log import Message, PtxasLog, overflow_of
from harness.logic.signature import failing_pass, make_signature
from harness.values.resources import Resources
from harness.values.thresholds import DEFAULT_THRESHOLDS, Thresholds
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from harness.logic.occupancy import Occupancy
    from harness.values.limits import Limits
    from harness.values.outcome import Assembly, Lowering, ProcessEnd, RaisedError
    from harness.values.target import Target

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
    resources: Resources = field(default_factory=Resources)
    occupancy: Occupancy | None = None
    limits: Limits | None = None
    trouble: str | None = None


# Phrases with which a toolchain says that it cannot do a target, a PTX version or a partner,
# whatever the kernel. Wordings of ptxas 11.7 - 13.5: they speak of `.version`, `.target` and
# `--gpu-name` only. What speaks of a "Feature" or an "Instruction" (`Feature 'cp.async' requires
# .target sm_80 or higher`, `... requires PTX ISA .version 8.6 or later`, `Instruction 'wgmma.fence'
# not supported on .target 'sm_90'`) is not here: the kernel uses what its own header rules out, and
# another kernel would be assembled. Those are ptxas_error.
_PTXAS_UNSUPPORTED = re.compile(
    r"Unsupported \.version"
    r"|Unsupported \.target"
    r"|PTX \.version [\d.]+ does not support \.target"
    r"|Value '[^']*' is not defined for option 'gpu-name'"
    r"|SM version specified by \.target is higher than default"
    r"|(?:PTX|Program) with \.target '[^']*' cannot be compiled (?:for|to)\b"
)
# The same of Triton 3.2 - 3.9, in the message of what it raises.
_TRITON_UNSUPPORTED = re.compile(
    r"only support CUDA [\d.]+ or higher"
    r"|Unsupported CUDA version"
    r"|[Uu]nsupported (?:gpu|GPU) architecture"
    r"|Keyword argument \w+ was specified but unrecognised"
)
# LLVM only warns of a target that it does not know, goes on for an older one, and may then fail.
_UNKNOWN_PROCESSOR = re.compile(r"'(sm_\w+)' is not a recognized processor")
# Triton 3.2 aborts by this assertion on targets that it does not know.
_UNKNOWN_CAPABILITY = re.compile(r"computeCapability not supported")
# What ptxas says when this machine fails it.
_OUR_FAULT = re.compile(
    r"could not be opened|[Cc]ould not open|No space left on device|[Cc]an(?:no|')t open"
)
_NO_MEMORY = re.compile(r"Memory allocation failure|[Oo]ut of memory")
_INTERNAL_ERROR = re.compile(r"\binternal (?:compiler )?error\b", re.IGNORECASE)
_INTERNAL = re.compile(r"\binternal\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'")

_PASS_FAILED = re.compile(r"PassManager::run failed|pass pipeline|Pipeline failed")
_TRITON_OVERFLOW = re.compile(
    r"out of resource: ([\w ]{1,40}), Required: (\d{1,15}), Hardware limit: (\d{1,15})"
)
_EFFECT_OPS = re.compile(
    r"\btt\.(?:store|atomic_(?:rmw|cas|store)|(?:experimental_)?descriptor_(?:store|reduce|scatter)"
    r"|print|assert)\b"
    r"|\bttng\.async_tma_(?:copy_local_to_global|reduce|scatter)\b"
)
_INLINE_ASM = re.compile(r'\b(?:tt\.elementwise_|ttg\.)inline_asm "([^"]*)"')
_ESCAPED = re.compile(r"\\(?:0[9A-Da-d]|[nt])|//[^\n]*")
_CARETS = re.compile(r"[\^~ ]+")
# The line of a traceback that names an exception: the first one started the chain.
_RAISED = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception|Failure)\b.*", re.MULTILINE)

# Words of a log that say why a process died, the telling ones first. Python's own report of the
# signal ("Fatal Python error: Aborted") is in no group: it says only that the process died.
_DEATH = (
    re.compile(r"LLVM ERROR|Assertion|UNREACHABLE|Unreachable executed"),
    re.compile(r"terminate called|what\(\):|(?<!Python )\berror: |\bfatal\b"),
)
_GENERIC_ERRORS = ("Failures have been detected while processing", "PassManager::run failed")
# Signals by which a program dies of its own doing. The others come from somebody else: SIGKILL
# most often from the system, for lack of memory.
_OWN_SIGNALS = frozenset(
    {
        signals.SIGILL,
        signals.SIGTRAP,
        signals.SIGABRT,
        signals.SIGBUS,
        signals.SIGFPE,
        signals.SIGSEGV,
        signals.SIGSYS,
        signals.SIGXCPU,
    }
)
_SHELL_SIGNAL = 128


def count_effects(ttir: str) -> int | None:
    """Operations of a Triton IR module that could be observed from outside.

    Inline assembly counts where it holds an instruction that writes to global memory. None when
    the kernel itself asks for a trap in inline assembly: a trap is then no surprise.
    """
    effects = len(_EFFECT_OPS.findall(ttir))
    for found in _INLINE_ASM.finditer(ttir):
        instructions = [opcode for opcode, _ in opcodes(_ESCAPED.sub("\n", found[1]))]
        if "trap" in instructions:
            return None
        effects += any(writes_outside(opcode) for opcode in instructions)
    return effects


def judge(evidence: CellEvidence, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Verdict:
    """The verdict on one cell, its reason in words, and the signature where something failed."""
    if evidence.trouble:
        return Verdict(kind=VerdictKind.INFRA, reason=evidence.trouble)
    lowering, assembly = evidence.lowering, evidence.assembly
    if lowering and (lowering.error or not lowering.end.ok):
        return _judge_lowering(lowering)
    if assembly is None:
        reason = "nothing was assembled: " + (
            "Triton ended well and left no PTX" if lowering else "there is no PTX"
        )
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=Stage.PTX)
    if not (assembly.end.ok and assembly.has_cubin):
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


def _stopped(end: ProcessEnd, stage: Stage, who: str) -> Verdict | None:
    """The verdict where the compiler did not end by itself."""
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
    number = _death_signal(end)
    if number is not None and number not in _OWN_SIGNALS:
        name = _signal_name(number)
        hint = "; this machine may be short of memory" if name == "SIGKILL" else ""
        reason = f"{who} was killed from outside by {name}{hint}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None


def _judge_lowering(lowering: Lowering) -> Verdict:
    stage = Stage(lowering.stage)
    stopped = _stopped(lowering.end, stage, f"Triton ({stage.value})")
    if stopped:
        return stopped
    processor = _UNKNOWN_PROCESSOR.search(lowering.log)
    if processor and stage in (Stage.LLIR, Stage.PTX):
        said = f"its LLVM does not know {processor[1]}"
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    if lowering.error is not None:
        return _judge_raised(lowering.error, stage, lowering.log)
    said, ended = _last_words(lowering.log), lowering.end.words
    if _UNKNOWN_CAPABILITY.search(said):
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    number = _death_signal(lowering.end)
    if number is None:
        reason = f"Triton ended with {ended} in stage {stage.value} and left no result"
        return Verdict(kind=VerdictKind.INFRA, reason=reason + _after(said), stage=stage)
    return _failed(
        VerdictKind.COMPILER_CRASH,
        stage,
        f"Triton {ended} in stage {stage.value}" + _after(said),
        message=f"{_signal_name(number)}: {said}",
        log=lowering.log,
    )


def _judge_raised(error: RaisedError, stage: Stage, log: str) -> Verdict:
    line = _essence(error)
    if "MemoryError" in error.kinds:
        return _failed(VerdictKind.OUT_OF_MEMORY, stage, f"Triton ran out of memory: {line}")
    if "OSError" in error.kinds:
        reason = f"Triton could not read or write a file: {line}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    overflow = _TRITON_OVERFLOW.search(error.message)
    if overflow:
        resource, used, limit = overflow[1], int(overflow[2]), int(overflow[3])
        reason = f"needs {used:,} of {resource}, the target allows {limit:,} (says Triton)"
        message = f"{resource} over the limit"
        return _failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=message)
    unsupported = _TRITON_UNSUPPORTED.search(error.message)
    if unsupported:
        said = _line_of(error.message, unsupported.start())
        return _failed(VerdictKind.UNSUPPORTED, stage, f"this Triton cannot do it: {said}")
    if stage is Stage.TTIR and not _PASS_FAILED.search(error.message):
        reason = f"Triton rejects the kernel: {line}"
        return _failed(VerdictKind.REJECTED, stage, reason, message=line)
    culprit = failing_pass(log)
    said = _first_error(log) or line
    where = f"pass {culprit}" if culprit else f"stage {stage.value}"
    return _failed(
        VerdictKind.PASS_FAILURE, stage, f"{where} failed: {said}", message=said, log=log
    )


def _judge_assembly(assembly: Assembly, evidence: CellEvidence) -> Verdict:
    end, stage = assembly.end, Stage.CUBIN
    stopped = _stopped(end, stage, "ptxas")
    if stopped:
        return stopped
    messages = evidence.log.messages if evidence.log else ()
    message = _worst(messages)
    said = message.text if message else _last_words(f"{assembly.stdout}\n{assembly.stderr}")
    code = message.code if message else None
    # A reproducer may rename the kernel: its name is no part of the failure.
    nameless = _without_name(said, evidence.ptx)
    number = _death_signal(end)
    if number is not None:
        return _failed(
            VerdictKind.COMPILER_CRASH,
            stage,
            f"ptxas {end.words}" + (_after(said) or ", saying nothing"),
            message=f"{_signal_name(number)}: {nameless}",
            code=code,
        )
    if end.ok:
        reason = "ptxas ended with exit code 0 and left no complete cubin"
        return _failed(VerdictKind.PTXAS_ERROR, stage, reason)
    return _judge_complaint(evidence, message, said) or _failed(
        VerdictKind.PTXAS_ICE if _is_internal(said, code) else VerdictKind.PTXAS_ERROR,
        stage,
        f"ptxas ended with {end.words}: {f'({code}) ' if code else ''}{said or 'it said nothing'}",
        message=nameless,
        code=code,
    )


def _judge_complaint(evidence: CellEvidence, message: Message | None, said: str) -> Verdict | None:
    """The verdict where ptxas refused for a reason that is not an error in the code."""
    stage = Stage.CUBIN
    if _is_internal(said, message.code if message else None):
        return None
    overflow = overflow_of(message) if message else None
    if overflow:
        reason = (
            f"{overflow.resource}: needs {overflow.used:,} B, "
            f"{evidence.target} allows {overflow.limit:,} B (says ptxas)"
        )
        resource = f"{overflow.resource} over the limit"
        return _failed(VerdictKind.OUT_OF_RESOURCES, stage, reason, message=resource)
    errors = evidence.log.errors if evidence.log else ()
    for text in (said, *(error.text for error in errors)):
        if _PTXAS_UNSUPPORTED.search(text):
            return _failed(VerdictKind.UNSUPPORTED, stage, f"this ptxas cannot do it: {text}")
    if _NO_MEMORY.search(said):
        return _failed(VerdictKind.OUT_OF_MEMORY, stage, f"ptxas ran out of memory: {said}")
    if _OUR_FAULT.search(said):
        reason = f"ptxas could not read or write a file: {said}"
        return Verdict(kind=VerdictKind.INFRA, reason=reason, stage=stage)
    return None


def _judge_stub(evidence: CellEvidence) -> Verdict | None:
    ptx, expected = evidence.ptx, evidence.ttir_effects
    if ptx is None or not ptx.does_nothing:
        return None
    if evidence.lowering is None:
        if not ptx.always_traps:
            return None
        reason = "the kernel only traps; there is no source to compare the PTX with"
        return _failed(VerdictKind.TRAP_STUB, Stage.PTX, reason, message="the kernel only traps")
    if not expected:
        return None
    if not ptx.is_trap_stub:
        return _failed(
            VerdictKind.SICK,
            Stage.LLIR,
            "the compiled kernel writes nothing, though its source has "
            f"{_plural(expected, 'store')} or other effects",
            message="the compiled kernel writes nothing",
        )
    why = _tmem_overflow(evidence)
    reason = f"{why}, and Triton" if why else "Triton"
    message = "tensor memory over the limit, lowered to a trap" if why else "lowered to a trap"
    return _failed(
        VerdictKind.TRAP_STUB,
        Stage.LLIR,
        f"{reason} lowered the kernel to a trap; ptxas never saw the real kernel",
        message=message,
    )


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
    over: list[tuple[str, str]] = []
    if needs.shared is not None and needs.shared > limits.max_shared_per_block:
        allowed = f"{target} allows {limits.max_shared_per_block:,} B"
        over.append(("shared memory", f"needs {needs.shared:,} B of shared memory, {allowed}"))
    tmem = _tmem_overflow(evidence)
    if tmem:
        over.append(("tensor memory", tmem))
    if needs.threads is not None and needs.threads > limits.max_threads_per_block:
        allowed = f"{target} allows {limits.max_threads_per_block:,}"
        over.append(("threads", f"has {needs.threads:,} threads a block, {allowed}"))
    occupancy = evidence.occupancy
    if not over and occupancy and occupancy.blocks_per_sm == 0:
        over.append((occupancy.limiter, _no_room(needs, occupancy.limiter, limits, target)))
    if not over:
        return None
    return _failed(
        VerdictKind.OUT_OF_RESOURCES,
        Stage.LAUNCH,
        "; ".join(said for _, said in over) + ": the launch would be refused",
        message=", ".join(what for what, _ in over) + " over the limit",
    )


def _no_room(needs: Resources, limiter: str, limits: Limits, target: Target) -> str:
    """Why not one block fits on a multiprocessor."""
    if limiter == "registers" and needs.n_regs is not None and needs.threads is not None:
        return (
            f"needs {needs.n_regs} registers for each of {needs.threads:,} threads, "
            f"{target} has {limits.registers_per_block:,} a block"
        )
    if limiter == "barriers" and needs.barriers is not None:
        return f"needs {needs.barriers} barriers, {target} has {limits.max_barriers} a block"
    return f"not one block fits on {target}, for want of {limiter}"


def _judge_health(evidence: CellEvidence, thresholds: Thresholds) -> Verdict | None:
    needs = evidence.resources
    complaints: list[tuple[str, str]] = []
    if needs.spills is not None and needs.spills >= thresholds.spill_bytes:
        traffic = f"{needs.spill_stores:,} B stores and {needs.spill_loads:,} B loads a thread"
        at = "" if needs.n_regs is None else f" at {needs.n_regs} registers"
        complaints.append(("spills", f"spills {traffic}{at}"))
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


def _death_signal(end: ProcessEnd) -> int | None:
    """The signal that ended a process, also where a shell in between reports it as 128 + n."""
    if end.signal is not None:
        return end.signal
    number = (end.exit_code or 0) - _SHELL_SIGNAL
    return number if number in _OWN_SIGNALS or number == signals.SIGKILL else None


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        # Spelt as one word, since plain numbers are folded in signatures.
        return f"SIG{number}"


def _after(said: str) -> str:
    return f": {said}" if said else ""


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _without_name(said: str, ptx: PtxFacts | None) -> str:
    if ptx is None:
        return said
    return re.sub(rf"(?<![\w$]){re.escape(ptx.entry)}(?![\w$])", "KERNEL", said)


def _is_internal(said: str, code: str | None) -> bool:
    """Whether ptxas blames itself; what is quoted are names of the kernel's."""
    words = _QUOTED.sub("", said)
    return bool(_INTERNAL_ERROR.search(words) or (code and _INTERNAL.search(words)))


def _essence(error: RaisedError) -> str:
    """One line for an exception.

    Triton quotes source code first, underlined by a caret, and says what is wrong below. Where it
    says nothing there (Triton 3.2), the exception that started it all does.
    """
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    carets = [number for number, line in enumerate(lines) if _CARETS.fullmatch(line)]
    said = lines[carets[-1] + 1 :] if carets else lines
    if said:
        return f"{error.type}: {said[0][:300]}"
    cause = _RAISED.search(error.traceback)
    return f"{error.type}: {cause[0][:300]}" if cause else error.type


def _last_words(log: str) -> str:
    """The line of a log that says why a process died: the last one of the most telling kind."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for telling in _DEATH:
        for number in reversed(range(len(lines))):
            if telling.search(lines[number]):
                # LLVM's "UNREACHABLE executed at FILE:LINE" comes below what it has to say.
                below = number and lines[number].startswith("UNREACHABLE")
                return (f"{lines[number - 1]}; " if below else "")[:300] + lines[number][:300]
    return ""


def _first_error(log: str) -> str:
    """The first error that MLIR reports which says more than that a pass failed."""
    found = [match[1].strip()[:300] for match in re.finditer(r"\berror: ([^\n]+)", log)]
    telling = [text for text in found if not text.startswith(_GENERIC_ERRORS)]
    return next(iter([*telling, *found]), "")


def _line_of(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:300]


def _worst(messages: tuple[Message, ...]) -> Message | None:
    """The message that says what failed: the first fatal one with a code, an error, a fatal one.

    ptxas ends every failed run with a fatal line that only says so; the errors before it tell why.
    """
    fatal = [message for message in messages if message.severity == "fatal"]
    errors = [message for message in messages if message.severity == "error"]
    coded = [message for message in [*fatal, *errors] if message.code]
    return next(iter([*coded, *errors, *fatal]), None)
