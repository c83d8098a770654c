"""The one element that a wrong result is followed by. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from harness.run.evidence import RunEvidence, Trusted
from harness.run.numbers.comparing import as_tensor, near
from harness.run.numbers.scalars import ELEMENTS
from harness.values.execution import Argument

_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongElement:
    """An element that differs: a tensor of one element, where it is in its own tensor, both values.

    `expected` are its bytes as they must be.
    """

    tensor: Argument
    where: tuple[int, ...]
    expected: bytes
    actual: float
    right: float

    @property
    def words(self) -> str:
        """Where it is, and both values."""
        place = ", ".join(map(str, self.where))
        return f"[{place}] of {self.tensor.name}: {self.actual:.6g} in place of {self.right:.6g}"


def find_elements(evidence: RunEvidence, trusted: Trusted) -> list[WrongElement]:
    """Elements that differ from what they must be, of each tensor and schedule, the worst first.

    None that holds zero or what it held before: such a value needs no instruction to come about.
    """
    found = [
        each
        for ran in evidence.runs
        for tensor in evidence.tensors
        if trusted.buffers[tensor.buffer] is not None and tensor.dtype in ELEMENTS
        for each in _differing(evidence, ran.buffers[tensor.buffer], tensor, trusted)
    ]
    return found[:_MOST]


def _differing(
    evidence: RunEvidence, after_name: str, tensor: Argument, trusted: Trusted
) -> Iterator[WrongElement]:
    kind = ELEMENTS[tensor.dtype]
    before = as_tensor(tensor, evidence.contents[evidence.before[tensor.buffer]])
    after = as_tensor(tensor, evidence.contents[after_name])
    expected = as_tensor(tensor, trusted.buffers[tensor.buffer] or b"")
    if kind.kind in "iub":
        bad = after != expected
        apart = np.where(bad, 1.0, 0.0)
    elif kind.kind == "c":
        return
    else:
        bad = ~near(after, expected, evidence.allowed(tensor))
        with np.errstate(invalid="ignore"):
            right = expected.astype(np.float64)
            apart = np.abs(after.astype(np.float64) - right)
            apart = apart / np.maximum(np.abs(right), np.finfo(np.float64).tiny)
        apart = np.where(bad & np.isfinite(apart), apart, np.where(bad, 0.0, -1.0))
    for place in np.argsort(-apart, axis=None, kind="stable")[: _MOST * _MOST]:
        where = tuple(int(each) for each in np.unravel_index(int(place), after.shape))
        bits = after[where].tobytes()
        if not bad[where] or not any(bits) or bits == before[where].tobytes():
            continue
        step = sum(n * stride for n, stride in zip(where, tensor.strides, strict=False))
        offset = tensor.offset + kind.itemsize * (step if tensor.strides else where[0])
        yield WrongElement(
            tensor=replace(tensor, offset=offset, shape=(1,), strides=(1,)),
            where=where,
            expected=expected[where].tobytes(),
            actual=float(after[where]),
            right=float(expected[where]),
        )
