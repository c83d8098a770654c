"""What the runs of one launch left, and what they are held to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.run.jobs import Ran
from harness.run.matching import tensors_of
from harness.run.numbers.noise import rounding_of, tolerance_of
from harness.values.execution import Argument, Assertion

_ROUNDINGS = 4.0
"""Roundings that two right results may be apart: each of them, and what it is computed from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """What the buffers must hold afterwards, and who says so; None: it says nothing of this one.

    `is_final`: a person says so, and who computes something else is wrong. Of the others, which
    come from compilers too, one that agrees is enough. `is_emulated`: of a large grid it has run
    the same programs. `is_pipelined`: it comes from a compilation that is pipelined as the cell is;
    where the two differ, it does not say which of them is right.
    """

    words: str
    buffers: tuple[bytes | None, ...]
    is_final: bool = False
    is_emulated: bool = False
    is_pipelined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """Runs of one launch, the bytes of its buffers by sha256, and what they are held to.

    `before` are the buffers at the start. `garbage` are runs that repeat one of `runs` with other
    garbage. `trusted` is in the order of trust. `is_clean`: the reference does not depend on
    garbage. `unwritten` are the numbers of buffers that the launch code only asked for. `types` are
    those that the PTX computes with, besides those of the arguments. `formal`: a race that breaks
    only the letter of the memory model is a race. `asserted` is what the launch code asserts.
    """

    arguments: tuple[Argument, ...]
    before: tuple[str, ...]
    runs: tuple[Ran, ...]
    contents: Mapping[str, bytes]
    garbage: tuple[Ran, ...] = ()
    trusted: tuple[Trusted, ...] = ()
    is_clean: bool = True
    types: frozenset[str] = frozenset()
    unwritten: frozenset[int] = frozenset()
    problem: str | None = None
    formal: bool = False
    asserted: tuple[Assertion, ...] = ()

    @property
    def tensors(self) -> list[Argument]:
        """Each view of a buffer once, by the name of the first argument that is it."""
        found: dict[object, Argument] = {}
        for each in tensors_of(self.arguments):
            key = (each.buffer, each.offset, each.shape, each.strides, each.dtype)
            found.setdefault(key, each)
        return list(found.values())

    def allowed(self, tensor: Argument) -> float:
        """How far values of a tensor may be apart."""
        return tolerance_of({*self.types, tensor.dtype})

    @property
    def rounding(self) -> float:
        """How far apart values may be by a few roundings alone."""
        return _ROUNDINGS * rounding_of({*self.types, *(each.dtype for each in self.tensors)})

    def is_rounding(self, asserted: Assertion) -> bool:
        """Whether rounding explains how far apart the tensors are that an assertion compares."""
        return asserted.relative is not None and asserted.relative <= self.rounding
