"""Logic, shifts, moves. PTX ISA, "Logic and Shift Instructions", "Data Movement".

Comparison and selection. PTX ISA, "Comparison and Selection Instructions" of all widths.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu_emulator.numbers.arithmetic import BITWISE, COMPARE, JOIN, compare_floats, halves_of
from gpu_emulator.numbers.integers import funnel, looked_up, permuted, shifted_left, shifted_right
from gpu_emulator.ptx.program.binder import Binder, computed, opcode
from gpu_emulator.steps import BITS, CANONICAL, DTYPES, Array, Registers, Step

_UNTYPED = "pred|b16|b32|b64"
_INTEGERS = "u16|u32|u64|s16|s32|s64"


@opcode(f"and|or|xor.{{type:{_UNTYPED}}}")
def _bitwise(line: Binder) -> Step:
    kind = line.parts["type"]
    return line.computed(BITWISE[line.base], [kind, kind], kind)


computed(f"not.{{type:{_UNTYPED}}}", takes="type")(np.invert)


@computed("cnot.{type:b16|b32|b64}", takes="type")
def _logical_not(a: Array) -> Array:
    return (a == 0).astype(a.dtype)


def _three_inputs(line: Binder) -> Callable[[Array, Array, Array], Array]:
    table = line.constant(4)
    if table is None:
        raise line.refuse("has a table that is no number")
    return looked_up(table)


@opcode("lop3.b32")
def _lookup(line: Binder) -> Step:
    function, readers = _three_inputs(line), [line.read(number, "b32") for number in (1, 2, 3)]
    return line.gives("b32", lambda rs: function(*[read(rs) for read in readers]))


@opcode("lop3.{bool:or|and}.b32")
def _lookup_and_test(line: Binder) -> Step:
    function, join = _three_inputs(line), JOIN[line.parts["bool"]]
    slot, flag = line.results("b32", "pred")
    readers = [line.read(number, "b32") for number in (1, 2, 3)]
    third = line.read(5, "pred")

    def run(registers: Registers) -> None:
        value = function(*[read(registers) for read in readers])
        holds = join(value != 0, third(registers))
        registers[0].write(slot, value)
        registers[0].write(flag, holds)

    return Step(run, (slot, flag))


@opcode("shl.{type:b16|b32|b64}")
def _shift_left(line: Binder) -> Step:
    return _shift(line, shifted_left, np.left_shift)


@opcode("shr.{type:b16|b32|b64|u16|u32|u64|s16|s32|s64}")
def _shift_right(line: Binder) -> Step:
    return _shift(line, shifted_right, np.right_shift)


def _shift(line: Binder, general: Callable[..., Array], quick: Callable[..., Array]) -> Step:
    kind = line.parts["type"]
    amount = line.constant(2)
    if amount is not None and 0 <= amount < BITS[kind]:
        fixed, value = DTYPES[kind].type(amount), line.read(1, kind)
        return line.gives(kind, lambda registers: quick(value(registers), fixed))
    return line.computed(general, [kind, "u32"], kind)


@computed("shf.{way:l|r}.{mode:clamp|wrap}.b32", takes="b32 b32 u32", gives="b32", by_parts=True)
def _funnel(parts: dict[str, str], low: Array, high: Array, amount: Array) -> Array:
    is_left, wraps = parts["way"] == "l", parts["mode"] == "wrap"
    return funnel(low, high, amount, "u32", is_left=is_left, wraps=wraps, is_upper=is_left)


@computed(
    "prmt.b32?{mode:f4e|b4e|rc8|ecl|ecr|rc16}", takes="b32 b32 b32", gives="b32", by_parts=True,
)  # fmt: skip
def _permute(parts: dict[str, str], a: Array, b: Array, selector: Array) -> Array:
    return permuted(parts["mode"], a, b, selector)


@opcode(f"mov.{{type:pred|b16|b32|b64|b128|{_INTEGERS}|f16|f32|f64}}")
def _move(line: Binder) -> Step:
    kind = line.parts["type"]
    if "{" in line.operand(0) or "{" in line.operand(1):
        return _pack(line, BITS[kind])
    if kind == "b128":
        whole, origin = (line.slots.register(line.operand(number)) for number in (0, 1))

        def copy(registers: Registers) -> None:
            registers[whole] = registers[origin]

        return Step(copy, (whole,), is_pure=True)
    if kind == "pred":
        return line.computed(lambda a: a, ["pred"], "pred")
    return line.gives(f"b{BITS[kind]}", line.slot_reader(1, kind))


def _pack(line: Binder, bits: int) -> Step:
    """`mov` between a register and a vector of its parts, the first in the low bits."""
    sources, targets = len(line.parts_of(1)), len(line.parts_of(0))
    many = max(sources, targets)
    part = bits // many
    readers = line.sources(1, f"b{part if sources > 1 else bits}")
    slots = line.targets(0, f"b{part if targets > 1 else bits}")
    wide, narrow = CANONICAL[bits], CANONICAL[part]

    def run(registers: Registers) -> None:
        values = [reader(registers) for reader in readers]
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


_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_EACH = "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
_BOOL = "?{bool:and|or|xor}"
_ORDERS = (
    f"{{order:eq|ne}}{_BOOL}%s.{{type:b16|b32|b64}}",
    f"{{order:eq|ne|lt|le|gt|ge}}{_BOOL}%s.{{type:{_INTEGERS}}}",
    f"{{order:lo|ls|hi|hs}}{_BOOL}%s.{{type:u16|u32|u64}}",
    f"{{order:{_EACH}}}{_BOOL}?{{ftz:ftz}}%s.{{type:f16|f32}}",
    f"{{order:{_EACH}}}{_BOOL}%s.{{type:bf16|f64}}",
)
_PAIRS = (
    f"{{order:{_EACH}}}{_BOOL}?{{ftz:ftz}}%s.{{type:f16x2}}",
    f"{{order:{_EACH}}}{_BOOL}%s.{{type:bf16x2}}",
)


def _comparison(line: Binder) -> Callable[[Array, Array], Array]:
    """What compares two arrays of the type that the line says; of a packed type both parts."""
    order, kind = line.parts["order"], line.parts["type"]
    name = kind.removesuffix("x2")
    if name not in ("f16", "bf16", "f32", "f64"):
        return COMPARE[_UNSIGNED.get(order, order)]
    compare = compare_floats(order, ftz=bool(line.parts.get("ftz")))
    return compare if name == kind else (lambda a, b: compare(*halves_of(name, a, b)))


@opcode(*(f"setp.{template % ''}" for template in (*_ORDERS, *_PAIRS)))
def _set_predicate(line: Binder) -> Step:
    kind, compare = line.parts["type"], _comparison(line)
    is_pair = kind.endswith("x2")
    slots = line.results("pred", "pred")
    if not line.parts["bool"] and len(slots) == 1 and not is_pair:
        return line.computed(compare, [kind, kind], "pred")
    left, right = (line.read(number, "b32" if is_pair else kind) for number in (1, 2))

    def both(registers: Registers) -> list[Array]:
        holds = compare(left(registers), right(registers))
        return [holds[..., 0], holds[..., 1]] if is_pair else [holds, ~holds]

    return _joined(line, slots, both)


def _joined(line: Binder, slots: list[int], values: Callable[[Registers], list[Array]]) -> Step:
    """Predicates, each joined with the last operand where the opcode has a boolean operation."""
    combine = JOIN.get(line.parts["bool"])
    last = line.read(3, "pred") if combine else None

    # A result may be an operand too: read it before anything is written.
    def run(registers: Registers) -> None:
        third = last(registers) if last else None
        for slot, value in zip(slots, values(registers), strict=False):
            registers[slot] = value if third is None or combine is None else combine(value, third)

    return Step(run, tuple(slots), is_pure=True)


@opcode(*(f"set.{template % '.{result:u16|s16|u32|s32|f16|bf16|f32}'}" for template in _ORDERS))
def _set(line: Binder) -> Step:
    kind, result, compare = line.parts["type"], line.parts["result"], _comparison(line)
    yes, no = _truths(result)

    def function(a: Array, b: Array, *third: Array) -> Array:
        holds = compare(a, b)
        return np.where(JOIN[line.parts["bool"]](holds, *third) if third else holds, yes, no)

    return line.computed(function, [kind, kind, *_third(line)], result)


@opcode(*(f"set.{template % '.{result:u32|s32|f16x2|bf16x2}'}" for template in _PAIRS))
def _set_pair(line: Binder) -> Step:
    compare, result = _comparison(line), line.parts["result"]
    yes, no = _truths(result.removesuffix("x2") if "x2" in result else "u16")

    def function(a: Array, b: Array, *third: Array) -> Array:
        holds = compare(a, b)
        if third:
            holds = JOIN[line.parts["bool"]](holds, third[0][..., None])
        return np.where(holds, yes, no).view(np.uint32)[..., 0]

    return line.computed(function, ["b32", "b32", *_third(line)], "b32")


def _third(line: Binder) -> list[str]:
    return ["pred"] if line.parts["bool"] else []


def _truths(result: str) -> tuple[Array, Array]:
    """What stands for true and for false: 1.0, or all bits, and 0."""
    dtype = DTYPES[result]
    ones = np.array(-1 % (1 << (8 * dtype.itemsize)), f"u{dtype.itemsize}").view(dtype)
    return (np.array(1, dtype) if "f" in result else ones), np.array(0, dtype)


@opcode(f"selp.{{type:b16|b32|b64|{_INTEGERS}|f32|f64}}")
def _select(line: Binder) -> Step:
    kind, condition = line.parts["type"], line.read(3, "pred")
    yes, no = line.slot_reader(1, kind), line.slot_reader(2, kind)
    return line.gives(f"b{BITS[kind]}", lambda r: np.where(condition(r), yes(r), no(r)))


@opcode(f"slct?{{ftz:ftz}}.{{type:b16|b32|b64|{_INTEGERS}|f32|f64}}.{{sign:s32|f32}}")
def _select_by_sign(line: Binder) -> Step:
    kind, sign = line.parts["type"], line.parts["sign"]

    def function(a: Array, b: Array, c: Array) -> Array:
        # -0 is not less than 0, and a NaN chooses b.
        positive = c >= 0
        if line.parts["ftz"]:
            positive = positive | (np.abs(c) < np.finfo(np.float32).tiny)
        return np.where(positive, a, b)

    return line.computed(function, [kind, kind, sign], kind)
