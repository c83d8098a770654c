"""wgmma through descriptors against numpy, with matrices stored by an independent routine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from canonical import SPANS, stored

from gpu_emulator.engines.matrices import (
    SWIZZLES,
    elements,
    pieces,
    read_matrix,
    registers,
    tcgen05_descriptor,
    wgmma_descriptor,
)
from gpu_emulator.engines.products import (
    decode,
    register_operand,
    shared_operand,
    wgmma,
    wgmma_accumulator,
)
from gpu_emulator.numbers.formats import from_float64

RNG = np.random.default_rng(0)
TYPES = {"tf32": 8, "bf16": 16, "f16": 16, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
CODE = {"none": 0, "128B": 1, "64B": 2, "32B": 3}


def describe(start: int, leading: int, stride: int, swizzle: str, base: int = 0) -> int:
    return (
        start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | base << 49 | CODE[swizzle] << 62
    )


def codes(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if name in ("s8", "u8"):
        return RNG.integers(0, 256, shape).astype(np.uint8)
    return from_float64(RNG.integers(-3, 4, shape).astype(np.float64), name)


def in_memory(
    matrix: np.ndarray[Any, Any], swizzle: str, *, mn_major: bool, start: int = 2048
) -> tuple[np.ndarray[Any, Any], int]:
    data, leading, stride = stored(matrix, swizzle, mn_major=mn_major)
    shared = RNG.integers(0, 256, start + data.size + 64).astype(np.uint8)
    shared[start : start + data.size] = data
    return shared, describe(start, leading, stride, swizzle)


def test_the_accumulator_is_that_of_the_figure() -> None:
    layout = wgmma_accumulator(24)
    for thread in range(128):
        for i in range(12):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
            column = 8 * (i // 4) + thread % 4 * 2 + i % 2
            assert (layout.row[thread, i], layout.column[thread, i]) == (row, column)


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("name", TYPES)
def test_k_major_matrices_are_read_back(name: str, swizzle: str) -> None:
    matrix = codes(name, (64, TYPES[name] * 128 // 32))  # 128 bytes of K
    shared, value = in_memory(matrix, swizzle, mn_major=False)
    descriptor = wgmma_descriptor(value)
    span = SPANS[swizzle]
    for step in range(4):
        # One instruction takes 32 bytes of K: further in the row, or further by whole atoms.
        where = step * 32
        offset = where % span + where // span * 8 * span if span >= 32 else where // 16 * 128
        at = wgmma_descriptor(value + (offset >> 4))
        found = shared_operand(shared, at, name, rows=64)
        k = TYPES[name]
        assert np.array_equal(found, matrix[:, step * k : (step + 1) * k]), (step, descriptor)


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("rows", [64, 128, 256])
def test_mn_major_matrices_are_read_back(rows: int, swizzle: str) -> None:
    matrix = codes("bf16", (rows, 16))
    shared, value = in_memory(matrix, swizzle, mn_major=True)
    found = shared_operand(shared, wgmma_descriptor(value), "bf16", rows=rows, mn_major=True)
    assert np.array_equal(found, matrix)


def test_a_pattern_that_starts_in_the_middle() -> None:
    matrix = codes("bf16", (64, 64))
    data, leading, stride = stored(matrix, "128B", mn_major=False)
    start = 1024 + 3 * 128
    shared = np.zeros(start + data.size + 16, np.uint8)
    shared[start : start + data.size] = data
    value = describe(start, leading, stride, "128B", base=3)
    assert np.array_equal(
        shared_operand(shared, wgmma_descriptor(value), "bf16", rows=64), matrix[:, :16]
    )


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("a_in_registers", [False, True])
def test_a_product_is_that_of_numpy(name: str, a_in_registers: bool) -> None:
    n, k = 40, TYPES[name]
    a, b = codes(name, (3, 64, k)), codes(name, (3, n, k))
    width = 8 * a.itemsize
    stores = [in_memory(matrix, "32B", mn_major=False) for matrix in b]
    shared = np.stack([data for data, _ in stores])
    right = shared_operand(shared, wgmma_descriptor(stores[0][1]), name, rows=n)
    left = a
    if a_in_registers:
        held = np.zeros((3, 128, 4), np.uint32)
        for thread in range(128):
            g, t = thread % 32 // 4, thread % 4
            e = 32 // width
            for r in range(4):
                row, column = 16 * (thread // 32) + g + 8 * (r % 2), 4 * e * (r // 2) + e * t
                part = np.ascontiguousarray(a[:, row, column : column + e])
                held[:, thread, r] = part.view(np.uint32)[:, 0]
        left = register_operand(held, name)
        assert np.array_equal(left, a)
    integral = name in ("s8", "u8")
    old = RNG.integers(-5, 5, (3, 64, n))
    old_codes = (
        old.astype(np.int32).view(np.uint32) if integral else from_float64(old.astype(float), "f32")
    )
    d = registers(wgmma_accumulator(n).scatter(old_codes), 32)
    accumulate = np.array([True, False, True])
    new = wgmma(
        left, right, d, a_type=name, b_type=name, d_type="s32" if integral else "f32",
        accumulate=accumulate, negate_a=not integral,
    )  # fmt: skip
    found = wgmma_accumulator(n).gather(elements(new, 32))
    sign = 1 if integral else -1
    expected = sign * (decode(a, name) @ np.swapaxes(decode(b, name), -1, -2))
    expected = expected + old * accumulate[:, None, None]
    assert np.array_equal(found.view(np.int32) if integral else found.view(np.float32), expected)


def test_half_accumulators_and_garbage_that_is_not_added() -> None:
    a, b = codes("f16", (64, 16)), codes("f16", (8, 16))
    garbage = np.full((128, 2), 0x7FFF7FFF, np.uint32)
    new = wgmma(a, b, garbage, a_type="f16", b_type="f16", d_type="f16", accumulate=np.array(False))
    found = wgmma_accumulator(8).gather(elements(new, 16)).view(np.float16)
    assert np.array_equal(found, decode(a, "f16") @ decode(b, "f16").T)


def test_single_bits() -> None:
    a, b = (RNG.integers(0, 2, (rows, 256)).astype(np.uint8) for rows in (64, 16))
    packed = np.packbits(b, axis=-1, bitorder="little")
    data, leading, stride = stored(packed, "none", mn_major=False)
    right = shared_operand(
        data, wgmma_descriptor(describe(0, leading, stride, "none")), "b1", rows=16
    )
    assert np.array_equal(right, b)
    new = wgmma(
        a, right, np.zeros((128, 8), np.uint32), a_type="b1", b_type="b1", d_type="s32",
        accumulate=np.array(True),
    )  # fmt: skip
    assert np.array_equal(wgmma_accumulator(16).gather(new), a.astype(int) @ b.T.astype(int))


def test_outside_of_shared_memory() -> None:
    with pytest.raises(IndexError, match="of 64 bytes of shared memory"):
        shared_operand(np.zeros(64, np.uint8), wgmma_descriptor(0), "bf16", rows=64)


def test_descriptors_of_tcgen05() -> None:
    value = 0x100 >> 4 | (32 >> 4) << 16 | (1024 >> 4) << 32 | 1 << 46 | 2 << 61
    descriptor = tcgen05_descriptor(value)
    assert (descriptor.start, descriptor.leading, descriptor.stride) == (0x100, 32, 1024)
    assert descriptor.swizzle == "128B"
    # Triton 3.5 leaves the bits at zero that the manual fixes, and its kernels run on GPUs.
    assert tcgen05_descriptor(value & ~(1 << 46)) == descriptor
    for wrong in (value | 1 << 52, value | 1 << 61):
        with pytest.raises(ValueError, match="descriptor"):
            tcgen05_descriptor(wrong)


def test_32_bytes_that_stay_together() -> None:
    # tf32, MN-major, K = 8: two atoms of 4 steps of 128 bytes.
    matrix = codes("tf32", (32, 8))
    plain = np.ascontiguousarray(matrix.T).view(np.uint8).reshape(-1)
    shared = np.zeros_like(plain)
    for start in range(0, plain.size, 32):
        row, quarter = start // 128, start % 128 // 32
        target = row * 128 + (quarter ^ (row % 4)) * 32
        shared[target : target + 32] = plain[start : start + 32]
    value = (512 >> 4) << 32 | 1 << 46 | 1 << 61
    found = read_matrix(
        shared, tcgen05_descriptor(value), rows=32, k_bytes=32, width=32, mn_major=True
    )
    assert np.array_equal(found, matrix)


@pytest.mark.parametrize("name", SWIZZLES)
def test_a_swizzle_is_its_own_inverse(name: str) -> None:
    address = np.arange(4096, dtype=np.int64)
    swizzle = SWIZZLES[name]
    assert np.array_equal(swizzle(swizzle(address)), address)
    assert np.array_equal(np.sort(swizzle(address)), address)


def test_pieces_are_addresses_of_16_bytes() -> None:
    where = pieces(
        wgmma_descriptor(describe(1024, 16, 1024, "128B")),
        rows=64,
        k_bytes=32,
        width=16,
        mn_major=False,
    )
    assert where.shape == (64, 2)
    assert (where % 16 == 0).all()
    assert where[9].tolist() == [1024 + 1024 + 128 + 16, 1024 + 1024 + 128]
