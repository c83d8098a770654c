"""Tensor copies on the GPU against the emulator: loads, stores and reductions of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import matrices
import numpy as np
from cuda_driver import Device
from matrix_checks import Row, compared, run_parts

from gpu_emulator.engines import tiles
from gpu_emulator.engines.tiles import TileMap

__all__ = ["run"]

RNG = np.random.default_rng(19)
_DRIVER_ELEMENTS = {
    "u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8,
    "bf16": 9, "f32_ftz": 10, "tf32": 11, "tf32_ftz": 12,
}  # fmt: skip
_SWIZZLE_CODES = {0: 0, 32: 1, 64: 2, 128: 3}
_SIZE = 1 << 18


def _driver_map(device: Device, tile: TileMap, address: int) -> bytes:
    return device.tensor_map(
        address, _DRIVER_ELEMENTS[tile.element], tile.sizes, tile.strides, tile.box,
        tile.element_strides, swizzle=_SWIZZLE_CODES[tile.swizzle], nan_fill=tile.nan_fill,
    )  # fmt: skip


def _tiles() -> Iterator[tuple[TileMap, tuple[int, ...]]]:
    plain = TileMap(
        address=0,
        element="u16",
        sizes=(100, 60),
        strides=(208,),
        box=(64, 8),
        element_strides=(1, 1),
    )
    for corner in ((0, 0), (48, 55), (-8, -3), (96, 10)):
        yield plain, corner
        yield replace(plain, element="bf16", nan_fill=True), corner
        yield replace(plain, element="f16", nan_fill=True), corner
    for swizzle in (32, 64, 128):
        yield replace(plain, swizzle=swizzle, box=(swizzle // 2, 16)), (8, 5)
        # A row shorter than the span of the swizzle.
        if swizzle > 32:
            yield replace(plain, swizzle=swizzle, box=(16, 16)), (8, 5)
    for element in ("f32", "f32_ftz", "tf32", "tf32_ftz"):
        for nan_fill in (False, True):
            yield (
                replace(plain, element=element, box=(32, 16), sizes=(50, 60), nan_fill=nan_fill),
                (28, 50),
            )
    yield replace(plain, element="f64", sizes=(26, 60), box=(8, 4), nan_fill=True), (20, 58)
    yield replace(plain, element_strides=(1, 3), box=(64, 10)), (8, 51)
    yield replace(
        plain, element="u8", sizes=(96, 7, 5, 3, 2), strides=(112, 784, 3920, 11760),
        box=(32, 2, 3, 2, 2), element_strides=(1, 1, 2, 1, 1),
    ), (80, 6, 3, 2, -1)  # fmt: skip
    yield replace(
        plain, sizes=(40, 9, 6), strides=(96, 864), box=(32, 4, 2), element_strides=(1, 2, 1),
        swizzle=64,
    ), (8, 2, 5)  # fmt: skip


def _run_tile_loads(device: Device) -> Iterator[Row]:
    data = RNG.integers(0, 256, _SIZE).astype(np.uint8)
    # Numbers that are subnormal, or have more bits than tf32, among the words.
    words = data.view(np.uint32)
    words[::3] = RNG.integers(0, 0x00800000, words[::3].size)
    address = device.upload(data)
    for tile, corner in _tiles():
        text = matrices.tile_load_text("load", tile.rank, tiles.tile_bytes(tile))
        function = device.function(
            device.module(matrices.HEADER + text), "load", matrices.SHARED_BYTES
        )
        image = np.full(matrices.SHARED_BYTES, 0xCD, np.uint8)
        out = device.upload(image)
        where = [c & 0xFFFFFFFF for c in corner]
        device.launch(
            function, 1, 128, [_driver_map(device, tile, address), out, *where],
            shared=matrices.SHARED_BYTES,
        )  # fmt: skip
        found = device.download(out, image)
        device.free(out)
        places, inside = tiles.tile_elements(tile, np.array(corner))
        kind = np.dtype(f"u{tile.element_bytes}")
        elements = np.zeros(places.shape, kind)
        elements[inside] = data.view(kind)[places[inside] // kind.itemsize]
        expected = image.copy()
        expected.view(kind)[tiles.shared_addresses(tile, 0) // kind.itemsize] = tiles.loaded(
            tile, elements, inside
        )
        name = f"tile load {tile.element} {tile.box} at {corner} swizzle {tile.swizzle}"
        name += " nan" * tile.nan_fill
        yield compared(name, found.view(kind), expected.view(kind))
    device.free(address)


def _reductions() -> Iterator[tuple[str, str | None]]:
    for operation in ("add", "min", "max"):
        yield from ((e, operation) for e in ("u32", "s32", "u64", "f16", "bf16"))
    yield from (("f32", "add"), ("f32_ftz", "add"), ("s64", "min"), ("s64", "max"))
    yield from (("u32", "inc"), ("u32", "dec"))
    yield from (("u32", op) for op in ("and", "or", "xor"))
    yield from (("u64", op) for op in ("and", "or", "xor"))
    yield from (("u16", None), ("f32_ftz", None), ("tf32", None), ("f32", None))


def _run_tile_stores(device: Device) -> Iterator[Row]:
    for element, operation in _reductions():
        size = {"u16": 2, "f16": 2, "bf16": 2, "u64": 8, "s64": 8}.get(element, 4)
        tile = TileMap(
            address=0, element=element, sizes=(200 // size, 60), strides=(208,),
            box=(128 // size, 16), element_strides=(1, 1), swizzle=128,
        )  # fmt: skip
        data = RNG.integers(0, 256, 1 << 14).astype(np.uint8)
        image = RNG.integers(0, 256, matrices.SHARED_BYTES).astype(np.uint8)
        text = matrices.tile_store_text("store", 2, operation)
        function = device.function(
            device.module(matrices.HEADER + text), "store", matrices.SHARED_BYTES
        )
        address, source = device.upload(data), device.upload(image)
        corner = (96 // size, 50)
        device.launch(
            function, 1, 128, [_driver_map(device, tile, address), source, *corner],
            shared=matrices.SHARED_BYTES,
        )  # fmt: skip
        found = device.download(address, data)
        device.free(address, source)
        places, inside = tiles.tile_elements(tile, np.array(corner), writes=True)
        kind = np.dtype(f"u{size}")
        new = image.view(kind)[tiles.shared_addresses(tile, 0) // size][inside]
        expected = data.copy()
        target = expected.view(kind)
        index = places[inside] // size
        target[index] = (
            new if operation is None else tiles.reduced(tile, operation, target[index], new)
        )
        yield compared(f"tile {operation or 'store'} {element}", found.view(kind), target)


def run(device: Device) -> list[Row]:
    """Everything of this file."""
    return run_parts(device, (_run_tile_loads, _run_tile_stores))
