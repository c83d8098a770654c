"""`tcgen05.mma` and `tcgen05.cp` on tensor memory and shared memory (PTX ISA 9.7.16.9, 9.7.16.10).

Arrays have an axis of CTAs: shared memory is uint8 (..., g, bytes), tensor memory uint32
(..., g, 128, 512), with g = 1, or 2 for `.cta_group::2` (the even CTA of the pair first). Leading
dimensions are independent CTAs or pairs that execute one instruction with the same operands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_emulator.engines.accumulation import Accumulation
from gpu_emulator.engines.fragments import elements
from gpu_emulator.engines.matrix_moves import unpack_row
from gpu_emulator.engines.products import INTEGERS, Order, decode, integer_product, product
from gpu_emulator.engines.shared_matrices import MatrixDescriptor, read_matrix
from gpu_emulator.engines.tensor_core import MatrixInstruction, Placement, placement, scale_cells
from gpu_emulator.engines.tensor_memory import ROWS, Index
from gpu_emulator.numbers.formats import Bits, Float64, from_float64, to_float64

K_BYTES = 32
"""Bytes of K of every dense instruction, as elements lie in shared memory."""
_PACKED_WIDTHS = {"e2m3": 6, "e3m2": 6, "e2m1": 4}
_COPIES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    # Shape: rows, bytes of a row, and the first lane of each copy.
    "128x256b": (128, 32, (0,)),
    "128x128b": (128, 16, (0,)),
    "4x256b": (4, 32, (0,)),
    "64x128b.warpx2::02_13": (64, 16, (0, 64)),
    "64x128b.warpx2::01_23": (64, 16, (0, 32)),
    "32x128b.warpx4": (32, 16, (0, 32, 64, 96)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Scale factors of A and B in tensor memory: column of each, and factors of a row."""

    a_column: int
    b_column: int
    blocks: int


def _unpacked(codes: Bits, instruction: MatrixInstruction, name: str) -> Bits:
    """Bytes of K of a row as codes: 4-bit elements two by two, or padded 4 and 6 bits."""
    if instruction.kind in ("mxf4", "mxf4nvf4"):
        pairs = np.stack([codes & np.uint8(0xF), codes >> np.uint8(4)], axis=-1)
        return pairs.reshape(*codes.shape[:-1], -1)
    if name in _PACKED_WIDTHS:
        groups = codes.reshape(*codes.shape[:-1], -1, 16)
        return unpack_row(groups, _PACKED_WIDTHS[name]).reshape(codes.shape)
    return codes


def _width(name: str) -> int:
    return {"tf32": 32, "f16": 16, "bf16": 16}.get(name, 8)


def operand_from_shared(
    shared: Bits, descriptor: MatrixDescriptor, instruction: MatrixInstruction, which: str
) -> Bits:
    """A or B as codes: (..., m, K), or (..., n, K); each CTA holds its share of the rows.

    Args:
        shared: uint8 (..., g, bytes).
        descriptor: where the matrix lies, the same in both CTAs.
        instruction: which types and sizes.
        which: `a` or `b`.
    """
    ctas = shared.shape[-2]
    is_a = which == "a"
    name = instruction.a_type if is_a else instruction.b_type
    codes = read_matrix(
        shared,
        descriptor,
        rows=(instruction.m if is_a else instruction.n) // ctas,
        k_bytes=K_BYTES,
        width=_width(name),
        mn_major=instruction.a_mn_major if is_a else instruction.b_mn_major,
    )
    whole = codes.reshape(*codes.shape[:-3], -1, codes.shape[-1])
    return _unpacked(whole, instruction, name)


def operand_cells(
    lane: int, column: int, instruction: MatrixInstruction, *, ctas: int, ws: bool = False
) -> tuple[Index, Index, Index]:
    """The cells of A in tensor memory: CTA of the pair, lane and column, each (m, 8)."""
    where = placement(instruction.m, instruction.n, ctas=ctas, ws=ws)
    columns = column + np.arange(K_BYTES // 4)[None, :]
    cta, lanes, columns = np.broadcast_arrays(where.cta[:, :1], lane + where.lane[:, :1], columns)
    return cta, lanes, columns


def operand_from_tensor_memory(
    memory: Bits, lane: int, column: int, instruction: MatrixInstruction, *, ws: bool = False
) -> Bits:
    """A from tensor memory as codes (..., m, K): 32 bytes of K are 8 columns.

    Rows lie in the lanes of the rows of D. Formats of 4 and 6 bits have a byte each here, except
    for the kinds that take packed fours.

    Raises:
        ValueError: e2m1 with `kind::f8f6f4`, whose place in the byte is not documented.
    """
    name = instruction.a_type
    if name == "e2m1" and not instruction.kind.startswith("mxf4"):
        raise ValueError("e2m1 in tensor memory as A of kind::f8f6f4 is not known")
    cta, lanes, columns = operand_cells(lane, column, instruction, ctas=memory.shape[-3], ws=ws)
    words = memory[..., cta, lanes, columns]
    codes = elements(words, _width(name))
    return _unpacked(codes, instruction, name) if instruction.kind.startswith("mxf4") else codes


def _factors(memory: Bits, column: int, byte: int, rows: int, blocks: int, name: str) -> Float64:
    """Scale factors (..., g, rows, blocks) as values."""
    lanes, columns, bytes_ = scale_cells(rows, blocks)
    words = memory[..., lanes, column + columns]
    return to_float64((words >> (8 * (byte + bytes_)).astype(np.uint32)) & 0xFF, name)


def _scaled(
    a: Float64, b: Float64, memory: Bits, instruction: MatrixInstruction, scales: Scales
) -> tuple[Float64, Float64]:
    assert instruction.scale_type is not None
    ctas, k = memory.shape[-3], instruction.k
    of_a = _factors(
        memory, scales.a_column, instruction.a_scale_byte, instruction.m // ctas, scales.blocks,
        instruction.scale_type,
    )  # fmt: skip
    of_a = of_a.reshape(*of_a.shape[:-3], -1, scales.blocks)
    # Both CTAs of a pair hold the factors of all columns; they are copies of each other.
    of_b = _factors(
        memory[..., 0, :, :], scales.b_column, instruction.b_scale_byte, instruction.n,
        scales.blocks, instruction.scale_type,
    )  # fmt: skip
    each = k // scales.blocks
    return a * np.repeat(of_a, each, axis=-1), b * np.repeat(of_b, each, axis=-1)


def enabled_lanes(masks: list[int], where: Placement) -> Bits:
    """For `disable-output-lane`: bool (m, n), False where the lane of an element is disabled.

    Args:
        masks: 32-bit words, 4 for each CTA; bit i of word j stands for lane 32 j + i.
        where: the placement of D.
    """
    words = np.array(masks, dtype=np.uint64)
    lanes = np.arange(len(masks) * 32)
    enabled = ((words[lanes // 32] >> (lanes % 32).astype(np.uint64)) & 1) == 0
    index = np.broadcast_arrays(where.cta * ROWS + where.lane, where.column)[0]
    kept: Bits = enabled[index]
    return kept


def multiply(
    memory: Bits,
    a: Bits,
    b: Bits,
    instruction: MatrixInstruction,
    lane: int,
    column: int,
    *,
    accumulate: bool,
    ws: bool = False,
    scales: Scales | None = None,
    scale_input: int = 0,
    disabled: list[int] | None = None,
    order: Order | Accumulation | None = None,
) -> tuple[tuple[Index, Index, Index], Bits]:
    """D = A x B, or A x B + D: which cells of tensor memory get which values.

    Args:
        memory: uint32 (..., g, 128, 512), before the instruction.
        a: codes (..., m, K).
        b: codes (..., n, K).
        instruction: types, sizes, signs.
        lane: first lane of D.
        column: first column of D.
        accumulate: `enable-input-d`.
        ws: `.ws`.
        scales: block scales, for the kinds that have them.
        scale_input: `scale-input-d`: D is multiplied by 2 to the power of minus this.
        disabled: words of `disable-output-lane`.
        order: see `products.product`.

    Returns:
        Indices (cta, lane, column), each (m, n), and values uint32 (..., m, n): assign the values
        to `memory[..., cta, lane, column]`. An f16 sits in the lower half of its cell.

    Raises:
        ValueError: there is no such shape.
        IndexError: D lies outside of tensor memory.
    """
    where = placement(instruction.m, instruction.n, ctas=memory.shape[-3], ws=ws)
    cta, lanes, columns = np.broadcast_arrays(where.cta, where.lane + lane, where.column + column)
    old = memory[..., cta, lanes, columns]
    left, right = decode(a, instruction.a_type), decode(b, instruction.b_type)
    if scales is not None:
        left, right = _scaled(left, right, memory, instruction, scales)
    if instruction.negate_a != instruction.negate_b:
        left = -left
    start = old if accumulate else None
    right = np.swapaxes(right, -1, -2)
    if instruction.a_type in INTEGERS:
        values = integer_product(left, right, start, saturate=instruction.saturate)
    else:
        name = instruction.d_type
        if start is not None and scale_input:
            scaled = np.ldexp(to_float64(start, name), -scale_input)
            # Exact unless it becomes subnormal.
            start = from_float64(scaled, name)
        values = product(left, right, start, c_type=name, d_type=name, order=order)
    values = values.astype(np.uint32, copy=False)
    if disabled is not None:
        values = np.where(enabled_lanes(disabled, where), values, old)
    return (cta, lanes, columns), values


def copy_lanes(shape: str) -> tuple[Index, int]:
    """Lanes that `tcgen05.cp` writes: (copies, rows), and the columns of each row.

    Args:
        shape: with its multicast: `32x128b.warpx4`, for example.

    Raises:
        ValueError: there is no such shape.
    """
    if shape not in _COPIES:
        raise ValueError(f"tcgen05.cp has no shape {shape}")
    rows, row_bytes, starts = _COPIES[shape]
    row = np.arange(rows)
    if shape == "4x256b":
        row = 32 * row
    elif shape == "64x128b.warpx2::01_23":
        row = 64 * (row // 32) + row % 32
    return np.array(starts)[:, None] + row[None, :], row_bytes // 4


def copy(shared: Bits, descriptor: MatrixDescriptor, shape: str) -> tuple[Index, Bits]:
    """`tcgen05.cp`: rows of shared memory to lanes.

    Args:
        shared: uint8 (..., bytes) of one CTA each.
        descriptor: where the rows lie, K-major.
        shape: as `copy_lanes`.

    Returns:
        Lanes (copies, rows) relative to the address, and words uint32 (..., rows, columns), the
        same for every copy.
    """
    lanes, columns = copy_lanes(shape)
    words = read_matrix(
        shared, descriptor, rows=lanes.shape[1], k_bytes=4 * columns, width=32, mn_major=False
    )
    return lanes, words
