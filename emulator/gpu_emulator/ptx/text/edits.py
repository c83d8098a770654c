"""Changes of a PTX text that leave its meaning alone and may help a kernel. Pure.

Sources: PTX ISA, "Performance-Tuning Directives" (`.minnctapersm`, `.maxnreg`). That ptxas compiles
an entry whose name contains `cutlass` otherwise was observed, and is used by kernels in the field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_emulator.ptx.text.facts import blank_opaque
from gpu_emulator.ptx.text.variants import rename_entry

_BLOCK_SIZE = re.compile(r"^[ \t]*\.(?:reqntid|maxntid)\b[^\n{]*", re.MULTILINE)
_NAME_PART = "cutlass"


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxEdit:
    """A directive behind the block size of the entry, or a part of the entry's name."""

    words: str
    meaning: str
    directive: str | None = None


EDITS = (
    PtxEdit(
        words=".minnctapersm 1",
        meaning="asks for one block per SM; ptxas aims at no higher occupancy",
        directive=".minnctapersm 1",
    ),
    PtxEdit(
        words=".maxnreg 255", meaning="allows 255 registers per thread", directive=".maxnreg 255"
    ),
    PtxEdit(
        words=f"{_NAME_PART} in the entry's name",
        meaning="ptxas compiles an entry of such a name otherwise; not documented",
    ),
)


def edited(text: str, entry: str, edit: PtxEdit) -> tuple[str, str] | None:
    """The text after an edit, and the entry's name in it; None where it has no place for it."""
    if edit.directive is None:
        name = f"{entry}_{_NAME_PART}"
        return None if _NAME_PART in entry else rename_entry(text, entry, name)
    changed = with_directive(text, edit.directive)
    return (changed, entry) if changed else None


def with_directive(text: str, directive: str) -> str | None:
    """PTX with a directive behind the block size of its one entry; None where that is not one.

    Nor where the text has the directive already.
    """
    code = blank_opaque(text)
    places = list(_BLOCK_SIZE.finditer(code))
    if len(places) != 1 or re.search(rf"{re.escape(directive.split(maxsplit=1)[0])}\b", code):
        return None
    end = places[0].end()
    return f"{text[:end]}\n{directive}{text[end:]}"
