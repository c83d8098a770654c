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
from gpu_emulator.numbers.arithmetic import approximate, packed
from gpu_emulator.numbers.conversion import convert, convert_randomly
from gpu_emulator.numbers.formats import from_float64, to_float32
from gpu_emulator.sass.binder import Binder, bound, computed, immediate, opcode
from gpu_emulator.sass.instructions.integers import JOIN
from gpu_emulator.sass.listing import Operand
from gpu_emulator.steps import Array, Reader, Registers, Step
from gpu_emulator.values import NotExecutable

_FORMS = "checks/sass_forms.py"
_ROUND = "?{rounding:RM|RP|RZ}"
_LOW = np.uint32(0xFFFF)
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
_COMPARE: dict[str, Any] = {
    "LT": np.less, "EQ": np.equal, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


def _compared(name: str, a: Array, b: Array) -> Array:
    """A comparison of floats: `U` holds where one is a NaN, too."""
    lost = np.isnan(a) | np.isnan(b)
    if name in ("F", "T"):
        return np.full(lost.shape, name == "T")
    if name in ("NUM", "NAN"):
        return lost if name == "NAN" else ~lost
    if name in ("NE", "NEU"):
        return (a != b) & ~lost if name == "NE" else (a != b) | lost
    holds: Array = _COMPARE[name.removesuffix("U")](a, b)
    return holds | lost if name.endswith("U") else holds


def _flushed(values: Array) -> Array:
    """Subnormal numbers of f32 as zeros."""
    return arithmetic.flush(values.view(np.uint32), "f32").view(np.float32)


_JOINED = ".{join:AND|OR|XOR}"


@opcode(
    f"FSETP|UFSETP.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}",
    f"DSETP.{{compare:{_ORDERED}}}{_JOINED}",
    evidence=f"PTX ISA: setp.f32, setp.f64; {_FORMS}",
)  # fmt: skip
def _compare(line: Binder) -> Step:
    name, join, ftz = line.parts["compare"], JOIN[line.parts["join"]], line.parts.get("ftz")
    kind = "f64" if line.base == "DSETP" else "f32"

    def function(a: Array, b: Array, third: Array) -> tuple[Array, Array]:
        holds = _compared(name, _flushed(a), _flushed(b)) if ftz else _compared(name, a, b)
        return join(holds, third), join(~holds, third)

    return bound(line, f"pred pred = -|{kind} -|{kind} pred", function)


@opcode(
    f"FSET.BF.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}", evidence=f"PTX ISA: set.f32; {_FORMS}"
)
def _compare_to_float(line: Binder) -> Step:
    name, join, ftz = line.parts["compare"], JOIN[line.parts["join"]], line.parts.get("ftz")

    def function(a: Array, b: Array, third: Array) -> Array:
        holds = _compared(name, _flushed(a), _flushed(b)) if ftz else _compared(name, a, b)
        return np.where(join(holds, third), np.float32(1), np.float32(0))

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
def _extremum(line: Binder) -> Step:
    """The signs that `.XORSIGN` multiplies are those before the magnitudes."""
    _without_magnitudes(line)
    operation = partial(arithmetic.extremum, "f32", **_options(line.parts))

    def function(a: Array, b: Array, is_least: Array) -> Array:
        return _chosen(operation, is_least, a.view(np.uint32), b.view(np.uint32))

    return bound(line, "b32 = -|f32 -|f32 pred", function)


@opcode(
    "FMNMX3?{ftz:FTZ}?{nan:NAN}",
    evidence="PTX ISA: min.f32, max.f32 with three operands, of which ptxas makes it for sm_100a",
)
def _extremum_of_three(line: Binder) -> Step:
    operation = partial(arithmetic.extremum, "f32", **_options(line.parts))

    def function(a: Array, b: Array, c: Array, is_least: Array) -> Array:
        two = _chosen(operation, is_least, a.view(np.uint32), b.view(np.uint32))
        return _chosen(operation, is_least, two, c.view(np.uint32))

    return bound(line, "b32 = -|f32 -|f32 -|f32 pred", function)


def _options(parts: dict[str, str]) -> dict[str, Any]:
    return {name: True for name in ("ftz", "nan", "xorsign") if parts.get(name)}


def _without_magnitudes(line: Binder) -> None:
    if not line.parts["xorsign"]:
        return
    first, *operands, last = line.operands
    # The listing has a constant with its sign.
    if not all(x.kind == "number" or (x.is_absolute and not x.sign) for x in operands):
        raise line.refuse()
    line.operands = (first, *(replace(x, is_absolute=False) for x in operands), last)


def _chosen(operation: Callable[..., Array], is_least: Array, *operands: Array) -> Array:
    if is_least.all():
        return operation(*operands, largest=False)
    if not is_least.any():
        return operation(*operands, largest=True)
    least, greatest = (operation(*operands, largest=largest) for largest in (False, True))
    return np.where(is_least, least, greatest)


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


_FUNCTIONS = {
    "EX2": "ex2", "LG2": "lg2", "RCP": "rcp", "RSQ": "rsqrt", "SQRT": "sqrt", "TANH": "tanh",
}  # fmt: skip


@opcode(
    "MUFU.{name:EX2|LG2|RCP|RSQ|SQRT|TANH}",
    evidence=_APPROXIMATE.format("ex2.approx.ftz.f32 and others"),
)
def _approximately(line: Binder) -> Step:
    function = partial(
        approximate, _FUNCTIONS[line.parts["name"]], "f32", ftz=line.parts["name"] != "TANH"
    )
    return bound(line, "b32 = -|f32", lambda a: function(a.view(np.uint32)))


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
    ftz = line.parts["name"] == "EX2" and kind == "bf16"
    function = partial(approximate, _FUNCTIONS[line.parts["name"]], kind, ftz=ftz)
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
    """A pure step with one register as its result."""
    ((slot,),) = line.results(line.operands[:1], ["b32"])

    def run(registers: Registers) -> None:
        registers[slot] = function(*[read(registers) for read in readers])

    return Step(run, (slot,), is_pure=True, for_warps=line.is_of_warps(line.operands[:1]))


_PAIR = np.uint32(0x0001_0001)


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
            readers.append(_constant(high << 16 | low))
        else:
            readers.append(_half_pair(line, operand))
    line.operands = (result, *pending)
    return readers


def _constant(number: int) -> Reader:
    word = np.array([[number]], np.uint32)
    return lambda _: word


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
            value = ((value >> shift) & _LOW) * _PAIR
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
    operation: Callable[..., Array] = partial(function, kind, **_how(line.parts))
    if line.parts.get("oob"):
        operation = partial(_within_bounds, operation)
    readers = _halves(line, count, kind)
    if len(line.operands) != 1:
        raise line.refuse()
    return _step(line, partial(packed, operation, 16), readers)


# The NaN that tensor copies put where there is nothing (an H200 does; of f16 and bf16 alike).
_OUT_OF_BOUNDS = np.uint16(0x7FF7)


def _within_bounds(operation: Callable[..., Array], a: Array, b: Array, c: Array) -> Array:
    lost = (a == _OUT_OF_BOUNDS) | (b == _OUT_OF_BOUNDS)
    return np.where(lost, np.uint16(0), operation(a, b, c))


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
    operation = partial(arithmetic.extremum, kind, **_options(line.parts))
    readers = _halves(line, count, kind)
    if len(line.operands) != 2:
        raise line.refuse()
    is_least = line.read(line.operands[1], "pred")

    def function(a: Array, *more: Array) -> Array:
        *others, least = more

        def whole(*operands: Array, largest: bool) -> Array:
            return packed(partial(operation, largest=largest), 16, *operands)

        for b in others:
            a = _chosen(whole, least, a, b)
        return a

    return _step(line, function, [*readers, is_least])


def _half_comparisons(
    line: Binder, operands: int
) -> tuple[Callable[..., tuple[Array, Array]], list[Reader]]:
    """A function of both operands and a predicate that compares the lower halves, and the upper."""
    kind, name, join = _half_kind(line), line.parts["compare"], JOIN[line.parts["join"]]
    ftz = line.parts["ftz"]
    results, line.operands = line.operands[:operands], line.operands[operands - 1 :]
    readers = _halves(line, 2, kind)
    if len(line.operands) != 2:
        raise line.refuse()
    readers.append(line.read(line.operands[1], "pred"))
    line.operands = results

    def compare(a: Array, b: Array, third: Array) -> tuple[Array, Array]:
        answers = []
        for shift in (np.uint32(0), np.uint32(16)):
            halves = [(x >> shift).astype(np.uint16) for x in (a, b)]
            if ftz:
                halves = [arithmetic.flush(x, kind) for x in halves]
            answers.append(join(_compared(name, *(to_float32(x, kind) for x in halves)), third))
        return answers[0], answers[1]

    return compare, readers


@opcode(
    f"HSETP2{_BF}.{{compare:{_ORDERED}}}?{{ftz:FTZ}}{_JOINED}",
    evidence=f"PTX ISA: setp of f16x2 and bf16x2; {_FORMS}",
)
def _half_compare(line: Binder) -> Step:
    """The first predicate is of the lower halves, the second of the upper ones."""
    compare, readers = _half_comparisons(line, 2)
    (first,), (second,) = line.results(line.operands, ["pred", "pred"])

    def run(registers: Registers) -> None:
        registers[first], registers[second] = compare(*[read(registers) for read in readers])

    for_warps = line.is_of_warps(line.operands)
    return Step(run, (first, second), is_pure=True, for_warps=for_warps)


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
    compare, readers = _half_comparisons(line, 1)
    low, high = np.uint32(one), np.uint32(one << 16)

    def function(*values: Array) -> Array:
        first, second = compare(*values)
        return np.where(first, low, np.uint32(0)) | np.where(second, high, np.uint32(0))

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
    if len(line.operands) != 2:
        raise line.refuse()
    function: Callable[..., Array] = partial(convert, to=to, source=source, **how)
    read = _source(line, line.operands[1], source)
    wide = to.endswith("64")
    (slots,) = line.results(line.operands[:1], ["b64" if wide else "b32"])
    signed = np.dtype(f"i{max(int(to.lstrip('bfsu')) // 8, 1)}") if to.startswith("s") else None

    def run(registers: Registers) -> None:
        value = function(read(registers))
        if wide:
            registers[slots[0]] = value.astype(np.uint32)
            registers[slots[1]] = (value >> np.uint64(32)).astype(np.uint32)
        elif signed is not None:
            registers[slots[0]] = value.view(signed).astype(np.int32).view(np.uint32)
        else:
            registers[slots[0]] = value.astype(np.uint32)

    return Step(run, slots, is_pure=True, for_warps=line.is_of_warps(line.operands[:1]))


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


@opcode(
    f"F2FP{_RELU}.{{to:F16|BF16}}.F32.{{way:PACK_AB|MERGE_C}}?{{rounding:RZ}}",
    f"F2FP{_RELU}?{{to:BF16}}.{{way:PACK_AB|MERGE_C}}?{{rounding:RZ}}",
    evidence=f"PTX ISA: cvt.f16x2.f32, cvt.bf16x2.f32; {_FORMS}",
)
def _pack_halves(line: Binder) -> Step:
    """The first operand becomes the upper half, the second the lower one."""
    kind = _FORMATS[line.parts["to"] or "F16"]
    function = _conversion(line, kind, "f32")
    if len(line.operands) != 3:
        raise line.refuse()
    if line.parts["way"] == "MERGE_C":
        _only_zero(line, line.operands[2])
        read = line.read(line.operands[1], "f32", "-|")
        return _step(line, lambda a: function(a.view(np.uint32)).astype(np.uint32), [read])

    def run(a: Array, b: Array) -> Array:
        high, low = (function(x.view(np.uint32)).astype(np.uint32) for x in (a, b))
        return high << np.uint32(16) | low

    return bound(line, "b32 = -|f32 -|f32", run)


@opcode(
    f"F2FP{_RELU}.{{to:F16|BF16}}.F32.PACK_AB.RS", evidence=f"PTX ISA: cvt.rs.f16x2.f32; {_FORMS}"
)
def _pack_by_chance(line: Binder) -> Step:
    """The upper random bits are for the first operand, the lower ones for the second."""
    kind = _FORMATS[line.parts["to"]]
    how = {name: True for name in ("satfinite", "relu") if line.parts[name]}

    def run(a: Array, b: Array, random: Array) -> Array:
        high = convert_randomly(a.view(np.uint32), kind, random >> np.uint32(16), **how)
        low = convert_randomly(b.view(np.uint32), kind, random, **how)
        return high.astype(np.uint32) << np.uint32(16) | low

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
    function: Callable[..., Array] = partial(
        convert, to=_SMALL[line.parts["to"]], source="f32", **_how(line.parts)
    )
    if len(line.operands) != 4:
        raise line.refuse()
    _only_zero(line, line.operands[3])
    line.operands = line.operands[:3]

    def run(a: Array, b: Array) -> Array:
        high, low = (function(x.view(np.uint32)).astype(np.uint32) for x in (a, b))
        return high << np.uint32(8) | low

    return bound(line, "b32 = -|f32 -|f32", run)


@opcode(
    f"F2FP{_RELU}.{{to:{_SMALLS}}}.{{source:F16|BF16}}.UNPACK_B_MERGE_C?{{rounding:RZ|RP}}",
    evidence=f"PTX ISA: cvt.e4m3x2.f16x2 and others; {_FORMS}",
)
def _octets_of_halves(line: Binder) -> Step:
    source = _FORMATS[line.parts["source"]]
    function: Callable[..., Array] = partial(
        convert, to=_SMALL[line.parts["to"]], source=source, **_how(line.parts)
    )
    if len(line.operands) != 3:
        raise line.refuse()
    _only_zero(line, line.operands[2])
    line.operands = line.operands[:2]

    def run(a: Array) -> Array:
        low, high = (function((a >> np.uint32(n)).astype(np.uint16)) for n in (0, 16))
        return high.astype(np.uint32) << np.uint32(8) | low

    return bound(line, "b32 = b32", run)


# 0x7f7f, as an f32 in the listing: 1 and 1, of ue8m0.
_ONES = "4.5736980577097704378e-41.H0"


@opcode(
    f"F2FP?{{relu:RELU}}.{{to:F16|BF16}}.{{source:{_SMALLS}}}.UNPACK_B",
    evidence=f"PTX ISA: cvt.f16x2.e4m3x2 and others; {_FORMS}",
)
def _halves_of_octets(line: Binder) -> Step:
    """A third operand scales both: ptxas gives it for bf16, and it is known where it is 1."""
    kind = _FORMATS[line.parts["to"]]
    function: Callable[..., Array] = partial(
        convert, to=kind, source=_SMALL[line.parts["source"]], **_how(line.parts)
    )
    if len(line.operands) not in (2, 3) or any(x.text != _ONES for x in line.operands[2:]):
        raise line.refuse()
    read = _part(line, line.operands[1], 16)

    def run(a: Array) -> Array:
        low, high = (function((a >> np.uint16(n)).astype(np.uint8)) for n in (0, 8))
        return high.astype(np.uint32) << np.uint32(16) | low

    return _step(line, run, [read])


@opcode(
    "F2IP.U8.F32{_TO_WHOLE}.NTZ".replace("{_TO_WHOLE}", _TO_WHOLE),
    evidence=f"PTX ISA: cvt.sat.u8.f32; {_FORMS}",
)
def _pack_octet(line: Binder) -> Step:
    """One octet; what the other operands do is known where they are zero."""
    if len(line.operands) != 4:
        raise line.refuse()
    _only_zero(line, line.operands[1])
    _only_zero(line, line.operands[3])
    line.operands = (line.operands[0], line.operands[2])
    return _converted(line, "u8", "f32", {"rounding": _WHOLE[line.parts["whole"]]})
