"""An entry of a PTX module as one list of lines, with the functions that it calls put in place.

Names of registers, labels and variables are unique in the result. A call becomes the function's own
lines; its parameters and results are local memory of each thread (PTX ISA, "Parameter State
Space": what `.param` of a device function may always be mapped to).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.emulator.program.refusal import NotExecutable
from harness.emulator.program.variables import Variable, read_variable
from harness.emulator.values import Place
from harness.ptx.document import Document, Function, parse
from harness.ptx.document import StatementKind as Kind
from harness.ptx.head import Head, read_head
from harness.ptx.instruction import NAME, split_operands
from harness.ptx.registers import declared_registers
from harness.ptx.scopes import without_scopes

__all__ = ["EntryListing", "PtxLine", "read_listing"]

_LOC = re.compile(r"\.loc\s+([0-9]+)\s+([0-9]+)")
_FILE = re.compile(r'\.file\s+([0-9]+)\s*"([^"\n]*)"')
_TABLE = re.compile(r"\.branchtargets\s+([^;]*);")
_BRACES = (Kind.OPEN, Kind.CLOSE)
_DEEPEST_CALL = 32
_MOST_LINES = 2_000_000


@dataclass(frozen=True, slots=True)
class PtxLine:
    """One instruction: guard register ("" if none), opcode, operands, where it stands."""

    opcode: str
    operands: tuple[str, ...]
    place: Place
    guard: str = ""
    is_negated: bool = False


@dataclass(slots=True)
class EntryListing:
    """What one entry consists of.

    `labels` maps a label to the number of the line that follows it. `registers` maps a register to
    its declared type without the dot; `tables` a label of branch targets to these.
    """

    name: str
    parameters: list[Variable] = field(default_factory=list)
    lines: list[PtxLine] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    target: str = ""


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
        self._calls = 0
        self._depth = 0
        self._result = EntryListing("")

    def entry(self, name: str | None) -> EntryListing:
        entries = [each for each, (head, _) in self._functions.items() if head.is_entry]
        if name is None and len(entries) != 1:
            raise NotExecutable(f"the PTX has {len(entries)} entries; name one of them")
        chosen = entries[0] if name is None else name
        if chosen not in entries:
            raise NotExecutable(f"the PTX has no entry {chosen}")
        head, function = self._functions[chosen]
        self._result = EntryListing(chosen)
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
        return self._result

    def _body(self, function: Function, prefix: str) -> None:
        known = self._names(function) if prefix else set()
        source: str | None = None

        def renamed(text: str) -> str:
            if not prefix:
                return text
            return NAME.sub(lambda at: prefix + at[0] if at[0] in known else at[0], text)

        for place in function.body:
            one = self._document.statements[place]
            if one.kind is Kind.DECLARATION:
                self._declare(one.code, prefix)
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
            self._call(line)
        elif prefix and base == "ret":
            # Back to the caller: the label stands behind the function's last line.
            back = (f"{prefix}$return",)
            self._result.lines.append(PtxLine("bra", back, line.place, line.guard, line.is_negated))
        else:
            self._result.lines.append(line)

    def _call(self, line: PtxLine) -> None:
        """Put a function in place of its call."""
        operands = list(line.operands)
        results = _names(operands.pop(0)) if operands and operands[0].startswith("(") else []
        name = operands.pop(0) if operands else ""
        arguments = _names(operands.pop(0)) if operands else []
        if name not in self._functions:
            raise NotExecutable(f"calls {name}, which the PTX does not define", (line.opcode,))
        if self._depth >= _DEEPEST_CALL:
            raise NotExecutable(f"calls of {name} are nested deeper than {_DEEPEST_CALL}")
        head, function = self._functions[name]
        self._calls += 1
        prefix = f"%call{self._calls}$"
        skip = f"{prefix}$skip"
        if line.guard:
            self._result.lines.append(
                PtxLine("bra", (skip,), line.place, line.guard, not line.is_negated)
            )
        outs = [each for text in split_operands(head.results.strip("()")) if (each := text)]
        formals = [read_variable(each) for each in outs]
        inputs = [read_variable(each.text) for each in head.parameters]
        for formal, actual in [
            *zip(inputs, arguments, strict=False),
        ]:
            self._pass(formal, actual, prefix, line, is_result=False)
        for formal in formals:
            self._own(formal, prefix)
        self._depth += 1
        self._body(function, prefix)
        self._depth -= 1
        self._result.labels[f"{prefix}$return"] = len(self._result.lines)
        for formal, actual in zip(formals, results, strict=False):
            self._pass(formal, actual, prefix, line, is_result=True)
        self._result.labels[skip] = len(self._result.lines)

    def _own(self, formal: Variable | None, prefix: str) -> None:
        if formal is None:
            raise NotExecutable("a parameter of a function cannot be read")
        self._result.variables.append(formal.renamed(prefix + formal.name, "local"))

    def _pass(
        self, formal: Variable | None, actual: str, prefix: str, line: PtxLine, *, is_result: bool
    ) -> None:
        """Copy an argument into a parameter, or a result back: 8 bytes at a time, or 1."""
        if not is_result:
            self._own(formal, prefix)
        if formal is None:
            raise NotExecutable("a parameter of a function cannot be read")
        inner = prefix + formal.name
        target, origin = (actual, inner) if is_result else (inner, actual)
        is_register = actual in self._result.registers or not NAME.fullmatch(actual)
        if is_register:
            kind = f"b{formal.size * 8}"
            opcode, operands = (
                (f"ld.local.{kind}", (actual, f"[{inner}]"))
                if is_result
                else (f"st.local.{kind}", (f"[{inner}]", actual))
            )
            self._result.lines.append(PtxLine(opcode, operands, line.place))
            return
        step = formal.align if formal.align in (1, 2, 4, 8) else 8
        kind = f"b{step * 8}"
        temporary = f"{prefix}$copy{step}"
        self._result.registers[temporary] = f"b{max(step * 8, 16)}"
        for offset in range(0, formal.size, step):
            self._result.lines += [
                PtxLine(f"ld.local.{kind}", (temporary, f"[{origin}+{offset}]"), line.place),
                PtxLine(f"st.local.{kind}", (f"[{target}+{offset}]", temporary), line.place),
            ]

    def _names(self, function: Function) -> set[str]:
        """All that a function declares, its parameters included."""
        head = read_head(self._document.statements[function.head].code)
        found = {each.name for each in head.parameters} if head else set()
        if head:
            found |= set(NAME.findall(head.results))
        for place in function.body:
            one = self._document.statements[place]
            if one.label:
                found.add(one.label)
            elif one.kind is Kind.DECLARATION:
                variable = read_variable(one.code.rstrip(";"))
                found |= {variable.name} if variable else set()
                found |= {n for each in declared_registers(one.code) for n in each.names}
        return found

    def _declare(self, code: str, prefix: str) -> None:
        for declared in declared_registers(code):
            kind = declared.type.removeprefix(".")
            self._result.registers.update(dict.fromkeys((prefix + n for n in declared.names), kind))
        if code.startswith((".reg", ".pragma", ".alias")):
            return
        if found := _TABLE.match(code):
            label = next(reversed(self._result.labels), "")
            names = tuple(prefix + each for each in split_operands(found[1]))
            self._result.tables[label] = names
            return
        variable = read_variable(code.rstrip(";"))
        if variable:
            space = "local" if variable.space == "param" else variable.space
            self._result.variables.append(variable.renamed(prefix + variable.name, space))


def _names(operand: str) -> list[str]:
    return list(split_operands(operand.strip()[1:-1]))


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
