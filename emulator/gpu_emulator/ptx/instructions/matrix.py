"""Matrices of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma.sync`.

PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions". Layouts and arithmetic are in
`gpu_emulator.engines`; here are registers and shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_emulator.engines import matrix_moves
from gpu_emulator.engines.mma_sync import mma_sync, scales_of_a, scales_of_b
from gpu_emulator.ptx.instructions.warps import warps_of
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.accesses import gather, scatter
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.memory import Trouble
from gpu_emulator.steps import MASK, WARP, Reader, Registers, Step
from gpu_emulator.types import Array
from gpu_emulator.values import Place

_TITLE = "Warp Level Matrix Multiply-Accumulate Instructions"
_FLOATS = "f16|bf16|tf32|f64|e4m3|e5m2|e3m2|e2m3|e2m1"
_SHARED = "shared|shared::cta"


def whole_warps(registers: Registers) -> None:
    """Trouble where only part of a warp is here: `.aligned` asks for all of it."""
    if registers[MASK] is None:
        return
    frame: Frame = registers[0]
    here = warps_of(frame, frame.active())
    alive = warps_of(frame, frame.alive())
    if (here.any(axis=2) & (alive & ~here).any(axis=2)).any():
        raise Trouble("memory_fault", "part of a warp executes an instruction of the whole warp")


def held(frame: Frame, values: list[Array]) -> Array:
    """Registers of every thread side by side: (CTAs, warps, 32, registers)."""
    joined = np.empty((*frame.shape, len(values)), dtype=values[0].dtype)
    for number, each in enumerate(values):
        joined[..., number] = each
    return joined.reshape(frame.ctas, -1, WARP, len(values))


def _write(frame: Frame, slots: list[int], result: Array) -> None:
    """(CTAs, warps, 32, registers) to the registers of every thread."""
    flat = result.reshape(*frame.shape, len(slots))
    for number, slot in enumerate(slots):
        frame.write(slot, np.ascontiguousarray(flat[..., number]))


def _slots(line: Binder, number: int, kind: str) -> list[int]:
    return [line.target(each, kind)[0] for each in line.parts_of(number)]


def _all_of(line: Binder, number: int, kind: str) -> list[Reader]:
    return [line.source(each, kind) for each in line.parts_of(number)]


@opcode(
    f"ldmatrix.sync.aligned.m8n8.{{count:x1|x2|x4}}?{{trans:trans}}?{{space:{_SHARED}}}.{{type:b16}}",
    f"ldmatrix.sync.aligned.m16n16.{{count:x1|x2}}.{{trans:trans}}?{{space:{_SHARED}}}.{{type:b8}}",
    section=f"{_TITLE}: ldmatrix",
)  # fmt: skip
def _load_matrix(line: Binder) -> Step:
    slots = _slots(line, 0, "b32")
    address, place = line.address(1), line.line.place
    is_bytes = line.parts["type"] == "b8"
    rows = int(line.parts["count"][1:]) * (16 if is_bytes else 8)
    transposed = bool(line.parts["trans"])
    space = "shared" if line.parts["space"] else "generic"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        taken = _rows(registers, space, address(registers), rows, place)
        load = (
            matrix_moves.load_bytes(taken)
            if is_bytes
            else matrix_moves.load_matrices(taken, transposed=transposed)
        )
        _write(frame, slots, load)

    return Step(run, tuple(slots), is_pure=False)


def _rows(registers: Registers, space: str, address: Array, rows: int, place: Place) -> Array:
    """The 16 bytes at the addresses of the first `rows` lanes: (CTAs, warps, rows, 16)."""
    frame: Frame = registers[0]
    outer = registers[MASK]
    # The other lanes' addresses do not count.
    if rows < WARP:
        lanes = frame.threads % WARP < rows
        registers[MASK] = lanes if outer is None else outer & lanes
    value, _ = gather(registers, space, address, 16, place)
    registers[MASK] = outer
    warps = warps_of(frame, value)[:, :, :rows]
    return np.ascontiguousarray(warps)[..., None].view(np.uint8)


@opcode(
    f"stmatrix.sync.aligned.m8n8.{{count:x1|x2|x4}}?{{trans:trans}}?{{space:{_SHARED}}}.{{type:b16}}",
    f"stmatrix.sync.aligned.m16n8.{{count:x1|x2|x4}}.{{trans:trans}}?{{space:{_SHARED}}}.{{type:b8}}",
    section=f"{_TITLE}: stmatrix",
)  # fmt: skip
def _store_matrix(line: Binder) -> Step:
    address, place = line.address(0), line.line.place
    readers = _all_of(line, 1, "b32")
    is_bytes, transposed = line.parts["type"] == "b8", bool(line.parts["trans"])
    rows = 8 * len(readers)
    space = "shared" if line.parts["space"] else "generic"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        values = held(frame, [each(registers) for each in readers])
        data = (
            matrix_moves.store_bytes(values)
            if is_bytes
            else matrix_moves.store_matrices(values, transposed=transposed)
        )
        wide = np.zeros((frame.ctas, frame.lanes // WARP, WARP), dtype="c16")
        wide[:, :, :rows] = np.ascontiguousarray(data).view("c16")[..., 0]
        outer = registers[MASK]
        if rows < WARP:
            lanes = frame.threads % WARP < rows
            registers[MASK] = lanes if outer is None else outer & lanes
        scatter(registers, space, address(registers), wide.reshape(frame.shape), 16, place)
        registers[MASK] = outer

    return Step(run, (), is_pure=False)


@opcode("movmatrix.sync.aligned.m8n8.trans.b16", section=f"{_TITLE}: movmatrix")
def _move_matrix(line: Binder) -> Step:
    slots = _slots(line, 0, "b32")
    reader = line.read(1, "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        moved = matrix_moves.move_matrix(warps_of(frame, reader(registers)))
        frame.write(slots[0], moved.reshape(frame.shape))

    return Step(run, tuple(slots), is_pure=False)


_SHAPES = (
    "m8n8k4|m8n8k16|m8n8k32|m8n8k128|m16n8k4|m16n8k8|m16n8k16|m16n8k32|m16n8k64|m16n8k128|m16n8k256"
)
_HEAD = f"mma.sync.aligned.{{shape:{_SHAPES}}}.row.col"


@opcode(
    f"{_HEAD}.{{d:f16|f32|f64}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f16|f32|f64}}",
    f"{_HEAD}.kind::f8f6f4.{{d:f16|f32}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f16|f32}}",
    f"{_HEAD}?{{sat:satfinite}}.{{d:s32}}.{{a:u8|s8|u4|s4}}.{{b:u8|s8|u4|s4}}.{{c:s32}}",
    f"{_HEAD}.{{d:s32}}.{{a:b1}}.{{b:b1}}.{{c:s32}}.{{operation:xor|and}}.popc",
    section=f"{_TITLE}: mma",
)  # fmt: skip
def _multiply(line: Binder) -> Step:
    return _product(line, scaled=False)


@opcode(
    f"{_HEAD}.kind::mxf8f6f4.block_scale?{{vec:scale_vec::1X}}"
    f".{{d:f32}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f32}}.{{scale:ue8m0}}",
    f"{_HEAD}.kind::mxf4.block_scale?{{vec:scale_vec::2X}}"
    ".{d:f32}.{a:e2m1}.{b:e2m1}.{c:f32}.{scale:ue8m0}",
    f"{_HEAD}.kind::mxf4nvf4.block_scale.{{vec:scale_vec::2X|scale_vec::4X}}"
    ".{d:f32}.{a:e2m1}.{b:e2m1}.{c:f32}.{scale:ue8m0|ue4m3}",
    section=f"{_TITLE}: mma with block scaling",
)  # fmt: skip
def _multiply_scaled(line: Binder) -> Step:
    return _product(line, scaled=True)


def _product(line: Binder, *, scaled: bool) -> Step:
    parts = line.parts
    kinds = {name: "b64" if parts[name] == "f64" else "b32" for name in "abcd"}
    slots = _slots(line, 0, kinds["d"])
    operands = [_all_of(line, number, kinds[name]) for number, name in enumerate("abc", 1)]
    scales = _scales(line) if scaled else None
    operation = parts.get("operation") or "xor"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        a, b, c = (held(frame, [each(registers) for each in some]) for some in operands)
        extra = {} if scales is None else scales(registers)
        result = mma_sync(
            parts["shape"], a, b, c, a_type=parts["a"], b_type=parts["b"], c_type=parts["c"],
            d_type=parts["d"], saturate=bool(parts.get("sat")), operation=operation, **extra,
        )  # fmt: skip
        _write(frame, slots, result)

    return Step(run, tuple(slots), is_pure=False)


def _scales(line: Binder) -> Callable[[Registers], dict[str, Any]]:
    """Operands 4 to 9: data of the scales of A, {byte, thread}, and the same of B."""
    vector = line.parts["vec"] or (
        "scale_vec::1X" if "mxf8f6f4" in line.line.opcode else "scale_vec::2X"
    )
    blocks = int(vector[-2])
    data = [line.read(4, "b32"), line.read(6, "b32")]
    where = [[line.source(each, "u16") for each in line.parts_of(number)] for number in (5, 7)]

    def read(registers: Registers) -> dict[str, Any]:
        frame: Frame = registers[0]
        found: dict[str, Any] = {"scale_type": line.parts["scale"]}
        functions = {"scale_a": scales_of_a, "scale_b": scales_of_b}
        for (name, function), source, (byte, thread) in zip(
            functions.items(), data, where, strict=True
        ):
            found[name] = function(
                np.ascontiguousarray(warps_of(frame, source(registers))), blocks=blocks,
                byte=int(byte(registers).flat[0]), thread=int(thread(registers).flat[0]),
            )  # fmt: skip
        return found

    return read
