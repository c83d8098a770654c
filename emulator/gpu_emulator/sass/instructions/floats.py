"""Floating point of all widths, packed or not, and what goes from and to integers.

The arithmetic is that of `gpu_emulator.numbers`, rounded once, as PTX has it: each row names the
instruction of PTX that ptxas makes it of. A NaN is what that gives on an H200; a minus before a
register of 64 bits leaves a NaN as it is, as `sub.f64` does there. `checks/sass_forms.py` holds
the rows against PTX. `MUFU` is approximate: here the value itself, rounded, and subnormal numbers
of f32 are zero, since ptxas scales them before.

Results of 16 bits fill the lower half of a register; nothing is known of the upper one, which is
zero here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.arithmetic import (
    JOIN,
    approximate,
    compare_floats,
    halves_of,
    packed,
    pair_of,
)
from gpu_emulator.numbers.conversion import convert, convert_both, convert_randomly
from gpu_emulator.numbers.formats import from_float64
from gpu_emulator.sass.binder import Binder, bound, computed, immediate, opcode
from gpu_emulator.sass.listing import Operand
from gpu_emulator.steps import Array, Reader, Registers, Step
from gpu_emulator.values import NotExecutable

_FORMS = "checks/sass_forms.py"
_ROUND = "?{rounding:RM|RP|RZ}"
_APPROXIMATE = f"approximate, as PTX's {{}} here; {_FORMS}"
_ROUNDINGS = {"": "rn", "RM": "rm", "RP": "rp", "RZ": "rz"}


def _how(parts: dict[str, str]) -> dict[str, Any]:
    """What an opcode says of its result, as `numbers` has it."""
    how: dict[str, Any] = {"rounding": _ROUNDINGS[parts.get("rounding", "")]}
    names = ("ftz", "sat", "relu", "satfinite", "nan", "xorsign")
    return how | {name: True for name in names if parts.get(name)}


_ARITHMETIC: dict[str, tuple[Callable[..., Array], int]] = {
    "ADD": (arithmetic.add, 2), "MUL": (arithmetic.multiply, 2), "FMA": (arithmetic.fma, 3),
}  # fmt: skip


@opcode(
    f"FADD|FMUL|FFMA?{{ftz:FTZ}}{_ROUND}?{{sat:SAT}}",
    "UFADD|UFMUL|UFFMA?{ftz:FTZ}",
    evidence=f"PTX ISA: add.f32, mul.f32, fma.f32; {_FORMS}",
)
def _single(line: Binder) -> Step:
    function, count = _ARITHMETIC[line.base[-3:]]
    operation = partial(function, "f32", **_how(line.parts))
    form = "b32 =" + " -|f32" * count
    return bound(line, form, lambda *values: operation(*(x.view(np.uint32) for x in values)))


@opcode(
    "FMUL.{scale:M4|M8}",
    evidence="PTX ISA: mul.f32 twice, the second by a power of two, of which ptxas makes it",
)
def _scaled(line: Binder) -> Step:
    """The product, times 4 or 8. Whether it is rounded before is open: refused where that shows."""
    scale = float(line.parts["scale"][1:])

    def function(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            whole = a.astype(np.float64) * b * scale
            later = (a * b * np.float32(scale)).view(np.uint32)
        result = from_float64(whole, "f32")
        if ((result != later) & ~np.isnan(whole)).any():
            raise NotExecutable(f"not known: when {line.opcode} rounds, in {line.text}")
        return arithmetic.multiply("f32", result, np.full((1, 1), 0x3F80_0000, np.uint32))

    return bound(line, "b32 = -|f32 -|f32", function)


@opcode(
    f"FADD2|FMUL2|FFMA2?{{ftz:FTZ}}{_ROUND}",
    evidence=f"PTX ISA: add, mul, fma of f32x2, of which ptxas makes it for sm_100a; {_FORMS}",
)
def _pair_of_singles(line: Binder) -> Step:
    """Two registers of each operand, one after the other; `.LO_HI` swaps them, `.F32` is one twice.

    A constant is one number, twice.
    """
    function, count = _ARITHMETIC[line.base[1:-1]]
    operation = partial(function, "f32", **_how(line.parts))
    result, *operands = line.operands
    if len(operands) != count:
        raise line.refuse()
    readers = [_pair(line, operand) for operand in operands]
    line.operands = (result,)
    return bound(line, "b64 =", partial(packed, operation, 32), readers)


def _pair(line: Binder, operand: Operand) -> Reader:
    turn = np.uint64(0x8000_0000_8000_0000 * (operand.sign == "-"))
    plain = replace(operand, suffixes=(), sign="")
    if operand.suffixes == ("F32",) and not operand.is_absolute:
        single = line.read(plain, "b32")
        return lambda registers: single(registers).astype(np.uint64) * _TWICE ^ turn
    swaps = operand.suffixes == ("F32x2", "LO_HI")
    if not swaps and operand.suffixes != ("F32x2", "HI_LO"):
        raise line.refuse(operand)
    whole = line.read(plain, "b64")

    def read(registers: Registers) -> Array:
        value = whole(registers) ^ turn
        return value << np.uint64(32) | value >> np.uint64(32) if swaps else value

    return read


_TWICE = np.uint64(0x1_0000_0001)


@opcode(
    f"FHADD|FHFMA?{{type:BF16}}{_ROUND}?{{sat:SAT}}",
    evidence=f"PTX ISA: add.f32.f16, fma.f32.bf16 and others, of which ptxas makes it; {_FORMS}",
)
def _half_and_single(line: Binder) -> Step:
    """The last operand is an f32, those before it are halves."""
    kind = "bf16" if line.parts["type"] else "f16"
    function, count = _ARITHMETIC[line.base[2:]]
    operation = partial(function, "f32", **_how(line.parts))
    result, *halves, last = line.operands
    if len(halves) != count - 1 or any(half.is_absolute for half in halves):
        raise line.refuse()
    readers = [_part(line, replace(half, sign=""), 16) for half in halves]
    signs = [np.uint16(0x8000 * (half.sign == "-")) for half in halves]
    single = line.read(last, "f32", "-|")
    line.operands = (result,)

    def run(*values: Array) -> Array:
        wide = [
            convert(x ^ sign, to="f32", source=kind) for x, sign in zip(values, signs, strict=False)
        ]
        return operation(*wide, values[-1].view(np.uint32))

    return _step(line, run, [*readers, single])


@opcode(
    f"DADD|DMUL|DFMA{_ROUND}", evidence=f"PTX ISA: add.f64, mul.f64, fma.f64; {_FORMS}"
)  # fmt: skip
def _double(line: Binder) -> Step:
    function, count = _ARITHMETIC[line.base[1:]]
    operation = partial(function, "f64", **_how(line.parts))
    signs = [bool(operand.sign) for operand in line.operands[1:]]
    _without_nan(line)

    def run(*values: Array) -> Array:
        bits = [
            np.where(np.isnan(x), -x, x).view(np.uint64) if sign else x.view(np.uint64)
            for x, sign in zip(values, signs, strict=True)
        ]
        return operation(*bits)

    return bound(line, "b64 =" + " -|f64" * count, run)


def _without_nan(line: Binder) -> None:
    """The listing does not say which NaN a constant is, and here the result would be that."""
    for operand in line.operands:
        if operand.kind == "number" and "NAN" in operand.text:
            raise line.refuse(operand)


_ORDERED = "F|LT|EQ|LE|GT|NE|GE|NUM|NAN|LTU|EQU|LEU|GTU|NEU|GEU|T"
_JOINED = ".{join:AND|OR|XOR}"


def _comparison(line: Binder) -> Callable[[Array, Array], Array]:
    return compare_floats(line.parts["compare"].lower(), ftz=bool(line.parts.get("ftz")))


@opcode(
    f"FSETP|UFSETP.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}",
    f"DSETP.{{compare:{_ORDERED}}}{_JOINED}",
    evidence=f"PTX ISA: setp.f32, setp.f64; {_FORMS}",
)  # fmt: skip
def _compare(line: Binder) -> Step:
    compare, join = _comparison(line), JOIN[line.parts["join"].lower()]
    kind = "f64" if line.base == "DSETP" else "f32"

    def function(a: Array, b: Array, third: Array) -> tuple[Array, Array]:
        holds = compare(a, b)
        return join(holds, third), join(~holds, third)

    return bound(line, f"pred pred = -|{kind} -|{kind} pred", function)


@opcode(
    f"FSET.BF.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}", evidence=f"PTX ISA: set.f32; {_FORMS}"
)
def _compare_to_float(line: Binder) -> Step:
    compare, join = _comparison(line), JOIN[line.parts["join"].lower()]

    def function(a: Array, b: Array, third: Array) -> Array:
        return np.where(join(compare(a, b), third), np.float32(1), np.float32(0))

    return bound(line, "b32 = -|f32 -|f32 pred", function)


@opcode("DSETP.{which:MIN|MAX}.AND", evidence=f"inferred from min.f64 of ptxas 13.5.37; {_FORMS}")
def _compare_for_extremum(line: Binder) -> Step:
    """Whether the first is the result; and whether both are NaN, so that the second is, quiet."""
    if line.operands[-1].text != "PT":
        raise line.refuse(line.operands[-1])
    compare = np.less if line.parts["which"] == "MIN" else np.greater

    def function(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
        lost_a, lost_b = np.isnan(a), np.isnan(b)
        is_zero_first = np.signbit(a) if line.parts["which"] == "MIN" else ~np.signbit(a)
        first = compare(a, b) | ((a == b) & is_zero_first) | (lost_b & ~lost_a)
        return first, lost_a & lost_b

    return bound(line, "pred pred = -|f64 -|f64 pred", function)


@opcode(
    "FMNMX?{ftz:FTZ}?{nan:NAN}?{xorsign:XORSIGN}", evidence=f"PTX ISA: min.f32, max.f32; {_FORMS}"
)
@opcode(
    "FMNMX3?{ftz:FTZ}?{nan:NAN}",
    evidence="PTX ISA: min.f32, max.f32 with three operands, of which ptxas makes it for sm_100a",
)
def _extremum(line: Binder) -> Step:
    """The signs that `.XORSIGN` multiplies are those before the magnitudes."""
    _without_magnitudes(line)
    operation, count = _extremum_of(line, "f32"), 3 if line.base == "FMNMX3" else 2

    def function(*operands: Array) -> Array:
        *values, is_least = operands
        return operation(is_least, *(value.view(np.uint32) for value in values))

    return bound(line, f"b32 = {'-|f32 ' * count}pred", function)


def _extremum_of(line: Binder, kind: str) -> Callable[..., Array]:
    """A function of a predicate and the bits of numbers: the least where it holds."""
    how: dict[str, Any] = {n: True for n in ("ftz", "nan", "xorsign") if line.parts.get(n)}
    operation = partial(arithmetic.extremum, kind, **how)

    def choose(is_least: Array, *operands: Array) -> Array:
        if is_least.all() or not is_least.any():
            return operation(*operands, largest=not is_least.any())
        least, greatest = (operation(*operands, largest=largest) for largest in (False, True))
        return np.where(is_least, least, greatest)

    return choose


def _without_magnitudes(line: Binder) -> None:
    if not line.parts.get("xorsign"):
        return
    first, *operands, last = line.operands
    # The listing has a constant with its sign.
    if not all(x.kind == "number" or (x.is_absolute and not x.sign) for x in operands):
        raise line.refuse()
    line.operands = (first, *(replace(x, is_absolute=False) for x in operands), last)


@opcode("FSEL|UFSEL?{ftz:FTZ}", evidence=f"PTX ISA: selp.f32, slct.ftz; {_FORMS}")
def _select(line: Binder) -> Step:
    _without_nan(line)
    ftz = line.parts["ftz"]

    def function(a: Array, b: Array, p: Array) -> Array:
        value = np.where(p, a.view(np.uint32), b.view(np.uint32))
        return arithmetic.flush(value, "f32") if ftz else value

    return bound(line, "b32 = -|f32 -|f32 pred", function)


@computed(
    "FCHK", signature="pred = -|f32 -|f32",
    evidence="CUDA Binary Utilities: division test; for which operands is open, and the same either"
    " way: ptxas divides them by a way of its own",
)  # fmt: skip
def _needs_more(a: Array, b: Array) -> Array:
    """Where a quotient by multiplication might overflow, or lose bits on the way."""
    _, above = np.frexp(np.where(np.isfinite(a), a, 0))
    _, below = np.frexp(np.where(np.isfinite(b), b, 0))
    regular = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0) & (np.abs(below) < 124)
    return ~(regular & (above > -100) & (np.abs(above - below) < 124))


@opcode(
    "MUFU.{name:EX2|LG2|RCP|RSQ|SQRT|TANH}",
    evidence=_APPROXIMATE.format("ex2.approx.ftz.f32 and others"),
)
def _approximately(line: Binder) -> Step:
    function = _function(line, "f32", ftz=line.parts["name"] != "TANH")
    return bound(line, "b32 = -|f32", lambda a: function(a.view(np.uint32)))


def _function(line: Binder, kind: str, *, ftz: bool) -> Callable[[Array], Array]:
    name = line.parts["name"].lower()
    return partial(approximate, {"rsq": "rsqrt"}.get(name, name), kind, ftz=ftz)


@opcode("MUFU.{name:SIN|COS}", evidence=_APPROXIMATE.format("sin.approx.f32, cos.approx.f32"))
def _of_turns(line: Binder) -> Step:
    """The operand counts turns: ptxas multiplies by 1 / (2 pi) before."""
    function = np.sin if line.parts["name"] == "SIN" else np.cos

    def run(a: Array) -> Array:
        with np.errstate(all="ignore"):
            turns = a.astype(np.float64)
            return from_float64(function(2 * np.pi * (turns - np.rint(turns))), "f32")

    return bound(line, "b32 = -|f32", run)


@opcode(
    "MUFU.{name:RCP64H|RSQ64H}",
    evidence=_APPROXIMATE.format("rcp.approx.ftz.f64, rsqrt.approx.ftz.f64"),
)
def _of_upper_halves(line: Binder) -> Step:
    name = {"RCP64H": "rcp", "RSQ64H": "rsqrt"}[line.parts["name"]]
    # The listing has a constant as the whole number of 64 bits.
    is_constant = line.operands[-1].kind == "number"

    def run(a: Array) -> Array:
        wide = a.view(np.uint64 if is_constant else np.uint32).astype(np.uint64)
        if not is_constant:
            wide = wide << np.uint64(32)
        return (approximate(name, "f64", wide) >> np.uint64(32)).astype(np.uint32)

    return bound(line, f"b32 = -|{'f64' if is_constant else 'f32'}", run)


@opcode(
    "MUFU.{name:EX2|TANH}.{type:F16|BF16}",
    evidence=_APPROXIMATE.format("ex2.approx and tanh.approx of f16 and bf16"),
)
def _approximately_half(line: Binder) -> Step:
    kind = line.parts["type"].lower()
    function = _function(line, kind, ftz=line.parts["name"] == "EX2" and kind == "bf16")
    read = _part(line, line.operands[1], 16)
    line.operands = line.operands[:1]
    return _step(line, lambda a: function(a).astype(np.uint32), [read])


def _part(line: Binder, operand: Operand, width: int) -> Reader:
    """So many bits of a register: its low ones, or those that `.H1`, `.B1` and such name."""
    names = {16: ("H0", "H1"), 8: ("B0", "B1", "B2", "B3")}[width]
    suffixes = operand.suffixes or names[:1]
    if len(suffixes) != 1 or suffixes[0] not in names:
        raise line.refuse(operand)
    shift, dtype = np.uint32(names.index(suffixes[0]) * width), np.dtype(f"u{width // 8}")
    read = line.read(replace(operand, suffixes=()), "b32")
    return lambda registers: (read(registers) >> shift).astype(dtype)


def _step(line: Binder, function: Callable[..., Array], readers: list[Reader]) -> Step:
    """A pure step with one register as its result, and operands that are read already."""
    line.operands = line.operands[:1]
    return bound(line, "b32 =", function, readers)


def _halves(line: Binder, count: int, kind: str) -> list[Reader]:
    """Readers of packed operands, which are taken away from the line; the result stays, and more.

    `.H0_H0` and `.H1_H1` are one half twice. Of two numbers the first is the upper half.
    """
    result, *pending = line.operands
    readers: list[Reader] = []
    for _ in range(count):
        if not pending:
            raise line.refuse()
        operand = pending.pop(0)
        if operand.kind == "number":
            if not pending or pending[0].kind != "number":
                raise line.refuse(operand)
            high, low = (_half(line, x, kind) for x in (operand, pending.pop(0)))
            readers.append(partial(lambda word, _: word, np.array([[high << 16 | low]], np.uint32)))
        else:
            readers.append(_half_pair(line, operand))
    line.operands = (result, *pending)
    return readers


def _half(line: Binder, operand: Operand, kind: str) -> int:
    if operand.text.startswith("0h"):
        return int(f"0x{operand.text[2:]}", 0)
    value = immediate(operand.text, "f64")
    if value is None or np.isnan(value).any():
        raise line.refuse(operand)
    return int(from_float64(value, kind)[0, 0])


def _half_pair(line: Binder, operand: Operand) -> Reader:
    which = operand.suffixes
    if which not in ((), ("H0_H0",), ("H1_H1",)) or operand.sign not in ("", "-"):
        raise line.refuse(operand)
    plain = line.read(replace(operand, suffixes=(), sign="", is_absolute=False), "b32")
    shift = np.uint32(16 if which == ("H1_H1",) else 0)
    keep = np.uint32(0x7FFF_7FFF if operand.is_absolute else 0xFFFF_FFFF)
    turn = np.uint32(0x8000_8000 if operand.sign else 0)
    if not which and not turn and not operand.is_absolute:
        return plain

    def read(registers: Registers) -> Array:
        value = plain(registers)
        if which:
            value = ((value >> shift) & np.uint32(0xFFFF)) * np.uint32(0x0001_0001)
        return value & keep ^ turn

    return read


def _half_kind(line: Binder) -> str:
    return "bf16" if line.parts["type"] else "f16"


_BF = "?{type:BF16_V2}"


@opcode(
    f"HADD2|HMUL2{_BF}?{{ftz:FTZ}}?{{sat:SAT}}",
    f"HFMA2?{{unit:MMA}}{_BF}?{{ftz:FTZ}}?{{sat:SAT}}",
    f"HFMA2?{{unit:MMA}}{_BF}?{{ftz:FTZ}}.{{relu:RELU}}", f"HFMA2{_BF}.{{oob:OOB}}?{{relu:RELU}}",
    evidence=f"PTX ISA: add, mul, fma of f16x2 and bf16x2; {_FORMS}",
)  # fmt: skip
def _half_arithmetic(line: Binder) -> Step:
    kind = _half_kind(line)
    function, count = _ARITHMETIC[line.base[1:-1]]
    if line.parts.get("oob"):
        function = arithmetic.fma_within_bounds
    operation = partial(function, kind, **_how(line.parts))
    readers = _halves(line, count, kind)
    line.has(1)
    return _step(line, partial(packed, operation, 16), readers)


@opcode("HADD2.F32?{sat:SAT}", evidence=f"PTX ISA: cvt.f32.f16; {_FORMS}")
def _half_to_single(line: Binder) -> Step:
    """A half as an f32, and zero: how ptxas converts."""
    if len(line.operands) != 3 or line.operands[1].text != "-RZ":
        raise line.refuse()
    operand = line.operands[2]
    if operand.suffixes not in (("H0_H0",), ("H1_H1",)):
        raise line.refuse(operand)
    read = _half_pair(line, operand)
    sat = bool(line.parts["sat"])

    def run(a: Array) -> Array:
        return convert(a.astype(np.uint16), to="f32", source="f16", sat=sat)

    line.operands = line.operands[:1]
    return _step(line, run, [read])


@opcode(
    f"HMNMX2|VHMNMX{_BF}?{{ftz:FTZ}}?{{nan:NAN}}?{{xorsign:XORSIGN}}",
    evidence=f"PTX ISA: min, max of f16x2 and bf16x2, VHMNMX of three; {_FORMS}",
)
def _half_extremum(line: Binder) -> Step:
    kind, count = _half_kind(line), 3 if line.base == "VHMNMX" else 2
    if count == 3 and line.parts["xorsign"]:
        raise line.refuse()
    _without_magnitudes(line)
    operation = _extremum_of(line, kind)
    readers = _halves(line, count, kind)
    line.has(2)
    is_least = line.read(line.operands[1], "pred")

    def function(*operands: Array) -> Array:
        *values, least = operands
        return packed(partial(operation, least[..., None]), 16, *values)

    return _step(line, function, [*readers, is_least])


def _half_comparisons(line: Binder) -> tuple[Callable[..., Array], list[Reader]]:
    """A function of both operands and a predicate that compares the lower halves, and the upper.

    What is left of the line are its results.
    """
    kind, compare, join = _half_kind(line), _comparison(line), JOIN[line.parts["join"].lower()]
    count = 1 + (line.base == "HSETP2")
    results, line.operands = line.operands[:count], line.operands[count - 1 :]
    readers = _halves(line, 2, kind)
    line.has(2)
    readers.append(line.read(line.operands[1], "pred"))
    line.operands = results

    def holds(a: Array, b: Array, third: Array) -> Array:
        return join(compare(*halves_of(kind, a, b)), third[..., None])

    return holds, readers


@opcode(
    f"HSETP2{_BF}.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}",
    evidence=f"PTX ISA: setp of f16x2 and bf16x2; {_FORMS}",
)
def _half_compare(line: Binder) -> Step:
    """The first predicate is of the lower halves, the second of the upper ones."""
    compare, readers = _half_comparisons(line)

    def both(*values: Array) -> tuple[Array, Array]:
        holds = compare(*values)
        return holds[..., 0], holds[..., 1]

    return bound(line, "pred pred =", both, readers)


@opcode(
    f"HSET2{_BF}?{{form:BF}}.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}",
    f"HSET2.{{form:BF}}{_BF}.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}",
    evidence=f"PTX ISA: set of f16x2 and bf16x2; {_FORMS}",
)
def _half_set(line: Binder) -> Step:
    """1.0 in each half where the comparison holds; all bits without `.BF`."""
    one = 0xFFFF
    if line.parts["form"]:
        one = 0x3F80 if line.parts["type"] else 0x3C00
    compare, readers = _half_comparisons(line)

    def function(*values: Array) -> Array:
        return np.where(compare(*values), np.uint16(one), np.uint16(0)).view(np.uint32)[..., 0]

    return _step(line, function, readers)


_FORMATS = {"F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "": "f32"}


def _source(line: Binder, operand: Operand, kind: str) -> Reader:
    """The bits of a number of any width."""
    width = int(kind.lstrip("bfsu"))
    if width <= 16:
        if kind not in ("f16", "bf16"):
            return _part(line, operand, width)
        part = _part(line, replace(operand, sign="", is_absolute=False), width)
        if operand.sign not in ("", "-"):
            raise line.refuse(operand)
        keep = np.uint16(0x7FFF if operand.is_absolute else 0xFFFF)
        turn = np.uint16(0x8000 if operand.sign else 0)
        return lambda registers: part(registers) & keep ^ turn
    if kind in ("s64", "u64") and operand.kind == "number":
        # The 32 bits that are encoded are the upper ones, as those of a float of 64 bits.
        upper = immediate(operand.text, "u32")
        if upper is None:
            raise line.refuse(operand)
        whole = upper.astype(np.uint64) << np.uint64(32)
        return lambda _: whole
    read = line.read(operand, kind, "-|" if kind in ("f32", "f64") else "")
    return lambda registers: read(registers).view(f"u{width // 8}")


def _conversion(line: Binder, to: str, source: str) -> Callable[[Array], Array]:
    return partial(convert, to=to, source=source, **_how(line.parts))


def _converted(line: Binder, to: str, source: str, how: dict[str, Any]) -> Step:
    """A step that converts; a result of fewer than 32 bits is extended, by its sign or by zeros."""
    line.has(2)
    function: Callable[..., Array] = partial(convert, to=to, source=source, **how)
    read = _source(line, line.operands[1], source)
    signed = np.dtype(f"i{max(int(to.lstrip('bfsu')) // 8, 1)}") if to.startswith("s") else None

    def run(a: Array) -> Array:
        value = function(a)
        if value.dtype.itemsize == 8:
            return value
        if signed is not None:
            return value.view(signed).astype(np.int32)
        return value.astype(np.uint32)

    line.operands = line.operands[:1]
    return bound(line, "b64 =" if to.endswith("64") else "b32 =", run, [read])


_FLOAT = "F16|BF16|F32|F64"


@opcode(
    f"F2F?{{ftz:FTZ}}.{{to:{_FLOAT}}}.{{source:{_FLOAT}}}{_ROUND}",
    f"UF2F?{{ftz:FTZ}}.{{to:F16|BF16|F32}}.{{source:F16|BF16|F32}}{_ROUND}",
    evidence=f"PTX ISA: cvt between floats; {_FORMS}",
)
def _between_floats(line: Binder) -> Step:
    to, source = (_FORMATS[line.parts[name]] for name in ("to", "source"))
    return _converted(line, to, source, _how(line.parts))


_WHOLE = {"": "rni", "TRUNC": "rzi", "FLOOR": "rmi", "CEIL": "rpi"}
_TO_WHOLE = "?{whole:TRUNC|FLOOR|CEIL}"


@opcode(
    f"F2I|UF2I?{{ftz:FTZ}}?{{to:U8|S8|U16|S16|U32}}?{{source:F16|BF16}}{_TO_WHOLE}.NTZ",
    f"F2I?{{to:U8|S8|U16|S16|U32}}.{{source:F64}}{_TO_WHOLE}",
    f"F2I?{{ftz:FTZ}}.{{to:U64|S64}}?{{source:F16|BF16|F64}}{_TO_WHOLE}",
    evidence=f"PTX ISA: cvt from float to integer; {_FORMS}",
)
def _to_integer(line: Binder) -> Step:
    to, source = line.parts["to"].lower() or "s32", _FORMATS[line.parts["source"]]
    how = {"ftz": bool(line.parts.get("ftz")), "rounding": _WHOLE[line.parts["whole"]]}
    return _converted(line, to, source, how)


@opcode(
    f"I2F?{{to:F16|BF16|F64}}?{{source:U8|S8|U16|S16|U32|U64|S64}}{_ROUND}",
    f"UI2F?{{to:F16|BF16}}?{{source:U8|S8|U16|S16|U32}}{_ROUND}",
    evidence=f"PTX ISA: cvt from integer to float; {_FORMS}",
)
def _to_float(line: Binder) -> Step:
    to, source = _FORMATS[line.parts["to"]], line.parts["source"].lower() or "s32"
    return _converted(line, to, source, _how(line.parts))


@opcode(f"I2FP|UI2FP.F32.{{source:S32|U32}}{_ROUND}", evidence=f"PTX ISA: cvt.f32.s32; {_FORMS}")
def _to_single(line: Binder) -> Step:
    return _converted(line, "f32", line.parts["source"].lower(), _how(line.parts))


@opcode(
    f"FRND?{{ftz:FTZ}}?{{type:F16|BF16|F64}}{_TO_WHOLE}",
    f"UFRND?{{ftz:FTZ}}?{{type:F16|BF16}}{_TO_WHOLE}",
    evidence=f"PTX ISA: cvt.rni and others, of one type; {_FORMS}",
)
def _to_whole(line: Binder) -> Step:
    kind = _FORMATS[line.parts["type"]]
    how = {"ftz": bool(line.parts.get("ftz")), "rounding": _WHOLE[line.parts["whole"]]}
    return _converted(line, kind, kind, how)


_RELU = "?{satfinite:SATFINITE}?{relu:RELU}"
_SMALL = {"E4M3": "e4m3", "E5M2": "e5m2", "E2M3": "e2m3", "E3M2": "e3m2", "E8": "ue8m0"}
_SMALLS = "|".join(_SMALL)


def _only_zero(line: Binder, operand: Operand) -> None:
    """What is merged is known where it is zero."""
    if operand.text != "RZ":
        raise line.refuse(operand)


def _pair_of_two(line: Binder, to: str, width: int, more: str = "") -> Step:
    """The first operand, an f32, goes to the upper part, the second to the lower one."""
    function = _conversion(line, to, "f32")

    def run(a: Array, b: Array) -> Array:
        pair = pair_of(function(a.view(np.uint32)), function(b.view(np.uint32)), width)
        return pair.astype(np.uint32)

    return bound(line, f"b32 = -|f32 -|f32 {more}", run)


def _pair_of_pair(
    line: Binder, to: str, source: str, widths: tuple[int, int], read: Reader
) -> Step:
    """Both parts of a register, of as many bits as the first width, to the second."""
    function = _conversion(line, to, source)
    return _step(line, lambda a: convert_both(a, widths, function).astype(np.uint32), [read])


@opcode(
    f"F2FP{_RELU}.{{to:F16|BF16}}.F32.{{way:PACK_AB|MERGE_C}}?{{rounding:RZ}}",
    f"F2FP{_RELU}?{{to:BF16}}.{{way:PACK_AB|MERGE_C}}?{{rounding:RZ}}",
    evidence=f"PTX ISA: cvt.f16x2.f32, cvt.bf16x2.f32; {_FORMS}",
)
def _pack_halves(line: Binder) -> Step:
    kind = _FORMATS[line.parts["to"] or "F16"]
    if line.parts["way"] == "PACK_AB":
        return _pair_of_two(line, kind, 16)
    function = _conversion(line, kind, "f32")
    return bound(line, "b32 = -|f32 RZ", lambda a: function(a.view(np.uint32)).astype(np.uint32))


@opcode(
    f"F2FP{_RELU}.{{to:F16|BF16}}.F32.PACK_AB.RS", evidence=f"PTX ISA: cvt.rs.f16x2.f32; {_FORMS}"
)
def _pack_by_chance(line: Binder) -> Step:
    """The upper random bits are for the first operand, the lower ones for the second."""
    kind = _FORMATS[line.parts["to"]]
    how = {name: True for name in ("satfinite", "relu") if line.parts[name]}

    def run(a: Array, b: Array, random: Array) -> Array:
        high = convert_randomly(a.view(np.uint32), kind, random >> np.uint32(16), **how)
        return pair_of(high, convert_randomly(b.view(np.uint32), kind, random, **how), 16)

    return bound(line, "b32 = -|f32 -|f32 b32", run)


@opcode(f"F2FP{_RELU}.TF32.F32.PACK_B?{{rounding:RZ}}", evidence=f"PTX ISA: cvt.tf32.f32; {_FORMS}")
def _to_tf32(line: Binder) -> Step:
    function = _conversion(line, "tf32", "f32")
    return bound(line, "b32 = -|f32", lambda a: function(a.view(np.uint32)))


@opcode(
    f"F2FP{_RELU}.{{to:{_SMALLS}}}.F32.PACK_AB_MERGE_C?{{rounding:RZ|RP}}",
    evidence=f"PTX ISA: cvt.e4m3x2.f32 and others; {_FORMS}",
)
def _pack_octets(line: Binder) -> Step:
    """What is merged is known where it is zero."""
    return _pair_of_two(line, _SMALL[line.parts["to"]], 8, "RZ")


@opcode(
    f"F2FP{_RELU}.{{to:{_SMALLS}}}.{{source:F16|BF16}}.UNPACK_B_MERGE_C?{{rounding:RZ|RP}}",
    evidence=f"PTX ISA: cvt.e4m3x2.f16x2 and others; {_FORMS}",
)
def _octets_of_halves(line: Binder) -> Step:
    line.has(3)
    _only_zero(line, line.operands[2])
    to, source = _SMALL[line.parts["to"]], _FORMATS[line.parts["source"]]
    return _pair_of_pair(line, to, source, (16, 8), line.read(line.operands[1], "b32"))


# 0x7f7f, as an f32 in the listing: 1 and 1, of ue8m0.
_ONES = "4.5736980577097704378e-41.H0"


@opcode(
    f"F2FP?{{relu:RELU}}.{{to:F16|BF16}}.{{source:{_SMALLS}}}.UNPACK_B",
    evidence=f"PTX ISA: cvt.f16x2.e4m3x2 and others; {_FORMS}",
)
def _halves_of_octets(line: Binder) -> Step:
    """A third operand scales both: ptxas gives it for bf16, and it is known where it is 1."""
    if len(line.operands) not in (2, 3) or any(x.text != _ONES for x in line.operands[2:]):
        raise line.refuse()
    to, source = _FORMATS[line.parts["to"]], _SMALL[line.parts["source"]]
    return _pair_of_pair(line, to, source, (8, 16), _part(line, line.operands[1], 16))


@opcode(f"F2IP.U8.F32{_TO_WHOLE}.NTZ", evidence=f"PTX ISA: cvt.sat.u8.f32; {_FORMS}")
def _pack_octet(line: Binder) -> Step:
    """One octet; what the other operands do is known where they are zero."""
    line.has(4)
    _only_zero(line, line.operands[1])
    _only_zero(line, line.operands[3])
    line.operands = (line.operands[0], line.operands[2])
    return _converted(line, "u8", "f32", {"rounding": _WHOLE[line.parts["whole"]]})
