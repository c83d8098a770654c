"""`cvt`, `cvt.pack` and address conversion. PTX ISA, "Data Movement and Conversion: cvt, cvta"."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpu_emulator.numbers.conversion import convert, convert_randomly, pack_integers
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.steps import Registers, Step
from gpu_emulator.types import DTYPES, Array

__all__: list[str] = []

_TITLE = "Data Movement and Conversion Instructions"
_INTEGERS = "u8|u16|u32|u64|s8|s16|s32|s64"
_FLOATS = "f16|bf16|f32|f64"
_WHOLE = "rni|rzi|rmi|rpi"
_PART = "rn|rz|rm|rp"


@opcode(
    f"cvt?{{sat:sat}}.{{to:{_INTEGERS}}}.{{source:{_INTEGERS}}}",
    f"cvt.{{rounding:{_WHOLE}}}?{{ftz:ftz}}?{{sat:sat}}.{{to:{_INTEGERS}}}.{{source:{_FLOATS}}}",
    f"cvt.{{rounding:{_PART}}}?{{ftz:ftz}}?{{sat:sat}}.{{to:{_FLOATS}}}.{{source:{_INTEGERS}}}",
    f"cvt?{{rounding:{_PART}|{_WHOLE}}}?{{ftz:ftz}}?{{sat:sat}}"
    f".{{to:{_FLOATS}}}.{{source:{_FLOATS}}}",
    "cvt.{rounding:rn|rz}?{relu:relu}?{satfinite:satfinite}.{to:f16|bf16}.{source:f32}",
    "cvt.{rounding:rn|rz}?{satfinite:satfinite}.{relu:relu}.{to:f16|bf16}.{source:f32}",
    "cvt.{rounding:rna}?{satfinite:satfinite}.{to:tf32}.{source:f32}",
    "cvt.{rounding:rn|rz}?{satfinite:satfinite}?{relu:relu}.{to:tf32}.{source:f32}",
    "cvt.{rounding:rn|rz}?{relu:relu}?{satfinite:satfinite}.{to:tf32}.{source:f32}",
    section=f"{_TITLE}: cvt", pure=True,
)  # fmt: skip
def _convert(line: Binder) -> Step:
    to, source = line.parts["to"], line.parts["source"]
    if {to, source} <= set(_INTEGERS.split("|")) and not line.parts.get("sat"):
        return _between_integers(line, to, source)
    if (to, source) == ("f32", "bf16") and not (line.parts.get("sat") or line.parts.get("ftz")):
        return line.computed(_widen, ["b16"], "b32")
    options: dict[str, Any] = {"rounding": line.parts.get("rounding") or None}
    options.update(
        {name: True for name in ("ftz", "sat", "satfinite", "relu") if line.parts.get(name)}
    )
    bits = _bits(source)
    result = to if to in _INTEGERS.split("|") else f"b{_bits(to)}"

    def run(a: Array) -> Array:
        converted: Array = convert(a, to, source, **options).view(DTYPES[result])
        return converted

    return line.computed(run, [f"b{bits}"], result)


def _bits(kind: str) -> int:
    return 32 if kind == "tf32" else int(kind.lstrip("bfsu"))


def _widen(a: Array) -> Array:
    """bf16 is the upper half of an f32. A NaN stays the NaN that it is."""
    answer: Array = a.astype(np.uint32) << np.uint32(16)
    return answer


def _between_integers(line: Binder, to: str, source: str) -> Step:
    dtype = DTYPES[to]
    return line.computed(lambda a: a.astype(dtype), [source], to)


_PAIRS = "f16x2|bf16x2"
_EIGHTS = "e4m3x2|e5m2x2"
_SIXES = "e2m3x2|e3m2x2"


@opcode(
    f"cvt.{{rounding:rn|rz}}?{{relu:relu}}?{{satfinite:satfinite}}.{{to:{_PAIRS}}}.{{source:f32}}",
    f"cvt.{{rounding:rn|rz}}.{{satfinite:satfinite}}.{{relu:relu}}.{{to:{_PAIRS}}}.{{source:f32}}",
    f"cvt.{{rounding:rn}}.{{satfinite:satfinite}}?{{relu:relu}}"
    f".{{to:{_EIGHTS}|{_SIXES}|e2m1x2}}.{{source:f32}}",
    "cvt.{rounding:rz|rp}?{satfinite:satfinite}.{to:ue8m0x2}.{source:f32}",
    section=f"{_TITLE}: cvt", pure=True,
)  # fmt: skip
def _pair_of_two(line: Binder) -> Step:
    """`cvt.to.f32 d, a, b`: a in the upper part, b in the lower."""
    to = line.parts["to"].removesuffix("x2")
    function = _element(line, to, "f32")
    width = {"e2m1": 4}.get(to, 16 if to in ("f16", "bf16") else 8)
    kind = {4: "b8", 8: "b16", 16: "b32"}[width]
    dtype = DTYPES[kind]

    def run(a: Array, b: Array) -> Array:
        high, low = function(a).astype(dtype), function(b).astype(dtype)
        answer: Array = (high << dtype.type(width)) | low
        return answer

    return line.computed(run, ["b32", "b32"], kind)


@opcode(
    f"cvt.{{rounding:rn}}.{{satfinite:satfinite}}?{{relu:relu}}"
    f".{{to:{_EIGHTS}|{_SIXES}|e2m1x2}}.{{source:{_PAIRS}}}",
    f"cvt.{{rounding:rn}}?{{relu:relu}}.{{to:{_PAIRS}}}.{{source:{_EIGHTS}|{_SIXES}|e2m1x2}}",
    "cvt.{rounding:rn}.{to:bf16x2}.{source:ue8m0x2}",
    "cvt.{rounding:rz|rp}?{satfinite:satfinite}.{to:ue8m0x2}.{source:bf16x2}",
    section=f"{_TITLE}: cvt", pure=True,
)  # fmt: skip
def _pair_of_pair(line: Binder) -> Step:
    to, source = (line.parts[name].removesuffix("x2") for name in ("to", "source"))
    function = _element(line, to, source)
    widths = {name: 4 if name == "e2m1" else 16 if "f16" in name else 8 for name in (to, source)}
    kinds = {name: {4: "b8", 8: "b16", 16: "b32"}[widths[name]] for name in (to, source)}
    dtype = DTYPES[kinds[to]]
    part = np.dtype("u2" if widths[source] == 16 else "u1")

    def run(a: Array) -> Array:
        mask = (1 << widths[source]) - 1
        low, high = (
            (a >> a.dtype.type(shift)) & a.dtype.type(mask) for shift in (0, widths[source])
        )
        parts = [function(each.astype(part)).astype(dtype) for each in (low, high)]
        answer: Array = (parts[1] << dtype.type(widths[to])) | parts[0]
        return answer

    return line.computed(run, [kinds[source]], kinds[to])


@opcode(
    f"cvt.rs?{{relu:relu}}?{{satfinite:satfinite}}.{{to:{_PAIRS}}}.{{source:f32}}",
    section=f"{_TITLE}: cvt", pure=True,
)  # fmt: skip
def _pair_by_chance(line: Binder) -> Step:
    """`cvt.rs.to.f32 d, a, b, rbits`: the upper random bits are for a, the lower ones for b."""
    to = line.parts["to"].removesuffix("x2")
    options = {name: True for name in ("satfinite", "relu") if line.parts.get(name)}

    def run(a: Array, b: Array, random: Array) -> Array:
        parts = [
            convert_randomly(each, to, random >> np.uint32(shift), **options).astype(np.uint32)
            for each, shift in ((a, 16), (b, 0))
        ]
        answer: Array = (parts[0] << np.uint32(16)) | parts[1]
        return answer

    return line.computed(run, ["b32"] * 3, "b32")


def _element(line: Binder, to: str, source: str) -> partial[Array]:
    options: dict[str, Any] = {"rounding": line.parts.get("rounding") or None}
    options.update({name: True for name in ("satfinite", "relu") if line.parts.get(name)})
    return partial(convert, to=to, source=source, **options)


@opcode(
    "cvt.pack.sat.{to:u16|s16}.{source:s32}",
    "cvt.pack.sat.{to:u2|s2|u4|s4|u8|s8}.{source:s32}.{third:b32}",
    section=f"{_TITLE}: cvt.pack", pure=True,
)  # fmt: skip
def _pack(line: Binder) -> Step:
    function = partial(pack_integers, to=line.parts["to"], source="s32")
    # The first operand goes to the upper part.
    if line.parts.get("third"):
        return line.computed(function, ["b32", "b32", "b32"], "b32")
    return line.computed(lambda a, b: function(a, b, None), ["b32", "b32"], "b32")


@opcode(
    "cvta?{to:to}.{space:global|shared|shared::cta|shared::cluster|local|const|param|param::entry}"
    ".{type:u32|u64}",
    section=f"{_TITLE}: cvta", pure=True,
)  # fmt: skip
def _address(line: Binder) -> Step:
    space, is_back = line.parts["space"].split("::")[0], bool(line.parts["to"])
    if line.parts["type"] == "u32":
        raise line.refuse("converts an address of 32 bits")
    slot, _ = line.target(line.operand(0), "b64")
    reader = line.read(1, "b64")

    def run(registers: Registers) -> None:
        window = np.uint64(registers[0].batch.windows[space])
        value = reader(registers)
        registers[slot] = value - window if is_back else value + window

    return Step(run, (slot,), is_pure=True)


@opcode("isspacep.{space:global|shared|shared::cta|shared::cluster|local|const|param|param::entry}",
    section=f"{_TITLE}: isspacep", pure=True,
)  # fmt: skip
def _is_in_space(line: Binder) -> Step:
    space = line.parts["space"].split("::")[0]
    slot, _ = line.target(line.operand(0), "pred")
    reader = line.read(1, "b64")

    def run(registers: Registers) -> None:
        registers[slot] = registers[0].batch.is_in(space, reader(registers))

    return Step(run, (slot,), is_pure=True)
