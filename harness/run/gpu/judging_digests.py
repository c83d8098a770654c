"""What can be said of cubins whose buffers did not come back: how they ended, and who agrees. Pure.

Nothing is emulated at such sizes: values are judged at small ones. A cubin is accused here of what
its machine saw (a fault, a refusal, a hang), and where it stands alone: cubins whose configs differ
only in what leaves the kernel's meaning alone (warps, stages) are given the same memory, and have
to leave the same numbers in it, as far as their arithmetic explains. Few of these are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from harness.run.gpu.judging import judge_end
from harness.run.gpu.measured import GpuFacts, GpuRun, Measured
from harness.run.jobs import JobBuffer
from harness.run.judging import Judgement, signature_of
from harness.run.matching import tensors_of
from harness.run.numbers.comparing import compare
from harness.run.numbers.noise import tolerance_of
from harness.run.numbers.scalars import ELEMENTS
from harness.values.execution import Argument, OutputFacts, RunVerdict

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
    ended = judge_end(case, tuple(each.name for each in buffers), gpu)
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
    """Those of one place: each is held to what more cubins, or as many, agree on."""
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
    """Where two cubins left other numbers than their arithmetic explains."""
    found = []
    for name in sorted(outputs):
        (dtype, left), (_, right) = one.numbers[name], other.numbers[name]
        # What overflows in one order of adding need not in another.
        finite = np.isfinite(left) & np.isfinite(right)
        kind, allowed = ELEMENTS[dtype], tolerance_of({dtype, *one.types, *other.types})
        difference = compare(left[finite].astype(kind), right[finite].astype(kind), allowed)
        if difference.differing:
            found.append(
                OutputFacts(
                    name=name,
                    dtype=dtype,
                    elements=difference.elements,
                    differing=difference.differing,
                    max_abs=difference.max_abs,
                    rel_err=difference.rel_err,
                    expected=difference.expected,
                    actual=difference.actual,
                )
            )
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
