"""Matrices of a warp between shared memory, registers and tensor cores.

PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions": `ldmatrix`, `stmatrix`, `movmatrix`,
`mma.sync`. Layouts and arithmetic are in `gpu_emulator.engines`. Whole warps execute them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu_emulator.engines import matrices, products
from gpu_emulator.state.frame import Frame, gather, scatter
from gpu_emulator.state.lanes import first_lanes, side_by_side, whole_warps, write_all
from gpu_emulator.steps import WARP, Array, Registers


def load_matrices(
    registers: Registers, slots: Sequence[int], space: str, address: Array, rows: int,
    load: Callable[[Array], Array],
) -> None:  # fmt: skip
    """The first lanes give addresses of rows of 16 bytes, which `load` turns into registers."""
    frame: Frame = registers[0]
    whole_warps(registers)
    # The other lanes' addresses do not count.
    with frame.only(first_lanes(frame, rows)):
        value = gather(registers, space, 16, address)
    taken = np.ascontiguousarray(frame.by_warp(value)[:, :, :rows])[..., None].view(np.uint8)
    write_all(frame, slots, load(taken))


def store_matrices(
    registers: Registers, space: str, address: Array, values: list[Array],
    store: Callable[[Array], Array],
) -> None:  # fmt: skip
    """The other way, of 8 rows for each register."""
    frame: Frame = registers[0]
    whole_warps(registers)
    rows = 8 * len(values)
    wide = np.zeros((frame.ctas, frame.lanes // WARP, WARP), dtype="c16")
    data = np.ascontiguousarray(store(side_by_side(frame, values)))
    wide[:, :, :rows] = data.view("c16")[..., 0]
    with frame.only(first_lanes(frame, rows)):
        scatter(registers, space, address, wide.reshape(frame.shape))


def move_matrix(registers: Registers, value: Array) -> Array:
    """A matrix of 8 x 8 halves, transposed."""
    frame: Frame = registers[0]
    whole_warps(registers)
    return matrices.move_matrix(frame.by_warp(value)).reshape(frame.shape)


def multiply(
    registers: Registers, slots: Sequence[int], shape: str, operands: Sequence[list[Array]],
    **how: Any,  # noqa: ANN401
) -> None:  # fmt: skip
    """D = A x B + C in registers of 32 bits; `how` as of `products.mma_sync`."""
    frame: Frame = registers[0]
    whole_warps(registers)
    is_wide = how["d_type"] == "f64"
    parts = [np.ascontiguousarray(side_by_side(frame, values)) for values in operands]
    a, b, c = (part.view(np.uint64) for part in parts) if is_wide else parts
    result = products.mma_sync(shape, a, b, c, **how)
    if is_wide and parts[0].dtype.itemsize == 4:
        result = np.ascontiguousarray(result).view(np.uint32)
    write_all(frame, slots, result)
