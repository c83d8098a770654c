"""`tcgen05.mma` and `tcgen05.cp` on tensor memory and shared memory (PTX ISA 9.7.16.9, 9.7.16.10).

Arrays have an axis of CTAs: shared memory is uint8 (..., g, bytes), tensor memory uint32
(..., g, 128, 512), with g = 1, or 2 for `.cta_group::2` (the even CTA of the pair first). Leading
dimensions are independent CTAs or pairs that execute one instruction with the same operands.

Tensor memory: 128 lanes x 512 columns x 32 bits of each CTA, and how warps reach it. PTX ISA
9.7.16.1 (tensor memory), 9.7.16.7 (alloc, dealloc), 9.7.16.8 (ld, st), 9.7.16.9 (cp, shift). An
address is lane << 16 | column. In the functions below tensor memory is uint32 (..., 128, 512);
indices are arrays that the machine applies itself where it watches accesses.

What an instruction of tcgen05.mma says, and where its operands lie in tensor memory. PTX ISA
9.7.16.4.2 (instruction descriptor), 9.7.16.10.5 (data path layouts A to G), 9.7.16.10.7 (scale
factors). Bit positions agree with CUTLASS's `UMMA::InstrDescriptor`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.engines.matrices import LANES, MatrixDescriptor, elements, read_matrix, unpack_row
from gpu_emulator.engines.products import multiplied, shared_width
from gpu_emulator.numbers.formats import Bits, Float64, from_float64, to_float64

ROWS, COLUMNS = 128, 512
_LEAST = 32
_SLAB = 32
"""Lanes that one warp of a warpgroup may reach."""

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells of tensor memory by lane and column, for each (lane of the warp, register).

    Where `packed`, a register holds the lower halves of a cell and of the next column.
    """

    lane: Index
    column: Index
    packed: bool = False


def address_parts(address: int) -> tuple[int, int]:
    """Lane and column of an address."""
    return (address >> 16) & 0xFFFF, address & 0xFFFF


def may_access(lane: int, warp: int, rows: int) -> bool:
    """Whether a warp (its number in the CTA) may reach `rows` lanes from `lane` on."""
    first = _SLAB * (warp % 4)
    return first <= lane and lane + rows <= first + _SLAB


@cache
def warp_cells(shape: str, repeat: int, *, split: int = 0, packed: bool = False) -> Cells:
    """What `tcgen05.ld` and `tcgen05.st` move, relative to their address.

    `shape`: 32x32b, 16x64b, 16x128b, 16x256b or 16x32bx2. `repeat`: the number of `.xN`. `split`:
    `immHalfSplitoff` of 16x32bx2: columns from the first half to the second. `packed`: `.pack::16b`
    or `.unpack::16b`: twice as many columns for the same registers. Returns cells with arrays (32,
    registers). Raises `ValueError`: there is no such shape.
    """
    lane = np.arange(LANES)[:, None]
    count = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}.get(shape)
    if count is None:
        raise ValueError(f"tensor memory has no shape {shape}")
    register = np.arange(count * repeat)[None, :]
    step = 2 if packed else 1
    if shape == "32x32b":
        row, column = lane, register * step
    elif shape == "16x64b":
        row, column = lane // 4 + 8 * (lane % 2), (lane // 2 % 2 + 2 * register) * step
    elif shape == "16x128b":
        row, column = lane // 4 + 8 * (register % 2), (lane % 4 + 4 * (register // 2)) * step
    elif shape == "16x256b":
        row = lane // 4 + 8 * (register // 2 % 2)
        column = (register % 2 + 2 * (lane % 4) + 8 * (register // 4)) * step
    else:
        row, column = lane % 16, register * step + split * (lane // 16)
    row, column = np.broadcast_arrays(row, column)
    return Cells(row, column, packed)


def load(memory: Bits, cells: Cells, lane: int, column: int) -> Bits:
    """`tcgen05.ld` from (lane, column): registers uint32 (..., 32, n).

    Raises `IndexError`: a cell lies outside of tensor memory.
    """
    rows, columns = lane + cells.lane, column + cells.column
    values: Bits = memory[..., rows, columns]
    if not cells.packed:
        return values
    upper = memory[..., rows, columns + 1]
    return (values & np.uint32(0xFFFF)) | (upper << np.uint32(16))


def store(memory: Bits, cells: Cells, lane: int, column: int, values: Bits) -> None:
    """`tcgen05.st` to (lane, column): writes registers (..., 32, n) into `memory`.

    Raises `IndexError`: a cell lies outside of tensor memory.
    """
    rows, columns = lane + cells.lane, column + cells.column
    if not cells.packed:
        memory[..., rows, columns] = values
        return
    memory[..., rows, columns] = values & np.uint32(0xFFFF)
    memory[..., rows, columns + 1] = values >> np.uint32(16)


def shift_down(memory: Bits, lane: int, column: int) -> None:
    """`tcgen05.shift.down`: 32 bytes (8 columns) of each row but the last move to the next row.

    Read from the one sentence of the PTX ISA 9.7.16.9.3; the first row keeps what it has.
    """
    block = memory[..., lane:, column : column + 8]
    block[..., 1:, :] = block[..., :-1, :].copy()


@dataclass(slots=True)
class Allocator:
    """The columns of one CTA's tensor memory: who holds which, and whether more may be asked for.

    The first free columns are handed out. `tcgen05.alloc` blocks while there are none.
    """

    blocks: dict[int, int] = field(default_factory=dict)
    relinquished: bool = False

    def allocate(self, columns: int) -> int | None:
        """The first column of a block, or None where the caller has to wait.

        Raises `ValueError`: the number of columns is not a power of two from 32 to 512, or the
        permit was given up.
        """
        if columns not in (32, 64, 128, 256, 512):
            raise ValueError(
                f"tcgen05.alloc of {columns} columns: it takes 32, 64, 128, 256 or 512"
            )
        if self.relinquished:
            raise ValueError("tcgen05.alloc after tcgen05.relinquish_alloc_permit")
        for start in range(0, COLUMNS - columns + 1, _LEAST):
            if all(
                start >= first + size or first >= start + columns
                for first, size in self.blocks.items()
            ):
                self.blocks[start] = columns
                return start
        return None

    def free(self, column: int, columns: int) -> None:
        """Give a block back.

        Raises `ValueError`: no block of this size starts there.
        """
        if self.blocks.get(column) != columns:
            raise ValueError(f"tcgen05.dealloc: no block of {columns} columns starts at {column}")
        del self.blocks[column]

    def relinquish(self) -> None:
        """`tcgen05.relinquish_alloc_permit`."""
        self.relinquished = True


_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_FORMATS = {
    "f16": {0: "f16", 1: "bf16"}, "tf32": {2: "tf32"}, "f8f6f4": _NARROW, "mxf8f6f4": _NARROW,
    "mxf4": {1: "e2m1"}, "mxf4nvf4": {1: "e2m1"}, "i8": {0: "u8", 1: "s8"},
}  # fmt: skip
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

    `kind`: f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4 or mxf4nvf4. `descriptor`: the operand `idesc`.
    Raises `ValueError`: the descriptor asks for what is not known here: sparsity, K = 96, a type
    that its kind does not have.
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
        kind=kind, m=bits(24, 5) << 4, n=bits(17, 6) << 3, k=_K[kind], a_type=types[0],
        b_type=types[1], d_type=d_type, a_mn_major=bool(bits(15, 1)), b_mn_major=bool(bits(16, 1)),
        negate_a=bool(bits(13, 1)), negate_b=bool(bits(14, 1)),
        saturate=bool(not scaled and bits(3, 1)),
        scale_type=("ue4m3", "ue8m0")[bits(23, 1)] if scaled else None,
        a_scale_byte=bits(29, 2) if scaled else 0, b_scale_byte=bits(4, 2) if scaled else 0,
    )  # fmt: skip


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

    Raises `ValueError`: there is no such shape.
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


def operand_from_shared(
    shared: Bits, descriptor: MatrixDescriptor, instruction: MatrixInstruction, operand: str
) -> Bits:
    """A or B as codes: (..., m, K), or (..., n, K); each CTA holds its share of the rows.

    `shared`: uint8 (..., g, bytes). `descriptor`: where the matrix lies, the same in both CTAs.
    `instruction`: which types and sizes. `which`: `a` or `b`.
    """
    ctas = shared.shape[-2]
    is_a = operand == "a"
    name = instruction.a_type if is_a else instruction.b_type
    codes = read_matrix(
        shared, descriptor, rows=(instruction.m if is_a else instruction.n) // ctas,
        k_bytes=K_BYTES, width=shared_width(name),
        mn_major=instruction.a_mn_major if is_a else instruction.b_mn_major,
    )  # fmt: skip
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

    Raises `ValueError`: e2m1 with `kind::f8f6f4`, whose place in the byte is not documented.
    """
    name = instruction.a_type
    if name == "e2m1" and not instruction.kind.startswith("mxf4"):
        raise ValueError("e2m1 in tensor memory as A of kind::f8f6f4 is not known")
    cta, lanes, columns = operand_cells(lane, column, instruction, ctas=memory.shape[-3], ws=ws)
    words = memory[..., cta, lanes, columns]
    codes = elements(words, shared_width(name))
    return _unpacked(codes, instruction, name) if instruction.kind.startswith("mxf4") else codes


def _factors(
    memory: Bits, column: int, byte: int, rows: int, instruction: MatrixInstruction, blocks: int
) -> Float64:
    """Scale factors in tensor memory for each element of K: (..., g, rows, K).

    Those of row r are in lane r % 32 of the column r / 32 (the other three slabs of 32 lanes hold
    copies); those of its blocks of K are in successive bytes from the scale factor id on.
    """
    assert instruction.scale_type is not None
    row = np.arange(rows)[:, None]
    words = memory[..., row % 32, column + row // 32]
    shifts = (8 * (byte + np.arange(blocks)[None, :])).astype(np.uint32)
    values = to_float64((words >> shifts) & 0xFF, instruction.scale_type)
    return np.repeat(values, instruction.k // blocks, axis=-1)


def _scale_factors(
    memory: Bits, instruction: MatrixInstruction, scales: Scales
) -> tuple[Float64, Float64]:
    """What the elements of A, (..., m, K), and of B, (..., K, n), are multiplied by."""
    m, n, blocks = instruction.m // memory.shape[-3], instruction.n, scales.blocks
    of_a = _factors(memory, scales.a_column, instruction.a_scale_byte, m, instruction, blocks)
    # Both CTAs of a pair hold the factors of all columns; they are copies of each other.
    first = memory[..., 0, :, :]
    of_b = _factors(first, scales.b_column, instruction.b_scale_byte, n, instruction, blocks)
    return of_a.reshape(*of_a.shape[:-3], -1, instruction.k), np.swapaxes(of_b, -1, -2)


def enabled_lanes(masks: list[int], where: Placement) -> Bits:
    """For `disable-output-lane`: bool (m, n), False where the lane of an element is disabled.

    `masks`: 32-bit words, 4 for each CTA; bit i of word j stands for lane 32 j + i. `where`: the
    placement of D.
    """
    words = np.array(masks, dtype=np.uint64)
    lanes = np.arange(len(masks) * 32)
    enabled = ((words[lanes // 32] >> (lanes % 32).astype(np.uint64)) & 1) == 0
    index = np.broadcast_arrays(where.cta * ROWS + where.lane, where.column)[0]
    return enabled[index]


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
) -> tuple[tuple[Index, Index, Index], Bits]:
    """D = A x B, or A x B + D: which cells of tensor memory get which values.

    `memory`: uint32 (..., g, 128, 512), before the instruction. `a`: codes (..., m, K). `b`: codes
    (..., n, K). `instruction`: types, sizes, signs. `lane`: first lane of D. `column`: first column
    of D. `accumulate`: `enable-input-d`. `ws`: `.ws`. `scales`: block scales, for the kinds that
    have them. `scale_input`: `scale-input-d`: D is multiplied by 2 to the power of minus this.
    `disabled`: words of `disable-output-lane`. Returns indices
    (cta, lane, column), each (m, n), and values uint32 (..., m, n): assign the values to
    `memory[..., cta, lane, column]`. An f16 sits in the lower half of its cell. Raises
    `ValueError`: there is no such shape. Raises `IndexError`: D lies outside of tensor memory.
    """
    where = placement(instruction.m, instruction.n, ctas=memory.shape[-3], ws=ws)
    cta, lanes, columns = np.broadcast_arrays(where.cta, where.lane + lane, where.column + column)
    old = memory[..., cta, lanes, columns]
    start, name = old if accumulate else None, instruction.d_type
    if start is not None and scale_input and name != "s32":
        # Exact unless it becomes subnormal.
        start = from_float64(np.ldexp(to_float64(start, name), -scale_input), name)
    values = multiplied(
        a, np.swapaxes(b, -1, -2), start, (instruction.a_type, instruction.b_type, name, name),
        saturate=instruction.saturate, negate=instruction.negate_a != instruction.negate_b,
        factors=None if scales is None else _scale_factors(memory, instruction, scales),
    )  # fmt: skip
    values = values.astype(np.uint32, copy=False)
    if disabled is not None:
        values = np.where(enabled_lanes(disabled, where), values, old)
    return (cta, lanes, columns), values


def copy_lanes(shape: str) -> tuple[Index, int]:
    """Lanes that `tcgen05.cp` writes: (copies, rows), and the columns of each row.

    `shape`: with its multicast: `32x128b.warpx4`, for example. Raises `ValueError`: there is no
    such shape.
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

    `shared`: uint8 (..., bytes) of one CTA each. `descriptor`: where the rows lie, K-major.
    `shape`: as `copy_lanes`. Returns lanes (copies, rows) relative to the address, and words uint32
    (..., rows, columns), the same for every copy.
    """
    lanes, columns = copy_lanes(shape)
    words = read_matrix(
        shared, descriptor, rows=lanes.shape[1], k_bytes=4 * columns, width=32, mn_major=False
    )
    return lanes, words
