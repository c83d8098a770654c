"""Logic, shifts, comparison and selection, moves.

PTX ISA, "Logic and Shift Instructions", "Comparison and Selection Instructions", "Data Movement".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.instructions.integers import shifted_left, shifted_right
from harness.emulator.program.binder import Binder
from harness.emulator.program.steps import Registers, Step
from harness.emulator.program.table import opcode
from harness.emulator.program.types import BITS, DTYPES, Array

__all__: list[str] = []

_LOGIC = "Logic and Shift Instructions"
_CHOICE = "Comparison and Selection Instructions"
_MOVES = "Data Movement and Conversion Instructions"
_UNTYPED = "pred|b16|b32|b64"
_INTEGERS = "u16|u32|u64|s16|s32|s64"
_FLOATS = "f16|bf16|f32|f64"


@opcode(
    *(f"{name}.{{type:{_UNTYPED}}}" for name in ("and", "or", "xor")),
    section=f"{_LOGIC}: and, or, xor", pure=True,
)  # fmt: skip
def _bitwise(line: Binder) -> Step:
    functions = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    kind = line.parts["type"]
    return line.computed(functions[line.line.opcode.split(".")[0]], [kind, kind], kind)


@opcode(f"not.{{type:{_UNTYPED}}}", section=f"{_LOGIC}: not", pure=True)
def _not(line: Binder) -> Step:
    kind = line.parts["type"]
    return line.computed(np.invert, [kind], kind)


@opcode("cnot.{type:b16|b32|b64}", section=f"{_LOGIC}: cnot", pure=True)
def _logical_not(line: Binder) -> Step:
    kind = line.parts["type"]
    return line.computed(lambda a: (a == 0).astype(a.dtype), [kind], kind)


@opcode("lop3.b32", section=f"{_LOGIC}: lop3", pure=True)
def _lookup(line: Binder) -> Step:
    table = line.constant(4)
    if table is None:
        raise line.refuse("has a table that is no number")
    slot, _ = line.target(line.operand(0), "b32")
    a, b, c = (line.read(number, "b32") for number in (1, 2, 3))

    def run(registers: Registers) -> None:
        registers[slot] = _three_inputs(table, a(registers), b(registers), c(registers))

    return Step(run, (slot,), is_pure=True)


def _three_inputs(table: int, a: Array, b: Array, c: Array) -> Array:
    """Bit by bit, bit 4a + 2b + c of the table."""
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), dtype=a.dtype)
    for row in range(8):
        if table >> row & 1:
            x = a if row & 4 else ~a
            y = b if row & 2 else ~b
            z = c if row & 1 else ~c
            result |= x & y & z
    return result


@opcode("lop3.{bool:or|and}.b32", section=f"{_LOGIC}: lop3")
def _lookup_and_test(line: Binder) -> Step:
    table = line.constant(4)
    if table is None:
        raise line.refuse("has a table that is no number")
    both = [each.strip() for each in line.operand(0).split("|")]
    slot, _ = line.target(both[0], "b32")
    flag, _ = line.target(both[1], "pred")
    a, b, c = (line.read(number, "b32") for number in (1, 2, 3))
    other = line.read(5, "pred")
    join = np.logical_or if line.parts["bool"] == "or" else np.logical_and

    def run(registers: Registers) -> None:
        value = _three_inputs(table, a(registers), b(registers), c(registers))
        holds = join(value != 0, other(registers))
        registers[0].write(slot, value)
        registers[0].write(flag, holds)

    return Step(run, (slot, flag), is_pure=False)


@opcode("shl.{type:b16|b32|b64}", section=f"{_LOGIC}: shl", pure=True)
def _shift_left(line: Binder) -> Step:
    return _shift(line, shifted_left, np.left_shift)


@opcode("shr.{type:b16|b32|b64|u16|u32|u64|s16|s32|s64}", section=f"{_LOGIC}: shr", pure=True)
def _shift_right(line: Binder) -> Step:
    return _shift(line, shifted_right, np.right_shift)


def _shift(line: Binder, general: Callable[..., Array], quick: Callable[..., Array]) -> Step:
    kind = line.parts["type"]
    amount = line.constant(2)
    if amount is not None and 0 <= amount < BITS[kind]:
        fixed = DTYPES[kind].type(amount)
        slot, convert = line.target(line.operand(0), kind)
        value = line.read(1, kind)

        def run(registers: Registers) -> None:
            result = quick(value(registers), fixed)
            registers[slot] = result if convert is None else convert(result)

        return Step(run, (slot,), is_pure=True)
    return line.computed(general, [kind, "u32"], kind)


@opcode("shf.{way:l|r}.{mode:clamp|wrap}.b32", section=f"{_LOGIC}: shf", pure=True)
def _funnel(line: Binder) -> Step:
    is_left, wraps = line.parts["way"] == "l", line.parts["mode"] == "wrap"

    def function(low: Array, high: Array, amount: Array) -> Array:
        shift = (amount & 31 if wraps else np.minimum(amount, 32)).astype(np.uint64)
        pair = (high.astype(np.uint64) << np.uint64(32)) | low
        moved: Array = (pair << shift) >> np.uint64(32) if is_left else pair >> shift
        return moved.astype(np.uint32)

    return line.computed(function, ["b32", "b32", "u32"], "b32")


@opcode("prmt.b32?{mode:f4e|b4e|rc8|ecl|ecr|rc16}", section=f"{_MOVES}: prmt", pure=True)
def _permute(line: Binder) -> Step:
    mode = line.parts["mode"]

    def function(a: Array, b: Array, selector: Array) -> Array:
        pair = (b.astype(np.uint64) << np.uint64(32)) | a
        result = np.uint32(0)
        for place in range(4):
            control = _control(mode, selector, place).astype(np.uint64)
            octet = (pair >> ((control & np.uint64(7)) << np.uint64(3))) & np.uint64(255)
            sign = np.where(octet & np.uint64(128), np.uint64(255), np.uint64(0))
            chosen = np.where(control & np.uint64(8), sign, octet).astype(np.uint32)
            result = result | (chosen << np.uint32(8 * place))
        answer: Array = result
        return answer

    return line.computed(function, ["b32", "b32", "b32"], "b32")


_CONTROLS: dict[str, Callable[[Array, int], Array]] = {
    "f4e": lambda n, place: n + place,
    "b4e": lambda n, place: (n - place) & 7,
    "rc8": lambda n, _: n,
    "ecl": np.maximum,
    "ecr": np.minimum,
    "rc16": lambda n, place: ((n & 1) << 1) + (place & 1),
}


def _control(mode: str, selector: Array, place: int) -> Array:
    if not mode:
        answer: Array = (selector >> np.uint32(4 * place)) & np.uint32(15)
        return answer
    value: Array = _CONTROLS[mode](selector.astype(np.int64) & 3, place)
    return value


# Comparisons that are false if an operand is a NaN, and (last letter u) those that are true then.
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater,
    "hs": np.greater_equal,
}  # fmt: skip
_ORDERS = "eq|ne|lt|le|gt|ge"
_UNORDERED = "equ|neu|ltu|leu|gtu|geu|num|nan"


def _comparison(order: str, kind: str) -> Callable[[Array, Array], Array]:
    is_float = kind in ("f16", "bf16", "f32", "f64")
    if not is_float:
        return _COMPARE[order]
    if order == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if order == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if order in _UNORDERED.split("|"):
        plain = _COMPARE[order[:2]]
        return lambda a, b: plain(a, b) | np.isnan(a) | np.isnan(b)
    if order == "ne":
        # Ordered: numpy's says that a NaN differs from everything.
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    return _COMPARE[order]


def _flushing(function: Callable[..., Array]) -> Callable[..., Array]:
    tiny = np.finfo(np.float32).tiny

    def flushed(a: Array) -> Array:
        return np.where(np.abs(a) < tiny, a.dtype.type(0), a)

    return lambda a, b: function(flushed(a), flushed(b))


_SETP_TYPES = (
    f"{{order:{_ORDERS}}}?{{bool:and|or|xor}}.{{type:b16|b32|b64|{_INTEGERS}}}",
    "{order:lo|ls|hi|hs}?{bool:and|or|xor}.{type:u16|u32|u64}",
    f"{{order:{_ORDERS}|{_UNORDERED}}}?{{bool:and|or|xor}}?{{ftz:ftz}}.{{type:{_FLOATS}}}",
)


@opcode(*(f"setp.{each}" for each in _SETP_TYPES), section=f"{_CHOICE}: setp", pure=True)
def _set_predicate(line: Binder) -> Step:
    kind = line.parts["type"]
    compare = _comparison(line.parts["order"], kind)
    if line.parts.get("ftz"):
        compare = _flushing(compare)
    both = [each.strip() for each in line.operand(0).split("|")]
    slots = [line.target(each, "pred")[0] for each in both]
    left, right = line.read(1, kind), line.read(2, kind)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    if not line.parts["bool"] and len(slots) == 1:
        return line.computed(compare, [kind, kind], "pred")
    combine = join.get(line.parts["bool"])
    other = line.read(3, "pred") if combine else None

    # A result may be an operand too: read it before anything is written.
    def run(registers: Registers) -> None:
        third = other(registers) if other else None
        holds = compare(left(registers), right(registers))
        for slot, value in zip(slots, (holds, ~holds), strict=False):
            registers[slot] = value if third is None or combine is None else combine(value, third)

    return Step(run, tuple(slots), is_pure=True)


@opcode(
    *(
        f"set.{each.replace('.{type:', '.{result:u32|s32|f32}.{type:')}"
        for each in _SETP_TYPES
    ),
    section=f"{_CHOICE}: set", pure=True,
)  # fmt: skip
def _set(line: Binder) -> Step:
    kind, result = line.parts["type"], line.parts["result"]
    compare = _comparison(line.parts["order"], kind)
    if line.parts.get("ftz"):
        compare = _flushing(compare)
    dtype = DTYPES[result]
    yes = dtype.type(1.0) if result == "f32" else np.array(0xFFFF_FFFF, np.uint32).view(dtype)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    combine = join.get(line.parts["bool"])

    def plain(a: Array, b: Array) -> Array:
        return np.where(compare(a, b), yes, dtype.type(0))

    def joined(a: Array, b: Array, c: Array) -> Array:
        assert combine is not None
        return np.where(combine(compare(a, b), c), yes, dtype.type(0))

    if combine:
        return line.computed(joined, [kind, kind, "pred"], result)
    return line.computed(plain, [kind, kind], result)


@opcode(
    f"set.{{order:{_ORDERS}|{_UNORDERED}}}?{{ftz:ftz}}"
    ".{result:f16|bf16|u16|s16|u32|s32}.{type:f16|bf16}",
    section=f"{_CHOICE}: set (half precision)", pure=True,
)  # fmt: skip
def _set_half(line: Binder) -> Step:
    kind, result = line.parts["type"], line.parts["result"]
    compare = _comparison(line.parts["order"], kind)
    dtype = DTYPES[result]
    yes = dtype.type(1) if "f" in result else (~np.zeros((), f"u{dtype.itemsize}")).view(dtype)
    return line.computed(
        lambda a, b: np.where(compare(a, b), yes, dtype.type(0)), [kind, kind], result
    )


@opcode(
    f"setp.{{order:{_ORDERS}|{_UNORDERED}}}?{{bool:and|or|xor}}?{{ftz:ftz}}.{{type:f16x2|bf16x2}}",
    section=f"{_CHOICE}: setp (half precision)", pure=True,
)  # fmt: skip
def _set_predicates(line: Binder) -> Step:
    kind = line.parts["type"]
    half = DTYPES[kind.removesuffix("x2")]
    compare = _comparison(line.parts["order"], kind.removesuffix("x2"))
    slots = [line.target(each.strip(), "pred")[0] for each in line.operand(0).split("|")]
    left, right = line.read(1, kind), line.read(2, kind)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    combine = join.get(line.parts["bool"])
    other = line.read(3, "pred") if combine else None

    def run(registers: Registers) -> None:
        third = other(registers) if other else None
        a, b = np.broadcast_arrays(left(registers), right(registers))
        halves = [np.ascontiguousarray(each)[..., None].view(half) for each in (a, b)]
        holds = compare(*halves)
        for number, slot in enumerate(slots):
            value = holds[..., number]
            registers[slot] = value if combine is None or third is None else combine(value, third)

    return Step(run, tuple(slots), is_pure=True)


@opcode(f"selp.{{type:b16|b32|b64|{_INTEGERS}|f32|f64}}", section=f"{_CHOICE}: selp", pure=True)
def _select(line: Binder) -> Step:
    kind = line.parts["type"]
    bits = f"b{BITS[kind]}"
    slot, convert = line.target(line.operand(0), bits)
    yes, no, which = (
        line.slot_reader(1, kind), line.slot_reader(2, kind), line.read(3, "pred"),
    )  # fmt: skip

    def run(registers: Registers) -> None:
        value = np.where(which(registers), yes(registers), no(registers))
        registers[slot] = value if convert is None else convert(value)

    return Step(run, (slot,), is_pure=True)


@opcode(
    f"slct?{{ftz:ftz}}.{{type:b16|b32|b64|{_INTEGERS}|f32|f64}}.{{sign:s32|f32}}",
    section=f"{_CHOICE}: slct", pure=True,
)  # fmt: skip
def _select_by_sign(line: Binder) -> Step:
    kind, sign = line.parts["type"], line.parts["sign"]
    is_flushed = bool(line.parts["ftz"])
    tiny = np.finfo(np.float32).tiny

    def function(a: Array, b: Array, c: Array) -> Array:
        # -0 is not less than 0, and a NaN chooses b.
        positive = c >= 0
        if is_flushed:
            positive = positive | (np.abs(c) < tiny)
        return np.where(positive, a, b)

    return line.computed(function, [kind, kind, sign], kind)


@opcode(
    f"mov.{{type:pred|b16|b32|b64|b128|{_INTEGERS}|f16|f32|f64}}",
    section=f"{_MOVES}: mov",
    pure=True,
)
def _move(line: Binder) -> Step:
    kind = line.parts["type"]
    if "{" in line.operand(0) or "{" in line.operand(1):
        return _pack(line, BITS[kind])
    if kind == "b128":
        return _copy(line, line.slots.register(line.operand(1)))
    if kind == "pred":
        return line.computed(lambda a: a, ["pred"], "pred")
    reader = line.slot_reader(1, kind)
    slot, convert = line.target(line.operand(0), f"b{BITS[kind]}")

    def run(registers: Registers) -> None:
        value = reader(registers)
        registers[slot] = value if convert is None else convert(value)

    return Step(run, (slot,), is_pure=True)


def _copy(line: Binder, origin: int) -> Step:
    slot = line.slots.register(line.operand(0))

    def run(registers: Registers) -> None:
        registers[slot] = registers[origin]

    return Step(run, (slot,), is_pure=True)


def _pack(line: Binder, bits: int) -> Step:
    """`mov` between a register and a vector of its parts, the first in the low bits."""
    from_parts, to_parts = line.parts_of(1), line.parts_of(0)
    many = max(len(from_parts), len(to_parts))
    part = bits // many
    readers = [
        line.source(each, f"b{part if len(from_parts) > 1 else bits}") for each in from_parts
    ]
    slots = [line.target(each, f"b{part if len(to_parts) > 1 else bits}") for each in to_parts]
    wide, narrow = _canonical(bits), _canonical(part)

    def run(registers: Registers) -> None:
        values = [each(registers) for each in readers]
        if len(values) > 1 and len(slots) == 1:
            joined = np.stack(np.broadcast_arrays(*values), axis=-1)
            results = [joined.view(wide)[..., 0]]
        elif len(values) == 1:
            pieces = np.ascontiguousarray(values[0])[..., None].view(narrow)
            results = [pieces[..., number] for number in range(many)]
        else:
            results = values
        for (slot, convert), value in zip(slots, results, strict=True):
            registers[slot] = value if convert is None else convert(value)

    return Step(run, tuple(slot for slot, _ in slots), is_pure=True)


def _canonical(bits: int) -> np.dtype[np.generic]:
    return np.dtype("c16") if bits == 128 else np.dtype(f"u{bits // 8}")
