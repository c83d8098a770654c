"""Products of warpgroups, which `gpu_emulator.state.warpgroups` has, as PTX's `wgmma`."""

from __future__ import annotations

import re

import numpy as np

from gpu_emulator.sass.binder import Binder, Made, opcode
from gpu_emulator.sass.listing import Operand
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.lanes import whole_warps
from gpu_emulator.state.warpgroups import PRODUCTS, Product
from gpu_emulator.steps import Registers, Step
from gpu_emulator.values import Place

_DESCRIPTORS = re.compile(r"gdesc\[UR([0-9]+)\]((?:\.(?:negA|negB|tnspA|tnspB))*)\Z")
_SEEN = "of which ptxas 13.5.37 makes it"


def _shapes(k: int) -> str:
    return "|".join(f"64x{n}x{k}" for n in range(8, 257, 8))


@opcode(
    f"HGMMA.{{shape:{_shapes(16)}}}.{{d:F32}}?{{a:BF16}}",
    f"HGMMA.{{shape:{_shapes(16)}}}.{{d:F16}}",
    f"HGMMA.{{shape:{_shapes(8)}}}.{{d:F32}}.{{a:TF32}}",
    f"QGMMA.{{shape:{_shapes(32)}}}.{{d:F32|F16}}.{{a:E4M3|E5M2}}.{{b:E4M3|E5M2}}",
    f"IGMMA.{{shape:{_shapes(32)}}}.{{a:S8|U8}}.{{b:S8|U8}}?{{sat:SAT}}",
    evidence=f"PTX ISA: wgmma.mma_async, {_SEEN}; added up as measured on an H200",
)  # fmt: skip
def _multiply(line: Binder) -> Made:
    """D, A where it is in registers, descriptors of A and B, C, whether C is added, `gsb0`.

    Four uniform registers hold both descriptors. `gsb0` ends a group.
    """
    result, *operands = line.operands
    ends = bool(operands) and operands[-1].text == "gsb0"
    operands = operands[:-1] if ends else operands
    flag = operands.pop() if operands and operands[-1].kind == "UP" else None
    left = operands.pop(0) if len(operands) == 3 else None
    found = _DESCRIPTORS.match(operands[0].text) if len(operands) == 2 else None
    if found is None:
        raise line.refuse()
    words = found[2].split(".")[1:]
    first, n = int(found[1]), int(line.parts["shape"].split("x")[1])
    kind_d = line.parts.get("d", "").lower() or "s32"
    kind_a = line.parts.get("a", "").lower() or "f16"
    count = n // 4 if kind_d == "f16" else n // 2
    slots, old = line.vector_results(result, count), line.vector(operands[1], count)
    descriptors = [line.read(Operand("", "UR", first + at), "b64") for at in (0, 2)]
    a = line.vector(left, 4) if left else descriptors[:1]
    adds = line.read(flag, "pred") if flag else None
    parts = {
        "shape": "m64n{}k{}".format(*line.parts["shape"].split("x")[1:]), "a": kind_a, "d": kind_d,
        "b": line.parts.get("b", "").lower() or kind_a, "sat": line.parts.get("sat", ""),
    }  # fmt: skip
    turns = ["tnspA" in words, "tnspB" in words]
    negate = ["negA" in words, "negB" in words]

    def make(place: Place) -> Step:
        product = Product(parts, place, slots, old, turns, negate)

        def run(registers: Registers) -> None:
            frame: Frame = registers[0]
            whole_warps(registers)
            values = [read(registers) for read in a]
            adding = np.ones((1, 1), np.bool_) if adds is None else adds(registers)
            product.begin(
                registers, values, descriptors[1](registers), adding, from_registers=bool(left)
            )
            if ends:
                frame.batch.asynchrony.groups(frame, PRODUCTS).commit()

        return Step(run, tuple(slots), reads_old=True)

    return make


@opcode("WARPGROUP.ARRIVE", evidence=f"PTX ISA: wgmma.fence, {_SEEN}; changes nothing here")
def _fence(line: Binder) -> Step:
    if line.operands:
        raise line.refuse()
    return Step(lambda _: None, is_pure=True)


@opcode("WARPGROUP.DEPBAR.LE", evidence=f"PTX ISA: wgmma.wait_group, {_SEEN}")
def _wait(line: Binder) -> Step:
    found = re.fullmatch(r"0x([0-9a-f]+)", line.operands[-1].text)
    if len(line.operands) != 2 or line.operands[0].text != "gsb0" or not found:
        raise line.refuse()
    pending = int(found[1], 16)

    def run(registers: Registers) -> None:
        registers[0].batch.asynchrony.groups(registers[0], PRODUCTS).wait(pending)

    return Step(run)


@opcode("FENCE.VIEW.ASYNC.S", evidence=f"PTX ISA: fence.proxy.async, {_SEEN}")
def _proxy_fence(line: Binder) -> Step:
    """Memory here has no proxies; the race check does."""
    if line.operands:
        raise line.refuse()

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        if frame.batch.watch is not None:
            frame.batch.watch.fence(frame, frame.active())

    return Step(run)
