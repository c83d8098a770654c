"""Reduces a PTX module to what makes it interesting: the passes, and the order they come in. Pure.

Passes that take much for one test come first. Instructions go in chunks before they go one by one.
Where deletion stalls, register pressure that nothing else needs is taken out (the ballast pump).
Only what is left is rewritten. At the end every pass has tried every step on the document that is
returned.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpu_emulator.ptx.text.document import (
    Document,
    Function,
    Statement,
    StatementKind,
    parse,
    statement,
)
from gpu_emulator.ptx.text.facts import NAME, Instruction, names_in
from gpu_emulator.ptx.text.registers import (
    Registers,
    read_registers,
    renamed,
    undefined_reads,
    without_scopes,
)
from harness.minimize.ptx.ptx_passes import (
    COLLAPSE,
    FUNCTIONS,
    HEADS,
    MODIFIERS,
    TIDY,
    Pass,
    bodies,
    bypasses,
    declarations,
    definitions,
    deletions,
    guards,
    halves,
    immediates,
    mapped,
    mergers,
    narrowest,
    offsets,
    renaming,
    renamings,
    returns,
    swapping,
    tidied,
    undefined,
)
from harness.minimize.reduction.reducer import (
    UNLIMITED,
    Edit,
    Effort,
    Reducer,
    Reduction,
    ReductionProgress,
)

# Programs that read no register before something wrote it.
#
# Passes may leave registers undefined, as ptxas lets them. What nothing writes any more becomes one
# register of its type, and that is given a value where the function begins: the thread's number,
# which no compiler can foresee. So a valid program goes through every pass that an invalid one
# does.

# How a register of a type is made from the thread's number, which is in the first one.
FIRST = ".b32"
VALUES = {
    ".b32": "mov.b32 {0}, %tid.x;",
    ".u32": "mov.u32 {0}, {1};",
    ".s32": "mov.s32 {0}, {1};",
    ".f32": "mov.b32 {0}, {1};",
    ".b64": "cvt.u64.u32 {0}, {1};",
    ".u64": "cvt.u64.u32 {0}, {1};",
    ".s64": "cvt.s64.u32 {0}, {1};",
    ".f64": "cvt.rn.f64.u32 {0}, {1};",
    ".b16": "cvt.u16.u32 {0}, {1};",
    ".u16": "cvt.u16.u32 {0}, {1};",
    ".s16": "cvt.s16.u32 {0}, {1};",
    ".pred": "setp.ne.u32 {0}, {1}, 0;",
}


def guarded(inner: Pass, holds: Callable[[Document], bool]) -> Pass:
    """A pass that makes nothing of which `holds` is not true."""

    def make(document: Document, chosen: Sequence[Edit]) -> Document | None:
        result = inner.apply(document, chosen)
        return result if result and holds(result) else None

    return replace(inner, make=make)


def undeclared(document: Document) -> frozenset[str]:
    """The names in instructions that nothing declares: special registers, and mistakes."""
    named = {
        name
        for _, line in document.instructions
        for text in (line.guard, *line.operands)
        for name in names_in(text)
    }
    tables = [read_registers(document, function) for function in document.functions]
    declared = {line.label for line in document.statements if line.label}
    for line in document.statements:
        if line.kind in (StatementKind.DECLARATION, StatementKind.HEAD):
            # All of its names: of a variable or a parameter it is one, and the others do no harm.
            declared |= set(names_in(line.code))
    return frozenset(
        name
        for name in named - declared
        if not any(registers.type_of(name) for registers in tables)
    )


def count_unwritten(ptx: str | Document) -> int:
    """How many registers PTX may read before anything wrote them, or never declares.

    One that an instruction writes twice, as both halves of a value, holds either of them.
    """
    document = parse(ptx) if isinstance(ptx, str) else ptx
    nameless = [name for name in undeclared(document) if not name.startswith("%")]
    twice = sum(len(op.writes) - len(set(op.writes)) for _, op in document.instructions)
    return undefined_registers(document).total() + len(nameless) + twice


def undefined_registers(document: Document) -> Counter[str]:
    """How many registers of each type a module may read although nothing wrote them."""
    flat = without_scopes(document)
    counts: Counter[str] = Counter()
    for function in flat.functions:
        type_of = read_registers(flat, function).type_of
        names = {read.register for read in undefined_reads(flat, function)}
        counts.update(type_of(name) or "" for name in names)
    return counts


def completed(document: Document) -> Document:
    """The document, without inner scopes, with a value for every register that may need one.

    A register of a type that no plain instruction can give a value stays undefined.
    """
    document = without_scopes(document)
    changes: dict[int, Sequence[Statement]] = {}
    for function in document.functions:
        changes.update(_completed(document, function))
    return document.replaced(changes) if changes else document


def _completed(document: Document, function: Function) -> dict[int, Sequence[Statement]]:
    registers = read_registers(document, function)
    needed: dict[str, str] = {}
    for read in undefined_reads(document, function):
        kind = registers.type_of(read.register)
        if kind in VALUES:
            needed[read.register] = kind
    if not needed:
        return {}
    written = {
        name for place, op in document.instructions if place in function.body for name in op.writes
    }
    present = _present(document, function, registers)
    shared = {kind: present.get(kind, f"%any{kind.replace('.', '_')}") for kind in VALUES}
    names = {name: shared[kind] for name, kind in needed.items() if name not in written}
    shared_kinds = {
        shared[needed[name]]: needed[name] for name in names if needed[name] not in present
    }
    alone = {name: kind for name, kind in needed.items() if name in written}
    lines = list(_lines(shared_kinds, alone, shared[FIRST], has_first=FIRST in present))
    changes = renamings(document, function, mapped(names)) if names else {}
    # After the values that are there already: they may be needed for these.
    at = _after_present(document, function, set(present.values()))
    before = changes.get(at, [document.statements[at]])
    return {**changes, at: [*before, *lines]}


def _lines(
    kinds: Mapping[str, str], alone: Mapping[str, str], first: str, *, has_first: bool
) -> Iterator[Statement]:
    """Declarations and values: of the shared registers, and of those written on some ways only."""
    needs_first = any("{1}" in VALUES[kind] for kind in (*kinds.values(), *alone.values()))
    if needs_first and not has_first:
        kinds = {first: FIRST, **kinds}
    for name, kind in kinds.items():
        yield statement(StatementKind.DECLARATION, f".reg {kind} {name};")
    values = sorted(kinds.items(), key=lambda item: item[0] != first)
    for name, kind in (*values, *alone.items()):
        yield statement(StatementKind.INSTRUCTION, VALUES[kind].format(name, first))


def _present(document: Document, function: Function, registers: Registers) -> dict[str, str]:
    """The registers at the beginning that already stand for what nothing writes."""
    inside = [line for place, line in document.instructions if place in function.body]
    registers_by_kind: dict[str, str] = {}
    for place in function.body:
        line = document.statements[place]
        if line.kind is StatementKind.DECLARATION:
            continue
        op = line.instruction
        if not op or len(op.writes) != 1:
            break
        name = op.writes[0]
        kind = registers.type_of(name) or ""
        text = VALUES.get(kind, "").format(name, registers_by_kind.get(FIRST, ""))
        if line.code != text or kind in registers_by_kind:
            break
        if sum(name in inner.writes for inner in inside) != 1:
            break
        registers_by_kind[kind] = name
    return registers_by_kind


def _after_present(document: Document, function: Function, names: set[str]) -> int:
    """The place after which new values go: they need the declarations, and the first register."""
    last = function.opening
    for place in function.body:
        line = document.statements[place]
        instruction = line.instruction
        is_value = instruction and len(instruction.writes) == 1 and instruction.writes[0] in names
        if line.kind is not StatementKind.DECLARATION and not is_value:
            break
        last = place
    return last


# Gives a value to each register that a reduced PTX program reads before anything wrote it.
#
# ptxas takes a register that nothing wrote for whatever suits it; a failure may need a value that
# all threads share, one that differs between them, or a constant. So each register tries all
# three, then each of its uses by itself, with ballast to spare: a value may make code lighter.
# Compilers leave registers undefined themselves, so as many as the original has may stay.

_DEFINE = "define"
# The same in a whole block, and unknown; different in each thread; known.
_SOURCES = {"block": "%ctaid.x", "thread": "%tid.x", "one": "1"}


@dataclass(frozen=True, slots=True)
class _UndefinedRegister:
    """A register that is read undefined in a function (by its number), and the lines that do."""

    function: int
    register: str
    type: str
    lines: tuple[str, ...]


async def define(reducer: Reducer[Document], *, allowed: Counter[str]) -> bool:
    """Give values to what the best document reads; whether only `allowed` registers lack one."""
    await double_ballast(reducer)
    for need in _needs(reducer.best):
        await _try_values(reducer, need, None)
    for need in _needs(reducer.best):
        for line in need.lines:
            await _try_values(reducer, need, line)
    return undefined_registers(reducer.best) <= allowed


def _needs(document: Document) -> list[_UndefinedRegister]:
    needs = []
    for number, function in enumerate(document.functions):
        registers = read_registers(document, function)
        lines: dict[str, dict[str, None]] = {}
        for read in undefined_reads(document, function):
            code = document.statements[read.place].code
            lines.setdefault(read.register, {})[code] = None
        for register, codes in lines.items():
            kind = registers.type_of(register)
            if kind in VALUES:
                needs.append(_UndefinedRegister(number, register, kind, tuple(codes)))
    return needs


async def _try_values(
    reducer: Reducer[Document], need: _UndefinedRegister, line: str | None
) -> None:
    """Adopt the first value that keeps it interesting, for one line or for all."""
    for source in _SOURCES:
        candidate = _with_value(reducer.best, need, line, source)
        if (await reducer.ask(_DEFINE, [candidate]))[0]:
            reducer.adopt(_DEFINE, candidate)
            return


def _with_value(
    document: Document, need: _UndefinedRegister, line: str | None, source: str
) -> Document:
    """The document with a value in the register, or in a new one that this line reads instead."""
    function = document.functions[need.function]
    type_of = read_registers(document, function).type_of
    changes: dict[int, Sequence[Statement]] = {}
    new: dict[str, str] = {}
    register = need.register
    if line is not None:
        register = _unused(type_of, need.type.replace(".", "%"))
        new[register] = need.type
        rename = mapped({need.register: register})
        for place in function.body:
            if document.statements[place].code == line:
                changes[place] = [renamed(document.statements[place], rename)]
    first = register if need.type == FIRST else _unused(type_of, f"%{source}")
    values = [f"mov.b32 {first}, {_SOURCES[source]};"]
    if first != register:
        new[first] = FIRST
        values.append(VALUES[need.type].format(register, first))
    lines = [
        statement(StatementKind.DECLARATION, f".reg {kind} {name};") for name, kind in new.items()
    ]
    lines += [statement(StatementKind.INSTRUCTION, code) for code in values]
    at = next(
        p for p in function.body if document.statements[p].kind is not StatementKind.DECLARATION
    )
    return document.replaced({**changes, at: [*lines, *changes.get(at, [document.statements[at]])]})


def _unused(type_of: Callable[[str], str | None], stem: str) -> str:
    return next(name for n in itertools.count() if not type_of(name := f"{stem}_{n}"))


# The ballast pump: takes apart what only its weight keeps.
#
# Some failures need a certain weight of code, and any code will do. Deletion then stalls at many
# look-alikes, of which no single one can go. The pump replaces them by copies of one heavy
# instruction, more than is needed; deletes all else that goes under that slack; and then looks for
# the smallest number of copies that does.
#
# What weighs is what a compiler cannot drop. That is instructions without a result: all that the
# module held at the beginning are tried, those with the most operands first, on registers that
# nothing else uses. And it is arithmetic on a value on its way from where it is made to where it is
# read: a 32-bit remainder, a short line in every version of PTX, is a dozen machine instructions.

_PUMP = "ballast"
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


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of a ballast to put in the place for them, and what must stand before the first."""

    line: Statement
    first: tuple[Statement, ...]
    count: int

    def put(self, document: Document) -> Document:
        at = document.statements.index(_PLACE)
        return document.replaced({at: [*self.first, *[self.line] * self.count]})

    def times(self, count: int) -> _Copies:
        return replace(self, count=count)


def ballasts(document: Document) -> list[Ballast]:
    """What a module offers as ballast, the heaviest looking first, one for each opcode."""
    by_opcode: dict[str, Ballast] = {}
    for _, _, registers, inside in bodies(document):
        for _, op in inside:
            if not op.results and op.base not in _NO_BALLAST:
                names = {name for operand in op.operands for name in NAME.findall(operand)}
                types = {name: kind for name in names if (kind := registers.type_of(name))}
                if len(types) == len(names):
                    by_opcode.setdefault(op.opcode, Ballast(replace(op, guard=""), types))

    def weight(ballast: Ballast) -> int:
        return sum(len(NAME.findall(operand)) for operand in ballast.instruction.operands)

    return sorted(by_opcode.values(), key=weight, reverse=True)


def _load(ballast: Ballast, registers: Mapping[str, str]) -> _Copies:
    new = {kind: f"%new{kind.replace('.', '_')}" for kind in ballast.types.values()}
    missing = sorted(kind for kind in new if kind not in registers)
    first = [statement(StatementKind.DECLARATION, f".reg {kind} {new[kind]};") for kind in missing]
    names = {name: registers.get(kind, new[kind]) for name, kind in ballast.types.items()}
    line = renamed(statement(StatementKind.INSTRUCTION, str(ballast.instruction)), mapped(names))
    return _Copies(line, tuple(first), 0)


def _read_most(document: Document, function: Function) -> dict[str, str]:
    registers = read_registers(document, function)
    inside = [op for place, op in document.instructions if place in function.body]
    written = {name for op in inside for name in op.writes}
    uses = Counter(name for op in inside for name in op.reads if name not in written)
    most_read: dict[str, str] = {}
    for name, _ in uses.most_common():
        kind = registers.type_of(name)
        if kind:
            most_read.setdefault(kind, name)
    return most_read


def _chains(
    document: Document, function: Function, most_read: Mapping[str, str]
) -> Iterator[_Copies]:
    """Arithmetic on the values that pass the place for ballast, those that are read soonest."""
    here = document.statements.index(_PLACE)
    registers = read_registers(document, function)
    inside = [(place, op) for place, op in document.instructions if place in function.body]
    written = {name for place, op in inside if place < here for name in op.writes}
    passing: dict[str, str] = {}
    for _, op in (item for item in inside if item[0] > here):
        for name in op.reads:
            kind = registers.type_of(name)
            if name in written and kind in _CHAINED:
                passing.setdefault(name, kind)
        written.difference_update(op.writes)
    for name, kind in list(passing.items())[:_MOST_CHAINS]:
        by = next(
            (most_read[item] for item in sorted(_CHAINED) if item in most_read), f"%new{kind[1:]}"
        )
        first = statement(StatementKind.DECLARATION, f".reg {kind} {by};")
        line = statement(StatementKind.INSTRUCTION, f"{_CHAIN} {name}, {name}, {by};")
        yield _Copies(line, () if by in most_read.values() else (first,), 0)


async def pump(
    reducer: Reducer[Document], kinds: Sequence[Ballast], sweeps: Sequence[Sequence[Pass]]
) -> bool:
    """Try the pump on the best document, with these sweeps under it; whether it got smaller."""
    for base, function, size in _groups(reducer.best):
        most_read = _read_most(base, function)
        loads = [*_chains(base, function, most_read)]
        loads += [_load(kind, most_read) for kind in kinds[:_MOST_KINDS]]
        best = await _heaviest(reducer, base, loads, size)
        if best and await _pumped(reducer, base, best, sweeps):
            return True
    return False


async def double_ballast(reducer: Reducer[Document]) -> None:
    """Write the line that is there most often twice as often, if that may be."""
    document = reducer.best
    places_of: dict[str, list[int]] = {}
    for place, op in document.instructions:
        places_of.setdefault(str(op), []).append(place)
    places = max(places_of.values(), key=len, default=[])
    if len(places) < _FEWEST_LOOKALIKES:
        return
    line = [document.statements[place] for place in places]
    doubled = document.replaced({places[0]: [*line, line[0]]})
    if (await reducer.ask(_PUMP, [doubled]))[0]:
        reducer.adopt(_PUMP, doubled)


def _groups(document: Document) -> Iterator[tuple[Document, Function, int]]:
    """The document with a place for ballast instead of look-alikes; how many these were, and where.

    The same line many times over is the likeliest to be there for its weight alone.
    """
    places_of: dict[tuple[int, str], list[int]] = {}
    for number, function in enumerate(document.functions):
        for place, op in document.instructions:
            if place in function.body:
                places_of.setdefault((number, str(op)), []).append(place)
                places_of.setdefault((number, f"{op.guard} {op.opcode}"), []).append(place)
    keys = sorted(
        (key for key, places in places_of.items() if len(places) >= _FEWEST_LOOKALIKES),
        key=lambda key: (not key[1].endswith(";"), -len(places_of[key])),
    )
    groups = {tuple(places_of[key]): key[0] for key in reversed(keys[:_MOST_GROUPS])}
    for places, number in reversed(groups.items()):
        base = document.replaced({**dict.fromkeys(places, ()), places[len(places) // 2]: [_PLACE]})
        yield base, base.functions[number], len(places)


async def _heaviest(
    reducer: Reducer[Document], base: Document, loads: Sequence[_Copies], size: int
) -> _Copies | None:
    """The load that replaces the look-alikes by the fewest letters: a knock-out by halving."""
    enough: dict[int, _Copies] = {}
    candidates, count = dict(enumerate(loads)), size - 1
    while candidates and count:
        counted = {number: load.times(count) for number, load in candidates.items()}
        answers = await reducer.ask(_PUMP, [load.put(base) for load in counted.values()])
        candidates = {
            number: counted[number] for number, yes in zip(counted, answers, strict=True) if yes
        }
        enough |= candidates
        count //= 2
    # The least to read.
    lengths = ((load.count * (len(load.line.code) + 1), n) for n, load in enough.items())
    return enough[min(lengths)[1]] if enough else None


async def _pumped(
    reducer: Reducer[Document], base: Document, load: _Copies, sweeps: Sequence[Sequence[Pass]]
) -> bool:
    """Reduce under more ballast than is needed, then take ballast away; whether it paid."""
    # A copy for every other instruction that may go, which compilers still take in their stride.
    more = load.times(max(4 * load.count + 8, len(base.instructions) // 2))
    if (await reducer.ask(_PUMP, [more.put(base)]))[0]:
        load = more
    beside = reducer.excursion(base, load.put)
    # Singles too: what is left in here is not looked at again before the ballast is fixed.
    for passes in sweeps:
        await beside.sweep(passes)
    fewest = await _fewest(reducer, beside.best, load)
    result = fewest.put(beside.best)
    if reducer.growth(result) >= 0:
        return False
    reducer.adopt(_PUMP, result)
    reducer.tell(_PUMP, is_accepted=True)
    return True


async def _fewest(reducer: Reducer[Document], base: Document, load: _Copies) -> _Copies:
    """The smallest number of copies that is enough, as if more were always enough too."""
    low, enough = 0, load.count
    while low < enough:
        middle = (low + enough) // 2
        if (await reducer.ask(_PUMP, [load.times(middle).put(base)]))[0]:
            enough = middle
        else:
            low = middle + 1
    return load.times(enough)


# The order of the passes.

_Passes = tuple[Pass, ...]

_PER_INSTRUCTION = 10_000
# Registers that passes may name, though a document does not.
_SPECIAL = frozenset({"%tid", "%ctaid"})
_DELETE = swapping("delete", deletions)
_UNDEFINED = renaming("undefined", undefined)
_STRUCTURE: _Passes = (FUNCTIONS, HEADS, swapping("declarations", declarations))
_PLAIN: _Passes = (
    swapping("guards", guards),
    swapping("immediates", immediates),
    swapping("offsets", offsets),
    renaming("bypass", bypasses),
)
_FINE: _Passes = (
    MODIFIERS,
    swapping("narrowest", narrowest),
    swapping("halves", halves),
    swapping("definitions", definitions),
    swapping("returns", returns),
    renaming("merge", mergers),
)


async def reduce_ptx(
    text: str,
    is_interesting: Callable[[str], Awaitable[bool]],
    *,
    defined: bool = False,
    always: bool = False,
    effort: Effort = UNLIMITED,
    watch: Callable[[ReductionProgress[str]], None] = lambda _: None,
) -> Reduction[str]:
    """Reduce a module; the arguments are those of `reduction.Reducer`.

    `defined`: what comes out reads no register that nothing wrote, if the text that goes in does
    not; `always`: neither does any candidate.
    """
    work = _PtxReduction(
        document=parse(text), is_interesting=is_interesting, effort=effort, watch=watch
    )
    if defined and not always:
        return await _reduce_defined(work)
    reducer = work.reducer()
    strategy = _Strategy(
        reducer,
        ballasts(tidied(work.document)),
        allowed=undefined_registers(work.document) if always else None,
        named=undeclared(work.document) | _SPECIAL if always else None,
    )
    is_minimal = await strategy.run()
    return _result(reducer, reducer.best, is_minimal=is_minimal)


@dataclass(kw_only=True)
class _PtxReduction:
    """The arguments of `reduce_ptx`; while `is_ahead`, no better document is reported."""

    document: Document
    is_interesting: Callable[[str], Awaitable[bool]]
    effort: Effort
    watch: Callable[[ReductionProgress[str]], None]
    is_ahead: bool = False

    def reducer(
        self, complete: Callable[[Document], Document] = lambda document: document, spent: int = 0
    ) -> Reducer[Document]:
        """A reducer that tests what `complete` makes of a document, after `spent` tests."""

        def hear(progress: ReductionProgress[Document]) -> None:
            if self.is_ahead:
                progress = replace(progress, document=None)
            progress = replace(progress, tests=spent + progress.tests)
            self.watch(progress.mapped(lambda best: str(complete(best)), unit=_PER_INSTRUCTION))

        most = self.effort.max_tests
        budget = None if most is None else max(0, most - spent)
        return Reducer(
            self.document,
            lambda candidate: self.is_interesting(str(complete(candidate))),
            size=lambda candidate: _size(complete(candidate)),
            key=lambda candidate: "\n".join(line.code for line in complete(candidate).statements),
            effort=replace(self.effort, max_tests=budget),
            watch=hear,
        )


async def _reduce_defined(work: _PtxReduction) -> Reduction[str]:
    """Reduce without a care, then give values to what reads none.

    Where that cannot be done, every step gives its values.
    """
    kinds, allowed = ballasts(tidied(work.document)), undefined_registers(work.document)
    work.is_ahead = True
    reducer = work.reducer()
    named = undeclared(work.document) | _SPECIAL
    await _Strategy(reducer, kinds, named=named).run()
    is_defined = await define(reducer, allowed=allowed)
    work.is_ahead = False
    if is_defined and reducer.growth(work.document) > 0:
        reducer.tell("define", is_accepted=True)
        undefined_left = undefined_registers(reducer.best)
        is_minimal = await _Strategy(reducer, kinds, allowed=undefined_left, named=named).finish()
        return _result(reducer, reducer.best, is_minimal=is_minimal)
    complete, spent = lru_cache(maxsize=16)(completed), reducer.tests
    reducer, is_minimal = work.reducer(complete, spent), False
    if (await reducer.ask("define", [reducer.best]))[0]:
        is_minimal = await _Strategy(reducer, kinds, by_values=True, named=named).run()
    is_same = reducer.best is work.document
    best = reducer.best if is_same else complete(reducer.best)
    return _result(reducer, best, is_minimal=is_minimal, spent=spent)


def _result(
    reducer: Reducer[Document], best: Document, *, is_minimal: bool, spent: int = 0
) -> Reduction[str]:
    return reducer.reduction(is_minimal=is_minimal).mapped(lambda _: str(best), spent=spent)


class _Strategy:
    def __init__(
        self,
        reducer: Reducer[Document],
        kinds: list[Ballast],
        *,
        allowed: Counter[str] | None = None,
        named: frozenset[str] | None = None,
        by_values: bool = False,
    ) -> None:
        """What `_guarded` lets through; `by_values`: every document is completed by values."""
        self._reducer = reducer
        self._kinds = kinds
        self._allowed = allowed
        # A value that is handed on stays various; a deletion leaves one value for all.
        removal = (_DELETE,) if allowed is None and not by_values else (COLLAPSE, _DELETE)
        self._named = named
        self._removal = self._guarded(removal)
        self._structure = self._guarded(_STRUCTURE)
        self._plain = self._guarded((*_PLAIN, _UNDEFINED))
        self._fine = self._guarded(_FINE)
        self._tidying = self._guarded((_UNDEFINED, TIDY))

    def _guarded(self, passes: Sequence[Pass]) -> _Passes:
        """The passes with these undefined registers, and names declared nowhere, and no others."""
        if self._allowed is None and self._named is None:
            return tuple(passes)
        return tuple(guarded(transformation, self._is_allowed) for transformation in passes)

    def _is_allowed(self, document: Document) -> bool:
        if self._named is not None and not undeclared(document) <= self._named:
            return False
        return self._allowed is None or undefined_registers(document) <= self._allowed

    async def run(self) -> bool:
        """Reduce until nothing changes; whether that was reached."""
        reducer = self._reducer
        await reducer.sweep(self._guarded((TIDY, FUNCTIONS)))
        await reducer.sweep(self._removal[:1], smallest=2)
        await reducer.sweep((*self._structure, *self._tidying))
        await self._pump()
        await reducer.sweep((*self._plain, *self._tidying, *self._removal))
        await self._pump()
        return await self.finish()

    async def finish(self) -> bool:
        """Every pass, again and again, until nothing changes; whether that was reached."""
        reducer = self._reducer
        whole = (*self._plain, *self._removal, *self._fine, *self._structure, *self._tidying)
        while await reducer.sweep(whole):
            await self._pump()
        return not reducer.is_spent()

    async def _pump(self) -> None:
        if self._allowed is not None:
            return  # the pump's registers have no values
        sweeps = (self._removal, (*self._plain, *self._tidying, *self._removal))
        while await pump(self._reducer, self._kinds, sweeps):
            await self._reducer.sweep(self._tidying)


def _size(document: Document) -> int:
    """Instructions first, then what there is to read."""
    length = sum(len(line.code) + 1 for line in document.statements)
    return _PER_INSTRUCTION * len(document.instructions) + length


def single_steps(document: Document, *, deletes: bool = False) -> Iterator[Document]:
    """The document after each single step of the passes on instructions.

    Those that delete one are first; with `deletes` there are no others.
    """
    for transformation in (_DELETE,) if deletes else (COLLAPSE, _DELETE, *_PLAIN, *_FINE):
        for edit in transformation.opportunities(document):
            changed = transformation.apply(document, [edit])
            if changed is not None:
                yield changed


def single_deletions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction as it is written, and the text without it."""
    document = parse(text)
    for place, _ in document.instructions:
        yield document.statements[place].text, str(document.without([place]))


def count_instructions(text: str) -> int:
    """How many instructions a module has."""
    return len(parse(text).instructions)
