"""What cubins of one PTX computed on a GPU, and whose fault it is where they disagree. Pure.

The referee is the emulator: it executed the same PTX on the same inputs. What the repro's author
says comes before it. A cubin is accused only where another one of the same PTX confirms the referee
(or the author does), and only of what the PTX specifies: what depends on approximations, on
contraction or on registers that nothing wrote accuses no cubin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import structs

from gpu_emulator.ptx.text.document import Document, Statement, StatementKind, parse, statement
from gpu_emulator.ptx.text.facts import Instruction
from gpu_emulator.ptx.text.registers import read_registers, undefined_reads, without_scopes
from harness.run.comparing import ELEMENTS, Difference, as_tensor, compare, near, tolerance_of
from harness.run.gpu.measured import GpuFacts, GpuRun, Measured
from harness.run.jobs import JobBuffer
from harness.run.judging import (
    BY_VALUE,
    EMULATOR_WORDS,
    Judgement,
    output_facts,
    schedule_words,
    signature_of,
)
from harness.run.launch import RunEvidence, Trusted, tensors_of
from harness.values.execution import Argument, OutputFacts, RunVerdict

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
    moved: list[str] = []
    unmoved: list[str] = []
    for _, one in _free(document):
        (moved if _mover(one) else unmoved).append(one.opcode)
    return Freedom(
        moved=tuple(dict.fromkeys(moved)),
        unmoved=tuple(dict.fromkeys(unmoved)),
        undefined=tuple(_undefined(without_scopes(document))),
        has_floats=any(
            _FLOAT.match(word) for _, one in document.instructions for word in one.modifiers
        ),
    )


def _free(document: Document) -> Iterator[tuple[int, Instruction]]:
    """The instructions whose result is not specified to the bit."""
    instructions = document.instructions
    adds = any(_is_contracted(one) and one.base != "mul" for _, one in instructions)
    for place, one in instructions:
        is_product = adds and one.base == "mul" and _is_contracted(one)
        if is_product or _is_approximate(one) or _is_unordered(one):
            yield place, one


def _type(one: Instruction) -> str:
    return one.modifiers[-1] if one.modifiers else ""


def _is_contracted(one: Instruction) -> bool:
    is_float = bool(_FLOAT.match(_type(one)))
    return one.base in _CONTRACTED and is_float and not _ROUNDINGS & set(one.modifiers)


def _is_approximate(one: Instruction) -> bool:
    words = set(one.modifiers)
    return one.base in _ALWAYS_APPROXIMATE or "approx" in words or "full" in words


def _is_unordered(one: Instruction) -> bool:
    """Sums of floating-point numbers in an order of the chip's own."""
    if one.base in _ATOMIC:
        return any(_FLOAT.match(word) for word in one.modifiers)
    return one.base in _TENSOR_CORES and bool(_MULTIPLIES & {one.base, *one.modifiers})


def _mover(one: Instruction) -> Callable[[int], list[str]] | None:
    """The instructions that move the result up (0) or down (1); None where none can."""
    kind = _type(one)
    if kind not in _FACTORS or len(one.writes) != 1:
        return None
    [result] = one.writes
    factors = _FACTORS[kind]
    if one.base == "tanh":
        factors = _OF_TANH
    elif kind == "f64" and not _is_approximate(one):
        factors = _EXACT_F64
    summands = _SUMMANDS.get(one.base)

    def move(sign: int) -> list[str]:
        lines = [f"mul.rn.{kind} {result}, {result}, {factors[sign]};"]
        if summands:
            lines.append(f"add.rn.{kind} {result}, {result}, {summands[sign]};")
        return [f"{one.guard} {line}".strip() for line in lines]

    return move


def moved_variants(ptx: str) -> list[str]:
    """The program with what it leaves open chosen otherwise, in several ways."""
    document = parse(ptx)
    movers = [(place, mover) for place, one in _free(document) if (mover := _mover(one))]
    if not movers:
        return []
    variants = []
    for sign in _SIGNS:
        changes: dict[int, Sequence[Statement]] = {}
        for number, (place, move) in enumerate(movers):
            changes[place] = (document.statements[place], *_lines(move(sign(number))))
        variants.append(str(document.replaced(changes)))
    return variants


def _lines(texts: Sequence[str]) -> list[Statement]:
    return [statement(StatementKind.INSTRUCTION, text) for text in texts]


def _undefined(document: Document) -> list[str]:
    return list(
        dict.fromkeys(
            read.register
            for function in document.functions
            for read in undefined_reads(document, function)
        )
    )


def filled_variants(ptx: str) -> list[str]:
    """The program with every register that it may read undefined filled; none if there is none."""
    document = without_scopes(parse(ptx))
    variants = []
    for filling in _FILLINGS:
        changes: dict[int, Sequence[Statement]] = {}
        for function in document.functions:
            names = dict.fromkeys(each.register for each in undefined_reads(document, function))
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

_EXACT = "iub"
_INFINITY = {2: 0x7C00, 4: 0x7F800000, 8: 0x7FF0000000000000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Referee:
    """What is known of the PTX: how the emulator judges it, what it may differ in.

    `evidence` holds the emulator's runs, and `contents` the bytes of all buffers by sha256.
    `moved` are the buffers after emulated runs with what is left open
    chosen otherwise, `filled` those with other values in registers that nothing wrote; None where
    they have not been run.
    """

    evidence: RunEvidence
    judgement: Judgement
    freedom: Freedom
    contents: Mapping[str, bytes]
    moved: tuple[Variant, ...] | None = None
    filled: tuple[Variant, ...] | None = None

    @property
    def emulated(self) -> Trusted | None:
        """What the emulator left, where it came to the end."""
        runs = self.evidence.runs
        if self.evidence.problem or not runs or not all(run.ended for run in runs):
            return None
        return Trusted(words=EMULATOR_WORDS, buffers=runs[0].buffers)

    def allowed(self, tensor: Argument) -> float:
        """How far floating-point values may be apart: not at all where every bit is specified."""
        return 0.0 if self.freedom.is_exact else self.evidence.allowed(tensor)

    def needs_variants(self, cases: Sequence[Measured]) -> bool:
        """Whether a cubin ends otherwise than the emulator: then it matters what is left open."""
        return self.emulated is not None and not all(self.agrees(case) for case in cases)

    def agrees(self, case: Measured) -> bool:
        """Whether every run of a cubin ended as the emulator did."""
        emulated = self.emulated
        if emulated is None or len(case.ended) != len(case.runs) or not case.runs:
            return False
        return not any(
            run.guards or self.differing(run.buffers, emulated.buffers) for run in case.ended
        )

    def orders_of(self, case: Measured) -> list[str]:
        """The emulator's schedules that leave what every run of a cubin left, if others do not."""
        runs = [run for run in self.evidence.runs if run.ended]
        if len(case.ended) != len(case.runs) or not case.runs:
            return []
        alike = [
            run
            for run in runs
            if not any(end.guards or self.differing(end.buffers, run.buffers) for end in case.ended)
        ]
        return [schedule_words(run.trial.schedule) for run in alike] if alike != runs else []

    @property
    def hangs_on_registers(self) -> bool:
        """Whether other values in registers that nothing wrote give another result, or a fault."""
        emulated = self.emulated
        return emulated is not None and any(
            buffers is None or self.differing(buffers, emulated.buffers)
            for buffers in self.filled or ()
        )

    def differing(self, buffers: Sequence[str], expected: Sequence[str | None]) -> bool:
        """Whether buffers hold something else than what is expected of them (None: nothing)."""
        for tensor in self.evidence.tensors:
            after, must = buffers[tensor.buffer], expected[tensor.buffer]
            if must not in (None, after) and self._compared(tensor, after, must).differing:
                return True
        return False

    def outputs(
        self, buffers: Sequence[str], expected: Sequence[str | None]
    ) -> tuple[OutputFacts, ...]:
        """Each tensor that was written, or had to be, against what it must hold."""
        found = []
        for tensor in self.evidence.tensors:
            after, must = buffers[tensor.buffer], expected[tensor.buffer]
            was = self.evidence.launch.before[tensor.buffer]
            if must is not None and not after == must == was:
                difference = self._compared(tensor, after, must)
                found.append(output_facts(tensor.name, tensor.dtype, difference, after))
        return tuple(found)

    def stable_differences(self, buffers: Sequence[str]) -> int:
        """How many elements differ from the emulator's, and depend on nothing that is left open.

        Integers of a program that adds in an order of the chip's own may depend on it: none counts.
        """
        emulated = self.emulated
        assert emulated is not None
        count = 0
        for tensor in self.evidence.tensors:
            must = emulated.buffers[tensor.buffer]
            assert must is not None
            right = as_tensor(tensor, self.contents[must])
            if self.freedom.unmoved and right.dtype.kind in _EXACT:
                continue
            bad = self._far(tensor, buffers, right)
            for moved in self.moved or ():
                bad &= False if moved is None else ~self._far(tensor, moved, right)
            count += int(bad.sum())
        return count

    def _compared(self, tensor: Argument, after: str, must: str) -> Difference:
        actual, expected = (as_tensor(tensor, self.contents[name]) for name in (after, must))
        return compare(actual, expected, self.allowed(tensor))

    def _far(
        self, tensor: Argument, buffers: Sequence[str], right: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """Which elements are farther from what they must be than is allowed."""
        left = as_tensor(tensor, self.contents[buffers[tensor.buffer]])
        if left.dtype.kind in _EXACT:
            bad = np.asarray(left != right)
            if self.freedom.has_floats and left.dtype.itemsize in _INFINITY:
                bad &= ~(_are_nan(left) & _are_nan(right))
            return bad
        return ~near(left, right, self.allowed(tensor))


def _are_nan(bits: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which elements are the bits of a NaN: which NaN it is, two right compilers may differ in."""
    size = bits.dtype.itemsize
    magnitude = bits.view(f"u{size}") & np.array((1 << (8 * size - 1)) - 1, f"u{size}")
    return np.asarray(magnitude > _INFINITY[size])


# CUDA driver API, CUresult: what a kernel that was started may end with.
_TRAPS = frozenset({710, 715, 718, 719})
_NO_BINARY = 209
_OUT_OF_MEMORY = 2
_WHOLE = 2.0**53


def judge_measured(cases: Sequence[Measured], referee: Referee, gpu: GpuFacts) -> list[Judgement]:
    """Say what each cubin of one launch did; each is a witness of the others."""
    bench = _Bench(cases=cases, referee=referee, gpu=gpu)
    return [bench.judge(case) for case in cases]


def judge_end(case: Measured, buffers: Sequence[JobBuffer], gpu: GpuFacts) -> Judgement | None:
    """What went wrong before there were values, by what its machine saw."""
    if not case.runs:
        return _not_run("the GPU's machine gave no result for it: the run was cut off")
    last = case.runs[-1]
    if last.status == "refused":
        return _refused(last, gpu)
    verdict, words = _end_of(last)
    if verdict is None:
        guard = next((each for run in case.runs for each in run.guards), None)
        if guard is None:
            return None
        verdict = RunVerdict.MEMORY_FAULT
        words = f"{guard.bytes} bytes {guard.side} {buffers[guard.buffer].name} were written"
    return Judgement(
        verdict=verdict, reason=f"measured: {words}", signature=signature_of(verdict, words)
    )


@dataclass(slots=True, kw_only=True)
class _Bench:
    cases: Sequence[Measured]
    referee: Referee
    gpu: GpuFacts

    def judge(self, case: Measured) -> Judgement:
        """The verdict of one cubin."""
        found = replace(self._judge(case), schedule=None)
        orders = ", ".join(self.referee.orders_of(case))
        if not orders or self.referee.judgement.verdict not in BY_VALUE:
            return found
        # The program is wrong under other orders; this GPU never showed one of them.
        emulated = self.referee.judgement.reason
        reason = (
            "measured: latent on this GPU: every run left what the emulator leaves under "
            f"{orders}; {emulated}"
        )
        if found.verdict is RunVerdict.RIGHT:
            reason = f"{found.reason}; the emulator leaves this under {orders} only: {emulated}"
        return replace(found, reason=reason, schedule=orders)

    def _judge(self, case: Measured) -> Judgement:
        early = self._not_ended(case)
        if early:
            return early
        first, *others = case.ended
        for other in others:
            if self.referee.differing(other.buffers, first.buffers):
                return self._nondeterministic(first, other)
        return self._by_value(case, first)

    def _not_ended(self, case: Measured) -> Judgement | None:
        found = judge_end(case, self.referee.evidence.launch.emulation.buffers, self.gpu)
        if (
            found is None
            or found.verdict is RunVerdict.NOT_RUN
            or case.runs[-1].status == "refused"
        ):
            return found
        return self._accused(case, found)

    def _accused(self, case: Measured, found: Judgement) -> Judgement:
        """A fault: the PTX's own where the emulator says so, else the cubin's."""
        of_ptx = self._fault_of_ptx()
        if of_ptx is not None:
            return replace(
                found,
                reason=f"{found.reason}; {of_ptx}",
                reference=EMULATOR_WORDS,
                signature=self.referee.judgement.signature or found.signature,
            )
        unspecified = self._unspecified()
        if unspecified:
            return replace(unspecified, reason=f"{found.reason}; {unspecified.reason}")
        alike = [each.words for each in self._others(case) if self.referee.agrees(each)]
        if self.referee.emulated is None or not alike:
            return found
        return replace(found, reason=f"{found.reason}; {alike[0]} ends as the emulator does")

    def _fault_of_ptx(self) -> str | None:
        """What is wrong with the program itself, with every compiler."""
        found = self.referee.judgement
        if found.verdict in (RunVerdict.RIGHT, RunVerdict.RAN, RunVerdict.NOT_RUN):
            return None
        if found.verdict is RunVerdict.WRONG_RESULT:
            return None
        return f"the PTX itself: {found.verdict.value}, {found.reason}"

    def _others(self, case: Measured) -> Iterable[Measured]:
        return (each for each in self.cases if each is not case)

    def _nondeterministic(self, first: GpuRun, other: GpuRun) -> Judgement:
        unspecified = self._unspecified()
        if unspecified:
            return unspecified
        outputs = self.referee.outputs(other.buffers, first.buffers)
        worst = max(outputs, key=lambda each: each.differing or 0)
        reason = (
            f"measured: {worst.differing:,} of {worst.elements:,} elements of {worst.name} differ "
            "between two runs of the same cubin on the same inputs"
        )
        return Judgement(
            verdict=RunVerdict.NONDETERMINISTIC,
            reason=reason,
            outputs=outputs,
            signature=signature_of(RunVerdict.NONDETERMINISTIC, _names(outputs)),
        )

    def _unspecified(self) -> Judgement | None:
        """What the emulator finds wrong with the PTX: then no cubin is to blame."""
        found = self.referee.judgement
        said = self._fault_of_ptx()
        if said:
            return replace(found, reason=f"{said}; the cubin is not accused", outputs=())
        if self.referee.hangs_on_registers:
            names = ", ".join(self.referee.freedom.undefined[:4])
            return Judgement(
                verdict=RunVerdict.UNINITIALISED,
                reason=f"the result depends on registers that nothing wrote: {names}; no cubin is "
                "accused",
                signature=signature_of(RunVerdict.UNINITIALISED, "depends on registers"),
            )
        return None

    def _by_value(self, case: Measured, run: GpuRun) -> Judgement:
        emulated = self.referee.emulated
        author = next(
            (each for each in self.referee.evidence.launch.trusted if each.is_final), None
        )
        if author:
            outputs = self.referee.outputs(run.buffers, author.buffers)
            if not any(each.differing for each in outputs):
                return Judgement(
                    verdict=RunVerdict.RIGHT,
                    reason=f"measured: agrees with {author.words}",
                    reference=author.words,
                    outputs=outputs,
                )
        found = self.referee.judgement
        if emulated is None:
            if found.verdict in (RunVerdict.MEMORY_FAULT, RunVerdict.LAUNCH_FAILED):
                # It is wrong all the same. Not where it took too long there: a GPU is faster.
                return replace(found, reason=f"it came to an end; {self._fault_of_ptx()}")
            return self._without_referee(case, run)
        outputs = self.referee.outputs(run.buffers, emulated.buffers)
        if any(each.differing for each in outputs):
            return self._differs(case, outputs, author)
        found = self.referee.judgement
        if found.verdict in (RunVerdict.RIGHT, RunVerdict.RAN):
            return Judgement(
                verdict=RunVerdict.RIGHT,
                reason="measured: agrees with the emulator, which executed the same PTX",
                reference=EMULATOR_WORDS,
                outputs=outputs,
            )
        said = f"agrees with the emulator, which says of the PTX: {found.reason}"
        return replace(found, reason=f"measured: {said}")

    def _differs(
        self, case: Measured, outputs: tuple[OutputFacts, ...], author: Trusted | None
    ) -> Judgement:
        unspecified = self._unspecified()
        if unspecified:
            return unspecified
        open_ = self._left_open(case)
        if open_:
            return open_
        witnesses = [each.words for each in self._others(case) if self.referee.agrees(each)]
        # One of the same ptxas says most: what is said depends on no other that went along.
        witnesses.sort(key=lambda words: words.split()[:2] != case.words.split()[:2])
        worst = max(outputs, key=lambda each: each.differing or 0)
        said = (
            f"{worst.differing:,} of {worst.elements:,} elements of {worst.name} differ from "
            f"{EMULATOR_WORDS}'s; first at {worst.where}: {_number(worst.actual)} in place of "
            f"{_number(worst.expected)}"
        )
        agrees = self.referee.judgement.verdict is RunVerdict.RIGHT and author is not None
        if not witnesses and not agrees:
            return _not_run(
                f"measured, and cannot tell: {said}; no other cubin of this PTX agrees with the "
                "emulator, so that either may be wrong; add -O levels or versions of ptxas",
                outputs,
            )
        confirmed = author.words if author and agrees else witnesses[0]
        return Judgement(
            verdict=RunVerdict.WRONG_RESULT,
            reason=f"measured: {said}; {confirmed} agrees with {EMULATOR_WORDS}",
            reference=EMULATOR_WORDS,
            outputs=outputs,
            signature=signature_of(RunVerdict.WRONG_RESULT, f"ptxas: {_names(outputs)}"),
        )

    def _left_open(self, case: Measured) -> Judgement | None:
        """Whether all that differs depends on what the PTX leaves open, or may."""
        freedom = self.referee.freedom
        if freedom.is_exact and not freedom.has_floats:
            return None
        if self.referee.stable_differences(case.ended[0].buffers):
            return None
        return _not_run(
            "measured, and cannot tell: what differs depends on what the PTX leaves open "
            f"({freedom.words or 'which NaN it is'}); no cubin is accused"
        )

    def _without_referee(self, case: Measured, run: GpuRun) -> Judgement:
        """Nothing says what the PTX computes: all that can be said is whether cubins agree."""
        why = self.referee.judgement.reason
        others = [
            each
            for each in self._others(case)
            if each.ended and not any(run.status != "ended" or run.guards for run in each.runs)
        ]
        apart = [
            each.words
            for each in others
            if self.referee.differing(each.ended[0].buffers, run.buffers)
        ]
        if apart:
            return _not_run(
                f"measured, and cannot tell: {apart[0]} computes something else, and the emulator "
                f"does not say which is right: {why}"
            )
        trusted = next(iter(self.referee.evidence.launch.trusted), None)
        if trusted:
            outputs = self.referee.outputs(run.buffers, trusted.buffers)
            if not any(each.differing for each in outputs):
                return Judgement(
                    verdict=RunVerdict.RIGHT,
                    reason=f"measured: agrees with {trusted.words}",
                    reference=trusted.words,
                    outputs=outputs,
                )
        alike = f"agrees with {len(others)} other cubins" if others else "came to its end, alike"
        return Judgement(
            verdict=RunVerdict.RAN,
            reason=f"measured: {alike}; there is nothing to compare it with: {why}",
        )


def _end_of(run: GpuRun) -> tuple[RunVerdict | None, str]:
    """The verdict of a run that did not come to its end, in words."""
    if run.status == "hang":
        return RunVerdict.HANG, f"no end within {run.seconds or 0:g} s"
    if run.status == "died":
        return RunVerdict.MEMORY_FAULT, f"the process died by signal {run.signal}"
    if run.status == "fault":
        said = f"{run.name} ({run.code}): {run.words}"
        trapped = run.code in _TRAPS
        return (RunVerdict.LAUNCH_FAILED if trapped else RunVerdict.MEMORY_FAULT), said
    return None, ""


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
        verdict=RunVerdict.LAUNCH_FAILED,
        reason=f"measured: {run.call}: {run.name} ({run.code}): {run.words}{limit}",
        signature=signature_of(RunVerdict.LAUNCH_FAILED, run.name),
    )


def _not_run(reason: str, outputs: tuple[OutputFacts, ...] = ()) -> Judgement:
    return Judgement(verdict=RunVerdict.NOT_RUN, reason=reason, outputs=outputs)


def _number(value: float | None) -> str:
    """Integers in full: the last digit may be what differs."""
    if value is None:
        return "nothing"
    if value.is_integer() and abs(value) < _WHOLE:
        return str(int(value))
    return f"{value:.6g}"


def _names(outputs: Sequence[OutputFacts]) -> str:
    return "differs: " + ", ".join(sorted(each.name for each in outputs if each.differing))


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
    return tuple(
        sha256 for sha256, each in zip(run.buffers, buffers, strict=True) if each.file is not None
    )


def judge_digests(
    case: Measured, buffers: Sequence[JobBuffer], ptx: str, gpu: GpuFacts
) -> Judgement:
    """Say what a cubin of this PTX did, launched with these buffers."""
    ended = judge_end(case, buffers, gpu)
    if ended:
        return ended
    digests = {digest_of(run, buffers) for run in case.ended}
    if len(digests) == 1:
        said = "it came to its end, alike in all runs"
    elif _ATOMICS.search(ptx):
        said = "it came to its end; runs differ, and it has atomic operations, whose order is open"
    else:
        said = "it came to its end; runs differ"
    return Judgement(
        verdict=RunVerdict.RAN,
        reason=f"measured: {said}; at this size nothing is compared with a reference",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpsed:
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


def held_together(seen: Sequence[Glimpsed]) -> list[Judgement]:
    """The judgement of each, with what the others of its place left."""
    places: dict[Hashable, list[Glimpsed]] = {}
    for each in seen:
        places.setdefault(each.place, []).append(each)
    found = {
        id(each): judgement
        for alike in places.values()
        for each, judgement in zip(alike, _judged(alike), strict=True)
    }
    return [found[id(each)] for each in seen]


def _judged(alike: Sequence[Glimpsed]) -> list[Judgement]:
    outputs = frozenset[str]().union(*(each.changed for each in alike))
    apart = [[_apart(one, other, outputs) for other in alike] for one in alike]
    # The same bytes agree with themselves, and say nothing more.
    agreeing = [
        len({other.cubin for other, outputs in zip(alike, row, strict=True) if not outputs})
        for row in apart
    ]
    cubins = len({each.cubin for each in alike})
    found = []
    for number, (each, mine) in enumerate(zip(alike, agreeing, strict=True)):
        rivals = [n for n, outputs in enumerate(apart[number]) if outputs and agreeing[n] >= mine]
        if cubins == 1 or not outputs:
            found.append(each.judgement)
        elif not rivals:
            found.append(_agrees(each, mine - 1, cubins - 1, outputs))
        else:
            other = max(rivals, key=agreeing.__getitem__)
            most = agreeing[other] if mine == 1 and agreeing[other] >= _AGREEMENT else 0
            found.append(_differs(apart[number][other], alike[other].words, most))
    return found


def _agrees(each: Glimpsed, count: int, others: int, outputs: frozenset[str]) -> Judgement:
    looked_at = sum(each.numbers[name][1].size for name in outputs)
    return replace(
        each.judgement,
        reason=f"{each.judgement.reason}; {looked_at:,} numbers that were looked at agree with "
        f"those of {count} of {others} other cubins of the launch",
    )


def _differs(outputs: tuple[OutputFacts, ...], beside: str, most: int) -> Judgement:
    """`most` cubins agree with the other one, and none with this; 0 where that says nothing."""
    worst = max(outputs, key=lambda facts: facts.differing or 0)
    said = (
        f"{worst.differing} of {worst.elements} numbers of {worst.name} that were looked at differ "
        f"from those of {beside}, by up to {worst.max_abs:.3g}"
    )
    if not most:
        return Judgement(
            verdict=RunVerdict.NOT_RUN,
            reason=f"measured, and cannot tell: {said}, and nothing says which is right",
            outputs=outputs,
        )
    names = ", ".join(sorted(facts.name for facts in outputs))
    return Judgement(
        verdict=RunVerdict.WRONG_RESULT,
        reason=f"measured: {said}, and {most} cubins of the launch agree with one another",
        reference=beside,
        outputs=outputs,
        signature=signature_of(RunVerdict.WRONG_RESULT, f"configs: differs: {names}"),
    )


def _apart(one: Glimpsed, other: Glimpsed, outputs: frozenset[str]) -> tuple[OutputFacts, ...]:
    found = []
    for name in sorted(outputs):
        (dtype, left), (_, right) = one.numbers[name], other.numbers[name]
        # What overflows in one order of adding need not in another.
        finite = np.isfinite(left) & np.isfinite(right)
        kind, allowed = ELEMENTS[dtype], tolerance_of({dtype, *one.types, *other.types})
        difference = compare(left[finite].astype(kind), right[finite].astype(kind), allowed)
        if difference.differing:
            found.append(structs.replace(output_facts(name, dtype, difference), where=None))
    return tuple(found)


def numbers_of(
    glimpses: Sequence[str], arguments: Sequence[Argument], buffers: Sequence[JobBuffer]
) -> Numbers:
    """The numbers of floating-point buffers among what was looked at."""
    types: dict[int, str] = {}
    for tensor in tensors_of(arguments):
        types.setdefault(tensor.buffer, tensor.dtype)
    found: dict[str, tuple[str, npt.NDArray[np.float64]]] = {}
    for number, digits in enumerate(glimpses):
        kind = ELEMENTS.get(types.get(number, ""))
        raw = bytes.fromhex(digits)
        if raw and kind is not None and kind.kind not in "iubc" and not len(raw) % kind.itemsize:
            values = np.frombuffer(raw, kind).astype(np.float64)
            found[buffers[number].name] = types[number], values
    return found
