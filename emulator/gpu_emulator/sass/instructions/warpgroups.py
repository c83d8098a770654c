"""Products of warpgroups, which `gpu_emulator.state.warpgroups` has, as PTX's `wgmma`."""

from __future__ import annotations

import re

import numpy as np

from gpu_emulator.sass.binder import Binder, acts, opcode
from gpu_emulator.sass.listing import Operand
from gpu_emulator.state.barriers import await_groups, commit_groups, proxy_fence
from gpu_emulator.state.warpgroups import PRODUCTS, begin_product
from gpu_emulator.steps import Registers, Step

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
def _multiply(line: Binder) -> Step:
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
    of_a, b = (line.read(Operand("", "UR", first + at), "b64") for at in (0, 2))
    a = line.vector(left, 4) if left else [of_a]
    adds = line.read(flag, "pred") if flag else (lambda _: np.ones((1, 1), np.bool_))
    parts = {
        "shape": "m64n{}k{}".format(*line.parts["shape"].split("x")[1:]), "a": kind_a, "d": kind_d,
        "b": line.parts.get("b", "").lower() or kind_a, "sat": line.parts.get("sat", ""),
    }  # fmt: skip
    turns = ["tnspA" in words, "tnspB" in words]
    negate = ["negA" in words, "negB" in words]

    def run(registers: Registers) -> None:
        begin_product(
            registers, parts, slots, old, [read(registers) for read in a], b(registers),
            adds(registers), turns, negate=negate[0] != negate[1],
        )  # fmt: skip
        if ends:
            commit_groups(registers, PRODUCTS)

    return Step(run, tuple(slots), reads_old=True)


acts("WARPGROUP.ARRIVE", evidence=f"PTX ISA: wgmma.fence, {_SEEN}; changes nothing here")(
    lambda _: None
)
acts("FENCE.VIEW.ASYNC.S", evidence=f"PTX ISA: fence.proxy.async, {_SEEN}")(proxy_fence)


@opcode("WARPGROUP.DEPBAR.LE", evidence=f"PTX ISA: wgmma.wait_group, {_SEEN}")
def _wait(line: Binder) -> Step:
    found = re.fullmatch(r"0x([0-9a-f]+)", line.operands[-1].text)
    if len(line.operands) != 2 or line.operands[0].text != "gsb0" or not found:
        raise line.refuse()
    pending = int(found[1], 16)
    return Step(lambda registers: await_groups(registers, pending, PRODUCTS))
