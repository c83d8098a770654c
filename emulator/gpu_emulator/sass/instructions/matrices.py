"""Matrices of a warp: LDSM, STSM, MOVM and products of tensor cores.

Layouts and the order of additions are those of `gpu_emulator.engines`, as PTX has them: `ldmatrix`,
`stmatrix`, `movmatrix`, `mma.sync`.
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.engines import matrices, products
from gpu_emulator.sass.binder import Binder, Made, opcode
from gpu_emulator.sass.instructions.memory import address_of
from gpu_emulator.state.frame import Frame, MemoryOperand, gather, scatter
from gpu_emulator.state.lanes import first_lanes, side_by_side, whole_warps, write_all
from gpu_emulator.steps import WARP, Registers, Step
from gpu_emulator.values import Place

_FORMS = "checks/sass_forms.py"
_WAY = "LDSM|STSM.16.{way:M88|MT88}?{count:2|4}"


@opcode(_WAY, evidence="PTX ISA: ldmatrix, stmatrix, of which ptxas 13.5.37 makes it")
def _move_matrices(line: Binder) -> Made:
    """`MT88` is transposed. The first 8, 16 or 32 lanes give addresses of rows."""
    count, is_load = int(line.parts["count"] or 1), line.base == "LDSM"
    transposed = line.parts["way"] == "MT88"
    if len(line.operands) != 2:
        raise line.refuse()
    where, data = line.operands[::-1] if is_load else line.operands
    address = address_of(line, where, is_wide=False)
    line.accesses.add(("shared", 16))
    slots = line.vector_results(data, count) if is_load else []
    readers = [] if is_load else line.vector(data, count)

    def make(place: Place) -> Step:
        operand = MemoryOperand("shared", 16, place)

        def load(registers: Registers) -> None:
            frame: Frame = registers[0]
            whole_warps(registers)
            with frame.only(first_lanes(frame, 8 * count)):
                value = gather(registers, operand, address(registers))
            rows = np.ascontiguousarray(frame.by_warp(value)[:, :, : 8 * count])
            taken = rows[..., None].view(np.uint8)
            write_all(frame, slots, matrices.load_matrices(taken, transposed=transposed))

        def store(registers: Registers) -> None:
            frame: Frame = registers[0]
            whole_warps(registers)
            values = side_by_side(frame, [read(registers) for read in readers])
            rows = matrices.store_matrices(values, transposed=transposed)
            wide = np.zeros((frame.ctas, frame.lanes // WARP, WARP), dtype="c16")
            wide[:, :, : 8 * count] = np.ascontiguousarray(rows).view("c16")[..., 0]
            with frame.only(first_lanes(frame, 8 * count)):
                scatter(registers, operand, address(registers), wide.reshape(frame.shape))

        return Step(load, tuple(slots)) if is_load else Step(store)

    return make


@opcode("MOVM.16.MT88", evidence=f"PTX ISA: movmatrix; {_FORMS}")
def _transpose(line: Binder) -> Step:
    if len(line.operands) != 2:
        raise line.refuse()
    slots, (read,) = line.vector_results(line.operands[0], 1), line.vector(line.operands[1], 1)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        moved = matrices.move_matrix(frame.by_warp(read(registers)))
        frame.write(slots[0], moved.reshape(frame.shape))

    return Step(run, tuple(slots))


# Registers of A, B and C.
_SHAPES = {
    "1684": ("m16n8k4", 2, 1, 4), "1688": ("m16n8k8", 2, 1, 4), "16816": ("m16n8k16", 4, 2, 4),
    "8x8x4": ("m8n8k4", 1, 1, 2), "884": ("m8n8k4", 1, 1, 2), "16x8x8": ("m16n8k8", 4, 2, 4),
    "8816": ("m8n8k16", 1, 1, 2), "16832": ("m16n8k32", 4, 2, 4),
}  # fmt: skip


@opcode(
    "HMMA.{shape:1688|16816}.{d:F32}?{a:BF16}", "HMMA.{shape:1688|16816}.{d:F16}",
    "HMMA.{shape:1684|1688}.{d:F32}.{a:TF32}", "DMMA.{shape:884|8x8x4|16x8x8}",
    "IMMA.{shape:8816|16816|16832}.{a:U8|S8}.{b:U8|S8}?{sat:SAT}",
    evidence=f"PTX ISA: mma.sync, added up as measured on an H200; {_FORMS}",
)  # fmt: skip
@opcode(
    "QMMA.{shape:16832}.{d:F32|F16}.{a:E4M3|E5M2}.{b:E4M3|E5M2}",
    evidence=f"PTX ISA: mma.sync, of sm_120a; how it adds up was not measured; {_FORMS}",
)
def _multiply(line: Binder) -> Step:
    if len(line.operands) != 4:
        raise line.refuse()
    parts, is_double = line.parts, line.base == "DMMA"
    shape, count_a, count_b, count_c = _SHAPES[parts["shape"]]
    kind_d = {"DMMA": "f64", "IMMA": "s32"}.get(line.base) or parts["d"].lower()
    kind_a = parts.get("a", "").lower() or ("f64" if is_double else "f16")
    kind_b = parts.get("b", "").lower() or kind_a
    if kind_a == "tf32":
        count_a, count_b = (2, 1) if parts["shape"] == "1684" else (4, 2)
    if line.base == "IMMA" and parts["shape"] == "16816":
        count_a, count_b = 2, 1
    if kind_d == "f16":
        count_c = 2
    wide = 2 if is_double else 1
    suffixes = [("ROW",), ("COL",), ()] if line.base == "IMMA" else [(), (), ()]
    slots = line.vector_results(line.operands[0], count_c * wide)
    operands = [
        line.vector(operand, count * wide, own)
        for operand, count, own in zip(
            line.operands[1:], (count_a, count_b, count_c), suffixes, strict=True
        )
    ]
    saturate = bool(parts.get("sat"))

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        a, b, c = (side_by_side(frame, [read(registers) for read in some]) for some in operands)
        if is_double:
            a, b, c = (np.ascontiguousarray(x).view(np.uint64) for x in (a, b, c))
        result = products.mma_sync(
            shape, a, b, c, a_type=kind_a, b_type=kind_b, c_type=kind_d, d_type=kind_d,
            saturate=saturate,
        )  # fmt: skip
        if is_double:
            result = np.ascontiguousarray(result).view(np.uint32)
        write_all(frame, slots, result)

    return Step(run, tuple(slots))
