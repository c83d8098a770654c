"""What the instruction words of cubins say, and cubins as text made of that. Pure.

nvdisasm takes half a second to start, whatever it reads, and for a raw file of words half the time
that it needs for cubins. So the words that no module had before go into one file, for all levels.
What a word says depends on nothing else but, of a branch, on where it stands: words are
disassembled where no constant of 32 bits is, and where one of 64 hardly is, so that a target is
seen by its value. What is taken for one wrongly, the emulator refuses as an operand.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpu_emulator.sass.cubin import code_bytes

_PAIR = struct.Struct("<QQ")
# Bits 105 to 121 say when an instruction is issued, which its text does not tell. nvdisasm refuses
# some values there, so that each word is asked about as it was met.
_SHOWN = ~(0x1_FFFF << 41) & (1 << 64) - 1
BASE = 0x5A5A_5A50_0000
"""Where the first word is disassembled."""
_NEAR = 1 << 31
_LINE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(.*?)\s*;\s*$", re.MULTILINE)
_TARGET = re.compile(r"0x([0-9a-f]{9,})")

Word = tuple[int, int]
"""The lower and the upper half of an instruction, without when it is issued."""


@dataclass(frozen=True, slots=True)
class WordText:
    """The text of a word; where it is a branch, `{}` stands for its target, `distance` bytes on."""

    text: str
    distance: int | None = None


def words_of(cubins: Iterable[bytes]) -> dict[Word, bytes]:
    """All words of cubins, each once, as it stands there."""
    return {
        word: raw
        for cubin in cubins
        for code in code_bytes(cubin).values()
        for word, raw in _words(code)
    }


def read_texts(words: Iterable[Word], printed: str) -> dict[Word, WordText]:
    """The texts of words, as nvdisasm prints a raw file of them from `BASE` on.

    Raises:
        ValueError: it does not print one line for each.
    """
    lines = _LINE.findall(printed)
    return {
        word: _relative(text, int(at, 16)) for word, (at, text) in zip(words, lines, strict=True)
    }


def _relative(text: str, at: int) -> WordText:
    found = _TARGET.search(text)
    distance = int(found[1], 16) - at if found else _NEAR
    if abs(distance) < _NEAR:
        return WordText(_TARGET.sub("{}", text), distance)
    return WordText(text)


def sass_of(cubin: bytes, texts: Mapping[Word, WordText]) -> str:
    """A cubin as `nvdisasm -c` prints it, as far as the emulator reads that."""
    return "".join(
        f"\t.section\t.text.{name},\n.text.{name}:\n{''.join(_lines(code, texts))}"
        for name, code in code_bytes(cubin).items()
    )


def _lines(code: bytes, texts: Mapping[Word, WordText]) -> Iterator[str]:
    lines = [(16 * number, word, texts[word]) for number, (word, _) in enumerate(_words(code))]
    targets = {at + one.distance for at, _, one in lines if one.distance is not None}
    for at, (low, high), one in lines:
        if at in targets:
            yield f".L_{at:x}:\n"
        text = one.text
        if one.distance is not None:
            text = text.format(f"`(.L_{at + one.distance:x})")
        # The text does not tell one NaN from another.
        bits = f" /* 0x{low:016x} */\n /* 0x{high:016x} */" if "NAN" in text else ""
        yield f"        /*{at:04x}*/                   {text} ;{bits}\n"


def _words(code: bytes) -> Iterator[tuple[Word, bytes]]:
    for at in range(0, len(code), _PAIR.size):
        low, high = _PAIR.unpack_from(code, at)
        yield (low, high & _SHOWN), code[at : at + _PAIR.size]
