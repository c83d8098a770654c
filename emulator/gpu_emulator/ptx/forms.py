"""Which opcodes of PTX there are, and of which types their operands, as the table of opcodes says.

A row says it while a line is bound: what the emulator learns is found from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpu_emulator.opcodes import OpcodeRow
from gpu_emulator.ptx.instructions import catalogue
from gpu_emulator.ptx.program.binder import TABLE, Binder, Convert, Maker, PtxSlots
from gpu_emulator.ptx.program.listing import EntryListing, PtxLine
from gpu_emulator.steps import BITS, Reader
from gpu_emulator.values import NotExecutable, Place

_ARITIES = [(operands, two) for operands in range(1, 5) for two in (False, True)]
TYPE_BITS = BITS
"""The bits of each type that a register holds, 1 for `pred`."""
LOP3_TABLE = "0x1b"
"""The table of truth that `lop3` is bound with here."""
_LOP3_PLACE = 3


@dataclass(frozen=True, slots=True)
class OpcodeForm:
    """An opcode and the types of its results and operands; `table`: a table stands at this place.

    `meets`: the lanes of a warp take part together, and the last operand says which.
    """

    opcode: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    meets: bool = False
    table: int | None = None

    @property
    def base(self) -> str:
        """The first word of the opcode."""
        return self.opcode.partition(".")[0]


def opcode_forms(left_out: Collection[str]) -> Iterator[OpcodeForm]:
    """All opcodes whose result is a function of registers, or of those of a warp, with types.

    Opcodes that have a word of `left_out`, or set the carry, are not among them.
    """
    assert catalogue.CHAPTERS, "every chapter enters its rows"
    words_left_out = set(left_out)
    for base in sorted(set(TABLE.rows) - words_left_out):
        for row in TABLE.rows[base]:
            # How many operands there are depends on which modifiers are there, not on their values.
            arities: dict[frozenset[str], list[tuple[int, bool]]] = {}
            for opcode, parts in row.spellings():
                if not words_left_out.isdisjoint(opcode.split(".")) or parts.get("cc"):
                    continue
                there = frozenset(name for name, word in parts.items() if word)
                ways = arities.get(there, _ARITIES)
                made = [(way, form) for way in ways if (form := _form(row, opcode, parts, *way))]
                arities.setdefault(there, [way for way, _ in made])
                yield from (form for _, form in made)


class _Probe(Binder):
    """Takes down the types that a row asks its operands for."""

    def __init__(self, line: PtxLine, parts: dict[str, str]) -> None:
        super().__init__(PtxSlots(EntryListing("probe")), line, parts)
        self.taken: dict[str, str] = {}
        self.given: dict[str, str] = {}

    def source(self, text: str, kind: str) -> Reader:
        self.taken[text] = kind
        return lambda registers: registers[0]

    def slot_reader(self, number: int, kind: str) -> Reader:
        return self.source(self.operand(number), kind)

    def target(self, text: str, kind: str) -> tuple[int, Convert | None]:
        self.given[text] = kind
        return 0, None

    def constant(self, number: int) -> int | None:
        is_table = self.base == "lop3" and number == _LOP3_PLACE + 1
        return int(LOP3_TABLE, 0) if is_table else None


def _form(
    row: OpcodeRow[Maker],
    opcode: str,
    parts: dict[str, str],
    operands: int,
    has_two: bool,  # noqa: FBT001
) -> OpcodeForm | None:
    """What a row takes for so many operands, and one result or two; None if it takes no such."""
    names = [f"%o{number}" for number in range(operands)]
    table = _LOP3_PLACE if opcode.startswith("lop3") and operands >= _LOP3_PLACE else None
    texts = [*names[:_LOP3_PLACE], LOP3_TABLE, *names[_LOP3_PLACE:]] if table else names
    result = "%d|%p" if has_two else "%d"
    place = Place(ptx_line=1, instruction=opcode)
    probe = _Probe(PtxLine(opcode=opcode, operands=(result, *texts), place=place), parts)
    try:
        step = row.make(probe)
    except (NotExecutable, ValueError, AttributeError):
        return None
    if set(probe.taken) != set(names) or set(probe.given) != set(result.split("|")):
        return None
    if not (step.is_pure or row.meets or table):
        return None
    kinds = tuple(probe.taken[name] for name in names)
    return OpcodeForm(opcode, tuple(probe.given.values()), kinds, row.meets, table)
