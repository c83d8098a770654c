"""Matrix products with the accumulator of tensor cores: shared by mma.sync, wgmma and tcgen05.

The PTX ISA leaves order and precision of the accumulation open (9.7.14.5.14, "Semantics"). Here
products are exact, they are summed in float64 with the accumulator, and the sum is rounded once:
the best that any hardware may return (f64 is a chain of `fma`).

`mma.sync`: one matrix product for each warp, in registers (PTX ISA 9.7.14.5). `wgmma.mma_async`:
the product of a warpgroup, 64 rows in registers (PTX ISA 9.7.15).
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from gpu_emulator.engines.matrices import (
    LANES,
    Layout,
    MatrixDescriptor,
    accumulator,
    elements,
    operand_a,
    operand_b,
    read_matrix,
    registers,
)
from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.formats import Bits, Float64, from_float64, to_float64

INTEGERS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4}
"""Bits of the integer types."""


def decode(codes: Bits, name: str) -> Float64:
    """Values of elements as float64, integers too."""
    if name not in INTEGERS:
        return to_float64(codes, name)
    width = INTEGERS[name]
    values = codes.astype(np.int64) & ((1 << width) - 1)
    if name[0] == "s":
        values -= (values >> (width - 1)) << width
    return values.astype(np.float64)


def product(a: Float64, b: Float64, c: Bits | None, *, c_type: str, d_type: str) -> Bits:
    """A @ B + C, rounded to nearest even.

    `a`: (..., m, k) values. `b`: (..., k, n) values. `c`: (..., m, n) bits of `c_type`, or None for
    zero. `c_type` and `d_type`: f16, f32 or f64. Returns (..., m, n) bits of `d_type`.
    """
    with np.errstate(all="ignore"):
        if d_type == "f64":
            return _chain(a, b, c)
        total = np.matmul(a, b)
        return from_float64(total if c is None else total + to_float64(c, c_type), d_type)


def _chain(a: Float64, b: Float64, c: Bits | None) -> Bits:
    """f64: a chain of fused multiplications and additions, as `mma.sync` has it."""
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    running: Bits = np.zeros((*shape, a.shape[-2], b.shape[-1]), dtype=np.uint64)
    if c is not None:
        running = running + c
    left, right = (np.ascontiguousarray(x).view(np.uint64) for x in (a, b))
    for k in range(a.shape[-1]):
        running = arithmetic.fma("f64", left[..., :, k, None], right[..., None, k, :], running)
    return running


def _integer_product(a: Float64, b: Float64, c: Bits | None, *, saturate: bool) -> Bits:
    """In 32 bits: wrapping, or clamped; products of 8 bits are exact in float64."""
    total = np.matmul(a, b).astype(np.int64)
    if c is not None:
        total = total + c.astype(np.uint32).view(np.int32)
    if saturate:
        limits = np.iinfo(np.int32)
        total = np.clip(total, limits.min, limits.max)
    return (total & 0xFFFF_FFFF).astype(np.uint32)


def _binary_product(a: Bits, b: Bits, c: Bits, operation: str) -> Bits:
    """b1: for each (row, column) the number of ones in a xor b, or in a and b, added to C."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    ones = np.matmul(left, right)
    if operation == "xor":
        ones = left.sum(axis=-1)[..., :, None] + right.sum(axis=-2)[..., None, :] - 2 * ones
    total: Bits = (ones.astype(np.int64) + c.astype(np.int64)) & 0xFFFF_FFFF
    return total.astype(np.uint32)


def multiplied(
    a: Bits,
    b: Bits,
    c: Bits | None,
    types: tuple[str, str, str, str],
    *,
    saturate: bool = False,
    operation: str = "and",
    factors: tuple[Float64, Float64] | None = None,
    negate: bool = False,
) -> Bits:
    """A @ B + C of codes, as the types of A, B, C and D have it.

    `a`: codes (..., m, k). `b`: codes (..., k, n). `c`: (..., m, n) bits, or None for zero (not of
    b1). `saturate`: `.satfinite`, on integers. `operation`: `xor` or `and`, for b1. `factors`: what
    each element of A and of B is multiplied by. `negate`: the product counts as its negative.
    Returns (..., m, n) bits of the type of D.
    """
    a_type, b_type, c_type, d_type = types
    if a_type == "b1":
        assert c is not None
        return _binary_product(a, b, c, operation)
    left, right = decode(a, a_type), decode(b, b_type)
    if factors is not None:
        left, right = left * factors[0], right * factors[1]
    if negate:
        left = -left
    if a_type in INTEGERS:
        return _integer_product(left, right, c, saturate=saturate)
    return product(left, right, c, c_type=c_type, d_type=d_type)


_WIDTHS = {
    "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
    "e3m2": 8, "e2m3": 8, "e2m1": 8, **INTEGERS, "b1": 1,
}  # fmt: skip
"""Bits of an element in a register: the formats of 6 and 4 bits sit in bytes (`.kind::f8f6f4`),
except with `packed_fours` (`.kind::mxf4`, `.kind::mxf4nvf4`)."""
_FOUR_SHIFT = 2
"""In its byte, e2m1 has bits 2 to 5; e3m2 and e2m3 have bits 0 to 5."""

SHAPES = {
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), "tf32": ("m16n8k4", "m16n8k8"),
    "f16": ("m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"),
    "e4m3": ("m16n8k16", "m16n8k32"), "e5m2": ("m16n8k16", "m16n8k32"), "e3m2": ("m16n8k32",),
    "e2m3": ("m16n8k32",), "e2m1": ("m16n8k32", "m16n8k64"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"), "u8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"), "u4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}  # fmt: skip
"""By type of A. m8n8k4 on f16 (sm_70) is not here: its fragments follow another rule."""


def _codes(words: Bits, name: str, width: int) -> Bits:
    codes = elements(words, width)
    return codes >> np.uint8(_FOUR_SHIFT) if name == "e2m1" and width == 8 else codes


def mma_sync(
    shape: str,
    a: Bits,
    b: Bits,
    c: Bits,
    *,
    a_type: str,
    b_type: str,
    c_type: str,
    d_type: str,
    saturate: bool = False,
    operation: str = "xor",
    scale_a: Bits | None = None,
    scale_b: Bits | None = None,
    scale_type: str = "ue8m0",
) -> Bits:
    """D = A x B + C for each warp.

    `shape`: `m16n8k16`, for example. `a`: registers (..., 32, n): uint32, or uint64 for f64. `b`:
    registers, likewise. `c`: registers of the accumulator; two f16 in each for `c_type` f16.
    `a_type`: f64, tf32, f16, bf16, e4m3, e5m2, e3m2, e2m3, e2m1, s8, u8, s4, u4 or b1. `b_type`:
    likewise; may differ from `a_type` among the narrow floats and among integers. `c_type`: f64,
    f32, f16 or s32. `d_type`: likewise. `saturate`: `.satfinite`, on integers. `operation`: `xor`
    or `and`, for b1. `scale_a`: (..., 16, blocks) scales of `.block_scale`, from `scales_of_a`.
    `scale_b`: (..., 8, blocks) scales, from `scales_of_b`. `scale_type`: ue8m0 or ue4m3. Returns
    registers of D, as many as `d_type` needs. Raises `ValueError`: the shape does not exist for the
    type.
    """
    if shape not in SHAPES.get(a_type, ()):
        raise ValueError(f"mma.sync has no shape {shape} for {a_type}")
    rows, _, k = (int(x) for x in re.findall(r"\d+", shape))
    packed_fours = a_type == "e2m1" and k == 64
    width_a, width_b = (4, 4) if packed_fours else (_WIDTHS[a_type], _WIDTHS[b_type])
    left = operand_a(rows, k, width_a).gather(_codes(a, a_type, width_a))
    right = operand_b(k, width_b).gather(_codes(b, b_type, width_b))
    layout = accumulator(rows)
    c_width, d_width = (int(x.lstrip("fs")) for x in (c_type, d_type))
    start = layout.gather(elements(c, c_width))
    factors = None
    if scale_a is not None and scale_b is not None:
        of_b = np.swapaxes(_spread(scale_b, scale_type, k), -1, -2)
        factors = _spread(scale_a, scale_type, k), of_b
    result = multiplied(
        left, right, start, (a_type, b_type, c_type, d_type), saturate=saturate,
        operation=operation, factors=factors,
    )  # fmt: skip
    return registers(layout.scatter(result), d_width)


def _spread(scales: Bits, name: str, k: int) -> Float64:
    values = to_float64(scales, name)
    return np.repeat(values, k // values.shape[-1], axis=-1)


def scales_of_a(words: Bits, *, blocks: int, byte: int, thread: int) -> Bits:
    """Scale factors of A from the registers of a warp (PTX ISA 9.7.14.3).

    `words`: uint32 (..., 32) `scale-a-data`. `blocks`: scale factors of a row: 1, 2 or 4
    (`.scale_vec::1X` and so on). `byte`: `byte-id-a`: the first byte that counts. `thread`:
    `thread-id-a`: 0 for the first pair of lanes of each four, 1 for the second. Returns uint8 (...,
    16, blocks): row g from the even lane of the pair, row g + 8 from the odd one.
    """
    row = np.arange(16)
    lane = 4 * (row % 8) + 2 * thread + row // 8
    return _bytes(words, lane, byte, blocks)


def scales_of_b(words: Bits, *, blocks: int, byte: int, thread: int) -> Bits:
    """Scale factors of B: uint8 (..., 8, blocks), column g from lane 4 g + `thread-id-b`."""
    return _bytes(words, 4 * np.arange(LANES // 4) + thread, byte, blocks)


def _bytes(words: Bits, lane: Bits, byte: int, blocks: int) -> Bits:
    shifts = 8 * (byte + np.arange(blocks, dtype=np.uint32))
    data = words.astype(np.uint32)[..., lane, None] >> shifts.astype(np.uint32)
    return (data & 0xFF).astype(np.uint8)


ROWS = 64
THREADS = 128
K_BYTES = 32
"""K of every dense shape: k8 of tf32, k16 of 16 bits, k32 of 8 bits, k256 of single bits."""


def shared_width(name: str) -> int:
    """Bits of what an element takes in shared memory; of b1 and what is packed, those of a byte."""
    return {"tf32": 32, "f16": 16, "bf16": 16}.get(name, 8)


@cache
def wgmma_accumulator(n: int) -> Layout:
    """D of m64nNk*: 64 x n over 128 threads, n / 2 elements each.

    Warp w has rows 16 w + l / 4 and 8 more; each block of 8 columns gives 4 elements, as in
    `mma.sync`.
    """
    thread = np.arange(THREADS)[:, None]
    slot = np.arange(n // 2)[None, :]
    lane = thread % LANES
    row = 16 * (thread // LANES) + lane // 4 + 8 * (slot // 2 % 2)
    return Layout.of((ROWS, n), row, 8 * (slot // 4) + 2 * (lane % 4) + slot % 2)


def register_operand(words: Bits, name: str) -> Bits:
    """A from registers: uint32 (..., 128, 4) as codes (..., 64, K)."""
    width = _WIDTHS[name]
    layout = operand_a(16, K_BYTES * 8 // width, width)
    warps = words.reshape(*words.shape[:-2], THREADS // LANES, LANES, words.shape[-1])
    matrix = layout.gather(elements(warps, width))
    return matrix.reshape(*words.shape[:-2], ROWS, -1)


def shared_operand(
    shared: Bits, descriptor: MatrixDescriptor, name: str, *, rows: int, mn_major: bool = False
) -> Bits:
    """A or B from shared memory as codes (..., rows, K); B as n rows.

    `shared`: uint8 (..., bytes). `descriptor`: where the matrix lies. `name`: type of the elements.
    `rows`: 64 for A, n for B. `mn_major`: `tnspA` or `tnspB` (16-bit types only): K is not the
    contiguous dimension.
    """
    codes = read_matrix(
        shared, descriptor, rows=rows, k_bytes=K_BYTES, width=shared_width(name), mn_major=mn_major
    )
    return np.unpackbits(codes, axis=-1, bitorder="little") if name == "b1" else codes


def wgmma(
    a: Bits,
    b: Bits,
    d: Bits,
    *,
    a_type: str,
    b_type: str,
    d_type: str,
    accumulate: Bits,
    negate_a: bool = False,
    negate_b: bool = False,
    saturate: bool = False,
) -> Bits:
    """D = A x B, or A x B + D.

    `a`: codes (..., 64, K), from `register_operand` or `shared_operand`. `b`: codes (..., n, K).
    `d`: registers of D, uint32 (..., 128, n / 2), or n / 4 for f16. `a_type`: tf32, f16, bf16,
    e4m3, e5m2, s8, u8 or b1. `b_type`: likewise. `d_type`: f32, f16 or s32. `accumulate`: bool
    (...): `scale-d`. `negate_a`: `imm-scale-a` is -1. `negate_b`: `imm-scale-b` is -1. `saturate`:
    `.satfinite`. Returns the new registers of D.
    """
    layout = wgmma_accumulator(b.shape[-2])
    width = 16 if d_type == "f16" else 32
    old = layout.gather(elements(d, width))
    start = np.where(accumulate[..., None, None], old, old.dtype.type(0))
    result = multiplied(
        a, np.swapaxes(b, -1, -2), start, (a_type, b_type, d_type, d_type), saturate=saturate,
        negate=negate_a != negate_b,
    )  # fmt: skip
    return registers(layout.scatter(result), width)
