"""What an instruction of tcgen05.mma says, and where its operands lie in tensor memory.

PTX ISA 9.7.16.4.2 (instruction descriptor), 9.7.16.10.5 (data path layouts A to G), 9.7.16.10.7
(scale factors). Bit positions agree with CUTLASS's `UMMA::InstrDescriptor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from gpu_emulator.engines.tensor_memory import Index

_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_FORMATS = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _NARROW,
    "mxf8f6f4": _NARROW,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
    "i8": {0: "u8", 1: "s8"},
}
"""Types of A and B by kind and the three bits of the descriptor."""
_ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}
_K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "mxf8f6f4": 32, "i8": 32, "mxf4": 64, "mxf4nvf4": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixInstruction:
    """One tcgen05.mma: its kind and what the instruction descriptor adds.

    `m` and `n` are those of the whole product, over both CTAs. `a_mn_major` and `b_mn_major`: the
    matrix in shared memory has K as its slower dimension. `scale_type` is ue4m3 or ue8m0, None
    without block scales; `a_scale_byte` and `b_scale_byte` are the scale factor ids.
    """

    kind: str
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str
    a_mn_major: bool
    b_mn_major: bool
    negate_a: bool
    negate_b: bool
    saturate: bool
    scale_type: str | None
    a_scale_byte: int
    b_scale_byte: int


def decode_instruction(kind: str, descriptor: int) -> MatrixInstruction:
    """Take apart the 32 bits of an instruction descriptor.

    Args:
        kind: f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4 or mxf4nvf4.
        descriptor: the operand `idesc`.

    Raises:
        ValueError: the descriptor asks for what is not known here: sparsity, K = 96, a type that
            its kind does not have.
    """

    def bits(low: int, width: int) -> int:
        return (descriptor >> low) & ((1 << width) - 1)

    scaled = kind.startswith("mx")
    if bits(2, 1):
        raise ValueError("tcgen05.mma with a sparse matrix A is not known")
    if scaled and bits(31, 1):
        raise ValueError("tcgen05.mma with K = 96 is not known")
    types = [_FORMATS[kind].get(bits(low, 3)) for low in (7, 10)]
    d_type = "f32" if scaled else _ACCUMULATORS.get(bits(4, 2))
    if types[0] is None or types[1] is None or d_type is None:
        raise ValueError(f"instruction descriptor {descriptor:#010x} has a type that {kind} lacks")
    return MatrixInstruction(
        kind=kind,
        m=bits(24, 5) << 4,
        n=bits(17, 6) << 3,
        k=_K[kind],
        a_type=types[0],
        b_type=types[1],
        d_type=d_type,
        a_mn_major=bool(bits(15, 1)),
        b_mn_major=bool(bits(16, 1)),
        negate_a=bool(bits(13, 1)),
        negate_b=bool(bits(14, 1)),
        saturate=bool(not scaled and bits(3, 1)),
        scale_type=("ue4m3", "ue8m0")[bits(23, 1)] if scaled else None,
        a_scale_byte=bits(29, 2) if scaled else 0,
        b_scale_byte=bits(4, 2) if scaled else 0,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where each element (row, column) of D lies: its CTA of the pair, lane and column.

    `lane` and `column` are relative to the address of D. `cta` and `lane` have shape (m, 1) or
    (m, n), `column` (1, n) or (m, n).
    """

    letter: str
    cta: Index
    lane: Index
    column: Index


@cache
def placement(m: int, n: int, *, ctas: int, ws: bool = False) -> Placement:
    """The data path layout of D, and of the rows of A in tensor memory (its column 0).

    A: 256 rows over two CTAs, and D: 128 rows, lane by lane; B: 128 rows over two CTAs, and E: 64
    rows with `.ws`, the second half of the columns in the lanes from 64 on; F: 64 rows, 16 in each
    32 lanes; G: 32 rows with `.ws`, a quarter of the columns in each 32 lanes.

    Raises:
        ValueError: there is no such shape.
    """
    row = np.arange(m)[:, None]
    column = np.arange(n)[None, :]
    zero = np.zeros((1, 1), dtype=np.intp)
    if (ctas, ws, m) == (2, False, 256):
        return Placement("A", row // 128, row % 128, column)
    if (ctas, ws, m) == (2, False, 128):
        half = n // 2
        return Placement("B", row // 64, row % 64 + 64 * (column // half), column % half)
    if (ctas, m) == (1, 128):
        return Placement("D", zero, row, column)
    if (ctas, ws, m) == (1, True, 64):
        half = n // 2
        return Placement("E", zero, row + 64 * (column // half), column % half)
    if (ctas, ws, m) == (1, False, 64):
        return Placement("F", zero, row % 16 + 32 * (row // 16), column)
    if (ctas, ws, m) == (1, True, 32):
        quarter = n // 4
        return Placement("G", zero, row + 32 * (column // quarter), column % quarter)
    raise ValueError(f"tcgen05.mma has no M = {m} with cta_group::{ctas}{' and .ws' * ws}")


@cache
def scale_cells(rows: int, blocks: int) -> tuple[Index, Index, Index]:
    """Where the scale factors of `rows` rows (M of one CTA, or N) lie: lane, column, byte.

    Row r is in lane r % 32 of column r / 32 (the other three slabs of 32 lanes hold copies); the
    factors of its blocks of K are in successive bytes from the scale factor id on.

    Args:
        rows: rows of A in this CTA, or N.
        blocks: factors of a row: 1, 2 or 4 (`.scale_vec::1X`, `2X`, `4X`).

    Returns:
        Arrays (rows, 1), (rows, 1) and (1, blocks), relative to the address and the id.
    """
    row = np.arange(rows)[:, None]
    return row % 32, row // 32, np.arange(blocks)[None, :]
