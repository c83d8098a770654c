"""Tensor memory: what warps move, and who may allocate what."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_emulator.engines.tcgen05 import (
    Allocator,
    address_parts,
    load,
    may_access,
    shift_down,
    store,
    warp_cells,
)

RNG = np.random.default_rng(0)
SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")

# For each shape, strides in bits of (lane bits), (register bits) over the rows x columns image, as
# CUTLASS has them for `.x2`: (extent, stride) from the least significant digit up.
IMAGES = {
    "32x32b": (64, [(32, 64)], [(2, 32)]),
    "16x64b": (128, [(2, 1024), (2, 32), (8, 128)], [(2, 64)]),
    "16x128b": (256, [(4, 32), (8, 256)], [(2, 2048), (2, 128)]),
    "16x256b": (512, [(4, 64), (8, 512)], [(2, 32), (2, 4096), (2, 256)]),
    "16x32bx2": (128, [(16, 128), (2, 64)], [(2, 32)]),
}


def digit_sum(number: int, digits: list[tuple[int, int]]) -> int:
    total = 0
    for extent, stride in digits:
        total += number % extent * stride
        number //= extent
    return total


@pytest.mark.parametrize("shape", SHAPES)
def test_cells_are_those_of_the_figures(shape: str) -> None:
    row_bits, lanes, registers = IMAGES[shape]
    cells = warp_cells(shape, 2, split=2)
    for lane in range(32):
        for register in range(cells.lane.shape[1]):
            bit = digit_sum(lane, lanes) + digit_sum(register, registers)
            place = (bit // row_bits, bit % row_bits // 32)
            assert (cells.lane[lane, register], cells.column[lane, register]) == place


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("repeat", [1, 4, 16])
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_stored_is_loaded(shape: str, repeat: int, packed: bool) -> None:
    memory = RNG.integers(0, 2**32, (3, 128, 512), dtype=np.uint32)
    before = memory.copy()
    columns = repeat * 4 if shape == "16x32bx2" else 0
    cells = warp_cells(shape, repeat, split=columns, packed=packed)
    values = RNG.integers(0, 2**32, (3, *cells.lane.shape), dtype=np.uint32)
    store(memory, cells, 32, 64, values)
    assert np.array_equal(load(memory, cells, 32, 64), values)
    touched = np.unique(np.argwhere((memory != before).any(axis=0)), axis=0)
    assert touched[:, 0].min() == 32
    assert touched[:, 0].max() == (63 if shape == "32x32b" else 47)
    assert len(touched) <= values[0].size * (2 if packed else 1)


def test_packing_takes_the_lower_halves_of_two_columns() -> None:
    memory = np.zeros((128, 512), np.uint32)
    memory[:, 0], memory[:, 1] = 0xAAAA1111, 0xBBBB2222
    assert (load(memory, warp_cells("32x32b", 1, packed=True), 0, 0) == 0x22221111).all()


def test_an_unknown_shape_and_cells_outside() -> None:
    with pytest.raises(ValueError, match="no shape 8x8b"):
        warp_cells("8x8b", 1)
    with pytest.raises(IndexError):
        load(np.zeros((128, 512), np.uint32), warp_cells("32x32b", 2), 0, 511)


def test_a_warp_reaches_its_own_quarter() -> None:
    assert may_access(64, 2, 32)
    assert may_access(112, 7, 16)
    assert not may_access(64, 1, 32)
    assert not may_access(80, 2, 32)
    assert address_parts(0x0040_0123) == (64, 0x123)


def test_shifting_moves_8_columns_by_one_row() -> None:
    memory = RNG.integers(0, 2**32, (128, 512), dtype=np.uint32)
    before = memory.copy()
    shift_down(memory, 32, 16)
    assert np.array_equal(memory[33:, 16:24], before[32:-1, 16:24])
    memory[33:, 16:24] = before[33:, 16:24]
    assert np.array_equal(memory, before)


def test_columns_are_handed_out_once() -> None:
    columns = Allocator()
    assert columns.allocate(256) == 0
    assert columns.allocate(128) == 256
    assert columns.allocate(256) is None
    columns.free(0, 256)
    assert columns.allocate(64) == 0
    with pytest.raises(ValueError, match="no block of 64 columns starts at 256"):
        columns.free(256, 64)
    with pytest.raises(ValueError, match="of 48 columns"):
        columns.allocate(48)
    columns.relinquish()
    with pytest.raises(ValueError, match="relinquish"):
        columns.allocate(32)
