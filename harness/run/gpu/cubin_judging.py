"""What cubins of one PTX computed on a GPU, and whose fault it is where they disagree. Pure.

The referee is the emulator: it executed the same PTX on the same inputs. What the repro's author
says comes before it. A cubin is accused only where another one of the same PTX confirms the referee
(or the author does), and only of what the PTX specifies: what depends on approximations, on
contraction or on registers that nothing wrote accuses no cubin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import structs

from gpu_emulator.ptx.text.document import Document, Statement, StatementKind, parse, statement
from gpu_emulator.ptx.text.facts import Instruction
from gpu_emulator.ptx.text.registers import read_registers, undefined_reads, without_scopes
from harness.run.comparing import ELEMENTS, Difference, compare, near, tolerance_of
from harness.run.emulator_jobs import JobBuffer
from harness.run.gpu.measured import GpuFacts, GpuRun, Measured
from harness.run.judging import (
    BY_VALUE,
    EMULATED_PTX,
    EMULATOR_WORDS,
    FAULTS,
    Judgement,
    differing,
    output_facts,
    schedule_words,
    signature_of,
)
from harness.run.launch import RunEvidence, Trusted, tensors_of
from harness.values.execution import Argument, OutputFacts
from harness.values.toolchain import EVIDENCE, GPU, SASS
from harness.values.verdict import VerdictKind

# What the PTX ISA leaves open in a program, and the same program with other choices.
#
# Two right compilers may differ in what is left open: how far an approximate instruction is from
# the exact value, whether a product is rounded before it is added (contraction), what a register
# holds that nothing wrote. A program whose result depends on one of these accuses no cubin. So the
# emulator executes it with other choices too, written into its text: results moved by what is
# allowed, and registers filled. Sources: PTX ISA, "Floating Point Instructions" (bounds of the
# approximations; "an add with no rounding modifier may be contracted"),
# `emulator/gpu_emulator/numbers/arithmetic.py`.

_ALWAYS_APPROXIMATE = frozenset({"ex2", "lg2", "sin", "cos", "tanh"})
_CONTRACTED = frozenset({"mul", "add", "sub"})
_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp"})
_FLOAT = re.compile(r"(?:b?f16(?:x2)?|f32(?:x2)?|f64)\Z")
_TENSOR_CORES = frozenset({"mma", "wmma", "wgmma", "tcgen05"})
_MULTIPLIES = frozenset({"mma", "mma_async"})
_ATOMIC = frozenset({"atom", "red", "multimem"})

# By type, the factors 1 + e and 1 - e. A contraction moves a product by half a unit in the last
# place, an approximation of f32 by two (`ex2`, `div`), one of f64 by 2**-20; e is at least twice
# that.
_FACTORS = {
    "f32": ("0f3F800002", "0f3F7FFFFC"),
    "f64": ("0d3FF0000200000000", "0d3FEFFFFC00000000"),
}
_EXACT_F64 = ("0d3FF0000000000002", "0d3FEFFFFFFFFFFFFC")
_OF_TANH = ("0f3F802000", "0f3F7FC000")
# Bounds that are absolute errors: 2**-20.5 of sin and cos, 2**-22 of lg2; these are 2**-20, 2**-21.
_SUMMANDS = {
    "sin": ("0f35800000", "0fB5800000"),
    "cos": ("0f35800000", "0fB5800000"),
    "lg2": ("0f35000000", "0fB5000000"),
}
_SIGNS: tuple[Callable[[int], int], ...] = (
    lambda _: 0,
    lambda _: 1,
    lambda number: number % 2,
    lambda number: (number + 1) % 2,
)
_FILLINGS = (0, 1, -1, 0x5A827999)
_WIDTH = re.compile(r"\.[bsuf](\d+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedom:
    """Opcodes that may be rounded otherwise, by whether `moved_variants` moves them; registers.

    `undefined` are registers that some way through the program reads before it writes them.
    `has_floats`: it computes with them, so that NaN may come out.
    """

    moved: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    has_floats: bool = False

    @property
    def is_exact(self) -> bool:
        """Every bit of every result is specified, registers apart."""
        return not self.moved and not self.unmoved

    @property
    def words(self) -> str:
        """The opcodes, a few of them."""
        names = list(dict.fromkeys((*self.unmoved, *self.moved)))
        return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def read_freedom(ptx: str) -> Freedom:
    """What a module leaves open, in whichever of its functions."""
    document = parse(ptx)
    moved: dict[str, None] = {}
    unmoved: dict[str, None] = {}
    for _, instruction in _free(document):
        (moved if _mover(instruction) else unmoved)[instruction.opcode] = None
    plain = without_scopes(document)
    reads = [read for function in plain.functions for read in undefined_reads(plain, function)]
    return Freedom(
        moved=tuple(moved),
        unmoved=tuple(unmoved),
        undefined=tuple(dict.fromkeys(read.register for read in reads)),
        has_floats=any(map(_has_float, (instruction for _, instruction in document.instructions))),
    )


def _free(document: Document) -> Iterator[tuple[int, Instruction]]:
    """The instructions whose result is not specified to the bit."""
    instructions = document.instructions
    adds = any(_is_contracted(addend) and addend.base != "mul" for _, addend in instructions)
    for place, instruction in instructions:
        is_product = adds and instruction.base == "mul" and _is_contracted(instruction)
        if is_product or _is_approximate(instruction) or _is_unordered(instruction):
            yield place, instruction


def _type(instruction: Instruction) -> str:
    return instruction.modifiers[-1] if instruction.modifiers else ""


def _has_float(instruction: Instruction) -> bool:
    return any(map(_FLOAT.match, instruction.modifiers))


def _is_contracted(instruction: Instruction) -> bool:
    is_float = _FLOAT.match(_type(instruction)) and instruction.base in _CONTRACTED
    return bool(is_float) and not _ROUNDINGS & set(instruction.modifiers)


def _is_approximate(instruction: Instruction) -> bool:
    words = {"approx", "full"} & set(instruction.modifiers)
    return instruction.base in _ALWAYS_APPROXIMATE or bool(words)


def _is_unordered(instruction: Instruction) -> bool:
    """Sums of floating-point numbers in an order of the chip's own."""
    if instruction.base in _ATOMIC:
        return _has_float(instruction)
    words = _MULTIPLIES & {instruction.base, *instruction.modifiers}
    return instruction.base in _TENSOR_CORES and bool(words)


def _mover(instruction: Instruction) -> Callable[[int], list[str]] | None:
    """The instructions that move the result up (0) or down (1); None where none can."""
    kind = _type(instruction)
    if kind not in _FACTORS or len(instruction.writes) != 1:
        return None
    [result] = instruction.writes
    factors = _FACTORS[kind]
    if instruction.base == "tanh":
        factors = _OF_TANH
    elif kind == "f64" and not _is_approximate(instruction):
        factors = _EXACT_F64
    summands = _SUMMANDS.get(instruction.base)

    def move(sign: int) -> list[str]:
        lines = [f"mul.rn.{kind} {result}, {result}, {factors[sign]};"]
        if summands:
            lines.append(f"add.rn.{kind} {result}, {result}, {summands[sign]};")
        return [f"{instruction.guard} {line}".strip() for line in lines]

    return move


def moved_variants(ptx: str) -> list[str]:
    """The program with what it leaves open chosen otherwise, in several ways."""
    document = parse(ptx)
    movers = [(place, mover) for place, free in _free(document) if (mover := _mover(free))]
    if not movers:
        return []
    variants = []
    for sign in _SIGNS:
        changes = {
            place: (document.statements[place], *_lines(move(sign(number))))
            for number, (place, move) in enumerate(movers)
        }
        variants.append(str(document.replaced(changes)))
    return variants


def _lines(texts: Sequence[str]) -> list[Statement]:
    return [statement(StatementKind.INSTRUCTION, text) for text in texts]


def filled_variants(ptx: str) -> list[str]:
    """The program with every register that it may read undefined filled; none if there is none."""
    document = without_scopes(parse(ptx))
    variants = []
    for filling in _FILLINGS:
        changes: dict[int, Sequence[Statement]] = {}
        for function in document.functions:
            names = dict.fromkeys(read.register for read in undefined_reads(document, function))
            first = next(
                (n for n in function.body if document.statements[n].kind in _BEGINNINGS), None
            )
            if names and first is not None:
                types = read_registers(document, function)
                fill = [_filled(name, types.type_of(name) or "", filling) for name in names]
                changes[first] = (*_lines(fill), document.statements[first])
        if changes:
            variants.append(str(document.replaced(changes)))
    return variants


_BEGINNINGS = frozenset({StatementKind.INSTRUCTION, StatementKind.LABEL})


def _filled(name: str, kind: str, value: int) -> str:
    if kind == ".pred":
        return f"setp.eq.u32 {name}, {value & 1}, 1;"
    width = _WIDTH.match(kind)
    bits = int(width[1]) if width else 32
    return f"mov.b{bits} {name}, {value & ((1 << bits) - 1):#x};"


# The referee between cubins of one PTX: the emulator, and what the PTX leaves open.

Variant = tuple[str, ...] | None
"""The buffers after a program was emulated with other choices, by sha256; None: it did not end."""

_EVERY_CUBIN = "no cubin agrees with it, and the emulator is taken to be right (--expect emulated)"
_EXACT = "iub"
_FLOAT_BYTES = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxReference:
    """What is known of the PTX: how the emulator judges it, what it may differ in; and its cubins.

    `cases` are those of one launch, and each is a witness of the others. `evidence` holds the
    emulator's runs, and the bytes of all buffers, those of cubins too. `moved` are the buffers
    after emulated runs with what is left open chosen otherwise, `filled` those with other values in
    registers that nothing wrote.
    """

    cases: Sequence[Measured]
    gpu: GpuFacts
    evidence: RunEvidence
    judgement: Judgement
    freedom: Freedom
    moved: tuple[Variant, ...] = ()
    filled: tuple[Variant, ...] = ()

    @property
    def emulated(self) -> Trusted | None:
        """What the emulator left, where it came to the end."""
        runs = self.evidence.runs
        if self.evidence.problem or not runs or not all(run.ended for run in runs):
            return None
        return Trusted(words=self.peer, buffers=runs[0].buffers)

    @property
    def is_emulated(self) -> bool:
        """Whether the cubins are emulated, too: then an emulator may be what is wrong."""
        return any(case.on == SASS for case in self.cases)

    @property
    def peer(self) -> str:
        """What the emulation of the PTX is called beside what executed the cubins."""
        return EMULATED_PTX if self.is_emulated else EMULATOR_WORDS

    @property
    def how(self) -> str:
        """The word with which each statement begins."""
        return next((case.how for case in self.cases), EVIDENCE[GPU])

    def _allowed(self, tensor: Argument) -> float:
        """How far floating-point values may be apart: not at all where every bit is specified."""
        return 0.0 if self.freedom.is_exact else self.evidence.allowed(tensor)

    @property
    def _alone(self) -> str:
        return (
            f"no other cubin of this PTX agrees with {self.peer}, so that either may be wrong; "
            "add -O levels or versions of ptxas"
        )

    @property
    def needs_variants(self) -> bool:
        """Whether a cubin ends otherwise than the emulator: then it matters what is left open."""
        executed = [case for case in self.cases if case.problem is None]
        return self.emulated is not None and not all(map(self._agrees, executed))

    def _agrees(self, case: Measured) -> bool:
        """Whether every run of a cubin ended as the emulator did."""
        emulated = self.emulated
        return emulated is not None and self._leaves(case, emulated.buffers)

    def _leaves(self, case: Measured, buffers: Sequence[str | None]) -> bool:
        """Whether every run of a cubin came to its end, and left these buffers."""
        return bool(case.runs) and all(
            run.status == "ended" and not run.guards and not self._differing(run.buffers, buffers)
            for run in case.runs
        )

    def _differing(self, buffers: Sequence[str], expected: Sequence[str | None]) -> bool:
        """Whether buffers hold something else than what is expected of them (None: nothing)."""
        return any(
            expected[tensor.buffer] not in (None, buffers[tensor.buffer])
            and self._compared(tensor, buffers, expected).differing
            for tensor in self.evidence.tensors
        )

    def _outputs(
        self, buffers: Sequence[str], expected: Sequence[str | None]
    ) -> tuple[OutputFacts, ...]:
        """Each tensor that was written, or had to be, against what it must hold."""
        outputs = []
        for tensor in self.evidence.tensors:
            after, must = buffers[tensor.buffer], expected[tensor.buffer]
            before = self.evidence.launch.before[tensor.buffer]
            if must is not None and not after == must == before:
                difference = self._compared(tensor, buffers, expected)
                outputs.append(output_facts(tensor.name, tensor.dtype, difference, after))
        return tuple(outputs)

    def _stable_differences(self, buffers: Sequence[str]) -> int:
        """How many elements differ from the emulator's, and depend on nothing that is left open.

        Integers of a program that adds in an order of the chip's own may depend on it: none counts.
        """
        emulated = self.emulated
        assert emulated is not None
        count = 0
        for tensor in self.evidence.tensors:
            right = self.evidence.values(tensor, emulated.buffers)
            if self.freedom.unmoved and right.dtype.kind in _EXACT:
                continue
            bad = self._far(tensor, buffers, right)
            for moved in self.moved:
                bad &= False if moved is None else ~self._far(tensor, moved, right)
            count += int(bad.sum())
        return count

    def _compared(
        self, tensor: Argument, buffers: Sequence[str], expected: Sequence[str | None]
    ) -> Difference:
        left, right = (self.evidence.values(tensor, names) for names in (buffers, expected))
        return compare(left, right, self._allowed(tensor))

    def _far(
        self, tensor: Argument, buffers: Sequence[str], right: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """Which elements are farther from what they must be than is allowed."""
        left = self.evidence.values(tensor, buffers)
        if left.dtype.kind not in _EXACT:
            return ~near(left, right, self._allowed(tensor))
        bad = np.asarray(left != right)
        if self.freedom.has_floats and left.dtype.itemsize in _FLOAT_BYTES:
            # Two right compilers may differ in which NaN it is.
            nans = [np.isnan(bits.view(f"f{bits.dtype.itemsize}")) for bits in (left, right)]
            bad &= ~(nans[0] & nans[1])
        return bad

    def judge(self, case: Measured) -> Judgement:
        """Say what a cubin did."""
        judgement = replace(self._judge(case), schedule=None)
        # The emulator's schedules that leave what every run of the cubin left, if others do not.
        ended = [run for run in self.evidence.runs if run.ended]
        equal = [run for run in ended if self._leaves(case, run.buffers)]
        if not equal or equal == ended or self.judgement.verdict not in BY_VALUE:
            return judgement
        orders = ", ".join(schedule_words(run.trial.schedule) for run in equal)
        # The program is wrong under other orders; this GPU never showed one of them.
        emulated = self.judgement.reason
        where = "here" if self.is_emulated else "on this GPU"
        reason = (
            f"{self.how}: latent {where}: every run left what {self.peer} leaves under "
            f"{orders}; {emulated}"
        )
        if judgement.verdict is VerdictKind.RIGHT:
            reason = f"{judgement.reason}; {self.peer} leaves this under {orders} only: {emulated}"
        return replace(judgement, reason=reason, schedule=orders)

    def _judge(self, case: Measured) -> Judgement:
        # What the emulator saw end takes a GPU no such time.
        is_told = self.emulated is not None or self.judgement.verdict is VerdictKind.HANG
        buffers = self.evidence.launch.emulation.buffers
        failure = judge_end(case, buffers, self.gpu, is_told=is_told)
        if failure:
            is_fault = failure.verdict.is_failure and case.runs[-1].status != "refused"
            return self._accused(case, failure) if is_fault else failure
        first, *repeats = case.ended
        for run in repeats:
            if self._differing(run.buffers, first.buffers):
                return self._nondeterministic(case, run)
        return self._by_value(case, first)

    def _accused(self, case: Measured, fault: Judgement) -> Judgement:
        """A fault: the PTX's own where the emulator says so, else the cubin's."""
        of_ptx = self._fault_of_ptx()
        if of_ptx is not None:
            return replace(
                fault,
                reason=f"{fault.reason}; {of_ptx}",
                reference=self.peer,
                signature=self.judgement.signature or fault.signature,
            )
        unspecified = self._unspecified()
        if unspecified:
            return replace(unspecified, reason=f"{fault.reason}; {unspecified.reason}")
        for witness in self._witnesses(case):
            return replace(fault, reason=f"{fault.reason}; {witness} ends as {self.peer} does")
        if self.is_emulated:
            return _not_run(f"{fault.reason}: cannot tell: {self._alone}")
        return fault

    def _fault_of_ptx(self) -> str | None:
        """What is wrong with the program itself, with every compiler."""
        judgement = self.judgement
        if not judgement.verdict.is_failure or judgement.verdict is VerdictKind.WRONG_RESULT:
            return None
        return f"the PTX itself: {judgement.verdict.value}, {judgement.reason}"

    def _witnesses(self, case: Measured) -> list[str]:
        """The other cubins that end as the emulator does."""
        peers = (peer for peer in self.cases if peer is not case)
        return [peer.words for peer in peers if self._agrees(peer)]

    def _nondeterministic(self, case: Measured, run: GpuRun) -> Judgement:
        first, *_ = case.ended
        unspecified = self._unspecified()
        if unspecified:
            return unspecified
        if self.is_emulated and all(map(self._is_of_ptx, case.ended)):
            # The program is so: its cubin leaves what the PTX leaves under one order or another.
            reason = f"{self.how}: leaves what {self.peer} leaves; {self.judgement.reason}"
            return replace(self.judgement, reason=reason)
        outputs = self._outputs(run.buffers, first.buffers)
        _, words, names = differing(outputs)
        if self.is_emulated and not self._witnesses(case):
            words = f"{words} between two orders of one cubin"
            return _not_run(f"{self.how}, and cannot tell: {words}; {self._alone}", outputs)
        return Judgement(
            verdict=VerdictKind.NONDETERMINISTIC,
            reason=f"{self.how}: {words} between two runs of the same cubin on the same inputs",
            outputs=outputs,
            signature=signature_of(VerdictKind.NONDETERMINISTIC, names),
        )

    def _is_of_ptx(self, run: GpuRun) -> bool:
        """Whether one of the runs of the PTX left what this run left."""
        ended = [ran for ran in self.evidence.ran if ran.ended]
        return any(not self._differing(run.buffers, ran.buffers) for ran in ended)

    def _unspecified(self) -> Judgement | None:
        """What the emulator finds wrong with the PTX: then no cubin is to blame."""
        fault = self._fault_of_ptx()
        if fault:
            reason = f"{fault}; the cubin is not accused"
            return replace(self.judgement, reason=reason, outputs=())
        emulated = self.emulated
        # Other values in registers that nothing wrote give another result, or a fault.
        if emulated and any(
            buffers is None or self._differing(buffers, emulated.buffers) for buffers in self.filled
        ):
            names = ", ".join(self.freedom.undefined[:4])
            return Judgement(
                verdict=VerdictKind.UNINITIALISED,
                reason=f"the result depends on registers that nothing wrote: {names}; no cubin is "
                "accused",
                signature=signature_of(VerdictKind.UNINITIALISED, "depends on registers"),
            )
        return None

    def _agreement(self, run: GpuRun, trusted: Trusted, more: str = "") -> Judgement | None:
        """That a run left what is trusted; None where it did not."""
        outputs = self._outputs(run.buffers, trusted.buffers)
        if any(output.differing for output in outputs):
            return None
        return Judgement(
            verdict=VerdictKind.RIGHT,
            reason=f"{self.how}: agrees with {trusted.words}{more}",
            reference=trusted.words,
            outputs=outputs,
        )

    def _by_value(self, case: Measured, run: GpuRun) -> Judgement:
        emulated, judgement = self.emulated, self.judgement
        trusted = self.evidence.launch.trusted
        author = next((reference for reference in trusted if reference.is_final), None)
        if author and (agreement := self._agreement(run, author)):
            if not self.is_emulated or judgement.verdict is not VerdictKind.RACE:
                return agreement
            # No order that was emulated shows it in values.
            reason = f"{agreement.reason}; {judgement.reason}"
            return replace(judgement, reason=reason, outputs=agreement.outputs)
        if emulated is None:
            if judgement.verdict in (VerdictKind.MEMORY_FAULT, VerdictKind.LAUNCH_FAILED):
                # It is wrong all the same. Not where it took too long there: a GPU is faster.
                return replace(judgement, reason=f"it came to an end; {self._fault_of_ptx()}")
            return self._without_referee(case, run)
        more = "" if self.is_emulated else ", which executed the same PTX"
        agreement = self._agreement(run, emulated, more)
        if agreement is None:
            return self._differs(case, run, emulated, author)
        if judgement.verdict.is_fine_run:
            return agreement
        reason = f"agrees with {self.peer}, which says of the PTX: {judgement.reason}"
        if self.is_emulated:
            reason = f"agrees with {self.peer}; {judgement.reason}"
        return replace(judgement, reason=f"{self.how}: {reason}")

    def _differs(
        self, case: Measured, run: GpuRun, emulated: Trusted, author: Trusted | None
    ) -> Judgement:
        freedom = self.freedom
        is_open = not freedom.is_exact or freedom.has_floats
        unspecified = self._unspecified()
        if unspecified:
            return unspecified
        if is_open and not self._stable_differences(run.buffers):
            return _not_run(
                f"{self.how}, and cannot tell: what differs depends on what the PTX leaves open "
                f"({freedom.words or 'which NaN it is'}); no cubin is accused"
            )
        witnesses = self._witnesses(case)
        # One of the same ptxas says most: what is said depends on no other that went along.
        witnesses.sort(key=lambda words: words.split()[:2] != case.words.split()[:2])
        if author and self.judgement.verdict is VerdictKind.RIGHT:
            witnesses = [author.words]
        outputs = self._outputs(run.buffers, emulated.buffers)
        worst, words, names = differing(outputs)
        values = f"{_number(worst.actual)} in place of {_number(worst.expected)}"
        whose = self.peer if self.is_emulated else f"{self.peer}'s"
        words = f"{words} from {whose}; first at {worst.where}: {values}"
        right = f"{witnesses[0]} agrees with {self.peer}" if witnesses else _EVERY_CUBIN
        if not witnesses and not self.evidence.launch.emulator_is_right:
            return _not_run(f"{self.how}, and cannot tell: {words}; {self._alone}", outputs)
        return Judgement(
            verdict=VerdictKind.WRONG_RESULT,
            reason=f"{self.how}: {words}; {right}",
            reference=self.peer,
            outputs=outputs,
            signature=signature_of(VerdictKind.WRONG_RESULT, f"ptxas: {names}"),
        )

    def _without_referee(self, case: Measured, run: GpuRun) -> Judgement:
        """Nothing says what the PTX computes: all that can be said is whether cubins agree."""
        reason = self.judgement.reason
        peers = [
            peer
            for peer in self.cases
            if peer is not case
            and peer.ended
            and all(run.status == "ended" and not run.guards for run in peer.runs)
        ]
        for peer in peers:
            if self._differing(peer.ended[0].buffers, run.buffers):
                return _not_run(
                    f"{self.how}, and cannot tell: {peer.words} computes something else, and "
                    f"{self.peer} does not say which is right: {reason}"
                )
        for trusted in self.evidence.launch.trusted[:1]:
            if agreement := self._agreement(run, trusted):
                return agreement
        words = f"agrees with {len(peers)} other cubins" if peers else "finished, alike"
        return Judgement(
            verdict=VerdictKind.RAN,
            reason=f"{self.how}: {words}; no reference to compare with: {reason}",
        )


# CUDA driver API, CUresult: what a kernel that was started may end with.
_TRAPS = frozenset({710, 715, 718, 719})
_NO_BINARY = 209
_OUT_OF_MEMORY = 2
_WHOLE = 2.0**53


def judge_end(
    case: Measured, buffers: Sequence[JobBuffer], gpu: GpuFacts, *, is_told: bool = False
) -> Judgement | None:
    """What went wrong before there were values, by what its machine saw.

    `is_told`: it is known whether the program ends, so that one that takes too long hangs.
    """
    if case.problem is not None:
        return _not_run(case.problem)
    if not case.runs:
        return _not_run("the GPU's machine gave no result for it: the run was cut off")
    last, verdict = case.runs[-1], VerdictKind.MEMORY_FAULT
    if last.status == "refused":
        return _refused(last, gpu)
    if case.on == SASS and last.status != "ended":
        verdict = FAULTS[last.name]
        signature = signature_of(verdict, last.call)
        return Judgement(verdict=verdict, reason=f"{case.how}: {last.words}", signature=signature)
    if last.status == "hang":
        verdict, words = VerdictKind.HANG, f"no end within {last.seconds or 0:g} s"
        if not is_told:
            why = "whether it ends is not known: run it with a larger --gpu-timeout"
            return _not_run(f"measured, and not finished: {words}; {why}")
    elif last.status == "died":
        words = f"the process died by signal {last.signal}"
    elif last.status == "fault":
        verdict = VerdictKind.LAUNCH_FAILED if last.code in _TRAPS else verdict
        words = f"{last.name} ({last.code}): {last.words}"
    elif guard := next((guard for run in case.runs for guard in run.guards), None):
        words = f"{guard.bytes} bytes {guard.side} {buffers[guard.buffer].name} were written"
    else:
        return None
    return Judgement(
        verdict=verdict, reason=f"measured: {words}", signature=signature_of(verdict, words)
    )


def _refused(run: GpuRun, gpu: GpuFacts) -> Judgement:
    limit = ""
    if run.code == _NO_BINARY:
        limit = f"; this GPU is sm_{gpu.capability}"
    elif run.code == _OUT_OF_MEMORY:
        limit = f"; this GPU has {gpu.memory / 2**30:.0f} GiB"
    elif run.needs:
        needs = ", ".join(f"{name} {value}" for name, value in sorted(run.needs.items()))
        limit = (
            f"; the entry has {needs}; this GPU gives a block {gpu.max_shared:,} bytes of shared "
            f"memory and {gpu.max_threads:,} threads"
        )
    return Judgement(
        verdict=VerdictKind.LAUNCH_FAILED,
        reason=f"measured: {run.call}: {run.name} ({run.code}): {run.words}{limit}",
        signature=signature_of(VerdictKind.LAUNCH_FAILED, run.name),
    )


def _not_run(reason: str, outputs: tuple[OutputFacts, ...] = ()) -> Judgement:
    return Judgement(verdict=VerdictKind.NOT_RUN, reason=reason, outputs=outputs)


def _number(value: float | None) -> str:
    """Integers in full: the last digit may be what differs."""
    if value is None:
        return "nothing"
    if value.is_integer() and abs(value) < _WHOLE:
        return str(int(value))
    return f"{value:.6g}"


# What can be said of cubins whose buffers did not come back: how they ended, and who agrees.
#
# Nothing is emulated at such sizes: values are judged at small ones. A cubin is accused here of
# what its machine saw (a fault, a refusal, a hang), and where it stands alone: cubins whose configs
# differ only in what leaves the kernel's meaning alone (warps, stages) are given the same memory,
# and have to leave the same numbers in it, as far as their arithmetic explains. Few of these are
# looked at.

_ATOMICS = re.compile(r"\b(?:atom|red|multimem)\.")
# One that stands alone is wrong where at least two others agree: as `prevailing` has it.
_AGREEMENT = 2

Numbers: TypeAlias = Mapping[str, tuple[str, npt.NDArray[np.float64]]]
"""By the name of a buffer: its type, and the numbers that were looked at."""


def digest_of(run: GpuRun, buffers: Sequence[JobBuffer]) -> tuple[str, ...]:
    """Of the buffers that hold something at the start: scratch memory differs by design."""
    pairs = zip(run.buffers, buffers, strict=True)
    return tuple(sha256 for sha256, buffer in pairs if buffer.file is not None)


def judge_digests(
    case: Measured, buffers: Sequence[JobBuffer], ptx: str, gpu: GpuFacts
) -> Judgement:
    """Say what a cubin of this PTX did, launched with these buffers."""
    failure = judge_end(case, buffers, gpu)
    if failure:
        return failure
    words = "it came to its end; runs differ"
    if len({digest_of(run, buffers) for run in case.ended}) == 1:
        words = "it came to its end, alike in all runs"
    elif _ATOMICS.search(ptx):
        words += ", and it has atomic operations, whose order is open"
    return Judgement(
        verdict=VerdictKind.RAN,
        reason=f"measured: {words}; at this size nothing is compared with a reference",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinDigest:
    """A cubin that came to its end: those with the same `place` must compute the same.

    `cubin` is its sha256, `words` name its config and assembler, `types` are those that its PTX
    computes with, `changed` are the names of buffers that hold something else than before.
    """

    place: Hashable
    cubin: str
    words: str
    judgement: Judgement
    types: frozenset[str]
    numbers: Numbers
    changed: frozenset[str]


def judge_together(cubins: Sequence[CubinDigest]) -> list[Judgement]:
    """The judgement of each, with what the others of its place left."""
    places: dict[Hashable, list[CubinDigest]] = {}
    for cubin in cubins:
        places.setdefault(cubin.place, []).append(cubin)
    judgements = {
        id(cubin): judgement
        for peers in places.values()
        for cubin, judgement in zip(peers, _judge_peers(peers), strict=True)
    }
    return [judgements[id(cubin)] for cubin in cubins]


def _judge_peers(peers: Sequence[CubinDigest]) -> list[Judgement]:
    outputs = frozenset[str]().union(*(peer.changed for peer in peers))
    apart = [[_apart(peer, rival, outputs) for rival in peers] for peer in peers]
    # The same bytes agree with themselves, and say nothing more.
    agreeing = [
        len({rival.cubin for rival, outputs in zip(peers, row, strict=True) if not outputs})
        for row in apart
    ]
    cubins = len({peer.cubin for peer in peers})
    judgements = []
    for peer, row, count in zip(peers, apart, agreeing, strict=True):
        rivals = [n for n, outputs in enumerate(row) if outputs and agreeing[n] >= count]
        if cubins == 1 or not outputs:
            judgements.append(peer.judgement)
        elif not rivals:
            size = sum(peer.numbers[name][1].size for name in outputs)
            words = f"those of {count - 1} of {cubins - 1} other cubins of the launch"
            reason = f"{size:,} numbers that were looked at agree with {words}"
            reason = f"{peer.judgement.reason}; {reason}"
            judgements.append(replace(peer.judgement, reason=reason))
        else:
            rival = max(rivals, key=agreeing.__getitem__)
            most = agreeing[rival] if count == 1 and agreeing[rival] >= _AGREEMENT else 0
            judgements.append(_differs(row[rival], peers[rival].words, most))
    return judgements


def _differs(outputs: tuple[OutputFacts, ...], beside: str, most: int) -> Judgement:
    """`most` cubins agree with the other one, and none with this; 0 where that says nothing."""
    worst, _, names = differing(outputs)
    words = (
        f"{worst.differing} of {worst.elements} numbers of {worst.name} that were looked at differ "
        f"from those of {beside}, by up to {worst.max_abs:.3g}"
    )
    if not most:
        return _not_run(
            f"measured, and cannot tell: {words}, and nothing says which is right", outputs
        )
    return Judgement(
        verdict=VerdictKind.WRONG_RESULT,
        reason=f"measured: {words}, and {most} cubins of the launch agree with one another",
        reference=beside,
        outputs=outputs,
        signature=signature_of(VerdictKind.WRONG_RESULT, f"configs: {names}"),
    )


def _apart(
    cubin: CubinDigest, rival: CubinDigest, names: frozenset[str]
) -> tuple[OutputFacts, ...]:
    outputs = []
    for name in sorted(names):
        (dtype, left), (_, right) = cubin.numbers[name], rival.numbers[name]
        # What overflows in one order of adding need not in another.
        finite = np.isfinite(left) & np.isfinite(right)
        kind, allowed = ELEMENTS[dtype], tolerance_of({dtype, *cubin.types, *rival.types})
        difference = compare(left[finite].astype(kind), right[finite].astype(kind), allowed)
        if difference.differing:
            outputs.append(structs.replace(output_facts(name, dtype, difference), where=None))
    return tuple(outputs)


def numbers_of(
    glimpses: Sequence[str], arguments: Sequence[Argument], buffers: Sequence[JobBuffer]
) -> Numbers:
    """The numbers of floating-point buffers among what was looked at."""
    types = {tensor.buffer: tensor.dtype for tensor in reversed([*tensors_of(arguments)])}
    numbers: dict[str, tuple[str, npt.NDArray[np.float64]]] = {}
    for number, digits in enumerate(glimpses):
        kind = ELEMENTS.get(types.get(number, ""))
        raw = bytes.fromhex(digits)
        if raw and kind is not None and kind.kind not in "iubc" and not len(raw) % kind.itemsize:
            values = np.frombuffer(raw, kind).astype(np.float64)
            numbers[buffers[number].name] = types[number], values
    return numbers
