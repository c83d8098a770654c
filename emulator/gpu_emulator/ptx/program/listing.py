"""An entry of a PTX module as one list of lines, with the functions that it calls put in place.

Names of registers, labels and variables are unique in the result. Parameters and results of a
function are registers, or local memory of each thread (PTX ISA, "Parameter State Space": what
`.param` of a device function may always be mapped to). A call through a register becomes a choice
between the functions that it may mean. Recursion goes as deep as there is room. Source of variables
and their initial bytes: PTX ISA, "State Spaces, Types, and Variables".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gpu_emulator.ptx.text.constants import constant, float_bits, integer
from gpu_emulator.ptx.text.document import Document, Function, Head, parse, read_head
from gpu_emulator.ptx.text.document import StatementKind as Kind
from gpu_emulator.ptx.text.facts import NAME, Instruction, split_operands
from gpu_emulator.ptx.text.registers import Declared, declared_registers, without_scopes
from gpu_emulator.steps import BITS, MOST_BYTES, Entry, Variable
from gpu_emulator.values import NotExecutable, Place

# Bytes of one element of each fundamental type.
SIZES = {
    **{f"{letter}{bits}": bits // 8 for letter in "busf" for bits in (16, 32, 64)}, "b8": 1,
    "u8": 1, "s8": 1, "b128": 16, "f16x2": 4, "bf16": 2, "bf16x2": 4, "pred": 1,
}  # fmt: skip
_VARIABLE = re.compile(
    r"(?P<front>(?:\.\w+(?:\s+[0-9]+)?\s+|\.align\s+[0-9]+\s+)*)"
    r"(?P<name>[\w$%]+)\s*(?P<counts>(?:\[[^\]]*\]\s*)*)(?:=\s*(?P<init>.*))?\Z",
    re.DOTALL,
)
_WORD = re.compile(r"\.(\w+)(?:\s+([0-9]+))?")
_SPACES = ("global", "shared", "const", "local", "param")


def read_variable(text: str) -> Variable | None:
    """Read a declaration without its semicolon; None if it declares no variable."""
    match = _VARIABLE.match(text.strip())
    if not match:
        return None
    space, kind, align, vector, words = "", "", 0, 1, []
    for word, number in _WORD.findall(match["front"]):
        words.append(word)
        if word == "align" and number:
            # Of a pointer parameter, `.ptr .align` is what it points to.
            align = align if "ptr" in words else int(number)
        elif word in _SPACES:
            space = space or word
        elif word in ("v2", "v4", "v8"):
            vector = int(word[1:])
        elif word in SIZES:
            kind = word
    if not space or not kind:
        return None
    width = SIZES[kind]
    name, count = match["name"], vector
    for length in re.findall(r"\[([^\]]*)\]", match["counts"]):
        many = integer(length) if length.strip() else 0
        if many is None or many < 0:
            raise NotExecutable(f"the size [{length.strip()}] of {name} cannot be read")
        count *= many
    data, relocations = _initial(match["init"], kind, width)
    size = count * width
    if space in ("global", "const") and size > MOST_BYTES:
        raise NotExecutable(f"{name} has {size:,} bytes: at most {MOST_BYTES:,} are run")
    if data is not None:
        size = max(size, len(data))
        data = data.ljust(size, b"\0")
    return Variable(
        name, space, kind, size, align or width * vector, data, relocations,
        "extern" in words,
    )  # fmt: skip


def _initial(
    text: str | None, kind: str, width: int
) -> tuple[bytes | None, tuple[tuple[int, str, int], ...]]:
    if text is None:
        return None, ()
    data = bytearray()
    relocations = []
    for piece in split_operands(text.replace("{", " ").replace("}", " ").strip()):
        try:
            data += initial_bytes(piece, kind, width)
        except ValueError:
            name, _, addend = piece.replace("generic(", "").replace(")", "").partition("+")
            relocations.append((len(data), name.strip(), integer(addend or "0") or 0))
            data += bytes(width)
    return bytes(data), tuple(relocations)


def initial_bytes(text: str, kind: str, width: int) -> bytes:
    """A number as little-endian bytes; ValueError if it is none."""
    exact, value = float_bits(text.strip()), constant(text.strip())
    if value is None:
        raise ValueError(text)
    if exact and (exact[1] == 8 * width or kind.startswith("b")):
        return (exact[0] % (1 << (8 * width))).to_bytes(width, "little")
    if isinstance(value, float) or kind in ("f32", "f64"):
        return struct.pack("<f" if width == 4 else "<d", value)
    return (value % (1 << (8 * width))).to_bytes(width, "little")


# The stack pointer of a thread, and how large its stack is.
STACK = "%stack"
STACK_BYTES = 1 << 14


@dataclass(slots=True)
class PtxLine:
    """One instruction: guard register ("" if none), opcode, operands, where it stands."""

    opcode: str
    operands: tuple[str, ...]
    place: Place
    guard: str = ""
    is_negated: bool = False

    @property
    def base(self) -> str:
        return self.opcode.split(".", 1)[0]

    def refuse(self, why: str) -> NotExecutable:
        return NotExecutable(f"PTX line {self.place.ptx_line}: {self.place.instruction} {why}")


@dataclass(slots=True)
class EntryListing(Entry):
    """What one entry consists of.

    `labels` maps a label to the number of the line that follows it, `registers` a register to its
    declared type without the dot, `tables` a label of branch targets to these.
    """

    lines: list[PtxLine] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)


_REGISTER = re.compile(r"\.reg\s+\.(\w+)\s+([\w$%]+)\Z")
# How many calls may be nested; fewer where functions call themselves and the lines grow too many.
_DEEPEST_CALL = 64
_MOST_RECURSIVE_LINES = 50_000
# Where functions begin, for those who call by address: in no state space.
_CODE, _CODE_STEP = 0x1000, 0x100
# Functions that every driver brings along: the sizes of their parameters.
_BUILT_IN = {"__assertfail": (8, 8, 4, 8, 8), "vprintf": (8, 8)}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call: its line, what it is given and gives, the prefix of names of what replaces it."""

    line: PtxLine
    results: Sequence[str]
    arguments: Sequence[str]
    prefix: str


_LOC = re.compile(r"\.loc\s+([0-9]+)\s+([0-9]+)")
_FILE = re.compile(r'\.file\s+([0-9]+)\s*"([^"\n]*)"')
_TABLE = re.compile(r"\.(branch|call)targets\s+([^;]*);")
_BRACES = (Kind.OPEN, Kind.CLOSE)
_MOST_LINES = 2_000_000
_MOST_REGISTERS = 1_000_000
_STACK_OPCODES = ("alloca", "stacksave", "stackrestore")


def read_listing(ptx: str, entry: str | None) -> EntryListing:
    """Read one entry of a module; NotExecutable where there is none or it cannot be read."""
    written = parse(ptx)
    document = without_scopes(written)
    return _Reader(document, _line_numbers(written, document)).entry(entry)


class _Reader:
    """Reads an entry, and puts functions in place of their calls."""

    def __init__(self, document: Document, ptx_lines: Sequence[int]) -> None:
        self._document = document
        self._ptx_lines = ptx_lines
        self._functions: dict[str, tuple[Head, Function]] = {}
        for function in document.functions:
            head = read_head(document.statements[function.head].code)
            if head:
                self._functions[head.name] = (head, function)
        self._result = EntryListing("")
        places = range(_CODE, _CODE + _CODE_STEP * len(self._functions), _CODE_STEP)
        self._result.functions = dict(zip(self._functions, places, strict=True))
        directives = [s.code for s in document.statements if s.kind is Kind.DIRECTIVE]
        self._files = {file[1]: file[2] for file in filter(None, map(_FILE.match, directives))}
        self._statics: set[str] = set()
        self._calls = 0
        self._depth = 0

    def _emit(self, opcode: str, operands: tuple[str, ...], place: Place) -> None:
        self._result.lines.append(PtxLine(opcode, operands, place))

    def _is_register(self, text: str) -> bool:
        return text in self._result.registers

    def _call(self, line: PtxLine) -> None:
        operands = list(line.operands)
        results = _names(operands.pop(0)) if operands and operands[0].startswith("(") else []
        name = operands.pop(0) if operands else ""
        has_arguments = bool(operands) and operands[0].startswith("(")
        arguments = _names(operands.pop(0)) if has_arguments else []
        self._calls += 1
        prefix = f"%call{self._calls}$"
        after = f"{prefix}$after"
        if line.guard:
            self._jump(after, line, line.guard, is_negated=not line.is_negated)
        call = _Call(line, results, arguments, prefix)
        if name in self._functions:
            self._inline(name, call)
        elif name in _BUILT_IN:
            self._built_in(name, call)
        elif self._is_register(name):
            self._choose(name, operands, call)
        else:
            raise NotExecutable(f"calls {name}, which the PTX does not define", (line.opcode,))
        self._result.labels[after] = len(self._result.lines)

    def _jump(self, to: str, line: PtxLine, guard: str = "", *, is_negated: bool = False) -> None:
        self._result.lines.append(PtxLine("bra", (to,), line.place, guard, is_negated))

    def _inline(self, name: str, call: _Call) -> None:
        line, prefix = call.line, call.prefix
        if self._depth >= self._deepest:
            self._emit("%too_deep", (str(self._deepest),), line.place)
            return
        head, function = self._functions[name]
        outs = split_operands(head.results.strip("()"))
        ins = [parameter.text for parameter in head.parameters]
        arguments, results = len(call.arguments), len(call.results)
        if (arguments, results) != (len(ins), len(outs)):
            own = f"has {arguments} arguments and {results} results"
            raise line.refuse(f"{own}, and {name} {len(ins)} and {len(outs)}")
        stack = f"{prefix}$stack"
        has_stack = any(
            instruction.base == "alloca" for instruction in self._instructions(function.body)
        )
        if has_stack:
            self._result.registers[stack] = "b64"
            self._emit("stacksave.u64", (stack,), line.place)
        for text, actual in zip(ins, call.arguments, strict=True):
            self._pass(text, actual, prefix, line, is_result=False)
        for text in outs:
            self._own(text, prefix)
        self._depth += 1
        self._read_body(function, prefix)
        self._depth -= 1
        self._result.labels[f"{prefix}$return"] = len(self._result.lines)
        for text, actual in zip(outs, call.results, strict=True):
            self._pass(text, actual, prefix, line, is_result=True)
        if has_stack:
            self._emit("stackrestore.u64", (stack,), line.place)

    def _instructions(self, places: Iterable[int]) -> Iterator[Instruction]:
        statements = (self._document.statements[place] for place in places)
        return (s.instruction for s in statements if s.instruction)

    def _choose(self, name: str, tables: Sequence[str], call: _Call) -> None:
        """Compare an address with those of functions that it may mean, one after the other."""
        line, prefix = call.line, call.prefix
        differs, kind = f"{prefix}$differs", self._result.registers[name]
        self._result.registers[differs] = "pred"
        listed = self._result.tables.get(tables[0]) if tables else None
        for number, callee in enumerate(self._named if listed is None else listed):
            if not self._fits(callee, call):
                continue
            address = str(self._result.functions[callee])
            self._emit(f"setp.ne.b{kind[1:]}", (differs, name, address), line.place)
            self._jump(f"{prefix}$other{number}", line, differs)
            self._inline(callee, replace(call, prefix=f"{prefix}{number}$"))
            self._jump(f"{prefix}$after", line)
            self._result.labels[f"{prefix}$other{number}"] = len(self._result.lines)
        self._emit("%no_function", (name,), line.place)

    def _fits(self, name: str, call: _Call) -> bool:
        if name not in self._functions:
            return False
        head, _ = self._functions[name]
        sizes = (len(head.parameters), len(split_operands(head.results.strip("()"))))
        return sizes == (len(call.arguments), len(call.results))

    @cached_property
    def _named(self) -> list[str]:
        """Functions whose address is taken: named by what is not a call."""
        words = {
            name
            for statement in self._document.statements
            if statement.kind in (Kind.INSTRUCTION, Kind.DECLARATION)
            and not (statement.instruction and statement.instruction.base == "call")
            for name in NAME.findall(statement.code)
        }
        heads = (head for head, _ in self._functions.values())
        return [head.name for head in heads if head.name in words and not head.is_entry]

    def _built_in(self, name: str, call: _Call) -> None:
        """`__assertfail` and `vprintf`: read the arguments, then an instruction of our own."""
        line, prefix, arguments = call.line, call.prefix, call.arguments
        sizes = _BUILT_IN[name]
        if len(arguments) != len(sizes):
            raise NotExecutable(f"calls {name} with {len(arguments)} arguments")
        registers = []
        for number, (size, actual) in enumerate(zip(sizes, arguments, strict=True)):
            kind, register = f"b{8 * size}", f"{prefix}$argument{number}"
            self._result.registers[register] = kind
            if self._is_register(actual):
                self._emit(f"mov.{kind}", (register, actual), line.place)
            else:
                self._emit(f"ld.local.{kind}", (register, f"[{actual}]"), line.place)
            registers.append(register)
        if name == "vprintf":
            register = f"{prefix}$printed"
            self._result.registers[register] = "b32"
            registers.insert(0, register)
        self._emit(f"%{name.lstrip('_')}", tuple(registers), line.place)
        for actual in call.results[: int(name == "vprintf")]:
            is_register = self._is_register(actual)
            opcode, to = ("mov.b32", actual) if is_register else ("st.local.b32", f"[{actual}]")
            self._emit(opcode, (to, registers[0]), line.place)

    @cached_property
    def _deepest(self) -> int:
        """How deep calls may nest: less where functions call themselves, so that lines stay few."""
        calls: dict[str, list[str]] = {}
        for name, (_, function) in self._functions.items():
            calls[name] = []
            for call in self._instructions(function.body):
                if call.base == "call":
                    callee = next((o for o in call.operands if not o.startswith("(")), "")
                    direct = callee in self._functions or callee in _BUILT_IN
                    calls[name] += [callee] if direct else self._named
        sizes = {name: len(function.body) for name, (_, function) in self._functions.items()}
        lines = dict(sizes)
        for depth in range(1, _DEEPEST_CALL + 1):
            more = {
                name: sizes[name] + sum(lines.get(callee, 1) for callee in calls[name])
                for name in sizes
            }
            if more == lines:
                return _DEEPEST_CALL
            if more[self._result.name] > _MOST_RECURSIVE_LINES and depth > len(sizes):
                return depth - 1
            lines = more
        return _DEEPEST_CALL

    def _own(self, text: str, prefix: str) -> Variable | None:
        """Declare a parameter of a function: a register (None), or a variable in local memory."""
        register, formal = _REGISTER.match(text.strip()), read_variable(text)
        if register and register[1] in BITS:
            self._result.registers[prefix + register[2]] = register[1]
            return None
        if register or formal is None:
            raise NotExecutable(f"the parameter {text!r} of a function cannot be read")
        self._result.variables.append(replace(formal, name=prefix + formal.name, space="local"))
        return formal

    def _pass(self, text: str, actual: str, prefix: str, line: PtxLine, *, is_result: bool) -> None:
        """Copy an argument into a parameter, or a result back: 8 bytes at a time, or 1."""
        formal = read_variable(text) if is_result else self._own(text, prefix)
        if register := _REGISTER.match(text.strip()):
            inner, bits = prefix + register[2], BITS[register[1]]
            opcode = "mov.pred" if register[1] == "pred" else f"mov.b{bits}"
            if actual != "_":
                pair = (actual, inner) if is_result else (inner, actual)
                self._emit(opcode, pair, line.place)
            return
        if formal is None:
            raise NotExecutable(f"the parameter {text!r} of a function cannot be read")
        inner = prefix + formal.name
        target, origin = (actual, inner) if is_result else (inner, actual)
        if self._is_register(actual) or not NAME.fullmatch(actual):
            kind = f"b{formal.size * 8}"
            if is_result:
                self._emit(f"ld.local.{kind}", (actual, f"[{inner}]"), line.place)
            else:
                self._emit(f"st.local.{kind}", (f"[{inner}]", actual), line.place)
            return
        step = formal.align if formal.align in (1, 2, 4, 8) else 8
        kind = f"b{step * 8}"
        temporary = f"{prefix}$copy{step}"
        self._result.registers[temporary] = f"b{max(step * 8, 16)}"
        for offset in range(0, formal.size, step):
            self._emit(f"ld.local.{kind}", (temporary, f"[{origin}+{offset}]"), line.place)
            self._emit(f"st.local.{kind}", (f"[{target}+{offset}]", temporary), line.place)

    def entry(self, name: str | None) -> EntryListing:
        entries = [entry for entry, (head, _) in self._functions.items() if head.is_entry]
        if name is None and len(entries) != 1:
            raise NotExecutable(f"the PTX has {len(entries)} entries; name one of them")
        chosen = entries[0] if name is None else name
        if chosen not in entries:
            raise NotExecutable(f"the PTX has no entry {chosen}")
        head, function = self._functions[chosen]
        self._result.name, self._result.directives = chosen, head.directives
        inside = {place for _, own in self._functions.values() for place in own.body}
        for place, statement in enumerate(self._document.statements):
            if statement.kind is Kind.DECLARATION and place not in inside:
                self._declare(statement.code, "")
            elif statement.kind is Kind.OPAQUE and place not in inside:
                raise self._unread(place)
        for parameter in head.parameters:
            variable = read_variable(parameter.text)
            if variable is None:
                raise NotExecutable(f"the parameter {parameter.text!r} cannot be read")
            self._result.parameters.append(variable)
        self._read_body(function, "")
        if any(line.opcode.startswith(_STACK_OPCODES) for line in self._result.lines):
            memory = f"{STACK}$memory"
            result, first = self._result, self._result.lines[0].place
            result.variables.append(Variable(memory, "local", "b8", STACK_BYTES, 16))
            result.registers[STACK] = "b64"
            top = (STACK, f"{memory} + {STACK_BYTES}")
            result.lines.insert(0, PtxLine("mov.b64", top, first))
            result.labels = {label: line + 1 for label, line in result.labels.items()}
        return self._result

    def _unread(self, place: int) -> NotExecutable:
        code = self._document.statements[place].code
        return NotExecutable(f"PTX line {self._ptx_lines[place]} cannot be read: {code}")

    def _read_body(self, function: Function, prefix: str) -> None:
        names = self._names(function, prefix) if prefix else {}
        source: str | None = None

        def renamed(text: str) -> str:
            return NAME.sub(lambda name: names.get(name[0], name[0]), text) if names else text

        for place in function.body:
            statement = self._document.statements[place]
            if statement.kind is Kind.DECLARATION:
                self._declare(statement.code, prefix, names)
            elif statement.label is not None:
                self._result.labels[renamed(statement.label)] = len(self._result.lines)
            elif statement.kind is Kind.DIRECTIVE:
                if location := _LOC.match(statement.code):
                    source = f"{self._files.get(location[1], '?')}:{location[2]}"
            elif instruction := statement.instruction:
                at = Place(
                    ptx_line=self._ptx_lines[place], instruction=statement.code, source=source
                )
                guard, operands = instruction.guard, instruction.operands
                if names:
                    operands = tuple(map(renamed, operands))
                line = PtxLine(
                    instruction.opcode, operands, at, renamed(guard.lstrip("@!")), "!" in guard
                )
                self._line(line, prefix)
            elif statement.kind is not Kind.CLOSE and statement.kind is not Kind.OPEN:
                raise self._unread(place)
            if len(self._result.lines) > _MOST_LINES:
                raise NotExecutable(f"more than {_MOST_LINES} instructions with all calls in place")

    def _line(self, line: PtxLine, prefix: str) -> None:
        if line.base == "call":
            self._call(line)
        elif prefix and line.base == "ret":
            # Back to the caller: the label stands behind the function's last line.
            back = (f"{prefix}$return",)
            self._result.lines.append(PtxLine("bra", back, line.place, line.guard, line.is_negated))
        else:
            self._result.lines.append(line)

    def _names(self, function: Function, prefix: str) -> dict[str, str]:
        """All that a function declares, its parameters included, and what it is called here.

        What lies in memory that all threads share is there once, however often it is called.
        """
        [head] = [head for head, own in self._functions.values() if own is function]
        names = {parameter.name for parameter in head.parameters} | set(NAME.findall(head.results))
        shared = {}
        for place in function.body:
            statement = self._document.statements[place]
            if statement.label:
                names.add(statement.label)
            elif statement.kind is Kind.DECLARATION:
                variable = read_variable(statement.code.rstrip(";"))
                if variable and variable.space in ("global", "shared", "const"):
                    shared[variable.name] = f"{head.name}${variable.name}"
                names |= {variable.name} if variable else set()
                for declared in _declared(statement.code, len(names)):
                    names.update(declared.names)
        return {name: prefix + name for name in names} | shared

    def _declare(self, code: str, prefix: str, renamed: Mapping[str, str] | None = None) -> None:
        for declared in _declared(code, len(self._result.registers)):
            kind = declared.type.removeprefix(".")
            self._result.registers.update(dict.fromkeys((prefix + n for n in declared.names), kind))
        if code.startswith((".reg", ".pragma", ".alias", ".callprototype")):
            return
        if table := _TABLE.match(code):
            label = next(reversed(self._result.labels), "")
            inner = prefix if table[1] == "branch" else ""
            self._result.tables[label] = tuple(inner + name for name in split_operands(table[2]))
            return
        variable = read_variable(code.rstrip(";"))
        if variable:
            space = "local" if variable.space == "param" else variable.space
            name = (renamed or {}).get(variable.name, prefix + variable.name)
            if name not in self._statics:
                self._result.variables.append(replace(variable, name=name, space=space))
            if prefix and not name.startswith(prefix):
                self._statics.add(name)


def _declared(code: str, before: int) -> Iterator[Declared]:
    """What a declaration declares, where so many registers were declared before."""
    for declared in declared_registers(code):
        if before + (declared.count or 1) > _MOST_REGISTERS:
            raise NotExecutable(f"more than {_MOST_REGISTERS:,} registers are declared")
        yield declared


def _line_numbers(written: Document, document: Document) -> list[int]:
    """The line, from 1, on which each statement of a document begins in the module as written.

    The document is the module without the braces of scopes, and else has statement for statement.
    """
    places: list[tuple[Kind, int]] = []
    line = 1
    for statement in written.statements:
        line += statement.before.count("\n")
        places.append((statement.kind, line))
        line += statement.text.count("\n")
    numbers, at = [], 0
    for statement in document.statements:
        while places[at][0] is not statement.kind and places[at][0] in _BRACES:
            at += 1
        numbers.append(places[at][1])
        at += 1
    return numbers


def _names(operand: str) -> list[str]:
    return list(split_operands(operand.strip()[1:-1]))
