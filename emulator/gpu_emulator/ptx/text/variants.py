"""Harmless variations of a PTX text: the same program under another name, or without its lines.

A failure that comes or goes with one of them depends on what must not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpu_emulator.ptx.text.facts import blank_opaque, without_debug

# A directive or a modifier keeps its dot.
_WORD = re.compile(r"\.?[A-Za-z_$%][A-Za-z0-9_$]*")
_PARAMETER = re.compile(r"_param_[0-9]+")


def harmless_variants(text: str, entry: str) -> Iterator[tuple[str, str, str]]:
    """What was varied, the text, and the entry's name in it; what changes nothing is left out."""
    renamed = rename_entry(text, entry)
    if renamed:
        yield "with the entry renamed", *renamed
    bare = without_debug(text)
    if bare != text:
        yield "without line information", bare, entry


def rename_entry(text: str, entry: str, new: str = "renamed") -> tuple[str, str] | None:
    """The text with another name (like `new`) for this entry and its parameters, and that name.

    None where there is no such entry, or its name stands for something else too.
    """
    code = blank_opaque(text)
    words = list(_WORD.finditer(code))
    while any(word[0].startswith(new) for word in words):
        new += "_"
    chosen, is_declared, previous = [], False, ""
    for word in words:
        if word[0] == entry and previous == ".entry":
            chosen.append(word)
            is_declared = True
        elif word[0] == entry and code[word.end() : word.end() + 1] != ".":
            return None  # a use, or a name of another kind; `add.f32` does not use an entry `add`
        elif word[0].startswith(entry) and _PARAMETER.fullmatch(word[0], len(entry)):
            chosen.append(word)
        previous = word[0]
    if not is_declared:
        return None
    # Comments, strings and debug sections keep the old name: they are not the program.
    pieces, position = [], 0
    for word in chosen:
        pieces += [text[position : word.start()], new]
        position = word.start() + len(entry)
    return "".join([*pieces, text[position:]]), new
