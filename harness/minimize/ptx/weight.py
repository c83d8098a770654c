"""The ballast pump: takes apart what only its weight keeps. Pure.

Some failures need a certain weight of code, and any code will do. Deletion then stalls at many
look-alikes, of which no single one can go. The pump replaces the look-alikes by copies of one heavy
instruction, more than is needed; deletes all else that goes under that slack; and then looks for
the smallest number of copies that does.

What weighs is what a compiler cannot drop. That is instructions without a result: all that the
module held at the beginning are tried, those with the most operands first, on registers that
nothing else uses. And it is arithmetic on a value on its way from where it is made to where it is
read: a 32-bit remainder, a short line in every version of PTX, is a dozen machine instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpu_emulator.ptx.text.document import Document, Function, Statement, StatementKind, statement
from gpu_emulator.ptx.text.facts import NAME, Instruction
from gpu_emulator.ptx.text.registers import read_registers, renamed
from harness.minimize.reduction.driver import Reducer, Transformation

_NAME = "ballast"
_FEWEST_LOOKALIKES = 4
_MOST_GROUPS = 3
_MOST_KINDS = 12
_PLACE = statement(StatementKind.OPAQUE, "// ballast")
# These end or steer the program, or depend on who else arrives.
_NO_BALLAST = frozenset({"bra", "brx", "call", "ret", "exit", "trap", "bar", "barrier"})
_CHAIN = "rem.u32"
_CHAINED = frozenset({".b32", ".u32", ".s32"})
_MOST_CHAINS = 3


@dataclass(frozen=True, slots=True)
class Ballast:
    """A heavy instruction; `types` are those of the registers that it names."""

    instruction: Instruction
    types: Mapping[str, str]

    @property
    def weight(self) -> int:
        """How heavy it looks."""
        return sum(len(NAME.findall(operand)) for operand in self.instruction.operands)


@dataclass(frozen=True, slots=True)
class _Load:
    """Copies of a ballast to put in the place for them, and what must stand before the first."""

    line: Statement
    first: tuple[Statement, ...]
    count: int

    def put(self, document: Document) -> Document:
        at = document.statements.index(_PLACE)
        return document.replaced({at: [*self.first, *[self.line] * self.count]})

    def times(self, count: int) -> _Load:
        return replace(self, count=count)

    @property
    def length(self) -> int:
        """How much there is to read of it."""
        return self.count * (len(self.line.code) + 1)


def ballasts(document: Document) -> list[Ballast]:
    """What a module offers as ballast, the heaviest looking first, one for each opcode."""
    found: dict[str, Ballast] = {}
    for function in document.functions:
        registers = read_registers(document, function)
        for place, one in document.instructions:
            if place in function.body and not one.results and one.base not in _NO_BALLAST:
                names = {name for operand in one.operands for name in NAME.findall(operand)}
                types = {name: kind for name in names if (kind := registers.type_of(name))}
                if len(types) == len(names):
                    found.setdefault(one.opcode, Ballast(replace(one, guard=""), types))
    return sorted(found.values(), key=lambda ballast: ballast.weight, reverse=True)


def _load(ballast: Ballast, known: Mapping[str, str]) -> _Load:
    """The ballast on the registers that are known for each type, else on new ones."""
    new = {kind: f"%new{kind.replace('.', '_')}" for kind in ballast.types.values()}
    missing = sorted(kind for kind in new if kind not in known)
    first = [statement(StatementKind.DECLARATION, f".reg {kind} {new[kind]};") for kind in missing]
    names = {name: known.get(kind, new[kind]) for name, kind in ballast.types.items()}
    line = renamed(
        statement(StatementKind.INSTRUCTION, str(ballast.instruction)), partial(_renaming, names)
    )
    return _Load(line, tuple(first), 0)


def _undefined(document: Document, function: Function) -> dict[str, str]:
    """For each type the register that is read most of those that nothing writes."""
    registers = read_registers(document, function)
    inside = [one for place, one in document.instructions if place in function.body]
    written = {name for one in inside for name in one.writes}
    uses = Counter(name for one in inside for name in one.reads if name not in written)
    known: dict[str, str] = {}
    for name, _ in uses.most_common():
        kind = registers.type_of(name)
        if kind:
            known.setdefault(kind, name)
    return known


def _chains(document: Document, function: Function, known: Mapping[str, str]) -> Iterator[_Load]:
    """Arithmetic on the values that pass the place for ballast, those that are read soonest."""
    here = document.statements.index(_PLACE)
    registers = read_registers(document, function)
    inside = [(place, one) for place, one in document.instructions if place in function.body]
    made = {name for place, one in inside if place < here for name in one.writes}
    passing: dict[str, str] = {}
    for _, one in (each for each in inside if each[0] > here):
        for name in one.reads:
            kind = registers.type_of(name)
            if name in made and kind in _CHAINED:
                passing.setdefault(name, kind)
        made.difference_update(one.writes)
    for name, kind in list(passing.items())[:_MOST_CHAINS]:
        by = next((known[each] for each in sorted(_CHAINED) if each in known), f"%new{kind[1:]}")
        first = (
            ()
            if by in known.values()
            else (statement(StatementKind.DECLARATION, f".reg {kind} {by};"),)
        )
        line = statement(StatementKind.INSTRUCTION, f"{_CHAIN} {name}, {name}, {by};")
        yield _Load(line, first, 0)


def _renaming(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)


async def pump(
    reducer: Reducer[Document],
    kinds: Sequence[Ballast],
    sweeps: Sequence[Sequence[Transformation[Document]]],
) -> bool:
    """Try the pump on the best document, with these sweeps under it; whether it got smaller."""
    for base, function, size in _groups(reducer.best):
        known = _undefined(base, function)
        loads = [*_chains(base, function, known)]
        loads += [_load(kind, known) for kind in kinds[:_MOST_KINDS]]
        best = await _heaviest(reducer, base, loads, size)
        if best and await _pumped(reducer, base, best, sweeps):
            return True
    return False


async def double_ballast(reducer: Reducer[Document]) -> bool:
    """Write the line that is there most often twice as often, if that may be."""
    document = reducer.best
    alike: dict[str, list[int]] = {}
    for place, one in document.instructions:
        alike.setdefault(str(one), []).append(place)
    places = max(alike.values(), key=len, default=[])
    line = [document.statements[place] for place in places]
    if len(places) < _FEWEST_LOOKALIKES:
        return False
    doubled = document.replaced({places[0]: [*line, line[0]]})
    if not (await reducer.ask(_NAME, [doubled]))[0]:
        return False
    reducer.adopt(_NAME, doubled)
    return True


def _groups(document: Document) -> Iterator[tuple[Document, Function, int]]:
    """The document with a place for ballast instead of look-alikes; how many these were, and where.

    The same line many times over is the likeliest to be there for its weight alone.
    """
    alike: dict[tuple[int, str], list[int]] = {}
    for number, function in enumerate(document.functions):
        for place, one in document.instructions:
            if place in function.body:
                alike.setdefault((number, str(one)), []).append(place)
                alike.setdefault((number, f"{one.guard} {one.opcode}"), []).append(place)
    keys = sorted(
        (key for key, places in alike.items() if len(places) >= _FEWEST_LOOKALIKES),
        key=lambda key: (not key[1].endswith(";"), -len(alike[key])),
    )
    groups = {tuple(alike[key]): key[0] for key in reversed(keys[:_MOST_GROUPS])}
    for places, number in reversed(groups.items()):
        base = document.replaced({**dict.fromkeys(places, ()), places[len(places) // 2]: [_PLACE]})
        yield base, base.functions[number], len(places)


async def _heaviest(
    reducer: Reducer[Document], base: Document, loads: Sequence[_Load], size: int
) -> _Load | None:
    """The load that replaces the look-alikes by the fewest letters: a knock-out by halving."""
    enough: dict[int, _Load] = {}
    left, count = dict(enumerate(loads)), size - 1
    while left and count:
        tried = {number: load.times(count) for number, load in left.items()}
        said = await reducer.ask(_NAME, [load.put(base) for load in tried.values()])
        left = {number: tried[number] for number, yes in zip(tried, said, strict=True) if yes}
        enough |= left
        count //= 2
    return min(enough.values(), key=lambda load: load.length, default=None)


async def _pumped(
    reducer: Reducer[Document],
    base: Document,
    load: _Load,
    sweeps: Sequence[Sequence[Transformation[Document]]],
) -> bool:
    """Reduce under more ballast than is needed, then take ballast away; whether it paid."""
    # A copy for every other instruction that may go, which compilers still take in their stride.
    more = load.times(max(4 * load.count + 8, len(base.instructions) // 2))
    if (await reducer.ask(_NAME, [more.put(base)]))[0]:
        load = more
    beside = reducer.excursion(base, load.put)
    # Singles too: what is left in here is not looked at again before the ballast is fixed.
    for passes in sweeps:
        await beside.sweep(passes)
    fewest = await _fewest(reducer, beside.best, load)
    result = fewest.put(beside.best)
    if reducer.growth(result) >= 0:
        return False
    reducer.adopt(_NAME, result)
    reducer.tell(_NAME, is_accepted=True)
    return True


async def _fewest(reducer: Reducer[Document], base: Document, load: _Load) -> _Load:
    """The smallest number of copies that is enough, as if more were always enough too."""
    low, enough = 0, load.count
    while low < enough:
        middle = (low + enough) // 2
        if (await reducer.ask(_NAME, [load.times(middle).put(base)]))[0]:
            enough = middle
        else:
            low = middle + 1
    return load.times(enough)
