"""An entry of a PTX module as one list of lines: what these are."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_emulator.ptx.program.variables import Variable
from gpu_emulator.values import Place

# The stack pointer of a thread, and how large its stack is.
STACK = "%stack"
STACK_BYTES = 1 << 14


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
    its declared type without the dot; `tables` a label of branch targets to these,
    `functions` a function to its address.
    """

    name: str
    parameters: list[Variable] = field(default_factory=list)
    lines: list[PtxLine] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)
    target: str = ""
    directives: tuple[str, ...] = ()
