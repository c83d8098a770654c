"""Matrices of a warp: LDSM, STSM, MOVM and products of tensor cores.

Layouts and the order of additions are those of `gpu_emulator.engines`, as PTX has them: `ldmatrix`,
`stmatrix`, `movmatrix`, `mma.sync`.
"""

from __future__ import annotations

from functools import partial

from gpu_emulator.engines import matrices
from gpu_emulator.sass.binder import Binder, acts, opcode
from gpu_emulator.state.matrices import load_matrices, move_matrix, multiply, store_matrices
from gpu_emulator.steps import Registers, Step

_FORMS = "checks/sass_forms.py"
_WAY = "LDSM|STSM.16.{way:M88|MT88}?{count:2|4}"


@opcode(_WAY, evidence="PTX ISA: ldmatrix, stmatrix, of which ptxas 13.5.37 makes it")
def _move_matrices(line: Binder) -> Step:
    """`MT88` is transposed. The first 8, 16 or 32 lanes give addresses of rows."""
    count, is_load = int(line.parts["count"] or 1), line.base == "LDSM"
    transposed = line.parts["way"] == "MT88"
    line.has(2)
    where, data = line.operands[::-1] if is_load else line.operands
    address = line.address(where, is_wide=False)
    line.accesses.add(("shared", 16))
    if is_load:
        slots = line.vector_results(data, count)
        load = partial(matrices.load_matrices, transposed=transposed)
        return Step(
            lambda rs: load_matrices(rs, slots, "shared", address(rs), 8 * count, load),
            tuple(slots),
        )
    readers = line.vector(data, count)
    store = partial(matrices.store_matrices, transposed=transposed)
    return Step(
        lambda rs: store_matrices(rs, "shared", address(rs), [r(rs) for r in readers], store)
    )


acts("MOVM.16.MT88", signature="R:b32 = R:b32", evidence=f"PTX ISA: movmatrix; {_FORMS}")(
    move_matrix
)

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
    line.has(4)
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
        multiply(
            registers, slots, shape, [[read(registers) for read in some] for some in operands],
            a_type=kind_a, b_type=kind_b, c_type=kind_d, d_type=kind_d, saturate=saturate,
        )  # fmt: skip

    return Step(run, tuple(slots))
