"""What a PTX function declares, without its inner scopes, and what it may read undefined. Pure.

Of names that two scopes declare, one is renamed first, so that the program stays what it was.

A register is defined where every way to the place wrote it; a guarded write defines it for what has
the same guard, until the predicate is written. What a branch table may reach is taken to be any
label of the function. Names must be unique in a function: take out its inner scopes first.

Source of the dominators: K. Cooper, T. Harvey, K. Kennedy, "A simple, fast dominance algorithm"
(2001).
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from gpu_emulator.ptx.text.document import Document, Function, Statement, StatementKind, statement
from gpu_emulator.ptx.text.facts import NAME, Instruction

_DECLARATION = re.compile(r"\.reg\s+((?:\.v[248]\s*)?\.\w+)\s+(.*);", re.DOTALL)
_NAMES = re.compile(r"([\w$%]+)\s*(?:<\s*([0-9]{1,9})\s*>)?")
_VARIABLE = re.compile(
    r"\.(?:global|shared|const|local|param|tex|extern|visible|weak|common)\b[^=;]*?"
    r"([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*){0,4}[=;]"
)
_WIDTH = re.compile(r"\d+$")
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class Declared:
    """One declared name; with a count it stands for `name0`, `name1`, ..."""

    type: str
    name: str
    count: int | None

    @property
    def names(self) -> list[str]:
        if self.count is None:
            return [self.name]
        return [f"{self.name}{number}" for number in range(self.count)]


def declared_registers(code: str) -> Iterator[Declared]:
    """What a `.reg` declaration declares; nothing for any other declaration."""
    if match := _DECLARATION.match(code):
        for name, count in _NAMES.findall(match[2]):
            yield Declared(match[1].replace(" ", ""), name, int(count) if count else None)


@dataclass(slots=True)
class Registers:
    """The types of a function's registers, whatever the scope that declares them."""

    single: dict[str, str] = field(default_factory=dict)
    numbered: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, declared: Declared) -> None:
        if declared.count is None:
            self.single[declared.name] = declared.type
        else:
            self.numbered[declared.name] = (declared.type, declared.count)

    def type_of(self, name: str) -> str | None:
        """The declared type (`.b32`, `.pred`, ...) of a register; None if it is none."""
        if name in self.single:
            return self.single[name]
        numbered = _NUMBERED.fullmatch(name)
        kind, count = self.numbered.get(numbered[1], (None, 0)) if numbered else (None, 0)
        return kind if numbered and int(numbered[2]) < count else None


def declared_variable(code: str) -> str | None:
    """The name of the variable, label of a table or parameter that a declaration declares."""
    match = _VARIABLE.match(code)
    return match[1] if match else None


def read_registers(document: Document, function: Function, *, is_inner: bool = True) -> Registers:
    """All registers that a function declares; `is_inner`: also those of its inner scopes."""
    registers = Registers()
    depth = 0
    for place in function.body:
        if place in document.scopes:
            depth += 1
        depth -= document.statements[place].kind is StatementKind.CLOSE
        if depth and not is_inner:
            continue
        line = document.statements[place]
        if line.kind is StatementKind.DECLARATION:
            for declared in declared_registers(line.code):
                registers.add(declared)
    return registers


def renamed(old: Statement, rename: Callable[[str], str]) -> Statement:
    """The statement with other names in it; the same one where none changes."""
    code = NAME.sub(lambda name: rename(name[0]), old.code)
    return old if code == old.code else statement(old.kind, code, old.before)


def type_finder(document: Document) -> Callable[[int, str], str | None]:
    """A function that tells the type of a register that a statement, by its place, names."""
    functions = document.functions
    tables = [read_registers(document, function) for function in functions]
    starts = [function.opening for function in functions]

    def type_of(place: int, name: str) -> str | None:
        number = bisect_right(starts, place) - 1
        return tables[number].type_of(name) if number >= 0 else None

    return type_of


# Deeper nests, and nested declarations of more names, are left as they are.
_SCOPES_DEEPEST = 16
_MOST_NAMES = 256


def without_scopes(document: Document) -> Document:
    """The document without scopes inside its functions."""
    changes: dict[int, Sequence[Statement]] = {}
    for function in document.functions:
        changes.update(_flattened(document, function))
    return document.replaced(changes) if changes else document


def _flattened(document: Document, function: Function) -> dict[int, Sequence[Statement]]:
    lines = {place: document.statements[place] for place in function.body}
    if not any(place in document.scopes for place in lines):
        return {}
    new_names = _new_names(document, function)
    changes: dict[int, Sequence[Statement]] = {}
    for place, scopes in _scopes(document, function):
        if place in document.scopes or lines[place].kind is StatementKind.CLOSE:
            changes[place] = ()
        elif scopes:
            names = [new_names.get(scope, {}) for scope in reversed(scopes)]
            changes[place] = [renamed(_expanded(lines[place]), partial(_find, names))]
        if len(scopes) > _SCOPES_DEEPEST:
            return {}
    return changes


def _scopes(document: Document, function: Function) -> Iterator[tuple[int, list[int]]]:
    """Each statement of a function and the inner scopes that it is in, outermost first.

    A brace that opens or closes a scope is in it. The list is only true until the next step.
    """
    opened: list[int] = []
    for place in function.body:
        if place in document.scopes:
            opened.append(place)
        yield place, opened
        if opened and document.scopes[opened[-1]] == place:
            opened.pop()


def _new_names(document: Document, function: Function) -> dict[int, dict[str, str]]:
    """For each inner scope, another name for all that it declares and that is not unique."""
    owned: dict[int, list[str]] = {}
    for place, scopes in _scopes(document, function):
        line = document.statements[place]
        names = owned.setdefault(scopes[-1] if scopes else function.opening, [])
        if line.label:
            names.append(line.label)
        elif line.kind is StatementKind.DECLARATION:
            names += filter(None, [declared_variable(line.code)])
            registers = declared_registers(_expanded(line).code)
            names += [register.name for register in registers if register.count is None]
    counts = Counter(name for names in owned.values() for name in set(names))
    outer = read_registers(document, function, is_inner=False)
    words: set[str] = set()
    result: dict[int, dict[str, str]] = {}
    for scope, names in owned.items():
        if scope == function.opening:
            continue
        for name in names:
            if counts[name] > 1 or outer.type_of(name):
                code = (document.statements[place].code for place in function.body)
                words = words or set(NAME.findall("\n".join(code)))
                new = next(
                    new for n in itertools.count(scope) if (new := f"{name}_{n}") not in words
                )
                words.add(new)
                result.setdefault(scope, {})[name] = new
    return result


def _find(scopes: list[dict[str, str]], name: str) -> str:
    return next((names[name] for names in scopes if name in names), name)


def _expanded(line: Statement) -> Statement:
    """A declaration of `%r<3>` as one of `%r0, %r1, %r2`: so each of them can be renamed."""
    registers = (
        list(declared_registers(line.code)) if line.kind is StatementKind.DECLARATION else []
    )
    size = sum(declared.count or 1 for declared in registers)
    if all(declared.count is None for declared in registers) or size > _MOST_NAMES:
        return line
    names = ", ".join(name for declared in registers for name in declared.names)
    return statement(line.kind, f".reg {registers[0].type} {names};", line.before)


def dominators(after: Sequence[Sequence[int]], first: int) -> dict[int, int]:
    """The nearest block that every way from the `first` one to a block leads through.

    Of the blocks that are reached, each before what only follows it; the first is its own.
    """
    order = _in_order(after, first)
    place = {block: number for number, block in enumerate(order)}
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for following in after[block]:
            before[following].append(block)
    nearest = {first: first}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            ways = [origin for origin in before[block] if origin in nearest]
            common = reduce(partial(_common, nearest, place), ways)
            if nearest.get(block) != common:
                nearest[block] = common
                changed = True
    return nearest


def _in_order(after: Sequence[Sequence[int]], first: int) -> list[int]:
    """Those that are reached, in the reverse of the order in which a search leaves them."""
    reached, order = {first}, []
    pile = [(first, iter(after[first]))]
    while pile:
        block, successors = pile[-1]
        following = next((to for to in successors if to not in reached), None)
        if following is None:
            order.append(block)
            pile.pop()
        else:
            reached.add(following)
            pile.append((following, iter(after[following])))
    return order[::-1]


def _common(nearest: dict[int, int], place: dict[int, int], left: int, right: int) -> int:
    while left != right:
        while place[left] > place[right]:
            left = nearest[left]
        while place[right] > place[left]:
            right = nearest[right]
    return left


_LEAVES = frozenset({"ret", "exit", "trap"})


@dataclass(frozen=True, slots=True)
class UndefinedRead:
    """An instruction, by its place, and a register that it may read undefined."""

    place: int
    register: str


@dataclass(slots=True)
class _Block:
    """Instructions without a way in or out between them, and the blocks that may come next."""

    lines: list[tuple[int, Instruction]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    next: list[int] = field(default_factory=list)


def _blocks(document: Document, function: Function) -> list[_Block]:
    blocks = [_Block()]
    for place in function.body:
        line = document.statements[place]
        if line.label:
            if blocks[-1].lines:
                blocks.append(_Block())
            blocks[-1].labels.append(line.label)
        elif instruction := line.instruction:
            blocks[-1].lines.append((place, instruction))
            if instruction.base in ("bra", "brx") or instruction.base in _LEAVES:
                blocks.append(_Block())
    starts = {label: number for number, block in enumerate(blocks) for label in block.labels}
    for number, block in enumerate(blocks):
        block.next = list(_following(block, number, starts, len(blocks)))
    return blocks


def most_live(document: Document, function: Function) -> int:
    """How many registers of 32 bits hold values that are read later, where there are the most.

    In the order of the text. Predicates need none; behind a guarded write the old value lives on.
    """
    registers = read_registers(document, function)
    blocks = _blocks(document, function)
    bits: dict[str, int] = {}
    # A register of 64 bits counts in two masks, one of 128 bits in four.
    masks = [0] * 4

    def held(names: Sequence[str]) -> int:
        mask = 0
        for name in names:
            width = _WIDTH.search(registers.type_of(name) or "")
            if width and name not in bits:
                bits[name] = 1 << len(bits)
                for word in range(max(1, int(width[0]) // 32)):
                    masks[word] |= bits[name]
            mask |= bits.get(name, 0)
        return mask

    def living(number: int) -> Iterator[int]:
        """What lives at the end of a block, then before each of its instructions, upwards."""
        live = reduce(int.__or__, (entering[after] for after in blocks[number].next), 0)
        yield live
        for _, one in reversed(blocks[number].lines):
            live = live & ~(0 if one.guard else held(one.writes)) | held(one.reads)
            yield live

    entering = [0] * len(blocks)
    waiting = set(range(len(blocks)))
    while waiting:
        number = max(waiting)
        waiting.remove(number)
        *_, live = living(number)
        if live != entering[number]:
            entering[number] = live
            waiting |= {n for n, block in enumerate(blocks) if number in block.next}
    return max(
        sum((live & mask).bit_count() for mask in masks)
        for number in range(len(blocks))
        for live in living(number)
    )


def undefined_reads(document: Document, function: Function) -> list[UndefinedRead]:
    """Every read of a register, in reachable code, that some way leads to without a write."""
    registers = read_registers(document, function)
    blocks = _blocks(document, function)
    facts = _DefinedRegisters(registers)
    # What is defined where a block begins, as far as the ways to it were followed.
    entering = {0: 0}
    waiting = [0]
    while waiting:
        number = waiting.pop()
        leaving = facts.after(blocks[number], entering[number])
        for following in blocks[number].next:
            merged = leaving & entering.get(following, leaving)
            if merged != entering.get(following):
                entering[following] = merged
                waiting.append(following)
    return [
        read for number in sorted(entering)
        for read in facts.undefined(blocks[number], entering[number])
    ]  # fmt: skip


class _DefinedRegisters:
    """Facts as bits: a register is defined, or is defined where a guard holds."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers
        self._bits: dict[tuple[str, str], int] = {}
        self._guarded_by: dict[str, int] = {}

    def after(self, block: _Block, facts: int) -> int:
        for _, instruction in block.lines:
            facts = self._step(instruction, facts)
        return facts

    def undefined(self, block: _Block, facts: int) -> Iterator[UndefinedRead]:
        for place, instruction in block.lines:
            for name in dict.fromkeys(instruction.reads):
                if not self._registers.type_of(name):
                    continue
                # A read under the guard of a write is one of what was written.
                if not facts & (self._bit("", name) | self._bit(instruction.guard, name)):
                    yield UndefinedRead(place, name)
            facts = self._step(instruction, facts)

    def _step(self, instruction: Instruction, facts: int) -> int:
        for name in instruction.writes:
            facts &= ~self._guarded_by.get(name, 0)
        for name in instruction.writes:
            # Not where it writes its own guard: the guard that held is no more.
            if instruction.guard.lstrip("@!") not in instruction.writes:
                facts |= self._bit(instruction.guard, name)
        return facts

    def _bit(self, guard: str, name: str) -> int:
        key = (guard, name)
        if key not in self._bits:
            self._bits[key] = 1 << len(self._bits)
            if guard:
                predicate = guard.lstrip("@!")
                self._guarded_by[predicate] = self._guarded_by.get(predicate, 0) | self._bits[key]
        return self._bits[key]


def _following(block: _Block, number: int, starts: dict[str, int], count: int) -> Iterator[int]:
    last = block.lines[-1][1] if block.lines else None
    if last and last.base == "brx":
        yield from starts.values()
    elif last and last.base == "bra":
        yield from (starts[name] for name in last.reads if name in starts)
    if (last is None or not last.ends) and number + 1 < count:
        yield number + 1
