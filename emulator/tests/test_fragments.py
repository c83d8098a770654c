"""Fragments against the index formulas that the PTX ISA writes out, and products against numpy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from accumulation import added_by, in_order

from gpu_emulator.engines.matrices import (
    LANES,
    accumulator,
    elements,
    load_bytes,
    load_matrices,
    move_matrix,
    operand_a,
    operand_b,
    registers,
    store_bytes,
    store_matrices,
    unpack_row,
)
from gpu_emulator.engines.products import SHAPES, decode, mma_sync, scales_of_a, scales_of_b
from gpu_emulator.numbers.formats import from_float64, to_float64

RNG = np.random.default_rng(0)


def check(layout: object, rows: object, columns: object) -> None:
    """Compare a layout with formulas in (lane, i), one lane and element at a time."""
    slots = layout.row.shape[1]  # type: ignore[attr-defined]
    for lane in range(LANES):
        for i in range(slots):
            row, column = layout.row[lane, i], layout.column[lane, i]  # type: ignore[attr-defined]
            assert (row, column) == (rows(lane, i), columns(lane, i)), (lane, i)  # type: ignore[operator]


def test_m16n8k16_of_16_bits() -> None:
    check(
        operand_a(16, 16, 16),
        lambda lane, i: lane // 4 + (0 if i < 2 or 4 <= i < 6 else 8),
        lambda lane, i: (lane % 4) * 2 + (i & 1) + (0 if i < 4 else 8),
    )
    check(
        operand_b(16, 16),
        lambda lane, i: (lane % 4) * 2 + (i & 1) + (0 if i < 2 else 8),
        lambda lane, i: lane // 4,
    )
    check(
        accumulator(16),
        lambda lane, i: lane // 4 + (0 if i < 2 else 8),
        lambda lane, i: (lane % 4) * 2 + (i & 1),
    )


def test_m16n8k8_of_tf32() -> None:
    check(
        operand_a(16, 8, 32),
        lambda lane, i: lane // 4 + (0 if i in (0, 2) else 8),
        lambda lane, i: lane % 4 + (0 if i in (0, 1) else 4),
    )
    check(operand_b(8, 32), lambda lane, i: lane % 4 + 4 * i, lambda lane, i: lane // 4)


def test_m16n8k32_of_8_bits() -> None:
    check(
        operand_a(16, 32, 8),
        lambda lane, i: lane // 4 + (0 if i < 4 or 8 <= i < 12 else 8),
        lambda lane, i: (lane % 4) * 4 + (i & 3) + (0 if i < 8 else 16),
    )
    check(
        operand_b(32, 8),
        lambda lane, i: (lane % 4) * 4 + (i & 3) + (0 if i < 4 else 16),
        lambda lane, i: lane // 4,
    )


def test_m8n8k4_of_f64_and_m16n8k16_of_f64() -> None:
    check(operand_a(8, 4, 64), lambda lane, i: lane // 4, lambda lane, i: lane % 4)
    check(accumulator(8), lambda lane, i: lane // 4, lambda lane, i: (lane % 4) * 2 + (i & 1))
    check(
        operand_a(16, 16, 64),
        lambda lane, i: lane // 4 + 8 * (i % 2),
        lambda lane, i: (i // 2) * 4 + lane % 4,
    )


def test_m16n8k256_of_single_bits() -> None:
    check(
        operand_a(16, 256, 1),
        lambda lane, i: lane // 4 + (0 if i < 32 or 64 <= i < 96 else 8),
        lambda lane, i: (lane % 4) * 32 + (i & 31) + (0 if i < 64 else 128),
    )


CASES = [(kind, shape) for kind, shapes in SHAPES.items() for shape in shapes]


def some(kind: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Codes of small integers in a format, so that every sum is exact."""
    if kind == "b1":
        return RNG.integers(0, 2, shape).astype(np.uint8)
    if kind in ("s8", "u8", "s4", "u4"):
        return RNG.integers(0, 1 << int(kind[1:]), shape).astype(np.uint8)
    return from_float64(RNG.integers(-2, 3, shape).astype(np.float64), kind)


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_a_product_is_that_of_numpy(kind: str, shape: str) -> None:
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    a, b = some(kind, (3, 2, m, k)), some(kind, (3, 2, k, n))
    bits = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "b1": 1}.get(kind, 8)
    shift = 0
    if kind == "e2m1":
        bits, shift = (4, 0) if k == 64 else (8, 2)
    held_a = registers(operand_a(m, k, bits).scatter(a << shift), bits)
    held_b = registers(operand_b(k, bits).scatter(b << shift), bits)
    integral = kind in ("s8", "u8", "s4", "u4", "b1")
    kind_c = "s32" if integral else ("f64" if kind == "f64" else "f32")
    c = RNG.integers(-9, 9, (3, 2, m, n))
    start = (
        c.astype(np.int32).view(np.uint32) if integral else from_float64(c.astype(float), kind_c)
    )
    width = 64 if kind == "f64" else 32
    held_c = registers(accumulator(m).scatter(start), width)
    d = mma_sync(
        shape, held_a, held_b, held_c, a_type=kind, b_type=kind, c_type=kind_c, d_type=kind_c
    )
    found = accumulator(m).gather(elements(d, width))
    if kind == "b1":
        expected = (a[..., :, None, :] ^ np.swapaxes(b, -1, -2)[..., None, :, :]).sum(-1) + c
    else:
        expected = decode(a, kind) @ decode(b, kind) + c
    values = found.view(np.int32) if integral else to_float64(found, kind_c)
    assert np.array_equal(values, expected)


def test_half_accumulators_sit_in_pairs() -> None:
    a, b = some("f16", (16, 16)), some("f16", (16, 8))
    c = from_float64(np.full((16, 8), 3.0), "f16")
    held = [
        registers(operand_a(16, 16, 16).scatter(a), 16),
        registers(operand_b(16, 16).scatter(b), 16),
        registers(accumulator(16).scatter(c), 16),
    ]
    assert held[2].shape == (32, 2)
    d = mma_sync("m16n8k16", *held, a_type="f16", b_type="f16", c_type="f16", d_type="f16")
    found = to_float64(accumulator(16).gather(elements(d, 16)), "f16")
    assert np.array_equal(found, decode(a, "f16") @ decode(b, "f16") + 3)


def test_integers_wrap_or_saturate() -> None:
    a = np.full((LANES, 4), 0x7F7F7F7F, np.uint32)
    b = np.full((LANES, 2), 0x7F7F7F7F, np.uint32)
    c = np.full((LANES, 4), 0x7FFFFFFF, np.uint32)
    types = {"a_type": "s8", "b_type": "s8", "c_type": "s32", "d_type": "s32"}
    wrapped = mma_sync("m16n8k32", a, b, c, **types)  # type: ignore[arg-type]
    assert (wrapped == (0x7FFFFFFF + 32 * 127 * 127)).all()
    assert (mma_sync("m16n8k32", a, b, c, **types, saturate=True) == 0x7FFFFFFF).all()  # type: ignore[arg-type]


def test_another_order_changes_no_more_than_rounding() -> None:
    a = registers(
        operand_a(16, 16, 16).scatter(from_float64(RNG.normal(size=(16, 16)), "bf16")), 16
    )
    b = registers(operand_b(16, 16).scatter(from_float64(RNG.normal(size=(16, 8)), "bf16")), 16)
    c = np.zeros((LANES, 4), np.uint32)
    types = {"a_type": "bf16", "b_type": "bf16", "c_type": "f32", "d_type": "f32"}
    plain = mma_sync("m16n8k16", a, b, c, **types).view(np.float32)  # type: ignore[arg-type]
    with added_by(in_order(RNG.permutation(16))):
        other = mma_sync("m16n8k16", a, b, c, **types).view(np.float32)  # type: ignore[arg-type]
    assert not np.array_equal(plain, other)
    assert np.abs(plain - other).max() < 1e-5


def test_scale_factors_multiply_their_blocks() -> None:
    a, b = some("e4m3", (16, 32)), some("e4m3", (32, 8))
    held_a = registers(operand_a(16, 32, 8).scatter(a), 8)
    held_b = registers(operand_b(32, 8).scatter(b), 8)
    words_a = RNG.integers(0, 2**32, LANES, dtype=np.uint32)
    words_b = RNG.integers(0, 2**32, LANES, dtype=np.uint32)
    # Exponents near 127 only, so that all is exact.
    words_a, words_b = (
        (w & np.uint32(0x03030303)) | np.uint32(0x7C7C7C7C) for w in (words_a, words_b)
    )
    scale_a = scales_of_a(words_a, blocks=1, byte=2, thread=1)
    scale_b = scales_of_b(words_b, blocks=1, byte=3, thread=2)
    d = mma_sync(
        "m16n8k32", held_a, held_b, np.zeros((LANES, 4), np.uint32),
        a_type="e4m3", b_type="e4m3", c_type="f32", d_type="f32",
        scale_a=scale_a, scale_b=scale_b,
    )  # fmt: skip
    of_row = [(int(words_a[4 * (r % 8) + 2 + r // 8]) >> 16) & 0xFF for r in range(16)]
    of_column = [(int(words_b[4 * c + 2]) >> 24) & 0xFF for c in range(8)]
    factors = np.exp2(np.add.outer(of_row, of_column) - 254.0)
    found = accumulator(16).gather(elements(d, 32)).view(np.float32)
    assert np.array_equal(found, decode(a, "e4m3") @ decode(b, "e4m3") * factors)


def test_a_shape_that_does_not_exist() -> None:
    none = np.zeros((LANES, 1), np.uint32)
    with pytest.raises(ValueError, match="no shape m16n8k4 for f16"):
        mma_sync(
            "m16n8k4", none, none, none, a_type="f16", b_type="f16", c_type="f32", d_type="f32"
        )


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix_stores_what_ldmatrix_loads(count: int, transposed: bool) -> None:
    rows = RNG.integers(0, 256, (5, 2, 8 * count, 16)).astype(np.uint8)
    held = load_matrices(rows, transposed=transposed)
    assert held.shape == (5, 2, LANES, count)
    assert np.array_equal(store_matrices(held, transposed=transposed), rows)
    halves = rows.view(np.uint16)
    for matrix in range(count):
        for lane in range(LANES):
            row, column = lane // 4, 2 * (lane % 4)
            pair = [
                halves[
                    0,
                    0,
                    8 * matrix + (column + i if transposed else row),
                    row if transposed else column + i,
                ]
                for i in (0, 1)
            ]
            assert held[0, 0, lane, matrix] == int(pair[0]) | int(pair[1]) << 16


def test_ldmatrix_gives_the_operands_of_mma() -> None:
    a = RNG.integers(0, 2**16, (16, 16)).astype(np.uint16)
    quarters = [a[:8, :8], a[8:, :8], a[:8, 8:], a[8:, 8:]]
    rows = np.ascontiguousarray(np.concatenate(quarters)).view(np.uint8)
    held = load_matrices(rows, transposed=False)
    assert np.array_equal(operand_a(16, 16, 16).gather(elements(held, 16)), a)
    b = RNG.integers(0, 2**16, (16, 8)).astype(np.uint16)
    held = load_matrices(np.ascontiguousarray(b).view(np.uint8), transposed=True)
    assert np.array_equal(operand_b(16, 16).gather(elements(held, 16)), b)


def test_movmatrix_transposes() -> None:
    rows = RNG.integers(0, 256, (8, 16)).astype(np.uint8)
    plain = load_matrices(rows, transposed=False)[..., 0]
    assert np.array_equal(move_matrix(plain), load_matrices(rows, transposed=True)[..., 0])


def test_bytes_are_transposed_in_pairs_of_rows() -> None:
    rows = RNG.integers(0, 256, (2, 32, 16)).astype(np.uint8)
    held = load_bytes(rows)
    assert held.shape == (2, LANES, 4)
    # Bit positions as CUTLASS has them: lane s supplies row i0 + 8 i1 + 2 i2 (+ 16 i3).
    logical = np.empty((32, 16), np.uint8)
    for s in range(32):
        logical[s % 2 + 8 * (s // 2 % 2) + 2 * (s // 4 % 4) + 16 * (s // 16)] = rows[1, s]
    parts = elements(held[1], 8)
    for lane in range(LANES):
        for value in range(16):
            v1, v2, v3 = value % 2, value // 2 % 2, value // 4
            bit = 256 * (lane % 4) + 8 * (lane // 4) + 128 * v1 + 64 * v2 + 1024 * v3
            assert parts[lane, value] == logical.ravel()[bit // 8]


def test_columns_of_bytes_become_rows() -> None:
    held = RNG.integers(0, 2**32, (LANES, 2), dtype=np.uint32)
    rows = store_bytes(held)
    assert rows.shape == (16, 16)
    parts = elements(held, 8)
    for lane in range(LANES):
        for value in range(8):
            bit = (
                256 * (lane % 4)
                + 8 * (lane // 4)
                + 128 * (value % 2)
                + 64 * (value // 2 % 2)
                + 1024 * (value // 4)
            )
            assert rows.ravel()[bit // 8] == parts[lane, value]


@pytest.mark.parametrize("width", [4, 6])
def test_packed_elements_are_spread_over_bytes(width: int) -> None:
    numbers = RNG.integers(0, 1 << width, (3, 16))
    rows = np.zeros((3, 16), np.uint8)
    for row, values in enumerate(numbers):
        whole = sum(int(v) << (width * i) for i, v in enumerate(values))
        rows[row, : 2 * width] = list(whole.to_bytes(2 * width, "little"))
    assert np.array_equal(unpack_row(rows, width), numbers)


@pytest.mark.parametrize("width", [1, 4, 8, 16, 32])
def test_registers_and_elements_are_inverse(width: int) -> None:
    held = RNG.integers(0, 2**32, (2, LANES, 4), dtype=np.uint32)
    assert np.array_equal(registers(elements(held, width), width), held)
