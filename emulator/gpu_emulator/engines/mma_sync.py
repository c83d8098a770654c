"""`mma.sync`: one matrix product for each warp, in registers (PTX ISA 9.7.14.5)."""

from __future__ import annotations

import re

import numpy as np

from gpu_emulator.engines.accumulation import Accumulation
from gpu_emulator.engines.fragments import (
    LANES,
    accumulator,
    elements,
    operand_a,
    operand_b,
    registers,
)
from gpu_emulator.engines.products import (
    INTEGERS,
    Order,
    binary_product,
    decode,
    integer_product,
    product,
)
from gpu_emulator.numbers.formats import Bits, Float64, to_float64

_WIDTHS = {
    "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
    "e3m2": 8, "e2m3": 8, "e2m1": 8, **INTEGERS, "b1": 1,
}  # fmt: skip
"""Bits of an element in a register: the formats of 6 and 4 bits sit in bytes (`.kind::f8f6f4`),
except with `packed_fours` (`.kind::mxf4`, `.kind::mxf4nvf4`)."""
_FOUR_SHIFT = 2
"""In its byte, e2m1 has bits 2 to 5; e3m2 and e2m3 have bits 0 to 5."""

SHAPES = {
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "e4m3": ("m16n8k16", "m16n8k32"),
    "e5m2": ("m16n8k16", "m16n8k32"),
    "e3m2": ("m16n8k32",),
    "e2m3": ("m16n8k32",),
    "e2m1": ("m16n8k32", "m16n8k64"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "u8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "u4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
"""By type of A. m8n8k4 on f16 (sm_70) is not here: its fragments follow another rule."""


def _codes(held: Bits, name: str, width: int) -> Bits:
    codes = elements(held, width)
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
    order: Order | Accumulation | None = None,
) -> Bits:
    """D = A x B + C for each warp.

    Args:
        shape: `m16n8k16`, for example.
        a: registers (..., 32, n): uint32, or uint64 for f64.
        b: registers, likewise.
        c: registers of the accumulator; two f16 in each for `c_type` f16.
        a_type: f64, tf32, f16, bf16, e4m3, e5m2, e3m2, e2m3, e2m1, s8, u8, s4, u4 or b1.
        b_type: likewise; may differ from `a_type` among the narrow floats and among integers.
        c_type: f64, f32, f16 or s32.
        d_type: likewise.
        saturate: `.satfinite`, on integers.
        operation: `xor` or `and`, for b1.
        scale_a: (..., 16, blocks) scales of `.block_scale`, from `scales_of_a`.
        scale_b: (..., 8, blocks) scales, from `scales_of_b`.
        scale_type: ue8m0 or ue4m3.
        order: see `products.product`.

    Returns:
        Registers of D, as many as `d_type` needs.

    Raises:
        ValueError: the shape does not exist for the type.
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
    if a_type == "b1":
        result = binary_product(left, right, start, operation)
    elif a_type in INTEGERS:
        result = integer_product(
            decode(left, a_type), decode(right, b_type), start, saturate=saturate
        )
    else:
        x, y = decode(left, a_type), decode(right, b_type)
        if scale_a is not None and scale_b is not None:
            x = x * _spread(scale_a, scale_type, k)
            y = y * np.swapaxes(_spread(scale_b, scale_type, k), -1, -2)
        result = product(x, y, start, c_type=c_type, d_type=d_type, order=order)
    return registers(layout.scatter(result), d_width)


def _spread(scales: Bits, name: str, k: int) -> Float64:
    values = to_float64(scales, name)
    return np.repeat(values, k // values.shape[-1], axis=-1)


def scales_of_a(held: Bits, *, blocks: int, byte: int, thread: int) -> Bits:
    """Scale factors of A from the registers of a warp (PTX ISA 9.7.14.3).

    Args:
        held: uint32 (..., 32) `scale-a-data`.
        blocks: scale factors of a row: 1, 2 or 4 (`.scale_vec::1X` and so on).
        byte: `byte-id-a`: the first byte that counts.
        thread: `thread-id-a`: 0 for the first pair of lanes of each four, 1 for the second.

    Returns:
        uint8 (..., 16, blocks): row g from the even lane of the pair, row g + 8 from the odd one.
    """
    row = np.arange(16)
    lane = 4 * (row % 8) + 2 * thread + row // 8
    return _bytes(held, lane, byte, blocks)


def scales_of_b(held: Bits, *, blocks: int, byte: int, thread: int) -> Bits:
    """Scale factors of B: uint8 (..., 8, blocks), column g from lane 4 g + `thread-id-b`."""
    return _bytes(held, 4 * np.arange(LANES // 4) + thread, byte, blocks)


def _bytes(held: Bits, lane: Bits, byte: int, blocks: int) -> Bits:
    shifts = 8 * (byte + np.arange(blocks, dtype=np.uint32))
    data = held.astype(np.uint32)[..., lane, None] >> shifts.astype(np.uint32)
    return (data & 0xFF).astype(np.uint8)
