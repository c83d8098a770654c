"""The text that `nvdisasm -c -hex` prints of a cubin: code sections, lines, operands.

CUDA Binary Utilities: nvdisasm, "Instruction Set Reference". As version 13.5.37 prints it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gpu_emulator.values import NotExecutable

_SECTION = re.compile(r"^\.text\.([^\n]+):[ \t\r]*$", re.MULTILINE)
_SECTION_END = re.compile(r"^(?://-|[ \t]*\.section[ \t])", re.MULTILINE)
_LINE = re.compile(
    r"^[ \t]*/\*([0-9a-f]{4,})\*/[ \t]+(.*?)[ \t]*(?:\(\*.*?\*\))?[ \t]*;"
    r"(?:[ \t]*/\* 0x(?P<constant>[0-9a-f]{8})[0-9a-f]{8} \*/\s*/\* 0x(?P<high>[0-9a-f]{16}) \*/)?"
    r"|^(?P<label>[\w$.]+):[ \t]*$"
    r'|^[ \t]*//## File "(?P<file>[^"]*)", line (?P<number>[0-9]+)',
    re.MULTILINE,
)
_GUARD = re.compile(r"@(!?)(U?P[0-9T])[ \t]+")
_SEPARATOR = re.compile(r",(?![^\[\]{}()]*[\]})])")
_NUMBER = (
    r"[-+]?(?:0x[0-9a-f]+|(?:[0-9.]+(?:e[-+]?[0-9]+)?|INF|QNAN|SNAN)(?:\.NEG)?"
    r"|0f[0-9a-f]{8}|0h[0-9a-f]{4})"
)
_OPERAND = re.compile(
    r"(?P<sign>[-~!]?)(?P<bar>\|)?(?:"
    r"(?P<register>UR|R|UP|P|B|SB|UB)(?P<number>[0-9]+|Z|T)"
    r"|(?P<bank>c|cx)\[(?P<where>[^\]]*)\] ?\[(?P<offset>[^\]]*)\]"
    r"|(?P<special>SR_\w+(?:\.\w+)?)"
    r")(?P<inner>(?:\.\w+)*)(?(bar)\|)(?P<outer>(?:\.\w+)*)\Z"
)
# Of one constant all bits are encoded; the listing leaves out which NaN it is.
_NAN = re.compile(r"(?<=, )[-+][QS]NAN(?:\.NEG)?(?=[ ]*(?:,|$))(?!.*NAN)")
_HALVES = re.compile(rf"(?<=, ){_NUMBER}[ ]*, {_NUMBER}(?=[ ]*(?:,|$))")
_ADDRESS = re.compile(r"(?:desc\[(?P<desc>UR[0-9]+)\])?\[(?P<parts>[^\]]*)\](?P<more>.*)\Z")


@dataclass(frozen=True, slots=True)
class SassLine:
    """An instruction at an offset of its section; `control` are bits 105 to 125 of its encoding."""

    offset: int
    text: str
    control: int | None
    source: str | None


@dataclass(frozen=True, slots=True)
class Operand:
    """`kind` is R, UR, P, UP, B, SB, number, bank, special, address, label or other.

    `number` is that of a register (None: RZ, PT, ...), `sign` is `-`, `~`, `!` or nothing.
    `suffixes` are words behind it, without `reuse`. A constant `bank` has an `offset`, to which a
    register `base` may be added; of an address `parts` are the summands.
    """

    text: str
    kind: str
    number: int | None = None
    sign: str = ""
    is_absolute: bool = False
    suffixes: tuple[str, ...] = ()
    offset: int = 0
    base: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction without its guard, which is the name of a predicate, maybe negated."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: str
    is_negated: bool


@lru_cache(maxsize=4)
def code_sections(listing: str) -> dict[str, str]:
    """The text of each code section, by the name of its entry or function."""
    starts = list(_SECTION.finditer(listing))
    sections = {}
    for index, start in enumerate(starts):
        limit = starts[index + 1].start() if index + 1 < len(starts) else len(listing)
        stop = _SECTION_END.search(listing, start.end(), limit)
        sections[start[1]] = listing[start.end() : stop.start() if stop else limit]
    return sections


def _with_bits(text: str, constant: str) -> str:
    """The bits of a constant that is a NaN, or two packed halves, the upper one first."""
    if re.match(r"(@\S+ +)?U?V?H[A-Z]", text):
        return _HALVES.sub(f"0h{constant[:4]}, 0h{constant[4:]}", text, count=1)
    return _NAN.sub(f"0f{constant}", text)


def read_section(text: str) -> tuple[list[SassLine], dict[str, int]]:
    """The instructions of a section in order, and the offset of each label."""
    lines: list[SassLine] = []
    pending: list[str] = []
    labels: dict[str, int] = {}
    source: str | None = None
    for found in _LINE.finditer(text):
        if found["label"]:
            pending.append(found["label"])
        elif found["file"] is not None:
            source = f"{found['file']}:{found['number']}"
        else:
            offset = int(found[1], 16)
            control = None if found["high"] is None else int(found["high"], 16) >> 41 & 0x1F_FFFF
            text = found[2]
            if found["constant"] and "NAN" in text:
                text = _with_bits(text, found["constant"])
            labels.update(dict.fromkeys(pending, offset))
            pending = []
            lines.append(SassLine(offset, text, control, source))
    if any(line.offset != 16 * number for number, line in enumerate(lines)):
        raise NotExecutable("the listing leaves instructions out")
    return lines, labels


@lru_cache(maxsize=1 << 16)
def read_instruction(text: str) -> Instruction:
    """The guard, the opcode and the operands of an instruction."""
    guard = _GUARD.match(text)
    opcode, _, rest = text[guard.end() if guard else 0 :].partition(" ")
    operands = tuple(map(read_operand, filter(None, map(str.strip, _SEPARATOR.split(rest)))))
    name = guard[2] if guard else ""
    return Instruction(opcode, operands, name, bool(guard and guard[1]))


def read_operand(text: str) -> Operand:
    """One operand of an instruction."""
    found = _OPERAND.match(text)
    if found:
        words = (found["inner"] + found["outer"]).split(".")
        suffixes = tuple(word for word in words if word and word != "reuse")
        sign, bar = found["sign"], bool(found["bar"])
        if found["register"]:
            number = int(found["number"]) if found["number"].isdecimal() else None
            return Operand(text, found["register"], number, sign, bar, suffixes)
        if found["special"]:
            return Operand(text, "special", base=found["special"])
        if found["bank"] == "c":
            base, _, more = found["offset"].partition("+")
            if base.startswith(("R", "UR")):
                offset = int(more or "0", 0)
            else:
                base, offset = "", int(base, 0)
            where = int(found["where"], 0)
            return Operand(text, "bank", where, sign, bar, suffixes, offset, base)
    if re.fullmatch(_NUMBER, text):
        return Operand(text, "number")
    if text.startswith("`("):
        return Operand(text, "label", base=text[2:-1])
    if address := _ADDRESS.match(text):
        suffixes = tuple(filter(None, address["more"].split(".")))
        parts = tuple(re.findall(r"[^+]+", address["parts"].replace("+-", "+ -")))
        return Operand(text, "address", suffixes=suffixes, parts=tuple(map(str.strip, parts)))
    return Operand(text, "other")
