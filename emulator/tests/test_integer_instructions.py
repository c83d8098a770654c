"""Integer and logic instructions against Python's own integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import apply

EDGES: tuple[int, ...] = (
    0,
    1,
    2,
    31,
    32,
    33,
    63,
    64,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
)
EDGES += (0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF)


def value(bits: int, kind: str) -> int:
    """The number that bits are, for a type."""
    width = int(kind[1:])
    bits &= (1 << width) - 1
    return bits - (1 << width) if kind[0] == "s" and bits >> (width - 1) else bits


def clamp(number: int, kind: str) -> int:
    width = int(kind[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    return max(low, min(high, number))


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shift_right(a: int, by: int, width: int) -> int:
    return a >> min(by, width)


BINARY: dict[str, Callable[[int, int, str], int]] = {
    "add": lambda a, b, k: a + b,
    "sub": lambda a, b, k: a - b,
    "mul.lo": lambda a, b, k: a * b,
    "mul.hi": lambda a, b, k: (a * b) >> int(k[1:]),
    "min": lambda a, b, k: min(a, b),
    "max": lambda a, b, k: max(a, b),
    "div": lambda a, b, k: quotient(a, b) if b else -1,
    "rem": lambda a, b, k: a - quotient(a, b) * b if b else a,
}
KINDS = ("u16", "s16", "u32", "s32", "u64", "s64")


def words(kind: str) -> st.SearchStrategy[list[int]]:
    width = int(kind[1:])
    any_word = st.integers(0, (1 << width) - 1) | st.sampled_from([e % (1 << width) for e in EDGES])
    return st.lists(any_word, min_size=1, max_size=64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_two_operands(name: str, kind: str, data: st.DataObject) -> None:
    a = data.draw(words(kind))
    b = data.draw(words(kind))
    count = min(len(a), len(b))
    width = int(kind[1:])
    dtype = f"u{width // 8}"
    found = apply(
        f"{name}.{kind} $0, $1, $2;", kind,
        (kind, np.array(a[:count], dtype)), (kind, np.array(b[:count], dtype)),
    )  # fmt: skip
    wanted = [
        BINARY[name](value(x, kind), value(y, kind), kind) % (1 << width)
        for x, y in zip(a, b, strict=False)
    ]
    assert found.tolist() == wanted


THREE: dict[str, tuple[list[str], str, Callable[..., int]]] = {
    "mad.lo.s32": (["s32", "s32", "s32"], "s32", lambda a, b, c: a * b + c),
    "mad.hi.s32": (["s32", "s32", "s32"], "s32", lambda a, b, c: (a * b >> 32) + c),
    "mad.wide.s32": (["s32", "s32", "s64"], "s64", lambda a, b, c: a * b + c),
    "mad.wide.u32": (["u32", "u32", "u64"], "u64", lambda a, b, c: a * b + c),
    "mul.wide.s16": (["s16", "s16"], "s32", lambda a, b: a * b),
    "mul.wide.u32": (["u32", "u32"], "u64", lambda a, b: a * b),
    "mul24.lo.s32": (
        ["s32", "s32"], "s32",
        lambda a, b: value(a << 8, "s32") // 256 * (value(b << 8, "s32") // 256),
    ),
    "sad.s32": (["s32", "s32", "u32"], "u32", lambda a, b, c: c + abs(a - b)),
    "add.sat.s32": (["s32", "s32"], "s32", lambda a, b: clamp(a + b, "s32")),
    "sub.sat.s32": (["s32", "s32"], "s32", lambda a, b: clamp(a - b, "s32")),
    "abs.s32": (["s32"], "s32", abs),
    "neg.s64": (["s64"], "s64", lambda a: -a),
    "popc.b32": (["u32"], "u32", lambda a: a.bit_count()),
    "popc.b64": (["u64"], "u32", lambda a: a.bit_count()),
    "clz.b32": (["u32"], "u32", lambda a: 32 - a.bit_length()),
    "clz.b64": (["u64"], "u32", lambda a: 64 - a.bit_length()),
    "brev.b32": (["u32"], "u32", lambda a: int(f"{a:032b}"[::-1], 2)),
    "brev.b64": (["u64"], "u64", lambda a: int(f"{a:064b}"[::-1], 2)),
    "bfind.u32": (["u32"], "u32", lambda a: a.bit_length() - 1),
    "bfind.s32": (["s32"], "u32", lambda a: (~a if a < 0 else a).bit_length() - 1),
    "bfind.shiftamt.u32": (["u32"], "u32", lambda a: 32 - a.bit_length() if a else -1),
    "not.b32": (["u32"], "u32", lambda a: ~a),
    "cnot.b32": (["u32"], "u32", lambda a: int(a == 0)),
    "and.b32": (["u32", "u32"], "u32", lambda a, b: a & b),
    "or.b16": (["u16", "u16"], "u16", lambda a, b: a | b),
    "xor.b64": (["u64", "u64"], "u64", lambda a, b: a ^ b),
    "shl.b32": (["u32", "u32"], "u32", lambda a, n: a << min(n, 32)),
    "shr.u32": (["u32", "u32"], "u32", lambda a, n: a >> min(n, 32)),
    "shr.s32": (["s32", "u32"], "s32", lambda a, n: a >> min(n, 31)),
    "shr.s64": (["s64", "u32"], "s64", lambda a, n: a >> min(n, 63)),
    "shl.b16": (["u16", "u32"], "u16", lambda a, n: a << min(n, 16)),
    "shf.l.wrap.b32": (
        ["u32", "u32", "u32"], "u32", lambda a, b, n: ((b << 32 | a) << (n & 31)) >> 32,
    ),
    "shf.r.clamp.b32": (["u32", "u32", "u32"], "u32", lambda a, b, n: (b << 32 | a) >> min(n, 32)),
    "slct.s32.s32": (["s32", "s32", "s32"], "s32", lambda a, b, c: a if c >= 0 else b),
    "dp4a.s32.s32": (
        ["u32", "u32", "u32"], "u32",
        lambda a, b, c: c + sum(value(a >> s, "s8") * value(b >> s, "s8") for s in (0, 8, 16, 24)),
    ),
    "dp2a.lo.u32.u32": (
        ["u32", "u32", "u32"], "u32",
        lambda a, b, c: c + (a & 0xFFFF) * (b & 0xFF) + (a >> 16) * (b >> 8 & 0xFF),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", THREE)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_any_operands(name: str, data: st.DataObject) -> None:
    kinds, result, function = THREE[name]
    lists = [data.draw(words(kind)) for kind in kinds]
    count = min(map(len, lists))
    operands = [
        (kind, np.array(each[:count], f"u{int(kind[1:]) // 8}"))
        for kind, each in zip(kinds, lists, strict=True)
    ]
    marks = ", ".join(f"${number}" for number in range(len(kinds) + 1))
    found = apply(f"{name} {marks};", result, *operands)
    modulus = 1 << int(result[1:])
    wanted = [
        function(*(value(x, k) for x, k in zip(each, kinds, strict=True))) % modulus
        for each in zip(*(each[:count] for each in lists), strict=True)
    ]
    assert found.tolist() == wanted


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32),
    st.lists(st.integers(0, 300), min_size=32, max_size=32),
    st.lists(st.integers(0, 300), min_size=32, max_size=32),
    st.sampled_from(["u32", "s32"]),
)
def test_bfe(a: list[int], position: list[int], length: list[int], kind: str) -> None:
    def one(bits: int, pos: int, size: int) -> int:
        pos, size = pos & 255, size & 255
        number = value(bits, kind)
        is_plain = kind == "u32" or size == 0
        sign = 0 if is_plain else bits >> min(pos + size - 1, 31) & 1
        result = 0
        for at in range(32):
            bit = number >> (pos + at) & 1 if at < size and pos + at < 32 else sign
            result |= bit << at
        return result

    found = apply(
        f"bfe.{kind} $0, $1, $2, $3;", kind, (kind, np.array(a, "u4")),
        ("u32", np.array(position, "u4")), ("u32", np.array(length, "u4")),
    )  # fmt: skip
    assert found.tolist() == [one(*each) for each in zip(a, position, length, strict=True)]


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32),
    st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32),
    st.lists(st.integers(0, 300), min_size=32, max_size=32),
    st.lists(st.integers(0, 300), min_size=32, max_size=32),
)
def test_bfi(a: list[int], b: list[int], position: list[int], length: list[int]) -> None:
    def one(x: int, y: int, pos: int, size: int) -> int:
        for at in range(size & 255):
            if (pos & 255) + at < 32:
                y = y & ~(1 << (pos & 255) + at) | (x >> at & 1) << (pos & 255) + at
        return y

    found = apply(
        "bfi.b32 $0, $1, $2, $3, $4;", "b32",
        ("b32", np.array(a, "u4")), ("b32", np.array(b, "u4")),
        ("u32", np.array(position, "u4")), ("u32", np.array(length, "u4")),
    )  # fmt: skip
    assert found.tolist() == [one(*each) for each in zip(a, b, position, length, strict=True)]


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32),
    st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32),
    st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32),
    st.integers(0, 255),
)
def test_lop3_and_prmt(a: list[int], b: list[int], c: list[int], table: int) -> None:
    def looked_up(x: int, y: int, z: int) -> int:
        return sum(
            (table >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i
            for i in range(32)
        )

    def permuted(x: int, y: int, selector: int) -> int:
        octets = [(y << 32 | x) >> 8 * i & 255 for i in range(8)]
        result = 0
        for place in range(4):
            control = selector >> 4 * place & 15
            octet = octets[control & 7]
            result |= ((255 if octet & 128 else 0) if control & 8 else octet) << 8 * place
        return result

    operands = [("b32", np.array(each, "u4")) for each in (a, b, c)]
    found = apply(f"lop3.b32 $0, $1, $2, $3, {table};", "b32", *operands)
    assert found.tolist() == [looked_up(*each) for each in zip(a, b, c, strict=True)]
    found = apply("prmt.b32 $0, $1, $2, $3;", "b32", *operands)
    assert found.tolist() == [permuted(*each) for each in zip(a, b, c, strict=True)]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 4), min_size=32, max_size=32))
def test_carries_reach_the_upper_word(pairs: list[tuple[int, int, int, int]]) -> None:
    columns = [np.array(each, "u4") for each in zip(*pairs, strict=True)]
    body = (
        "add.cc.u32 %r1, $1, $3; addc.u32 %r2, $2, $4; sub.cc.u32 %r3, $1, $3; "
        "subc.u32 %r4, $2, $4; xor.b32 %r5, %r2, %r4; mov.b64 %rd2, {%r1, %r5}; "
        "mov.b64 $0, {%r3, %r5}; xor.b64 $0, $0, %rd2;"
    )
    found = apply(body, "b64", *[("b32", each) for each in columns])
    wanted = []
    for a_low, a_high, b_low, b_high in pairs:
        total = (a_high << 32 | a_low) + (b_high << 32 | b_low)
        difference = (a_high << 32 | a_low) - (b_high << 32 | b_low)
        high = (total >> 32 ^ difference >> 32) & 0xFFFFFFFF
        low, other = total & 0xFFFFFFFF, difference & 0xFFFFFFFF
        wanted.append((high << 32 | low) ^ (high << 32 | other))
    assert found.tolist() == wanted


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s16"])
@pytest.mark.parametrize("order", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(kind: str, order: str) -> None:
    width = int(kind[1:])
    numbers = [edge % (1 << width) for edge in EDGES]
    a = np.array([x for x in numbers for _ in numbers], f"u{width // 8}")
    b = np.array([y for _ in numbers for y in numbers], f"u{width // 8}")
    found = apply(f"setp.{order}.{kind} $0, $1, $2;", "pred", (kind, a), (kind, b))
    holds = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[order]
    wanted = [
        int(eval(f"{value(x, kind)} {holds} {value(y, kind)}"))
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert found.tolist() == wanted
