"""What a file of Tile IR's bytecode says of itself (releases 13.1 to 13.5). Pure."""

from __future__ import annotations

from dataclasses import dataclass

_MAGIC = b"\x7fTileIR\x00"
_HEADER = len(_MAGIC) + 4
_END, _STRINGS, _FUNCTIONS = 0, 1, 2
_ALIGNED = 0x80
_OFFSET = 4


class BytecodeError(ValueError):
    """It is none, or is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytecode:
    """The `version` that it is written in, and its functions.

    `first` names the first function; the places of the others depend on the code of each, which is
    not read. `names` are all strings of the file, the names of its functions among them.
    """

    version: str
    functions: int
    first: str
    names: frozenset[str]


def read_bytecode(data: bytes) -> Bytecode:
    """The header, and which functions there are.

    Raises:
        BytecodeError: it is not such a file, or ends early.
    """
    if not data.startswith(_MAGIC) or len(data) < _HEADER:
        raise BytecodeError("it is not bytecode of Tile IR: it does not begin as such a file does")
    try:
        sections = _sections(data)
        functions = _Reader(sections[_FUNCTIONS])
        strings = _strings(sections[_STRINGS])
        count = functions.number()
        first = strings[functions.number()] if count else ""
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise BytecodeError(
            "its bytecode of Tile IR is damaged: it cannot be read whole"
        ) from error
    if not count:
        raise BytecodeError("its bytecode of Tile IR holds no function")
    major, minor = data[len(_MAGIC)], data[len(_MAGIC) + 1]
    return Bytecode(
        version=f"{major}.{minor}", functions=count, first=first, names=frozenset(strings)
    )


class _Reader:
    """Goes through bytes; past their end, an IndexError."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """One of seven bits a byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise IndexError(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def align(self, size: int) -> None:
        self.at += -self.at % size


def _sections(data: bytes) -> dict[int, bytes]:
    reader, found = _Reader(data, _HEADER), {}
    while (kind := reader.byte()) != _END:
        size = reader.number()
        if kind & _ALIGNED:
            reader.align(max(1, reader.number()))
        found[kind & ~_ALIGNED] = reader.take(size)
    return found


def _strings(section: bytes) -> list[str]:
    """A table: how many, where each begins, and all of them."""
    reader = _Reader(section)
    count = reader.number()
    reader.align(_OFFSET)
    starts = [int.from_bytes(reader.take(_OFFSET), "little") for _ in range(count)]
    text = section[reader.at :]
    ends = [*starts[1:], len(text)]
    return [text[start:end].decode() for start, end in zip(starts, ends, strict=True)]
