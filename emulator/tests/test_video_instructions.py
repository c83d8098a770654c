"""Video instructions against the manual's pseudo code, on Python's integers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from programs import apply, kernel, outcome

EDGES = [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000,
         0xFFFFFFFF, 0x12345678, 0x89ABCDEF, 0x00FF00FF]  # fmt: skip
SCALARS = ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"]
SIMD = ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"]
ORDERS = ["eq", "ne", "lt", "le", "gt", "ge"]
PARTS = ["", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"]


def sign(value: int, bits: int, kind: str) -> int:
    value %= 1 << bits
    return value - (1 << bits) if kind == "s32" and value >> (bits - 1) else value


def part(value: int, selector: str, kind: str) -> int:
    bits = {"": 32, ".b": 8, ".h": 16}[selector[:2]]
    return sign(value >> (bits * int(selector[2:] or 0)), bits, kind)


def clamp(value: int, bits: int, kind: str) -> int:
    low = -(1 << (bits - 1)) if kind == "s32" else 0
    return min(max(value, low), low + (1 << bits) - 1)


def compare(order: str, a: int, b: int) -> int:
    return int(
        {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[order]
    )


def operate(name: str, a: int, b: int, order: str, mode: str) -> int:
    shift = b & 31 if mode == ".wrap" else min(b, 32)
    total = a + b
    return {
        "vadd": lambda: total, "vsub": lambda: a - b, "vabsdiff": lambda: abs(a - b),
        "vmin": lambda: min(a, b), "vmax": lambda: max(a, b), "vshl": lambda: a << shift,
        "vshr": lambda: a >> shift, "vset": lambda: compare(order, a, b),
        "vavrg": lambda: (total + 1) >> 1 if total >= 0 else total >> 1,
    }[name]()  # fmt: skip


def scalar_case(name: str, rng: random.Random) -> tuple[str, list[int], int]:
    a_kind, b_kind, kind = (rng.choice(["u32", "s32"]) for _ in range(3))
    sat, mode, order = rng.choice(["", ".sat"]), "", ""
    if name == "vset":
        order, sat, kind = rng.choice(ORDERS), "", "u32"
    if name in ("vshl", "vshr"):
        mode, b_kind = rng.choice([".clamp", ".wrap"]), "u32"
    third = rng.choice(["", ".add", ".min", ".max", "part"])
    a_part, b_part = rng.choice(PARTS), rng.choice(PARTS)
    d_part = rng.choice(PARTS[1:]) if third == "part" else ""
    second = third if third != "part" else ""
    types = (
        f"{a_kind}.{b_kind}.{order}" if name == "vset" else f"{kind}.{a_kind}.{b_kind}{sat}{mode}"
    )
    text = f"{name}.{types}{second} $0{d_part}, $1{a_part}, $2{b_part}{', $3' if third else ''};"
    values = [rng.choice([rng.choice(EDGES), rng.getrandbits(32)]) for _ in range(3)]
    found = operate(
        name, part(values[0], a_part, a_kind), part(values[1], b_part, b_kind), order, mode
    )
    found = sign(found, 34, "s32")
    bits = {"": 32, ".b": 8, ".h": 16}[d_part[:2]]
    found = clamp(found, bits, kind) if sat else found
    c = sign(values[2], 32, kind)
    if second:
        found = {".add": found + c, ".min": min(found, c), ".max": max(found, c)}[second]
    if d_part:
        place = bits * int(d_part[2:])
        field = ((1 << bits) - 1) << place
        found = (values[2] & ~field) | ((found << place) & field)
    return text, values, found % (1 << 32)


def simd_case(name: str, many: int, rng: random.Random) -> tuple[str, list[int], int]:
    a_kind, b_kind, kind = (rng.choice(["u32", "s32"]) for _ in range(3))
    end, order, bits = rng.choice(["", ".sat", ".add"]), "", 32 // many
    letter = "b" if many == 4 else "h"
    picks, marks = [], []
    for number in range(2):
        chosen = [rng.randrange(2 * many) for _ in range(many)]
        if rng.random() < 0.3:
            picks.append(list(range(number * many, number * many + many)))
            marks.append("")
            continue
        picks.append(chosen)
        marks.append(f".{letter}{''.join(map(str, reversed(chosen)))}")
    mask = sorted(rng.sample(range(many), rng.randrange(1, many + 1)))
    mark = f".{letter}{''.join(map(str, reversed(mask)))}"
    if name == "vset":
        order, end = rng.choice(ORDERS), "" if end == ".sat" else end
    types = f"{a_kind}.{b_kind}.{order}" if order else f"{kind}.{a_kind}.{b_kind}"
    text = f"{name}{many}.{types}{end} $0{mark}, $1{marks[0]}, $2{marks[1]}, $3;"
    values = [rng.choice([rng.choice(EDGES), rng.getrandbits(32)]) for _ in range(3)]
    pair = values[1] << 32 | values[0]
    result = values[2]
    for place in mask:
        a = sign(pair >> (bits * picks[0][place]), bits, a_kind)
        b = sign(pair >> (bits * picks[1][place]), bits, b_kind)
        found = operate(name, a, b, order, "")
        found = clamp(found, bits, kind) if end == ".sat" else found
        field = ((1 << bits) - 1) << (bits * place)
        moved = (result & ~field) | ((found << (bits * place)) & field)
        result = result + found if end == ".add" else moved
    return text, values, result % (1 << 32)


def multiply_case(rng: random.Random) -> tuple[str, list[int], int]:
    minus, a_kind, b_kind = rng.choice(["", "a", "b", "c"]), *rng.choices(["u32", "s32"], k=2)
    po = "" if minus else rng.choice(["", ".po"])
    sat, scale = rng.choice(["", ".sat"]), rng.choice(["", ".shr7", ".shr15"])
    final = "s32" if "s32" in (a_kind, b_kind) or minus else "u32"
    a_part, b_part = rng.choice(PARTS), rng.choice(PARTS)
    signs = {each: "-" if each == minus else "" for each in "abc"}
    text = (
        f"vmad.{final}.{a_kind}.{b_kind}{po}{sat}{scale}"
        f" $0, {signs['a']}$1{a_part}, {signs['b']}$2{b_part}, {signs['c']}$3;"
    )
    values = [rng.choice([rng.choice(EDGES), rng.getrandbits(32)]) for _ in range(3)]
    product = part(values[0], a_part, a_kind) * part(values[1], b_part, b_kind)
    c, least = values[2], int(bool(po))
    if minus in ("a", "b"):
        product, least = ~product, 1
    elif minus == "c":
        c, least = ~c, 1
    total = product + sign(c, 32, final) + least >> int(scale[4:] or 0)
    return text, values, (clamp(total, 32, final) if sat else total) % (1 << 32)


def held(cases: list[tuple[str, list[int], int]]) -> None:
    for text, values, wanted in cases:
        operands = [("b32", np.array([each], "u4")) for each in values]
        (found,) = apply(text, "b32", *operands)
        assert hex(found) == hex(wanted), (text, list(map(hex, values)))


@pytest.mark.parametrize("name", SCALARS)
def test_scalar_instructions(name: str) -> None:
    rng = random.Random(name)
    held([scalar_case(name, rng) for _ in range(40)])


@pytest.mark.parametrize("many", [2, 4])
@pytest.mark.parametrize("name", SIMD)
def test_instructions_on_parts(name: str, many: int) -> None:
    rng = random.Random(f"{name}{many}")
    held([simd_case(name, many, rng) for _ in range(25)])


def test_multiplication_with_addition() -> None:
    rng = random.Random(7)
    held([multiply_case(rng) for _ in range(60)])


@pytest.mark.parametrize("base", ["vadd2", "vadd"])
@pytest.mark.parametrize("operand", ["%r2.b9", "%r2.h4", "%r2.b01", "%r2.x0", "%r2."])
def test_a_selector_that_is_none_is_refused(base: str, operand: str) -> None:
    text = f"{base}.u32.u32.u32{'.add' if base == 'vadd' else ''} %r1, {operand}, %r3, %r4;"
    result = outcome(kernel(text, 1), np.zeros(1, "u4"))
    assert result.not_run is not None
    assert "PTX line" in result.not_run
