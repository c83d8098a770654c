"""One PTX instruction: guard, opcode, operands, and which registers it reads and writes.

Reading never judges: what ptxas would refuse is read as well as it goes. Source: PTX ISA manual,
chapters "Instruction Operands" and "Instruction Set".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

# A register, variable, label or special register, whole: `%r1`, `$L__BB0_1`, `%tid.x` as `%tid`.
NAME = re.compile(r"(?<![\w$%.])[A-Za-z_$%][\w$]*")
_INSTRUCTION = re.compile(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([a-z]\w*(?:(?:\.|::)\w+)*)(?![\w.:])\s*")
_BRACKETS = re.compile(r"[\[\](){},]")
# Opcodes whose first operand, where it is a register, is read and not written.
_ONLY_READ = (
    "bar.arrive bar.sync bar.cta.arrive bar.cta.sync bar.warp.sync barrier.arrive barrier.sync"
    " barrier.cta.arrive barrier.cta.sync bra brx call nanosleep pmevent setmaxnreg stackrestore"
    " tcgen05.dealloc"
)
_READS_FIRST = re.compile("(?:" + "|".join(map(re.escape, _ONLY_READ.split())) + r")(?![\w])")
# Adds to its first operand.
_READS_AND_WRITES = re.compile(r"wgmma\.mma_async\b")
_ENDS = frozenset({"ret", "exit", "trap"})


@dataclass(frozen=True)
class Instruction:
    """Guard (`@%p1`, `@!%p1` or nothing), opcode with its modifiers, operands as written."""

    guard: str
    opcode: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.guard} {self.opcode}" if self.guard else self.opcode
        return f"{head} {', '.join(self.operands)};" if self.operands else f"{head};"

    @cached_property
    def base(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".", 1)[0]

    @cached_property
    def modifiers(self) -> list[str]:
        """What follows the opcode: types, state spaces, roundings, ..."""
        return self.opcode.split(".")[1:]

    @cached_property
    def results(self) -> int:
        """How many of the first operands it writes: 0 or 1. A call's are in its parentheses."""
        if not self.operands or self.operands[0].startswith("["):
            return 0
        if self.base == "call":
            return int(self.operands[0].startswith("("))
        return int(not _READS_FIRST.match(self.opcode))

    @cached_property
    def writes(self) -> list[str]:
        """The names that it writes, if its guard holds."""
        return [name for operand in self.operands[: self.results] for name in names_in(operand)]

    @cached_property
    def reads(self) -> list[str]:
        """The names that it reads: registers, variables, labels, special registers."""
        first = 0 if _READS_AND_WRITES.match(self.opcode) else self.results
        guard = [self.guard.lstrip("@!")] if self.guard else []
        return guard + [name for operand in self.operands[first:] for name in names_in(operand)]

    @cached_property
    def ends(self) -> bool:
        """Whether control never goes on to the next instruction."""
        return not self.guard and (self.base in _ENDS or self.base in ("bra", "brx"))


def names_in(operand: str) -> list[str]:
    """Every name in an operand; `_`, which throws a result away, is none."""
    return [name for name in NAME.findall(operand) if name != "_"]


@lru_cache(maxsize=1 << 16)
def read_instruction(code: str) -> Instruction | None:
    """Read a statement without comments, with its semicolon; None if it is not an instruction."""
    found = _INSTRUCTION.match(code)
    if not found or not code.endswith(";"):
        return None
    negation, guard, opcode = found.groups()
    operands = split_operands(code[found.end() : -1])
    return Instruction(f"@{negation}{guard}" if guard else "", opcode, operands)


def split_operands(text: str) -> tuple[str, ...]:
    """Split at the commas that are in no bracket."""
    depth, start, pieces = 0, 0, []
    for found in _BRACKETS.finditer(text):
        if found[0] in "[({":
            depth += 1
        elif found[0] in "])}":
            depth -= 1
        elif depth == 0:
            pieces.append(text[start : found.start()].strip())
            start = found.end()
    last = text[start:].strip()
    return (*pieces, last) if pieces or last else ()
