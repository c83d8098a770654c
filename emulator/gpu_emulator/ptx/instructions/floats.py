"""Floating-point arithmetic of all widths, and conversions.

PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions", "Mixed
Precision Floating Point Instructions", "cvt", "cvta". The arithmetic is in `gpu_emulator.numbers`;
what is done most is spelled out here for speed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.arithmetic import approximate, inverse_root, packed, pair_of
from gpu_emulator.numbers.conversion import convert, convert_both, convert_randomly, pack_integers
from gpu_emulator.numbers.formats import to_float32
from gpu_emulator.ptx.program.binder import Binder, computed, opcode
from gpu_emulator.steps import BITS, DTYPES, Array, Registers, Step

_NAN = np.uint32(0x7FFF_FFFF)
_BINARY: dict[str, Callable[..., Array]] = {
    "add": arithmetic.add, "sub": arithmetic.subtract, "mul": arithmetic.multiply,
    "fma": arithmetic.fma, "mad": arithmetic.fma,
}  # fmt: skip


def _quick(base: str) -> Callable[..., Array]:
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[base]

    def run(a: Array, b: Array) -> Array:
        value = function(a.view(np.float32), b.view(np.float32))
        bits, lost = value.view(np.uint32), np.isnan(value)
        # Every NaN is the one that hardware gives.
        return np.where(lost, _NAN, bits) if lost.any() else bits

    return run


_RND = "{rounding:rn|rz|rm|rp}"
_BINARIES = [
    f"add|sub|mul?{_RND}?{{ftz:ftz}}?{{sat:sat}}.{{type:f32}}",
    f"add|sub|mul?{_RND}.{{type:f64}}",
    f"add|sub|mul?{_RND}?{{ftz:ftz}}.{{type:f32x2}}",
    "add|sub|mul?{rounding:rn}?{ftz:ftz}?{sat:sat}.{type:f16|f16x2}",
    "add|sub|mul?{rounding:rn}.{type:bf16|bf16x2}",
]
_TERNARIES = [
    f"fma|mad.{_RND}?{{ftz:ftz}}?{{sat:sat}}.{{type:f32}}",
    f"fma|mad.{_RND}.{{type:f64}}",
    f"fma.{_RND}?{{ftz:ftz}}.{{type:f32x2}}",
    "fma.{rounding:rn}?{ftz:ftz}?{sat:sat}.{type:f16|f16x2}",
    "fma.{rounding:rn}?{ftz:ftz}.{relu:relu}.{type:f16|f16x2}",
    "fma.{rounding:rn}?{relu:relu}.{type:bf16|bf16x2}",
    "fma.{rounding:rn}.{oob:oob}?{sat:sat}?{relu:relu}.{type:f16|f16x2}",
    "fma.{rounding:rn}.{oob:oob}?{relu:relu}.{type:bf16|bf16x2}",
]


@opcode(*_BINARIES, *_TERNARIES)
def _arithmetic(line: Binder) -> Step:
    kind, options = line.parts["type"], _options(line)
    count = 3 if line.base in ("fma", "mad") else 2
    if kind == "f32" and count == 2 and options == {"rounding": "rn"}:
        return line.computed(_quick(line.base), ["b32", "b32"], "b32")
    function = arithmetic.fma_within_bounds if line.parts.get("oob") else _BINARY[line.base]
    return _elementwise(line, function, kind, count, options)


def _options(line: Binder, rounding: str | None = "rn") -> dict[str, Any]:
    """What the opcode says of the result; `rounding` where it says none."""
    options: dict[str, Any] = {"rounding": line.parts.get("rounding") or rounding}
    flags = ("ftz", "sat", "satfinite", "relu")
    return options | {name: True for name in flags if line.parts.get(name)}


def _elementwise(
    line: Binder, function: Callable[..., Array], kind: str, count: int, options: dict[str, Any]
) -> Step:
    """A step that applies function(name, *bits, **options) to each part of its operands."""
    operation = partial(function, kind.removesuffix("x2"), **options)
    bits = f"b{BITS[kind]}"
    if kind.endswith("x2"):
        operation = partial(packed, operation, BITS[kind] // 2)
    return line.computed(operation, [bits] * count, bits)


@opcode(
    f"add|sub?{_RND}?{{sat:sat}}.f32.{{type:f16|bf16}}",
    f"fma.{_RND}?{{sat:sat}}.f32.{{type:f16|bf16}}",
)
def _mixed(line: Binder) -> Step:
    kind, options, function = line.parts["type"], _options(line), _BINARY[line.base]

    def run(*operands: Array) -> Array:
        factors = (to_float32(bits, kind).view(np.uint32) for bits in operands[:-1])
        return function("f32", *factors, operands[-1], **options)

    narrow = ["b16"] * (2 if line.base == "fma" else 1)
    return line.computed(run, [*narrow, "b32"], "b32")


_NARROW = "{type:f16|f16x2|bf16|bf16x2}"


@opcode(
    f"min|max?{{ftz:ftz}}?{{nan:NaN}}?{{xorsign:xorsign}}.{_NARROW}",
    f"min|max?{{ftz:ftz}}?{{nan:NaN}}?{{xorsign:xorsign}}.abs.{_NARROW}",
    "min|max?{ftz:ftz}?{nan:NaN}.{type:f32}",
    "min|max?{ftz:ftz}?{nan:NaN}.{xorsign:xorsign}.abs.{type:f32}",
    "min|max?{ftz:ftz}?{nan:NaN}.{three:abs}.{type:f32}",
    "min|max.{type:f64}",
)
def _extremum(line: Binder) -> Step:
    kind, count, is_abs = line.parts["type"], line.count - 1, bool(line.parts.get("three"))
    if not is_abs and bool(line.parts.get("xorsign")) != (".abs." in line.line.opcode):
        raise line.refuse("has only one of .xorsign and .abs")
    options: dict[str, Any] = {"largest": line.base == "max"}
    options.update({n: True for n in ("ftz", "nan", "xorsign") if line.parts.get(n)})
    if is_abs and count == 3:

        def of_magnitudes(*operands: Array) -> Array:
            magnitudes = (bits & np.uint32(0x7FFF_FFFF) for bits in operands)
            return arithmetic.extremum("f32", *magnitudes, **options)

        return line.computed(of_magnitudes, ["b32"] * 3, "b32")
    if count == 2 and kind == "f32" and len(options) == 1:
        return line.computed(_quick_extremum(is_max=line.base == "max"), ["b32", "b32"], "b32")
    if count not in (2, 3):
        raise line.refuse(f"has {line.count} operands")
    return _elementwise(line, arithmetic.extremum, kind, count, options)


def _quick_extremum(*, is_max: bool) -> Callable[[Array, Array], Array]:
    better = np.greater if is_max else np.less
    exact = partial(arithmetic.extremum, "f32", largest=is_max)

    def run(a: Array, b: Array) -> Array:
        x, y = a.view(np.float32), b.view(np.float32)
        first = better(x, y)
        # Equal, or a NaN: zeros of both signs and NaN follow rules of their own.
        if np.all(first | better(y, x)):
            return np.where(first, a, b)
        return exact(a, b)

    return run


@opcode("abs|neg?{ftz:ftz}.{type:f32|f16|f16x2}", "abs|neg.{type:f64|bf16|bf16x2}")
def _sign(line: Binder) -> Step:
    def run(name: str, a: Array) -> Array:
        bits = arithmetic.flush(a, name) if line.parts.get("ftz") else a
        top = a.dtype.type(1 << (a.dtype.itemsize * 8 - 1))
        return bits & ~top if line.base == "abs" else bits ^ top

    return _elementwise(line, run, line.parts["type"], 1, {})


@computed("copysign.{type:f32|f64}", takes="type type")
def _copy_sign(a: Array, b: Array) -> Array:
    return np.copysign(b, a)


@computed(
    "testp.{what:finite|infinite|number|notanumber|normal|subnormal}.{type:f32|f64}", takes="type",
    gives="pred", by_parts=True,
)  # fmt: skip
def _test(parts: dict[str, str], a: Array) -> Array:
    # Zeros are normal numbers here.
    tiny = (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)
    answers = {
        "finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~np.isnan(a),
        "notanumber": np.isnan(a), "normal": np.isfinite(a) & ~tiny, "subnormal": tiny,
    }  # fmt: skip
    return answers[parts["what"]]


@opcode("div.{way:approx|full}?{ftz:ftz}.f32")
def _divide_approximately(line: Binder) -> Step:
    function = partial(
        arithmetic.approximate_divide, full=line.parts["way"] == "full", ftz=bool(line.parts["ftz"])
    )
    return line.computed(function, ["b32", "b32"], "b32")


_ROUNDED: dict[str, tuple[Callable[..., Array], int]] = {
    "div": (arithmetic.divide, 2), "sqrt": (arithmetic.square_root, 1),
    "rcp": (arithmetic.reciprocal, 1),
}  # fmt: skip


@opcode(
    f"div|sqrt|rcp.{_RND}?{{ftz:ftz}}.{{type:f32}}", f"div|sqrt|rcp.{_RND}.{{type:f64}}"
)  # fmt: skip
def _rounded(line: Binder) -> Step:
    function, count = _ROUNDED[line.base]
    return _elementwise(line, function, line.parts["type"], count, _options(line))


@opcode(
    "rcp|sqrt|rsqrt|sin|cos|lg2|ex2.approx?{ftz:ftz}.{type:f32}",
    "tanh.approx.{type:f32|f16|f16x2|bf16|bf16x2}", "ex2.approx.{type:f16|f16x2}",
    "ex2.approx.{ftz:ftz}.{type:bf16|bf16x2}", "rcp.approx.{ftz:ftz}.{type:f64}",
    "rsqrt.approx?{ftz:ftz}.{type:f64}",
)  # fmt: skip
def _approximately(line: Binder) -> Step:
    kind = line.parts["type"]
    if kind == "f64" and not line.parts["ftz"]:
        return line.computed(inverse_root, ["b64"], "b64")
    options = {"ftz": True} if line.parts.get("ftz") and kind != "f64" else {}
    return _elementwise(line, partial(approximate, line.base), kind, 1, options)


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
)  # fmt: skip
def _convert(line: Binder) -> Step:
    to, source = line.parts["to"], line.parts["source"]
    if {to, source} <= set(_INTEGERS.split("|")) and not line.parts.get("sat"):
        dtype = DTYPES[to]
        return line.computed(lambda a: a.astype(dtype), [source], to)
    if (to, source) == ("f32", "bf16") and not (line.parts.get("sat") or line.parts.get("ftz")):
        # bf16 is the upper half of an f32. A NaN stays the NaN that it is.
        return line.computed(lambda a: a.astype(np.uint32) << np.uint32(16), ["b16"], "b32")
    function = _conversion(line, to, source)
    result = to if to in _INTEGERS.split("|") else f"b{_bits(to)}"
    return line.computed(lambda a: function(a).view(DTYPES[result]), [f"b{_bits(source)}"], result)


def _conversion(line: Binder, to: str, source: str) -> partial[Array]:
    return partial(convert, to=to, source=source, **_options(line, None))


def _bits(kind: str) -> int:
    return 32 if kind == "tf32" else int(kind.lstrip("bfsu"))


_PAIRS = "f16x2|bf16x2"
_EIGHTS = "e4m3x2|e5m2x2"
_SIXES = "e2m3x2|e3m2x2"
# Bits of a part of a pair, and the register that holds the pair.
_PAIR_KINDS = {4: "b8", 8: "b16", 16: "b32"}


def _part_bits(name: str) -> int:
    return 4 if name == "e2m1" else 16 if "f16" in name else 8


@opcode(
    f"cvt.{{rounding:rn|rz}}?{{relu:relu}}?{{satfinite:satfinite}}.{{to:{_PAIRS}}}.{{source:f32}}",
    f"cvt.{{rounding:rn|rz}}.{{satfinite:satfinite}}.{{relu:relu}}.{{to:{_PAIRS}}}.{{source:f32}}",
    f"cvt.{{rounding:rn}}.{{satfinite:satfinite}}?{{relu:relu}}"
    f".{{to:{_EIGHTS}|{_SIXES}|e2m1x2}}.{{source:f32}}",
    "cvt.{rounding:rz|rp}?{satfinite:satfinite}.{to:ue8m0x2}.{source:f32}",
)  # fmt: skip
def _pair_of_two(line: Binder) -> Step:
    """`cvt.to.f32 d, a, b`: a in the upper part, b in the lower."""
    to = line.parts["to"].removesuffix("x2")
    function = _conversion(line, to, "f32")
    width = _part_bits(to)
    return line.computed(
        lambda a, b: pair_of(function(a), function(b), width), ["b32", "b32"], _PAIR_KINDS[width]
    )


@opcode(
    f"cvt.{{rounding:rn}}.{{satfinite:satfinite}}?{{relu:relu}}"
    f".{{to:{_EIGHTS}|{_SIXES}|e2m1x2}}.{{source:{_PAIRS}}}",
    f"cvt.{{rounding:rn}}?{{relu:relu}}.{{to:{_PAIRS}}}.{{source:{_EIGHTS}|{_SIXES}|e2m1x2}}",
    "cvt.{rounding:rn}.{to:bf16x2}.{source:ue8m0x2}",
    "cvt.{rounding:rz|rp}?{satfinite:satfinite}.{to:ue8m0x2}.{source:bf16x2}",
)  # fmt: skip
def _pair_of_pair(line: Binder) -> Step:
    to, source = (line.parts[name].removesuffix("x2") for name in ("to", "source"))
    function, widths = _conversion(line, to, source), (_part_bits(source), _part_bits(to))
    taken, given = (_PAIR_KINDS[width] for width in widths)
    return line.computed(lambda a: convert_both(a, widths, function), [taken], given)


@opcode(f"cvt.rs?{{relu:relu}}?{{satfinite:satfinite}}.{{to:{_PAIRS}}}.{{source:f32}}")
def _pair_by_chance(line: Binder) -> Step:
    """`cvt.rs.to.f32 d, a, b, rbits`: the upper random bits are for a, the lower ones for b."""
    to = line.parts["to"].removesuffix("x2")
    options = {name: True for name in ("satfinite", "relu") if line.parts.get(name)}

    def run(a: Array, b: Array, random: Array) -> Array:
        upper = convert_randomly(a, to, random >> np.uint32(16), **options)
        return pair_of(upper, convert_randomly(b, to, random, **options), 16)

    return line.computed(run, ["b32"] * 3, "b32")


@opcode(
    "cvt.pack.sat.{to:u16|s16}.{source:s32}",
    "cvt.pack.sat.{to:u2|s2|u4|s4|u8|s8}.{source:s32}.{third:b32}",
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
)  # fmt: skip
def _address(line: Binder) -> Step:
    space, is_back = line.parts["space"].split("::")[0], bool(line.parts["to"])
    if line.parts["type"] == "u32":
        raise line.refuse("converts an address of 32 bits")
    value = line.read(1, "b64")

    def read(registers: Registers) -> Array:
        window = np.uint64(registers[0].batch.windows[space])
        return value(registers) - window if is_back else value(registers) + window

    return line.gives("b64", read)


@opcode(
    "isspacep.{space:global|shared|shared::cta|shared::cluster|local|const|param|param::entry}",
)  # fmt: skip
def _is_in_space(line: Binder) -> Step:
    space = line.parts["space"].split("::")[0]
    address = line.read(1, "b64")
    return line.gives("pred", lambda registers: registers[0].batch.is_in(space, address(registers)))
