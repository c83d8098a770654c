"""The referee between cubins of one PTX: the emulator, and what the PTX leaves open. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.run.evidence import RunEvidence, Trusted
from harness.run.gpu.freedom import Freedom
from harness.run.gpu.measured import Measured
from harness.run.judging import Judgement
from harness.run.numbers.comparing import Difference, as_tensor, compare, near
from harness.values.execution import Argument, OutputFacts

EMULATOR_WORDS = "the emulator"

Variant = tuple[str, ...] | None
"""The buffers after a program was emulated with other choices, by sha256; None: it did not end."""

_EXACT = "iub"
_INFINITY = {2: 0x7C00, 4: 0x7F800000, 8: 0x7FF0000000000000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Referee:
    """What is known of the PTX: how the emulator judges it, what it may differ in.

    `names` are those of the buffers. `evidence` holds the emulator's runs, and `contents` the bytes
    of all buffers by sha256. `moved` are the buffers after emulated runs with what is left open
    chosen otherwise, `filled` those with other values in registers that nothing wrote; None where
    they have not been run.
    """

    evidence: RunEvidence
    judgement: Judgement
    freedom: Freedom
    names: tuple[str, ...]
    contents: Mapping[str, bytes]
    moved: tuple[Variant, ...] | None = None
    filled: tuple[Variant, ...] | None = None

    @property
    def emulated(self) -> Trusted | None:
        """What the emulator left, where it came to the end."""
        runs = self.evidence.runs
        if self.evidence.problem or not runs or any(run.not_run or run.faults for run in runs):
            return None
        buffers = tuple(self.evidence.contents[sha256] for sha256 in runs[0].buffers)
        return Trusted(words=EMULATOR_WORDS, buffers=buffers)

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

    @property
    def hangs_on_registers(self) -> bool:
        """Whether other values in registers that nothing wrote give another result, or a fault."""
        emulated = self.emulated
        return emulated is not None and any(
            buffers is None or self.differing(buffers, emulated.buffers)
            for buffers in self.filled or ()
        )

    def differing(self, buffers: Sequence[str], expected: Sequence[bytes | None]) -> bool:
        """Whether buffers hold something else than what is expected of them (None: nothing)."""
        for tensor in self.evidence.tensors:
            must = expected[tensor.buffer]
            data = self.contents[buffers[tensor.buffer]]
            if must is not None and data != must and self._compared(tensor, data, must).differing:
                return True
        return False

    def outputs(
        self, buffers: Sequence[str], expected: Sequence[bytes | None]
    ) -> tuple[OutputFacts, ...]:
        """Each tensor that was written, or had to be, against what it must hold."""
        found = []
        for tensor in self.evidence.tensors:
            data, must = self.contents[buffers[tensor.buffer]], expected[tensor.buffer]
            was = self.contents[self.evidence.before[tensor.buffer]]
            if must is None or (data == was and must == was):
                continue
            found.append(_facts(tensor, buffers[tensor.buffer], self._compared(tensor, data, must)))
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
            right = as_tensor(tensor, must)
            if self.freedom.unmoved and right.dtype.kind in _EXACT:
                continue
            bad = self._far(tensor, buffers, right)
            for moved in self.moved or ():
                bad &= False if moved is None else ~self._far(tensor, moved, right)
            count += int(bad.sum())
        return count

    def _compared(self, tensor: Argument, data: bytes, must: bytes) -> Difference:
        return compare(as_tensor(tensor, data), as_tensor(tensor, must), self.allowed(tensor))

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


def _facts(tensor: Argument, sha256: str, found: Difference) -> OutputFacts:
    where = "[" + ", ".join(map(str, found.first)) + "]" if found.first is not None else None
    return OutputFacts(
        name=tensor.name,
        dtype=tensor.dtype,
        elements=found.elements,
        differing=found.differing,
        max_abs=found.max_abs,
        rel_err=found.rel_err,
        sha256=sha256,
        where=where if found.differing else None,
        expected=found.expected if found.differing else None,
        actual=found.actual if found.differing else None,
    )
