"""Conditions on a row: `n_regs<=32 and spill_stores>4096`, `verdict=trap_stub`.

A grammar of its own, not Python: nothing in it can do anything but compare.

    condition  := both ("or" both)*          both := one ("and" one)*
    one        := "not" one | "(" condition ")" | FIELD OPERATOR VALUE
    OPERATOR   := = == != < <= > >=          VALUE := number | word | FIELD

What is not known of a row is neither true nor false: a condition holds only where it is known to.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from harness.values.errors import UsageError
from harness.values.kernel import Scalar
from harness.values.row import Row
from harness.values.verdict import Stage, VerdictKind

_NUMBERS = (
    *("n_regs", "spill_stores", "spill_loads", "stack", "shared", "static_shared", "constant"),
    *("barriers", "tmem_size", "threads", "occupancy", "exit_code", "signal", "seconds"),
)
_WORDS: Mapping[str, tuple[str, ...] | None] = {
    "verdict": tuple(kind.value for kind in VerdictKind),
    "stage": tuple(stage.value for stage in Stage.all()),
    "signature": None,
    "code": None,
    "occupancy_limiter": None,
}
FIELDS = (*_WORDS, *_NUMBERS)
"""What a condition may speak of, named as in a row."""

_MAX_TEXT = 2000
_MAX_DEPTH = 40

_TOKEN = re.compile(r"\s*(?:(?P<op>[<>!=]=|[<>=()])|(?P<word>[\w.+-]+|'[^']*'|\"[^\"]*\"))")
_BARE = re.compile(r"[\w.+-]+")
_NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?")
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """The value of this field."""

    name: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A field against a value, or against another field; `operator` as Python spells it."""

    field: str
    operator: str
    value: int | float | str | Field


class Negation(msgspec.Struct, frozen=True, kw_only=True):
    """Not that."""

    part: Condition


class Both(msgspec.Struct, frozen=True, kw_only=True):
    """The one and the other."""

    left: Condition
    right: Condition


class Either(msgspec.Struct, frozen=True, kw_only=True):
    """The one or the other."""

    left: Condition
    right: Condition


Condition = Comparison | Negation | Both | Either


def row_fields(row: Row) -> dict[str, Scalar | None]:
    """A row as conditions read it."""
    values = {name: getattr(row, name) for name in Row.__struct_fields__}
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }


def holds(condition: Condition, row: Mapping[str, Scalar | None]) -> bool:
    """Whether the condition is known to hold of a row."""
    return truth(condition, row) is True


def truth(condition: Condition, row: Mapping[str, Scalar | None]) -> bool | None:
    """Whether the condition holds of a row; None where too little of the row is known."""
    if isinstance(condition, Comparison):
        left, right = row.get(condition.field), condition.value
        operand = row.get(right.name) if isinstance(right, Field) else right
        if left is None or operand is None:
            return None
        return bool(_OPERATORS[condition.operator](left, operand))
    if isinstance(condition, Negation):
        value = truth(condition.part, row)
        return None if value is None else not value
    values = (truth(condition.left, row), truth(condition.right, row))
    decisive = isinstance(condition, Either)
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def fields_of(condition: Condition) -> tuple[str, ...]:
    """The fields that it speaks of, each once."""
    if isinstance(condition, Comparison):
        operand = condition.value
        names = (condition.field, *((operand.name,) if isinstance(operand, Field) else ()))
    elif isinstance(condition, Negation):
        names = fields_of(condition.part)
    else:
        names = (*fields_of(condition.left), *fields_of(condition.right))
    return tuple(dict.fromkeys(names))


def spell(condition: Condition) -> str:
    """The condition as it can be read again."""
    if isinstance(condition, Comparison):
        value = condition.value
        if isinstance(value, str):
            quote = '"' if "'" in value else "'"
            spelt = value if _BARE.fullmatch(value) else f"{quote}{value}{quote}"
        else:
            spelt = value.name if isinstance(value, Field) else str(value)
        return f"{condition.field} {condition.operator} {spelt}"
    if isinstance(condition, Negation):
        return f"not {_inside(condition.part, Comparison, Negation)}"
    if isinstance(condition, Both):
        left = _inside(condition.left, Comparison, Negation, Both)
        return f"{left} and {_inside(condition.right, Comparison, Negation)}"
    return f"{spell(condition.left)} or {_inside(condition.right, Comparison, Negation, Both)}"


def _inside(condition: Condition, *bare: type) -> str:
    return spell(condition) if isinstance(condition, bare) else f"({spell(condition)})"


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        UsageError: it is malformed, or names a field or a word that does not exist.
    """
    if len(text) > _MAX_TEXT:
        raise UsageError(f"--while: a condition of {len(text):,} characters is too long")
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._depth = 0

    def _split(self, text: str) -> list[str]:
        tokens, position = [], 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                self._refuse(f"cannot read {text[position:].strip()[:20]!r}")
            tokens.append(match["op"] or match["word"])
            position = match.end()
        return tokens

    def _refuse(self, reason: str) -> NoReturn:
        raise UsageError(f"--while {self._text[:200]!r}: {reason}")

    def _peek(self) -> str | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, description: str) -> str:
        token = self._peek()
        if token is None:
            self._refuse(f"it ends where {description} should be")
        self._next += 1
        return token

    def parse(self) -> Condition:
        """The whole text."""
        condition = self._either()
        if (token := self._peek()) is not None:
            self._refuse(f"what is {token!r} doing there? join conditions by `and` or `or`")
        return condition

    def _either(self) -> Condition:
        condition = self._both()
        while self._peek() == "or":
            self._next += 1
            condition = Either(left=condition, right=self._both())
        return condition

    def _both(self) -> Condition:
        condition = self._one()
        while self._peek() == "and":
            self._next += 1
            condition = Both(left=condition, right=self._one())
        return condition

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse("it is nested too deeply")
        try:
            token = self._take("a field")
            if token == "not":  # noqa: S105 - a word of the grammar
                return Negation(part=self._one())
            if token == "(":  # noqa: S105
                condition = self._either()
                if self._take("a closing parenthesis") != ")":
                    self._refuse("a parenthesis is not closed")
                return condition
            return self._comparison(token)
        finally:
            self._depth -= 1

    def _comparison(self, name: str) -> Condition:
        if name not in FIELDS:
            near = difflib.get_close_matches(name[:40], FIELDS, n=3, cutoff=0.5)
            hint = f"near: {', '.join(near)}" if near else f"there are {', '.join(FIELDS)}"
            self._refuse(f"no field {name[:40]!r}; {hint}")
        sign = self._take("a comparison")
        sign = "==" if sign == "=" else sign
        if sign not in _OPERATORS:
            self._refuse(f"{sign!r} after {name} is not a comparison; write = != < <= > or >=")
        word = self._take("a value")
        value = self._word(name, sign, word) if name in _WORDS else self._number(name, word)
        return Comparison(field=name, operator=sign, value=value)

    def _number(self, name: str, word: str) -> int | float | Field:
        if word in _NUMBERS:
            return Field(name=word)
        if not _NUMBER.fullmatch(word):
            self._refuse(f"{name} is a number; {word[:40]!r} is none")
        return float(word) if "." in word else int(word)

    def _word(self, name: str, sign: str, word: str) -> str:
        if sign not in ("==", "!="):
            self._refuse(f"{name} is a word; compare it by = or !=")
        word = word[1:-1] if word[0] in "'\"" else word
        if word in ("(", ")") or sign == word:
            self._refuse(f"{word!r} is not a value for {name}")
        words = _WORDS[name]
        if words is not None and word not in words:
            near = difflib.get_close_matches(word[:40], words, n=3, cutoff=0.4) or words
            self._refuse(f"no {name} {word[:40]!r}; near: {', '.join(near)}")
        return word
