"""Matrices of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma.sync`.

PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions". Layouts and arithmetic are in
`gpu_emulator.engines`; here are registers and shared memory.

`wgmma` is in `gpu_emulator.state.warpgroups`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from gpu_emulator.engines import matrices, products
from gpu_emulator.ptx.instructions.copies import commits, waits
from gpu_emulator.ptx.program.binder import Binder, Parts, acts, opcode, without_effect
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.matrices import load_matrices, move_matrix, multiply, store_matrices
from gpu_emulator.state.warpgroups import PRODUCTS, begin_product
from gpu_emulator.steps import Array, Registers, Step

_FLOATS = "f16|bf16|tf32|f64|e4m3|e5m2|e3m2|e2m3|e2m1"
_SHARED = "shared|shared::cta"


def _space(line: Binder) -> str:
    return "shared" if line.parts["space"] else "generic"


def result_slots(line: Binder, kind: str) -> list[int]:
    """The slots of the vector that operand 0 is."""
    return [slot for slot, _ in line.targets(0, kind)]


@opcode(
    f"ldmatrix.sync.aligned.m8n8.{{count:x1|x2|x4}}?{{trans:trans}}"
    f"?{{space:{_SHARED}}}.{{type:b16}}",
    f"ldmatrix.sync.aligned.m16n16.{{count:x1|x2}}.{{trans:trans}}?{{space:{_SHARED}}}.{{type:b8}}",
)  # fmt: skip
def _load_matrix(line: Binder) -> Step:
    slots, address, space = result_slots(line, "b32"), line.address(1), _space(line)
    is_bytes = line.parts["type"] == "b8"
    rows = int(line.parts["count"][1:]) * (16 if is_bytes else 8)
    by_halves = partial(matrices.load_matrices, transposed=bool(line.parts["trans"]))
    load = matrices.load_bytes if is_bytes else by_halves
    return Step(lambda rs: load_matrices(rs, slots, space, address(rs), rows, load), tuple(slots))


@opcode(
    f"stmatrix.sync.aligned.m8n8.{{count:x1|x2|x4}}?{{trans:trans}}"
    f"?{{space:{_SHARED}}}.{{type:b16}}",
    f"stmatrix.sync.aligned.m16n8.{{count:x1|x2|x4}}.{{trans:trans}}"
    f"?{{space:{_SHARED}}}.{{type:b8}}",
)  # fmt: skip
def _store_matrix(line: Binder) -> Step:
    address, readers, space = line.address(0), line.sources(1, "b32"), _space(line)
    by_halves = partial(matrices.store_matrices, transposed=bool(line.parts["trans"]))
    store = matrices.store_bytes if line.parts["type"] == "b8" else by_halves
    return Step(lambda rs: store_matrices(rs, space, address(rs), [r(rs) for r in readers], store))


@acts("movmatrix.sync.aligned.m8n8.trans.b16", takes="b32", gives="b32")
def _move_matrix(registers: Registers, _: Parts, value: Array) -> Array:
    return move_matrix(registers, value)


_SHAPES = (
    "m8n8k4|m8n8k16|m8n8k32|m8n8k128|m16n8k4|m16n8k8|m16n8k16|m16n8k32|m16n8k64|m16n8k128|m16n8k256"
)
_HEAD = f"mma.sync.aligned.{{shape:{_SHAPES}}}.row.col"


@opcode(
    f"{_HEAD}.{{d:f16|f32|f64}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f16|f32|f64}}",
    f"{_HEAD}.kind::f8f6f4.{{d:f16|f32}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f16|f32}}",
    f"{_HEAD}?{{sat:satfinite}}.{{d:s32}}.{{a:u8|s8|u4|s4}}.{{b:u8|s8|u4|s4}}.{{c:s32}}",
    f"{_HEAD}.{{d:s32}}.{{a:b1}}.{{b:b1}}.{{c:s32}}.{{operation:xor|and}}.popc",
)  # fmt: skip
@opcode(
    f"{_HEAD}.kind::mxf8f6f4.block_scale?{{vec:scale_vec::1X}}"
    f".{{d:f32}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f32}}.{{scale:ue8m0}}",
    f"{_HEAD}.kind::mxf4.block_scale?{{vec:scale_vec::2X}}"
    ".{d:f32}.{a:e2m1}.{b:e2m1}.{c:f32}.{scale:ue8m0}",
    f"{_HEAD}.kind::mxf4nvf4.block_scale.{{vec:scale_vec::2X|scale_vec::4X}}"
    ".{d:f32}.{a:e2m1}.{b:e2m1}.{c:f32}.{scale:ue8m0|ue4m3}",
)  # fmt: skip
def _multiply(line: Binder) -> Step:
    parts = line.parts
    kinds = {name: "b64" if parts[name] == "f64" else "b32" for name in "abcd"}
    slots = result_slots(line, kinds["d"])
    operands = [line.sources(number, kinds[name]) for number, name in enumerate("abc", 1)]
    scales = _scales(line) if "scale" in parts else None
    operation = parts.get("operation") or "xor"

    def run(registers: Registers) -> None:
        multiply(
            registers, slots, parts["shape"],
            [[read(registers) for read in some] for some in operands], a_type=parts["a"],
            b_type=parts["b"], c_type=parts["c"], d_type=parts["d"],
            saturate=bool(parts.get("sat")), operation=operation,
            **({} if scales is None else scales(registers)),
        )  # fmt: skip

    return Step(run, tuple(slots))


def _scales(line: Binder) -> Callable[[Registers], dict[str, Any]]:
    """Operands 4 to 9: data of the scales of A, {byte, thread}, and the same of B."""
    vector = line.parts["vec"] or (
        "scale_vec::1X" if "mxf8f6f4" in line.line.opcode else "scale_vec::2X"
    )
    blocks = int(vector[-2])
    data = [line.read(4, "b32"), line.read(6, "b32")]
    where = [line.sources(number, "u16") for number in (5, 7)]

    def read(registers: Registers) -> dict[str, Any]:
        frame: Frame = registers[0]
        scales: dict[str, Any] = {"scale_type": line.parts["scale"]}
        functions = {"scale_a": products.scales_of_a, "scale_b": products.scales_of_b}
        for (name, function), source, (byte, thread) in zip(
            functions.items(), data, where, strict=True
        ):
            scales[name] = function(
                np.ascontiguousarray(frame.by_warp(source(registers))), blocks=blocks,
                byte=int(byte(registers).flat[0]), thread=int(thread(registers).flat[0]),
            )  # fmt: skip
        return scales

    return read


def _shapes(k: int) -> str:
    return "|".join(f"m64n{n}k{k}" for n in range(8, 257, 8))


_WARPGROUPS_HEAD = "wgmma.mma_async.sync.aligned"


@opcode(
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(16)}}}.{{d:f16|f32}}.{{a:f16}}.{{b:f16}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(16)}}}.{{d:f32}}.{{a:bf16}}.{{b:bf16}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(8)}}}.{{d:f32}}.{{a:tf32}}.{{b:tf32}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(32)}}}.{{d:f16|f32}}.{{a:e4m3|e5m2}}.{{b:e4m3|e5m2}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(32)}}}?{{sat:satfinite}}.{{d:s32}}"
    f".{{a:s8|u8}}.{{b:s8|u8}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(256)}}}.{{d:s32}}.{{a:b1}}.{{b:b1}}"
    f".{{operation:and}}.popc",
)  # fmt: skip
def _warpgroups_multiply(line: Binder) -> Step:
    """Operands: D, A or its descriptor, that of B, scale-d, then signs and transpositions."""
    slots = result_slots(line, "b32")
    line.slots.accumulators.update(slots)
    from_registers = line.operand(1).startswith("{")
    a = line.sources(1, "b32" if from_registers else "b64")
    b = line.read(2, "b64")
    scale = line.read(3, "pred") if line.count > 3 else None
    flags = [line.constant(number) for number in range(4, line.count)]
    signs = flags[:2] if len(flags) >= 2 else [1, 1]
    turns = [bool(flag) for flag in ([0] if from_registers else []) + flags[2:]]
    turns += [False] * (2 - len(turns))
    old = [itemgetter(slot) for slot in slots]
    negate = signs.count(-1) == 1

    def run(registers: Registers) -> None:
        adds = np.ones((1, 1), np.bool_) if scale is None else scale(registers)
        begin_product(
            registers, line.parts, slots, old, [reader(registers) for reader in a], b(registers),
            adds, turns, negate=negate,
        )  # fmt: skip

    return Step(run, tuple(slots), reads_old=True)


without_effect("wgmma.fence.sync.aligned")
commits("wgmma.commit_group.sync.aligned", PRODUCTS)
waits("wgmma.wait_group.sync.aligned", PRODUCTS)
