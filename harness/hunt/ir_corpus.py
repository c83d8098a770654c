"""Triton's IR with small changes: what Triton wrote, as Triton would not write it. Pure.

In a step an operation goes, comes twice or changes places with the next one, gets another number,
word, attributes, name or operand of the same type, another value stands in for its result, or an
operation of another file comes behind it. Numbers of layouts and of arguments change, too. Whether
the result is valid is up to Triton's own reader.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.hunt.changes import ChangedProgram
from harness.minimize.ttgir import IrModule, IrOperation, typed_arguments, typed_results
from harness.values.kernel import Scalar

_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_NUMBER = re.compile(r"(?<![\w%$.#:-])-?\d+(\.\d+e[+-]\d+)?(?![\w.])")
_WORD = re.compile(r"(?<![%\w.#<!\"])[a-z]\w*(?![\w.(<])")
_ATTRIBUTES = re.compile(r"\{[^{}]*\}")
# The sizes and the layout of a type, which another operation need not share.
_SIZES = re.compile(r"\d+x|, #[\w.]+")
_NUMBERS = (0, 1, -1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 512, 0x7FFFFFFF)
_FLOATS = ("0.000000e+00", "1.000000e+00", "-1.000000e+00", "5.000000e-01", "0x7F800000")
# What Triton's front end can say of a loop.
_LOOPS = (
    *(f"{{tt.num_stages = {count} : i32}}" for count in (1, 2, 3, 4, 5)),
    "{tt.loop_unroll_factor = 2 : i32}",
    "{tt.flatten}",
    "{tt.disallow_acc_multi_buffer}",
    "{tt.warp_specialize}",
    "{tt.num_stages = 3 : i32, tt.warp_specialize}",
)
_MOST_TRIES = 8
_KINDS = (
    "less", "less", "twice", "swap", "number", "number", "line", "operand", "operand", "name",
    "word", "attributes", "loop", "stand in", "graft",
)  # fmt: skip

Change = tuple[dict[int, list[str]], dict[str, str]]
"""Other lines by number, and other names of values."""


@dataclass(frozen=True)
class IrVocabulary:
    """What all files of a corpus say of operations.

    `names` by what follows the name, without values and sizes; `words` and `attributes` by the
    name; `lines` are operations with the types of what they read.
    """

    names: dict[str, dict[str, None]] = field(default_factory=dict)
    words: dict[str, dict[str, None]] = field(default_factory=dict)
    attributes: dict[str, dict[str, None]] = field(default_factory=dict)
    lines: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def hear(self, module: IrModule) -> None:
        """Take in a file."""
        types: dict[str, str] = {}
        for op in module.operations:
            types.update(typed_arguments(op))
            types.update(typed_results(op))
        for op in module.operations:
            if op.depth <= 1 or not (code := op.code):
                continue
            if not op.is_last:
                self.names.setdefault(_shape(code[3]), {})[code[2]] = None
            for place, text in ((self.words, _WORD), (self.attributes, _ATTRIBUTES)):
                said = op.footer if op.has_region else _before_types(code[3])
                place.setdefault(code[2], {}).update(dict.fromkeys(text.findall(said)))
            reads = {name: types[name] for name in _VALUE.findall(code[3]) if name in types}
            # A layout's name says nothing in another file.
            if reads.keys() >= op.reads and not (op.has_region or op.is_last or "#" in op.header):
                self.lines.append((op.header, reads))


@dataclass(frozen=True, eq=False)
class IrSource:
    """A module, and what may be put into it."""

    module: IrModule
    vocabulary: IrVocabulary

    @property
    def opcodes(self) -> set[str]:
        """The operations that it has."""
        return operation_names(self.module)

    @cached_property
    def inner(self) -> list[int]:
        """The operations of its functions."""
        return [n for n, op in enumerate(self.module.operations) if op.depth > 1]

    def changed(self, steps: Sequence[int]) -> str:
        """The text with these steps; of two at one place the last counts."""
        changes: dict[int, list[str]] = {}
        names: dict[str, str] = {}
        for step in steps:
            others, renamed = self._change(random.Random(step))  # noqa: S311 - to repeat
            changes |= others
            names |= renamed
        lines = [line for n, old in enumerate(self.module.lines) for line in changes.get(n, [old])]
        return IrModule(tuple(lines)).replaced({}, names).text

    def _change(self, draw: random.Random) -> Change:
        for _ in range(_MOST_TRIES):
            lines, names = self._drawn(draw)
            if names or any([self.module.lines[n]] != new for n, new in lines.items()):
                return lines, names
        return {}, {}

    def _drawn(self, draw: random.Random) -> Change:
        """A change, which may come to nothing."""
        kind, number = draw.choice(_KINDS), draw.choice(self.inner)
        if kind == "line":  # of any: a layout, an argument
            place = draw.randrange(len(self.module.lines))
            return {place: [_other_number(self.module.lines[place], draw)]}, {}
        if kind == "less":
            lost = [self.module.operations[one] for one in self.module.closure([number])]
            is_empty = any(op.depth <= 1 for op in lost)
            return ({} if is_empty else {n: [] for op in lost for n in _span(op)}), {}
        op = self.module.operations[number]
        if kind == "loop":
            loops = [op for op in self.module.operations if op.name == "scf.for"]
            op = draw.choice([*loops, op])
        code = op.code
        if code is None:
            return {}, {}
        if op.has_region:
            texts = [*self.vocabulary.attributes.get(code[2], ()), *_LOOPS]
            kept = _ATTRIBUTES.search(op.footer)
            tail = draw.choice(["", f" {draw.choice(texts)}"]) if kept else f" {draw.choice(texts)}"
            is_loop = kind in ("loop", "attributes") and code[2] == "scf.for"
            indent = "  " * op.depth
            return ({op.end: [f"{indent}}}{tail}"]} if is_loop else {}), {}
        return self._of_one(kind, number, op, code, draw)

    def _of_one(
        self, kind: str, number: int, op: IrOperation, code: re.Match[str], draw: random.Random
    ) -> Change:
        """A change of an operation that holds no others."""
        words, line = self.vocabulary, op.header
        if kind == "twice":
            return {op.start: [line, self._fresh(line, draw)]}, {}
        if kind == "swap":
            following = next(
                (o for o in self.module.operations[number + 1 :] if o.parent == op.parent), None
            )
            if following is None or following.is_last:
                return {}, {}
            moved = list(self.module.lines[following.start : following.end + 1])
            gone: dict[int, list[str]] = {n: [] for n in _span(following)}
            return {op.start: [*moved, line], **gone}, {}
        if kind == "number":
            return {op.start: [_other_number(line, draw)]}, {}
        if kind == "name":
            name = draw.choice(list(words.names.get(_shape(code[3]), [code[2]])))
            return {op.start: [f"{code[1]}{name}{code[3]}"]}, {}
        if kind in ("word", "attributes"):
            pattern = _WORD if kind == "word" else _ATTRIBUTES
            there = words.words if kind == "word" else words.attributes
            head = _before_types(code[3])
            parts, others = list(pattern.finditer(head)), list(there.get(code[2], ()))
            if not others:
                return {}, {}
            part, other = (draw.choice(parts) if parts else None), draw.choice(others)
            start, end = part.span() if part else (len(head), len(head))
            new = f"{head[:start]}{'' if part else ' '}{other}{head[end:]}"
            return {op.start: [f"{code[1]}{code[2]}{new}{code[3][len(head) :]}"]}, {}
        seen = self._visible(number)
        if kind == "stand in":
            others = seen.get(op.type or "", [])
            return ({op.start: []}, {op.results[0]: draw.choice(others)}) if others else ({}, {})
        if kind == "operand":
            types = {name: kind for kind, names in seen.items() for name in names}
            parts = [part for part in _VALUE.finditer(code[3]) if part[0] in types]
            if not parts:
                return {}, {}
            part = draw.choice(parts)
            new = draw.choice(seen[types[part[0]]])
            tail = f"{code[3][: part.start()]}{new}{code[3][part.end() :]}"
            return {op.start: [f"{code[1]}{code[2]}{tail}"]}, {}
        if kind == "graft" and words.lines and not op.is_last:
            other, reads = draw.choice(words.lines)
            if not all(kind in seen for kind in reads.values()):
                return {}, {}
            own = {name: draw.choice(seen[kind]) for name, kind in reads.items()}
            new = _VALUE.sub(lambda part: own.get(part[0], part[0]), other)
            return {op.start: [line, self._fresh(new, draw)]}, {}
        return {}, {}

    def _fresh(self, line: str, draw: random.Random) -> str:
        """A copy of an operation, whose results have names of their own."""
        head, equals, body = line.partition(" = ")
        name = f"%new_{draw.getrandbits(32)}"
        return f"{re.sub(r'%[^:, ]+', name, head)}{equals}{body}" if "%" in head else line

    def _visible(self, number: int) -> dict[str, list[str]]:
        """The values that an operation may read, by their types."""
        seen: dict[str, list[str]] = {}
        operations = self.module.operations
        place: int | None = number
        while place is not None:
            op = operations[place]
            before = (o for o in operations[:place] if o.parent == op.parent)
            outer = [] if op.parent is None else [*typed_arguments(operations[op.parent])]
            for name, kind in (*outer, *(pair for one in before for pair in typed_results(one))):
                seen.setdefault(kind, []).append(name)
            place = op.parent
        return seen


def operation_names(module: IrModule) -> set[str]:
    """The names of all operations of its functions."""
    return {op.name for op in module.operations if op.depth > 1} - {""}


def changed_ir(seed: int, sources: Sequence[IrSource]) -> ChangedProgram[IrSource]:
    """The program of a seed; a short source is taken more often, as it takes less time."""
    draw = random.Random(seed)  # noqa: S311 - to repeat, not to hide
    [source] = draw.choices(sources, [1 / len(one.module.lines) for one in sources])
    return ChangedProgram.drawn(seed, source, draw)


def options_of(seed: int, text: str) -> dict[str, Scalar]:
    """The stages and warps that a module is compiled with, by its seed; TTGIR has its own."""
    if suffix_of(text) == ".ttgir":
        return {}
    draw = random.Random(f"options {seed}")  # noqa: S311 - to repeat, not to hide
    return {"num_warps": draw.choice((4, 4, 4, 8)), "num_stages": draw.choice((2, 3, 4))}


def suffix_of(text: str) -> str:
    """How a file of this module is named: TTGIR fixes its warps."""
    return ".ttgir" if '"ttg.num-warps" = ' in text else ".ttir"


def sources_of(texts: Sequence[str]) -> list[IrSource]:
    """Files as sources, each of which may take what all of them have."""
    vocabulary = IrVocabulary()
    modules = [IrModule.read(text) for text in texts]
    for module in modules:
        vocabulary.hear(module)
    return [IrSource(module, vocabulary) for module in modules]


def _span(op: IrOperation) -> range:
    return range(op.start, op.end + 1)


def _before_types(code: str) -> str:
    return code.rpartition(" : ")[0] or code


def _shape(code: str) -> str:
    return _SIZES.sub("", _VALUE.sub("%", code))


def _other_number(line: str, draw: random.Random) -> str:
    parts = list(_NUMBER.finditer(line))
    if not parts:
        return line
    part = draw.choice(parts)
    new = draw.choice(_FLOATS if part[1] else _NUMBERS)
    return f"{line[: part.start()]}{new}{line[part.end() :]}"
