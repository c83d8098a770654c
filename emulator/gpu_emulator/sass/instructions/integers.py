"""Integer arithmetic of 32 bits, and of 64 by carries."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from gpu_emulator.numbers.arithmetic import COMPARE, JOIN, dp2a, dp4a, packed
from gpu_emulator.numbers.conversion import convert, pack_integers
from gpu_emulator.numbers.integers import (
    bit_mask,
    count_ones,
    distance,
    extended,
    find_highest,
    funnel,
    reversed_bits,
    saturated,
)
from gpu_emulator.sass.binder import Binder, bound, computed, opcode
from gpu_emulator.steps import DTYPES, Array, Step

_NAK = "Mesa NAK (MIT), reference"
_FALSE = np.zeros((1, 1), np.bool_)
_WORD = np.uint64(32)


def _literally(line: Binder, numbers: range) -> int:
    """Take the minus signs of operands as complements, of which so many need one more."""
    operands = list(line.operands)
    count = 0
    for number in numbers:
        if operands[number].sign == "-" and operands[number].kind != "number":
            operands[number] = replace(operands[number], sign="~")
            count += 1
    line.operands = tuple(operands)
    return count


def _has_carries(line: Binder) -> bool:
    """PT takes no carry where it is written, and is one where it is read: behind the summands."""
    words = line.operands[1:]
    is_flag = [operand.kind in ("P", "UP") for operand in words]
    read = is_flag.index(False)
    none = {True: ("PT", "UPT"), False: ("!PT", "!UPT")}
    return any(
        flag and operand.text not in none[number < read]
        for number, (flag, operand) in enumerate(zip(is_flag, words, strict=True))
    )


@opcode("IADD3|UIADD3|IADD|UIADD?{x:X}", evidence=f"PTX ISA: add, addc; {_NAK}: IAdd3, IAdd3X")
def _add(line: Binder) -> Step:
    """A minus is a complement and one more, which may carry; carries are those of the whole sum."""
    terms = " ".join(["-~b32"] * (3 if line.base.endswith("3") else 2))
    form = f"b32 pred? pred? = {terms}{' pred? pred?' if line.parts['x'] else ''}"
    count = len(terms.split())
    if not _has_carries(line):

        def plain(*values: Array) -> tuple[Array, Array, Array]:
            return sum(values[1:count], values[0]), _FALSE, _FALSE

        return bound(line, form, plain)
    more = np.uint64(_literally(line, range(1, len(line.operands))))

    def function(*values: Array) -> tuple[Array, Array, Array]:
        total: Array = values[0].astype(np.uint64) + more
        for value in values[1:]:
            total = total + value
        over = total >> _WORD
        return total.astype(np.uint32), over > 0, over > 1

    return bound(line, form, function)


computed("VIADD", signature="b32 = -b32 -b32", evidence="PTX ISA: add")(np.add)
computed("VIADD.16x2", signature="b32 = b32 b32", evidence="PTX ISA: add.u16x2")(
    partial(packed, np.add, 16)
)
computed(
    "UIADD3.64", signature="b64 PT? PT? = -s64 -s64 -s64",
    evidence="PTX ISA: add.u64, of which ptxas 13.5.37 makes it",
)(lambda a, b, c: a + b + c)  # fmt: skip


@opcode("VIADD|UVIADD.S32.ISAT", evidence="PTX ISA: add.sat, sub.sat")
def _add_saturated(line: Binder) -> Step:
    more = _literally(line, range(1, len(line.operands)))

    def function(a: Array, b: Array) -> Array:
        return saturated(a.astype(np.int64) + b + more)

    return bound(line, "b32 = ~s32 ~s32", function)


@opcode("IADD|UIADD.64?{x:X}", evidence="PTX ISA: add.u64, add.cc.u64, addc.u64")
def _add_wide(line: Binder) -> Step:
    """As with 32 bits, where there is a carry a minus is a complement and one more."""
    if not _has_carries(line):
        form = f"b64 pred? = -s64 -s64{' pred' if line.parts['x'] else ''}"
        return bound(line, form, lambda a, b, *_: (a + b, _FALSE))
    more = _literally(line, range(1, len(line.operands)))
    if more > 1:
        raise line.refuse()

    def function(a: Array, b: Array, *carry: Array) -> tuple[Array, Array]:
        total: Array = a.view(np.uint64) + b.view(np.uint64)
        over = total < a.view(np.uint64)
        for one in (np.uint64(more), *carry):
            total = total + one
            over = over | ((total == 0) & (one != 0))
        return total, over

    return bound(line, f"b64 pred? = ~s64 ~s64{' pred' if line.parts['x'] else ''}", function)


@opcode(
    "IMAD|UIMAD?{how:MOV|IADD|SHL}?{type:U32}", "IMAD|UIMAD?{type:U32}.{how:X}",
    evidence="PTX ISA: mad.lo, addc",
)  # fmt: skip
def _multiply_add(line: Binder) -> Step:
    """What the second word says is but how the product is used."""
    if line.parts["how"] != "X":
        return bound(line, "b32 = -b32 -b32 -b32", lambda a, b, c: a * b + c)

    def function(a: Array, b: Array, c: Array, carry: Array) -> Array:
        return a * b + c + carry

    return bound(line, "b32 = b32 b32 ~b32 pred", function)


@opcode(
    "IMAD|UIMAD.{half:WIDE|HI}?{type:U32}?{x:X}",
    evidence="PTX ISA: mad.wide, mad.hi; seen in 64-bit division of ptxas",
)
def _multiply_wide(line: Binder) -> Step:
    """The product of 64 bits, and a sum of that length; `.HI` is its upper half."""
    kind, wide = ("u32", np.uint64) if line.parts["type"] else ("s32", np.int64)
    is_high, has_carry = line.parts["half"] == "HI", line.parts["x"]
    result, carry_word = "b32" if is_high else "b64", " pred" if has_carry else ""
    form = f"{result} pred? = {kind} {kind} -~b64{carry_word}"

    def function(a: Array, b: Array, c: Array, *carry: Array) -> tuple[Array, Array]:
        product = (a.astype(wide) * b.astype(wide)).view(np.uint64)
        total = product + c
        over = total < product
        if carry:
            total = total + carry[0]
            over = over | (total < carry[0])
        return (total >> _WORD).astype(np.uint32) if is_high else total, over

    return bound(line, form, function)


computed("IABS", signature="b32 = s32", evidence="PTX ISA: abs")(np.abs)
computed("POPC|UPOPC", signature="b32 = ~b32", evidence="PTX ISA: popc")(count_ones)
computed("BREV|UBREV", signature="b32 = b32", evidence="PTX ISA: brev")(reversed_bits)


@computed(
    "FLO|UFLO?{type:U32}?{shift:SH}", signature="b32 = ~b32", by_parts=True,
    evidence="PTX ISA: bfind",
)  # fmt: skip
def _find_highest(parts: dict[str, str], a: Array) -> Array:
    return find_highest(a if parts["type"] else a.view(np.int32), from_top=bool(parts["shift"]))


@computed(
    "SGXT|USGXT?{wrap:W}?{type:U32}", signature="b32 = b32 b32", by_parts=True,
    evidence="PTX ISA: szext",
)  # fmt: skip
def _extend(parts: dict[str, str], a: Array, b: Array) -> Array:
    return extended(a if parts["type"] else a.view(np.int32), b, wraps=bool(parts["wrap"]))


@computed(
    "BMSK|UBMSK?{wrap:W}", signature="b32 = b32 b32", by_parts=True,
    evidence="PTX ISA: bmsk",
)  # fmt: skip
def _bit_mask(parts: dict[str, str], place: Array, width: Array) -> Array:
    return bit_mask(place, width, wraps=bool(parts["wrap"]))


@computed(
    "SHF|USHF.{way:L|R}?{wrap:W}.{type:U32|S32|U64|S64}?{half:HI}", signature="b32 = b32 b32 b32",
    by_parts=True, evidence=f"PTX ISA: shf, shl, shr; {_NAK}: Shf",
)  # fmt: skip
def _funnel(parts: dict[str, str], low: Array, amount: Array, high: Array) -> Array:
    is_left, wraps, is_upper = parts["way"] == "L", bool(parts["wrap"]), bool(parts["half"])
    kind = parts["type"].lower()
    return funnel(low, high, amount, kind, is_left=is_left, wraps=wraps, is_upper=is_upper)


@opcode("LEA|ULEA?{half:HI}?{x:X}?{sign:SX32}", evidence=f"{_NAK}: Lea, LeaX")
def _shift_and_add(line: Binder) -> Step:
    """`b` and `a` shifted; `.HI` is the upper half of two registers shifted. A sign is of that."""
    is_high, is_signed = bool(line.parts["half"]), bool(line.parts["sign"])
    if is_signed and not is_high:
        raise line.refuse()
    number = next(n for n, operand in enumerate(line.operands) if n and "P" not in operand.kind)
    sign = line.operands[number].sign
    more = np.uint64(_literally(line, range(number, number + 2)))
    operands = list(line.operands)
    operands[number] = replace(operands[number], sign="")
    line.operands = tuple(operands)
    high = " b32" if is_high and not is_signed else ""
    form = f"b32 pred? PT? = b32 ~b32{high} b32{' pred' if line.parts['x'] else ''}"

    def function(a: Array, b: Array, *rest: Array) -> tuple[Array, Array]:
        shift = rest[-2] if line.parts["x"] else rest[-1]
        if is_high:
            above = (a.view(np.int32) >> 31).view(np.uint32) if is_signed else rest[0]
            whole = a.astype(np.uint64) | above.astype(np.uint64) << _WORD
            moved = (whole << (shift & np.uint32(31)).astype(np.uint64) >> _WORD).astype(np.uint32)
        else:
            moved = a << (shift & np.uint32(31))
        total = (~moved if sign else moved).astype(np.uint64) + b + more
        if line.parts["x"]:
            total = total + rest[-1]
        return total.astype(np.uint32), total >> _WORD > 0

    return bound(line, form, function)


@opcode(
    "ISETP|UISETP.{compare:F|LT|EQ|LE|GT|NE|GE|T}?{type:U32}.{join:AND|OR|XOR}?{ex:EX}",
    "ISETP|UISETP.{compare:F|LT|EQ|LE|GT|NE|GE|T}.{type:U64|S64}.{join:AND|OR|XOR}",
    evidence=f"PTX ISA: setp; {_NAK}: ISetP",
)
def _compare(line: Binder) -> Step:
    """`.EX` compares the upper halves, and has the result of the lower ones."""
    name, is_extended = line.parts["compare"], line.parts.get("ex")
    compare, join = COMPARE[name.lower()], JOIN[line.parts["join"].lower()]
    kind = line.parts["type"].lower() or "s32"

    def function(a: Array, b: Array, third: Array, *lower: Array) -> tuple[Array, Array]:
        holds = compare(a, b)
        if lower:
            if name in ("NE", "EQ"):
                holds = holds | lower[0] if name == "NE" else holds & lower[0]
            else:
                holds = np.where(a == b, lower[0], holds)
        return join(holds, third), join(~holds, third)

    return bound(line, f"pred pred = {kind} {kind} pred{' pred' if is_extended else ''}", function)


def _extremum(a: Array, b: Array, is_least: Array) -> Array:
    return np.where(is_least, np.minimum(a, b), np.maximum(a, b))


def _relu(line: Binder, value: Array) -> Array:
    return np.maximum(value, value.dtype.type(0)) if line.parts.get("relu") else value


@opcode(
    "VIADDMNMX?{type:U32|S32}", "VIADDMNMX?{type:S32}.{relu:RELU}",
    evidence="CUDA Math API: __viaddmax_s32 and others",
)  # fmt: skip
@opcode(
    "VIMNMX3?{type:U32|S32}", "VIMNMX3?{type:S32}.{relu:RELU}",
    evidence="PTX ISA: min, max with three operands; maximum with 0, of which ptxas makes RELU",
)  # fmt: skip
@opcode(
    "VIMNMX|IMNMX|UVIMNMX?{type:U32|S32}", "VIMNMX|UVIMNMX?{type:S32}.{relu:RELU}",
    evidence="PTX ISA: min, max",
)  # fmt: skip
def _least_or_greatest(line: Binder) -> Step:
    kind = "u32" if line.parts.get("type") == "U32" else "s32"
    is_sum, third = line.base == "VIADDMNMX", f" {kind}" * line.base.endswith(("3", "ADDMNMX"))

    def function(a: Array, b: Array, *more: Array) -> Array:
        *others, p = more
        first = a + b if is_sum else _extremum(a, b, p)
        return _relu(line, reduce(lambda x, y: _extremum(x, y, p), others, first))

    own = f"{'-' * is_sum}{kind}"
    return bound(line, f"b32 PT? PT? = {own} {own}{third} pred", function)


@opcode(
    "VIMNMX.{type:S16x2|U16x2}", "VIMNMX.{type:S16x2}.{relu:RELU}",
    "VIMNMX3|VIADDMNMX.{type:S16x2|U16x2}", "VIMNMX3|VIADDMNMX.{type:S16x2}.{relu:RELU}",
    evidence="PTX ISA: min, max, add of packed halves, of which ptxas makes it; CUDA Math API:"
    " __vibmax_s16x2; two results in one predicate: FuzzX m058 on an H200, and what PTX implies",
)  # fmt: skip
def _of_halves(line: Binder) -> Step:
    """Two predicates say of the lower and of the upper halves whether the first is the result.

    ptxas has both in one register where it asks for the lower halves, whatever the upper ones are:
    that of the lower halves stays.
    """
    kind = np.dtype("i2" if line.parts["type"][0] == "S" else "u2")
    has_three = line.base != "VIMNMX"
    flags = [operand for operand in line.operands[1:3] if operand.kind == "P"]
    if (has_three or line.parts.get("relu")) and any(x.number is not None for x in flags):
        raise line.refuse(flags[0])
    is_one = len(flags) == 2 and flags[0].text == flags[1].text

    def halves(a: Array, b: Array, *more: Array) -> tuple[Array, Array, Array]:
        *third, p = more
        result = np.zeros((1, 1), np.uint32)
        chosen: list[Array] = []
        for shift in (np.uint32(0), np.uint32(16)):
            x, y, *z = ((value >> shift).astype(np.uint16).view(kind) for value in (a, b, *third))
            if z and line.base == "VIADDMNMX":
                value = _extremum(x + y, z[0], p)
            else:
                value = _extremum(x, y, p)
                chosen.append(value == x)
                value = _extremum(value, z[0], p) if z else value
            whole = _relu(line, value).view(np.uint16).astype(np.uint32)
            result = result | whole << shift
        first, second = chosen or (_FALSE, _FALSE)
        return result, first, first if is_one else second

    return bound(line, f"b32 pred? pred? = b32 b32{' b32' if has_three else ''} pred", halves)


@opcode(
    "IMNMX|UIMNMX.{type:S64|U64}", evidence="PTX ISA: min.s64, max.u64, of which ptxas makes it"
)
def _of_64_bits(line: Binder) -> Step:
    kind = line.parts["type"].lower()
    if line.operands[-1].text not in ("!PT", "!UPT"):
        raise line.refuse(line.operands[-1])
    line.operands = line.operands[:-1]
    return bound(line, f"PT? PT? b64 = {kind} {kind} pred", _extremum)


@computed(
    "VIMNMX.U8x4", signature="b32 = b32 b32 pred",
    evidence="PTX ISA: vabsdiff4, of which ptxas makes it for sm_120a",
)  # fmt: skip
def _of_octets(a: Array, b: Array, is_least: Array) -> Array:
    return packed(np.minimum, 8, a, b) * is_least + packed(np.maximum, 8, a, b) * ~is_least


@opcode("VIADD.U8x4", evidence="PTX ISA: vabsdiff4, of which ptxas makes it for sm_120a")
def _add_octets(line: Binder) -> Step:
    """A minus is of each octet."""
    *others, last = line.operands
    line.operands = (*others, replace(last, sign=""))
    operation = np.subtract if last.sign == "-" else np.add
    return bound(line, "b32 = b32 b32", lambda a, b: packed(operation, 8, a, b))


@computed(
    "VABSDIFF4?{type:U8}?{sum:ACC}", signature="b32 = b32 b32 b32", by_parts=True,
    evidence="PTX ISA: vabsdiff4, vabsdiff4.add; H200: generated programs",
)  # fmt: skip
def _octets_apart(parts: dict[str, str], a: Array, b: Array, c: Array) -> Array:
    kind = np.uint8 if parts["type"] else np.int8

    def of_octets(x: Array, y: Array) -> Array:
        return distance(x.view(kind), y.view(kind)).view(np.uint8)

    apart = packed(of_octets, 8, a, b)
    if not parts["sum"]:
        return apart
    octets = [apart >> np.uint32(8 * n) & np.uint32(0xFF) for n in range(4)]
    return sum(octets, c)


@computed(
    "VABSDIFF?{type:U32}", signature="b32 = b32 b32 b32", by_parts=True,
    evidence="PTX ISA: sad",
)  # fmt: skip
def _absolute_difference(parts: dict[str, str], a: Array, b: Array, c: Array) -> Array:
    x, y = (a, b) if parts["type"] else (a.view(np.int32), b.view(np.int32))
    return distance(x, y).view(np.uint32) + c


@opcode("IDP.4A.{a:U8|S8}.{b:U8|S8}", evidence="PTX ISA: dp4a")
@opcode("IDP.2A.{half:LO|HI}.{a:U16|S16}.{b:U8|S8}", evidence="PTX ISA: dp2a")
def _dot_product(line: Binder) -> Step:
    half = line.parts.get("half")
    function = partial(dp2a, high=half == "HI") if half else dp4a
    signs: dict[str, Any] = {f"{name}_signed": line.parts[name][0] == "S" for name in "ab"}
    return bound(line, "b32 = b32 b32 b32", partial(function, **signs))


@computed(
    "I2I.{to:U8|S8|U16|S16}.{type:S32|U32}.SAT", signature="b32 = b32", by_parts=True,
    evidence="PTX ISA: cvt.sat",
)  # fmt: skip
def _saturate(parts: dict[str, str], a: Array) -> Array:
    to, source = parts["to"].lower(), parts["type"].lower()
    return convert(a, to, source, sat=True).view(DTYPES[to]).astype(np.int32)


@opcode(
    "I2IP.{to:U16|S16|U8|S8|U4|S4|U2|S2}.S32.SAT",
    evidence="PTX ISA: cvt.pack, of which ptxas makes it",
)
def _pack(line: Binder) -> Step:
    """Of the third operand the bits that stay; it says how many, of less than 8 bits.

    Of `.H1` they are its upper half, where ptxas has two of them in one register.
    """
    to = line.parts["to"].lower()
    width = int(to[1:])
    shifts: dict[tuple[str, ...], int] = (
        {(): 0, ("H1",): 16} if width >= 8 else {(str(32 - 2 * width),): 0}
    )
    shift = shifts.get(line.operands[-1].suffixes)
    if len(line.operands) != 4 or shift is None:
        raise line.refuse(line.operands[-1])
    line.operands = (*line.operands[:3], replace(line.operands[3], suffixes=()))

    def function(a: Array, b: Array, c: Array) -> Array:
        return pack_integers(a, b, c >> np.uint32(shift), to=to, source="s32")

    return bound(line, "b32 = b32 b32 b32", function)
