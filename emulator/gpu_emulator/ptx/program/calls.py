"""Calls: the lines of a function in place of each, with its parameters passed.

Parameters and results are registers, or local memory of each thread (PTX ISA, "Parameter State
Space": what `.param` of a device function may always be mapped to). A call through a register
becomes a choice between the functions that it may mean. Recursion goes as deep as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gpu_emulator.ptx.program.lines import EntryListing, PtxLine
from gpu_emulator.ptx.program.variables import Variable, read_variable
from gpu_emulator.ptx.text.document import Document, Function
from gpu_emulator.ptx.text.document import StatementKind as Kind
from gpu_emulator.ptx.text.head import Head
from gpu_emulator.ptx.text.instruction import NAME, split_operands
from gpu_emulator.refusal import NotExecutable
from gpu_emulator.types import BITS

_REGISTER = re.compile(r"\.reg\s+\.(\w+)\s+([\w$%]+)\Z")
# How many calls may be nested; fewer where functions call themselves and the lines grow too many.
_DEEPEST_CALL = 64
_MOST_RECURSIVE_LINES = 50_000
# Where functions begin, for those who call by address: in no state space.
_CODE, _CODE_STEP = 0x1000, 0x100
# Functions that every driver brings along: the sizes of their parameters.
_BUILT_IN = {"__assertfail": (8, 8, 4, 8, 8), "vprintf": (8, 8)}


class Calls:
    """Puts functions in place of their calls, in the listing of one entry.

    `read_body` enters a function's lines, all that it declares with a prefix.
    """

    def __init__(
        self, document: Document, functions: Mapping[str, tuple[Head, Function]],
        result: EntryListing, read_body: Callable[[Function, str], None],
    ) -> None:  # fmt: skip
        self._document = document
        self._functions = functions
        self._result = result
        self._read_body = read_body
        self._calls = 0
        self._depth = 0
        self._taken: list[str] | None = None
        places = range(_CODE, _CODE + _CODE_STEP * len(functions), _CODE_STEP)
        result.functions = dict(zip(functions, places, strict=True))
        self._deepest = self._depth_of(result.name)

    def call(self, line: PtxLine) -> None:
        """Put a function in place of its call, or all that a call through a register may mean."""
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
        if name in self._functions:
            self._inline(name, results, arguments, prefix, line)
        elif name in _BUILT_IN:
            self._built_in(name, results, arguments, prefix, line)
        elif name in self._result.registers:
            among = self._meant(operands, len(arguments), len(results))
            self._choose(name, among, results, arguments, prefix, line)
        else:
            raise NotExecutable(f"calls {name}, which the PTX does not define", (line.opcode,))
        self._result.labels[after] = len(self._result.lines)

    def _jump(self, to: str, line: PtxLine, guard: str = "", *, is_negated: bool = False) -> None:
        self._result.lines.append(PtxLine("bra", (to,), line.place, guard, is_negated))

    def _inline(
        self, name: str, results: Sequence[str], arguments: Sequence[str], prefix: str,
        line: PtxLine,
    ) -> None:  # fmt: skip
        if self._depth >= self._deepest:
            words = PtxLine("%too_deep", (str(self._deepest),), line.place)
            self._result.lines.append(words)
            return
        head, function = self._functions[name]
        outs = [each for text in split_operands(head.results.strip("()")) if (each := text)]
        ins = [each.text for each in head.parameters]
        if len(ins) != len(arguments) or len(outs) != len(results):
            raise NotExecutable(
                f"PTX line {line.place.ptx_line}: {line.place.instruction} has {len(arguments)}"
                f" arguments and {len(results)} results, and {name} {len(ins)} and {len(outs)}"
            )
        has_stack = any(
            one.instruction and one.instruction.base == "alloca"
            for one in (self._document.statements[place] for place in function.body)
        )
        if has_stack:
            self._result.registers[f"{prefix}$stack"] = "b64"
            self._result.lines.append(PtxLine("stacksave.u64", (f"{prefix}$stack",), line.place))
        for text, actual in zip(ins, arguments, strict=True):
            self._pass(text, actual, prefix, line, is_result=False)
        for text in outs:
            self._own(text, prefix)
        self._depth += 1
        self._read_body(function, prefix)
        self._depth -= 1
        self._result.labels[f"{prefix}$return"] = len(self._result.lines)
        for text, actual in zip(outs, results, strict=True):
            self._pass(text, actual, prefix, line, is_result=True)
        if has_stack:
            back = PtxLine("stackrestore.u64", (f"{prefix}$stack",), line.place)
            self._result.lines.append(back)

    def _choose(
        self, name: str, among: Sequence[str], results: Sequence[str], arguments: Sequence[str],
        prefix: str, line: PtxLine,
    ) -> None:  # fmt: skip
        """Compare an address with those of functions, one after the other."""
        differs, kind = f"{prefix}$differs", self._result.registers[name]
        self._result.registers[differs] = "pred"
        for number, each in enumerate(among):
            address = str(self._result.functions[each])
            opcode = f"setp.ne.b{kind[1:]}"
            self._result.lines.append(PtxLine(opcode, (differs, name, address), line.place))
            self._jump(f"{prefix}$other{number}", line, differs)
            self._inline(each, results, arguments, f"{prefix}{number}$", line)
            self._jump(f"{prefix}$after", line)
            self._result.labels[f"{prefix}$other{number}"] = len(self._result.lines)
        self._result.lines.append(PtxLine("%no_function", (name,), line.place))

    def _meant(self, rest: Sequence[str], arguments: int, results: int) -> list[str]:
        """The functions that a call through a register may mean: its list, or all that fit."""
        listed = self._result.tables.get(rest[0]) if rest else None
        found = self._named() if listed is None else list(listed)
        return [
            each
            for each in found
            if each in self._functions
            and len(self._functions[each][0].parameters) == arguments
            and len(split_operands(self._functions[each][0].results.strip("()"))) == results
        ]

    def _named(self) -> list[str]:
        """Functions whose address is taken: named by what is not a call."""
        if self._taken is None:
            words = {
                name
                for one in self._document.statements
                if one.kind in (Kind.INSTRUCTION, Kind.DECLARATION)
                and not (one.instruction and one.instruction.base == "call")
                for name in NAME.findall(one.code)
            }
            self._taken = [
                each for each, (head, _) in self._functions.items()
                if each in words and not head.is_entry
            ]  # fmt: skip
        return self._taken

    def _built_in(
        self, name: str, results: Sequence[str], arguments: Sequence[str], prefix: str,
        line: PtxLine,
    ) -> None:  # fmt: skip
        """`__assertfail` and `vprintf`: read the arguments, then an instruction of our own."""
        sizes = _BUILT_IN[name]
        if len(arguments) != len(sizes):
            raise NotExecutable(f"calls {name} with {len(arguments)} arguments")
        registers = []
        for number, (size, actual) in enumerate(zip(sizes, arguments, strict=True)):
            kind, register = f"b{8 * size}", f"{prefix}$argument{number}"
            self._result.registers[register] = kind
            is_register = actual in self._result.registers
            opcode, origin = (
                (f"mov.{kind}", actual) if is_register else (f"ld.local.{kind}", f"[{actual}]")
            )
            self._result.lines.append(PtxLine(opcode, (register, origin), line.place))
            registers.append(register)
        if name == "vprintf":
            register = f"{prefix}$printed"
            self._result.registers[register] = "b32"
            registers.insert(0, register)
        self._result.lines.append(PtxLine(f"%{name.lstrip('_')}", tuple(registers), line.place))
        for actual in results[: int(name == "vprintf")]:
            is_register = actual in self._result.registers
            opcode, to = ("mov.b32", actual) if is_register else ("st.local.b32", f"[{actual}]")
            self._result.lines.append(PtxLine(opcode, (to, registers[0]), line.place))

    def _depth_of(self, entry: str) -> int:
        """How deep calls may nest: less where functions call themselves, so that lines stay few."""
        calls: dict[str, list[str]] = {}
        for name, (_, function) in self._functions.items():
            found = [
                one.instruction for place in function.body
                if (one := self._document.statements[place]).instruction
                and one.instruction.base == "call"
            ]  # fmt: skip
            calls[name] = []
            for each in filter(None, found):
                callee = next((o for o in each.operands if not o.startswith("(")), "")
                direct = callee in self._functions or callee in _BUILT_IN
                calls[name] += [callee] if direct else self._named()
        sizes = {name: len(function.body) for name, (_, function) in self._functions.items()}
        lines = dict(sizes)
        for depth in range(1, _DEEPEST_CALL + 1):
            more = {
                name: sizes[name] + sum(lines.get(each, 1) for each in calls[name])
                for name in sizes
            }
            if more == lines:
                return _DEEPEST_CALL
            if more[entry] > _MOST_RECURSIVE_LINES and depth > len(sizes):
                return depth - 1
            lines = more
        return _DEEPEST_CALL

    def _own(self, text: str, prefix: str) -> Variable | None:
        """Declare a parameter of a function: a register (None), or a variable in local memory."""
        if found := _REGISTER.match(text.strip()):
            if found[1] not in BITS:
                raise NotExecutable(f"the parameter {text!r} of a function cannot be read")
            self._result.registers[prefix + found[2]] = found[1]
            return None
        formal = read_variable(text)
        if formal is None:
            raise NotExecutable(f"the parameter {text!r} of a function cannot be read")
        self._result.variables.append(formal.renamed(prefix + formal.name, "local"))
        return formal

    def _pass(self, text: str, actual: str, prefix: str, line: PtxLine, *, is_result: bool) -> None:
        """Copy an argument into a parameter, or a result back: 8 bytes at a time, or 1."""
        formal = read_variable(text) if is_result else self._own(text, prefix)
        if found := _REGISTER.match(text.strip()):
            inner = prefix + found[2]
            opcode = f"mov.{'pred' if found[1] == 'pred' else f'b{BITS[found[1]]}'}"
            pair = (actual, inner) if is_result else (inner, actual)
            if actual != "_":
                self._result.lines.append(PtxLine(opcode, pair, line.place))
            return
        if formal is None:
            raise NotExecutable(f"the parameter {text!r} of a function cannot be read")
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


def _names(operand: str) -> list[str]:
    return list(split_operands(operand.strip()[1:-1]))
