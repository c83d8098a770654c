"""Constants of PTX and expressions of them: `017`, `0b101U`, `0f3F800000`, `(1 << 4) | 3`.

Source: PTX ISA, "Constants": literals, constant expressions and their types (4.5). Pure.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(?:(?P<bits>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})"
    r"|(?P<real>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<whole>0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)(?P<unsigned>U?)"
    r"|(?P<name>WARP_SZ))(?![\w$%.])|(?P<cast>\(\s*\.[su]64\s*\))"
    r"|(?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[-+~!*/%<>&^|?:()]))"
)
_SIMPLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
# Longer ones, and expressions nested deeper, are none.
_LONGEST = 4096
_WRAP = 1 << 64
_TOP = 1 << 63

Number = int | float
# A value, and whether it is a .u64.
Value = tuple[Number, bool]

_LEVELS: tuple[dict[str, Callable[[Number, Number], Number]], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": lambda a, b: _whole(a) | _whole(b)},
    {"^": lambda a, b: _whole(a) ^ _whole(b)},
    {"&": lambda a, b: _whole(a) & _whole(b)},
    {"==": operator.eq, "!=": operator.ne},
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt},
    {
        "<<": lambda a, b: _whole(a) << (_whole(b) & 63),
        ">>": lambda a, b: _whole(a) >> (_whole(b) & 63),
    },
    {"+": operator.add, "-": operator.sub},
    {
        "*": operator.mul,
        "/": lambda a, b: a / b if isinstance(a, float) else _quotient(a, _whole(b)),
        "%": lambda a, b: _whole(a) - _quotient(_whole(a), _whole(b)) * _whole(b),
    },
)
_COMPARISONS = frozenset(("||", "&&", "==", "!=", "<=", ">=", "<", ">"))
_SHIFTS = frozenset(("<<", ">>"))


def constant(text: str) -> Number | None:
    """The value of a constant or of an expression of constants; None if the text is neither."""
    if _SIMPLE.fullmatch(text):
        return int(text)
    try:
        return _Reader(text).whole()
    except (ValueError, ZeroDivisionError, OverflowError, TypeError, RecursionError):
        return None


def integer(text: str) -> int | None:
    """The same where it is an integer: -2^63 to 2^64 - 1."""
    value = constant(text)
    return None if isinstance(value, float) else value


def float_bits(text: str) -> tuple[int, int] | None:
    """The bits of `0f...` or `0d...`, and how many they are."""
    token = _TOKEN.fullmatch(text)
    if not token or not token["bits"]:
        return None
    digits = token["bits"][2:]
    return int(digits, 16), 4 * len(digits)


def _whole(value: Number) -> int:
    if isinstance(value, float):
        raise TypeError
    return value


def _quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _literal(token: re.Match[str]) -> Value:
    if token["name"]:
        return 32, False
    if digits := token["bits"]:
        raw = bytes.fromhex(digits[2:])
        return struct.unpack(">f" if len(raw) == 4 else ">d", raw)[0], False
    if token["real"]:
        return float(token["real"]), False
    text = token["whole"]
    base = {"x": 16, "b": 2}.get(text[1:2].lower(), 8 if text.startswith("0") else 10)
    value = int(text[2:] if base in (2, 16) else text, base)
    if value >= _WRAP:
        raise OverflowError
    return value, bool(token["unsigned"]) or value >= _TOP


def _typed(value: Number, *, is_unsigned: bool) -> Value:
    if isinstance(value, float):
        return value, False
    wrapped = int(value) % _WRAP
    return (wrapped if is_unsigned or wrapped < _TOP else wrapped - _WRAP), is_unsigned


class _Reader:
    """Reads an expression from left to right, operators by their precedence in C."""

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise ValueError
        self._tokens: list[re.Match[str]] = []
        text, at = text.rstrip(), 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if not token:
                raise ValueError
            self._tokens.append(token)
            at = token.end()
        self._at = 0

    def whole(self) -> Number:
        value, _ = self._choice()
        if self._at != len(self._tokens):
            raise ValueError
        return value

    def _takes(self, *marks: str) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at]["mark"] in marks:
            self._at += 1
            return str(self._tokens[self._at - 1]["mark"])
        return ""

    def _choice(self) -> Value:
        holds = self._operation(0)
        if not self._takes("?"):
            return holds
        yes = self._choice()
        if not self._takes(":"):
            raise ValueError
        no = self._choice()
        return _typed((yes if holds[0] else no)[0], is_unsigned=yes[1] or no[1])

    def _operation(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._unary()
        left, left_unsigned = self._operation(level + 1)
        while mark := self._takes(*_LEVELS[level]):
            right, right_unsigned = self._operation(level + 1)
            is_unsigned = left_unsigned or (right_unsigned and mark not in _SHIFTS)
            if mark not in _SHIFTS:
                left, _ = _typed(left, is_unsigned=is_unsigned)
                right, _ = _typed(right, is_unsigned=is_unsigned)
            if isinstance(left, float) != isinstance(right, float):
                raise TypeError
            value = _LEVELS[level][mark](left, right)
            is_unsigned = is_unsigned and mark not in _COMPARISONS
            left, left_unsigned = _typed(value, is_unsigned=is_unsigned)
        return left, left_unsigned

    def _unary(self) -> Value:
        mark = self._takes("-", "+", "~", "!", "(")
        if not mark:
            return self._primary()
        if mark == "(":
            inside = self._choice()
            if not self._takes(")"):
                raise ValueError
            return inside
        value, is_unsigned = self._unary()
        if mark == "!":
            return int(not value), False
        if mark == "~":
            return _typed(~_whole(value), is_unsigned=is_unsigned)
        return _typed(-value if mark == "-" else value, is_unsigned=is_unsigned)

    def _primary(self) -> Value:
        if self._at == len(self._tokens):
            raise ValueError
        token = self._tokens[self._at]
        self._at += 1
        if token["mark"]:
            raise ValueError
        if token["cast"]:
            value, _ = self._unary()
            return _typed(int(value), is_unsigned="u" in token["cast"])
        return _literal(token)
