"""Variables and parameters of PTX: space, size, alignment, initial bytes.

Source: PTX ISA, "State Spaces, Types, and Variables".
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace

from gpu_emulator.ptx.text.constants import constant, float_bits, integer
from gpu_emulator.ptx.text.instruction import split_operands
from gpu_emulator.refusal import NotExecutable

MOST_BYTES = 1 << 30
"""So many bytes the variables of a module may take."""

# Bytes of one element of each fundamental type.
SIZES = {
    **{f"{letter}{bits}": bits // 8 for letter in "busf" for bits in (16, 32, 64)},
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b128": 16,
    "f16x2": 4,
    "bf16": 2,
    "bf16x2": 4,
    "pred": 1,
}
_VARIABLE = re.compile(
    r"(?P<front>(?:\.\w+(?:\s+[0-9]+)?\s+|\.align\s+[0-9]+\s+)*)"
    r"(?P<name>[\w$%]+)\s*(?P<counts>(?:\[[^\]]*\]\s*)*)(?:=\s*(?P<init>.*))?\Z",
    re.DOTALL,
)
_WORD = re.compile(r"\.(\w+)(?:\s+([0-9]+))?")
_SPACES = ("global", "shared", "const", "local", "param")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. `size` 0 is an array whose size the launch gives (`.extern .shared`).

    `relocations` are (offset in `data`, name of another variable, addend): its address goes there.
    """

    name: str
    space: str
    type: str
    size: int
    align: int
    data: bytes | None = None
    relocations: tuple[tuple[int, str, int], ...] = ()
    is_extern: bool = False

    def renamed(self, name: str, space: str) -> Variable:
        """The same with another name and space."""
        return replace(self, name=name, space=space)


def read_variable(text: str) -> Variable | None:
    """Read a declaration without its semicolon; None if it declares no variable."""
    found = _VARIABLE.match(text.strip())
    if not found:
        return None
    space, kind, align, vector, words = "", "", 0, 1, []
    for word, number in _WORD.findall(found["front"]):
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
    counts = re.findall(r"\[([^\]]*)\]", found["counts"])
    count = vector
    for each in counts:
        many = integer(each) if each.strip() else 0
        if many is None or many < 0:
            raise NotExecutable(f"the size [{each.strip()}] of {found['name']} cannot be read")
        count *= many
    data, relocations = _initial(found["init"], kind, width)
    size = count * width
    if space in ("global", "const") and size > MOST_BYTES:
        raise NotExecutable(f"{found['name']} has {size:,} bytes: at most {MOST_BYTES:,} are run")
    if data is not None:
        size = max(size, len(data))
        data = data.ljust(size, b"\0")
    return Variable(
        found["name"], space, kind, size, align or width * vector, data, relocations,
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
