"""Tiles of tensor maps: bounds, steps, swizzles, reductions, and how descriptors read them."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any

import numpy as np
import pytest

from gpu_emulator.engines.matrices import read_matrix, wgmma_descriptor
from gpu_emulator.engines.tiles import (
    MAP_BYTES,
    TileMap,
    fill_bits,
    gathered,
    loaded,
    reduced,
    replace,
    shared_addresses,
    tile_bytes,
    tile_elements,
)

RNG = np.random.default_rng(0)


def a_map(**fields: object) -> TileMap:
    plain = TileMap(
        address=256,
        element="u16",
        sizes=(100, 60),
        strides=(208,),
        box=(64, 8),
        element_strides=(1, 1),
    )
    return changed(plain, **fields)  # type: ignore[arg-type]


def test_a_map_survives_its_bytes() -> None:
    tile = TileMap(
        address=0x7F00_1234_5670, element="bf16", sizes=(1 << 32, 3, 5, 7, 9),
        strides=(16, 32, 1 << 39, 64), box=(64, 1, 2, 1, 256), element_strides=(1, 8, 1, 2, 1),
        swizzle=64, nan_fill=True,
    )  # fmt: skip
    raw = tile.encode()
    assert len(raw) == MAP_BYTES
    assert TileMap.decode(raw) == tile
    with pytest.raises(ValueError, match="no tensor map"):
        TileMap.decode(b"\xff" * MAP_BYTES)


def test_a_map_is_built_field_by_field() -> None:
    raw = bytes(MAP_BYTES)
    for field, ordinal, value in (
        ("global_address", 0, 256),
        ("rank", 0, 1),
        ("elemtype", 0, 1),
        ("global_dim", 0, 100),
        ("global_dim", 1, 60),
        ("global_stride", 0, 208),
        ("box_dim", 0, 64),
        ("box_dim", 1, 8),
        ("element_stride", 0, 1),
        ("element_stride", 1, 1),
        ("swizzle_mode", 0, 3),
        ("fill_mode", 0, 0),
        ("interleave_layout", 0, 0),
        ("swizzle_atomicity", 0, 0),
    ):
        raw = replace(raw, field, value, ordinal)
    assert TileMap.decode(raw) == a_map(swizzle=128)
    with pytest.raises(KeyError):
        replace(raw, "colour", 0)
    with pytest.raises(ValueError, match=r"rank\[0\] with 300"):
        replace(raw, "rank", 300)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, None),
        ({"address": 8}, "not a multiple of 16"),
        ({"strides": (200,)}, "not multiples of 16"),
        ({"box": (64, 257)}, "1 - 256"),
        ({"box": (20, 8)}, "40 bytes"),
        ({"swizzle": 64}, "more than its swizzle"),
        ({"element_strides": (1, 9)}, "1 - 8"),
        ({"sizes": (0, 4)}, "no elements"),
        ({"element": "b4x16"}, "b4x16"),
        ({"interleave": 16}, "interleaved"),
        ({"atom": "64B"}, "64B"),
    ],
)
def test_what_the_driver_refuses(fields: dict[str, object], words: str | None) -> None:
    problem = a_map(**fields).problem()
    assert (problem is None) if words is None else (words in str(problem))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_a_tile_is_the_slice_of_an_array(rank: int) -> None:
    sizes = (24, 6, 5, 4, 3)[:rank]  # innermost first
    box = (8, 3, 2, 2, 2)[:rank]
    steps = (1, 2, 1, 2, 1)[:rank]
    array = RNG.integers(0, 2**16, sizes[::-1]).astype(np.uint16)
    # Innermost rows padded to multiples of 16 bytes.
    strides = []
    stride = 48
    for size in sizes[1:]:
        strides.append(stride)
        stride *= size
    tile = TileMap(
        address=64,
        element="u16",
        sizes=sizes,
        strides=tuple(strides),
        box=box,
        element_strides=steps,
    )
    memory = np.zeros(64 + array.nbytes, np.uint8)
    memory[64:] = array.view(np.uint8).ravel()
    corners = np.array([[4, 1, 0, 1, 1][:rank], [20, 4, 4, -1, 2][:rank], [-3, -2, 1, 0, 0][:rank]])
    addresses, inside = tile_elements(tile, corners)
    for corner, where, valid in zip(corners, addresses, inside, strict=True):
        axes = [
            np.arange(c, c + b, s if d else 1)
            for d, (c, b, s) in enumerate(zip(corner, box, steps, strict=True))
        ]
        expected = np.zeros([len(axis) for axis in reversed(axes)], np.uint16)
        for place in np.ndindex(*expected.shape):
            index = [axes[rank - 1 - d][p] for d, p in enumerate(place)]
            if all(0 <= i < n for i, n in zip(index, sizes[::-1], strict=True)):
                expected[place] = array[tuple(index)]
        found = np.zeros(where.shape, np.uint16)
        found[valid] = memory.view(np.uint16)[where[valid] // 2]
        assert np.array_equal(loaded(tile, found, valid), expected.ravel())
        assert tile_bytes(tile) == expected.nbytes


def test_what_is_out_of_bounds_is_zero_or_a_nan() -> None:
    inside = np.array([True, False])
    data = np.array([0x1234, 0x5678], np.uint16)
    assert loaded(a_map(), data, inside).tolist() == [0x1234, 0]
    assert loaded(a_map(element="bf16", nan_fill=True), data, inside).tolist() == [0x1234, 0x7FF7]
    assert fill_bits(a_map(nan_fill=True)) == 0
    assert fill_bits(a_map(element="tf32_ftz", nan_fill=True)) == 0x7FF77FF7


def test_a_store_writes_whole_units_of_16_bytes() -> None:
    # 100 elements of 2 bytes end in the middle of a unit: 4 more are written, and no others.
    corner = np.array([48, 0])
    assert tile_elements(a_map(), corner)[1].reshape(8, 64).sum(axis=1).tolist() == [52] * 8
    written = tile_elements(a_map(), corner, writes=True)[1].reshape(8, 64)
    assert written.sum(axis=1).tolist() == [56] * 8
    assert tile_elements(a_map(), np.array([0, 58]), writes=True)[1].sum() == 2 * 64


def test_a_row_shorter_than_its_swizzle_takes_all_of_it() -> None:
    short = shared_addresses(a_map(box=(16, 8), swizzle=128), 1024).reshape(8, 16)
    assert (short // 128).tolist() == [[8 + row] * 16 for row in range(8)]
    assert short[:, 0].tolist() == [1024 + row * 128 + 16 * row for row in range(8)]
    assert tile_bytes(a_map(box=(16, 8), swizzle=128)) == 256


def test_elements_that_change_on_the_way() -> None:
    data = np.array([1, 0x3F801FFF], np.uint32)
    inside = np.array([True, True])
    assert loaded(a_map(element="f32"), data, inside).tolist() == data.tolist()
    assert loaded(a_map(element="f32_ftz"), data, inside).tolist() == [1, 0x3F801FFF]
    assert loaded(a_map(element="tf32"), data, inside).tolist() == [0, 0x3F802000]


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("element", ["u8", "bf16", "f32"])
def test_what_a_map_writes_a_descriptor_reads(swizzle: int, element: str) -> None:
    size = {"u8": 1, "bf16": 2, "f32": 4}[element]
    kind = np.dtype(f"u{size}")
    columns, rows, start = swizzle // size, 64, 3072
    tensor = RNG.integers(0, 256, (128, 1024)).astype(np.uint8)
    tile = TileMap(
        address=0, element=element, sizes=(1024 // size, 128), strides=(1024,), box=(columns, rows),
        element_strides=(1, 1), swizzle=swizzle,
    )  # fmt: skip
    addresses, inside = tile_elements(tile, np.array([columns, 32]))
    assert inside.all()
    shared = np.zeros(start + tile_bytes(tile), np.uint8)
    values = tensor.reshape(-1).view(kind)[addresses // size]
    shared.view(kind)[shared_addresses(tile, start) // size] = values
    expected = tensor[32 : 32 + rows, swizzle : 2 * swizzle].copy().view(kind)
    code = {128: 1, 64: 2, 32: 3}[swizzle]
    k = 32 // size
    for step in range(swizzle // 32):
        value = (start + 32 * step) >> 4 | 1 << 16 | (8 * swizzle >> 4) << 32 | code << 62
        found = read_matrix(
            shared, wgmma_descriptor(value), rows=rows, k_bytes=32, width=8 * size, mn_major=False
        )
        assert np.array_equal(found, expected[:, step * k : (step + 1) * k])


def test_four_rows_are_gathered() -> None:
    tile = a_map(box=(64, 1))
    address, inside = gathered(tile, np.array([8]), np.array([[3, 50, 60, 3]]))
    assert address.shape == (1, 256)
    assert address[0, ::64].tolist() == [256 + 208 * row + 16 for row in (3, 50, 60, 3)]
    assert inside.reshape(4, 64).sum(axis=1).tolist() == [64, 64, 0, 64]
    assert tile_bytes(tile, rows=4) == 512
    assert shared_addresses(tile, 0, rows=4).size == 256
    with pytest.raises(ValueError, match="box of one row"):
        gathered(a_map(), np.array([8]), np.array([[0, 1, 2, 3]]))


def test_reductions() -> None:
    def bits(kind: str, *values: float) -> np.ndarray[Any, Any]:
        array = np.array(values, kind)
        return array.view(f"u{array.itemsize}")

    u32, s32, f32, f16 = (a_map(element=name) for name in ("u32", "s32", "f32", "f16"))
    old, new = bits("i4", -5, 7), bits("i4", 3, 9)
    assert reduced(s32, "min", old, new).view("i4").tolist() == [-5, 7]
    assert reduced(u32, "min", old, new).tolist() == [3, 7]
    assert reduced(s32, "add", old, new).view("i4").tolist() == [-2, 16]
    assert reduced(u32, "xor", old, new).tolist() == (old ^ new).tolist()
    assert reduced(u32, "inc", bits("u4", 3, 9), bits("u4", 9, 9)).tolist() == [4, 0]
    assert reduced(u32, "dec", bits("u4", 3, 0, 9), bits("u4", 9, 9, 8)).tolist() == [2, 9, 8]
    assert reduced(f32, "add", bits("f4", 1.5), bits("f4", 2.0)).view("f4").tolist() == [3.5]
    assert reduced(f16, "max", bits("f2", 1.5), bits("f2", -2.0)).view("f2").tolist() == [1.5]
    with pytest.raises(ValueError, match="no tensor reduction inc on f32"):
        reduced(f32, "inc", old, new)
