"""Floating point, and what goes from and to integers."""

from __future__ import annotations

import numpy as np

from gpu_emulator.numbers.arithmetic import approximate
from gpu_emulator.numbers.conversion import convert
from gpu_emulator.sass.binder import Binder, bound, computed, immediate, opcode
from gpu_emulator.steps import Array, Step


@computed("I2F.U32.RP", signature="b32 = b32", evidence="PTX ISA: cvt.rp.f32.u32")
def _to_float(a: Array) -> Array:
    return convert(a, to="f32", source="u32", rounding="rp")


@computed("F2I.FTZ.U32.TRUNC.NTZ", signature="b32 = b32", evidence="PTX ISA: cvt.rzi.ftz.u32.f32")
def _to_integer(a: Array) -> Array:
    return convert(a, to="u32", source="f32", rounding="rzi", ftz=True)


@computed("MUFU.RCP", signature="b32 = b32", evidence="PTX ISA: rcp.approx.f32, a band of 1 ulp")
def _reciprocal(a: Array) -> Array:
    return approximate("rcp", "f32", a)


@opcode("HFMA2?{unit:MMA}", evidence="PTX ISA: fma.f16x2; a product of zeros and a constant")
def _constant_halves(line: Binder) -> Step:
    """How ptxas loads a constant: a product with RZ, and two halves, the upper one first."""
    operands = line.operands
    if [operand.text for operand in operands[1:3]] != ["-RZ", "RZ"] or len(operands) != 5:
        raise line.refuse()
    high, low = (immediate(operand.text, "f16") for operand in operands[3:])
    if high is None or low is None:
        raise line.refuse()
    word = high.view(np.uint16).astype(np.uint32) << np.uint32(16) | low.view(np.uint16)
    line.operands = operands[:1]
    return bound(line, "b32 =", lambda: word)
