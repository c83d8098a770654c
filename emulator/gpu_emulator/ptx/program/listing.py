"""An entry of a PTX module as one list of lines, with the functions that it calls put in place.

Names of registers, labels and variables are unique in the result. A call becomes the function's own
lines (`program.calls`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpu_emulator.ptx.program.calls import Calls
from gpu_emulator.ptx.program.lines import STACK, STACK_BYTES, EntryListing, PtxLine
from gpu_emulator.ptx.program.variables import Variable, read_variable
from gpu_emulator.ptx.text.document import Document, Function, parse
from gpu_emulator.ptx.text.document import StatementKind as Kind
from gpu_emulator.ptx.text.head import Head, read_head
from gpu_emulator.ptx.text.instruction import NAME, split_operands
from gpu_emulator.ptx.text.registers import Declared, declared_registers
from gpu_emulator.ptx.text.scopes import without_scopes
from gpu_emulator.refusal import NotExecutable
from gpu_emulator.values import Place

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
    def __init__(self, document: Document, ptx_lines: Sequence[int]) -> None:
        self._document = document
        self._ptx_lines = ptx_lines
        self._files = {each[0]: each[1] for each in _found(document, _FILE)}
        self._functions: dict[str, tuple[Head, Function]] = {}
        for function in document.functions:
            head = read_head(document.statements[function.head].code)
            if head:
                self._functions[head.name] = (head, function)
        self._statics: set[str] = set()
        self._result = EntryListing("")
        self._calls: Calls | None = None

    def entry(self, name: str | None) -> EntryListing:
        entries = [each for each, (head, _) in self._functions.items() if head.is_entry]
        if name is None and len(entries) != 1:
            raise NotExecutable(f"the PTX has {len(entries)} entries; name one of them")
        chosen = entries[0] if name is None else name
        if chosen not in entries:
            raise NotExecutable(f"the PTX has no entry {chosen}")
        head, function = self._functions[chosen]
        self._result = EntryListing(chosen, directives=head.directives)
        self._calls = Calls(self._document, self._functions, self._result, self._body)
        inside = {place for _, one in self._functions.values() for place in one.body}
        for place, one in enumerate(self._document.statements):
            if one.kind is Kind.DECLARATION and place not in inside:
                self._declare(one.code, "")
            elif one.kind is Kind.OPAQUE and place not in inside:
                raise NotExecutable(f"PTX line {self._ptx_lines[place]} cannot be read: {one.code}")
            elif one.code.startswith(".target"):
                self._result.target = one.code.split()[1].rstrip(",")
        for parameter in head.parameters:
            found = read_variable(parameter.text)
            if found is None:
                raise NotExecutable(f"the parameter {parameter.text!r} cannot be read")
            self._result.parameters.append(found)
        self._body(function, "")
        if any(line.opcode.startswith(_STACK_OPCODES) for line in self._result.lines):
            self._begin_stack()
        return self._result

    def _begin_stack(self) -> None:
        """Give threads a stack: its pointer begins at its upper end."""
        memory = f"{STACK}$memory"
        result, first = self._result, self._result.lines[0].place
        result.variables.append(Variable(memory, "local", "b8", STACK_BYTES, 16))
        result.registers[STACK] = "b64"
        top = (STACK, f"{memory} + {STACK_BYTES}")
        result.lines.insert(0, PtxLine("mov.b64", top, first))
        result.labels = {label: line + 1 for label, line in result.labels.items()}

    def _body(self, function: Function, prefix: str) -> None:
        known = self._names(function, prefix) if prefix else {}
        source: str | None = None

        def renamed(text: str) -> str:
            return NAME.sub(lambda at: known.get(at[0], at[0]), text) if known else text

        for place in function.body:
            one = self._document.statements[place]
            if one.kind is Kind.DECLARATION:
                self._declare(one.code, prefix, known)
            elif one.label is not None:
                label = renamed(one.label)
                self._result.labels[label] = len(self._result.lines)
            elif one.kind is Kind.DIRECTIVE:
                if found := _LOC.match(one.code):
                    source = f"{self._files.get(found[1], '?')}:{found[2]}"
            elif one.instruction:
                at = Place(ptx_line=self._ptx_lines[place], instruction=one.code, source=source)
                guard = one.instruction.guard.removeprefix("@")
                line = PtxLine(
                    one.instruction.opcode,
                    tuple(renamed(each) for each in one.instruction.operands),
                    at,
                    renamed(guard.removeprefix("!")),
                    guard.startswith("!"),
                )
                self._line(line, prefix)
            elif one.kind is not Kind.CLOSE and one.kind is not Kind.OPEN:
                raise NotExecutable(f"PTX line {self._ptx_lines[place]} cannot be read: {one.code}")
            if len(self._result.lines) > _MOST_LINES:
                raise NotExecutable(f"more than {_MOST_LINES} instructions with all calls in place")

    def _line(self, line: PtxLine, prefix: str) -> None:
        base = line.opcode.split(".", 1)[0]
        if base == "call":
            assert self._calls is not None
            self._calls.call(line)
        elif prefix and base == "ret":
            # Back to the caller: the label stands behind the function's last line.
            back = (f"{prefix}$return",)
            self._result.lines.append(PtxLine("bra", back, line.place, line.guard, line.is_negated))
        else:
            self._result.lines.append(line)

    def _names(self, function: Function, prefix: str) -> dict[str, str]:
        """All that a function declares, its parameters included, and what it is called here.

        What lies in memory that all threads share is there once, however often it is called.
        """
        head = read_head(self._document.statements[function.head].code)
        found = {each.name for each in head.parameters} if head else set()
        shared = {}
        if head:
            found |= set(NAME.findall(head.results))
        for place in function.body:
            one = self._document.statements[place]
            if one.label:
                found.add(one.label)
            elif one.kind is Kind.DECLARATION:
                variable = read_variable(one.code.rstrip(";"))
                if variable and head and variable.space in ("global", "shared", "const"):
                    shared[variable.name] = f"{head.name}${variable.name}"
                found |= {variable.name} if variable else set()
                found |= {n for each in _declared(one.code, len(found)) for n in each.names}
        return {each: prefix + each for each in found} | shared

    def _declare(self, code: str, prefix: str, known: Mapping[str, str] | None = None) -> None:
        for declared in _declared(code, len(self._result.registers)):
            kind = declared.type.removeprefix(".")
            self._result.registers.update(dict.fromkeys((prefix + n for n in declared.names), kind))
        if code.startswith((".reg", ".pragma", ".alias", ".callprototype")):
            return
        if found := _TABLE.match(code):
            label = next(reversed(self._result.labels), "")
            names = split_operands(found[2])
            inner = prefix if found[1] == "branch" else ""
            self._result.tables[label] = tuple(inner + each for each in names)
            return
        variable = read_variable(code.rstrip(";"))
        if variable:
            space = "local" if variable.space == "param" else variable.space
            name = (known or {}).get(variable.name, prefix + variable.name)
            if name not in self._statics:
                self._result.variables.append(variable.renamed(name, space))
            if prefix and not name.startswith(prefix):
                self._statics.add(name)


def _declared(code: str, known: int) -> Iterator[Declared]:
    """What a declaration declares, besides as many registers as are `known`."""
    for one in declared_registers(code):
        if known + (one.count or 1) > _MOST_REGISTERS:
            raise NotExecutable(f"more than {_MOST_REGISTERS:,} registers are declared")
        yield one


def _line_numbers(written: Document, document: Document) -> list[int]:
    """The line, from 1, on which each statement of a document begins in the module as written.

    The document is the module without the braces of scopes, and else has statement for statement.
    """
    places: list[tuple[Kind, int]] = []
    line = 1
    for one in written.statements:
        line += one.before.count("\n")
        places.append((one.kind, line))
        line += one.text.count("\n")
    numbers, at = [], 0
    for one in document.statements:
        while places[at][0] is not one.kind and places[at][0] in _BRACES:
            at += 1
        numbers.append(places[at][1])
        at += 1
    return numbers


def _found(document: Document, pattern: re.Pattern[str]) -> Iterator[Sequence[str]]:
    for one in document.statements:
        if one.kind is Kind.DIRECTIVE and (found := pattern.match(one.code)):
            yield found.groups()
