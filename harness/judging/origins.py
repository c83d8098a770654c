"""Which line of the source each line of IR, PTX and SASS comes from, by debug information. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

from harness.judging.ptxas.sass import LineTable

Origins: TypeAlias = Sequence["int | None"]
"""For each line of a text, in order, the line of the source (from 1)."""

LOCAL_ACCESS = re.compile(r"\b(?:LDL|STL)(?=[.\s])")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_END = re.compile(r"^\}")
_INLINE = re.compile(r"^\s*// (begin|end) inline asm")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_LAST_LOC = re.compile(r"loc\((#loc\d*)\)\s*\{?\s*$")
_PLACE = re.compile(r'^"([^"]*)":(\d+):\d+')
_NAMES = re.compile(r"#loc\d*")
_SECTION = re.compile(r"^\.text\.([^\n]+):[ \t]*$")
_ADDRESS = re.compile(r"^[ \t]*/\*([0-9a-f]{4,16})\*/")

_Place: TypeAlias = tuple[str, str, str]


def lines_of(text: str) -> list[str]:
    """The lines of a text as compilers count them: by newlines, and by nothing else."""
    return text.removesuffix("\n").split("\n")


def kernel_file(ptx: str) -> str | None:
    """The name of the file that the kernel's first line is in, without folders."""
    files: dict[str, str] = {}
    first = None
    for line in lines_of(ptx):
        if match := _FILE.match(line):
            files[match[1]] = match[2]
        elif first is None and (match := _LOC.match(line)):
            first = match[4] or match[1]
    return PurePosixPath(files[first]).name if first in files else None


def ptx_origins(ptx: str) -> list[int | None]:
    """The origins of PTX, by its `.loc` lines; a function's first file is that of the kernel.

    Of a text of inline assembly only the first line counts: LLVM counts on for each of the others.
    """
    main: str | None = None
    is_inside = has_place = False
    called: dict[_Place, _Place] = {}
    current: int | None = None
    origins: list[int | None] = []
    for line in lines_of(ptx):
        if match := _INLINE.match(line):
            is_inside, has_place = match[1] == "begin", False
        elif (match := _LOC.match(line)) and not has_place:
            has_place = is_inside
            place: _Place = (match[1], match[2], match[3])
            if match[4]:
                called[place] = (match[4], match[5], match[6])
            else:
                main = main or match[1]
            for _ in called:
                if place[0] == main or place not in called:
                    break
                place = called[place]
            current = int(place[1]) if place[0] == main else None
        elif _END.match(line):
            current = None
        origins.append(current)
    return origins


def mlir_origins(text: str, file: str) -> list[int | None]:
    """The origins of TTIR or TTGIR with locations, in the file of that name."""
    lines = lines_of(text)
    aliases = {match[1]: match[2] for line in lines if (match := _ALIAS.match(line))}
    line_of_alias: dict[str, int | None] = {}

    def line_of(alias: str) -> int | None:
        if alias not in line_of_alias:
            line_of_alias[alias] = None  # a loop among them is not a place
            body = aliases.get(alias, "")
            place = _PLACE.match(body)
            if place:
                line_of_alias[alias] = (
                    int(place[2]) if PurePosixPath(place[1]).name == file else None
                )
            else:
                # A call names what is called, then where; the name of a value, what it is of.
                inner = (line_of(name) for name in _NAMES.findall(body))
                line_of_alias[alias] = next((name for name in inner if name is not None), None)
        return line_of_alias[alias]

    return [line_of(match[1]) if (match := _LAST_LOC.search(line)) else None for line in lines]


def sass_addresses(sass: str) -> list[tuple[str, int] | None]:
    """For each line of a disassembly, its kernel and address, where it is an instruction."""
    kernel = ""
    addresses: list[tuple[str, int] | None] = []
    for line in lines_of(sass):
        if match := _SECTION.match(line):
            kernel = match[1]
        address = _ADDRESS.match(line)
        addresses.append((kernel, int(address[1], 16)) if address else None)
    return addresses


def sass_origins(sass: str, tables: Mapping[str, LineTable], ptx: Origins) -> list[int | None]:
    """The origins of a disassembly, by way of the PTX that it was assembled from."""
    origins: list[int | None] = []
    for at in sass_addresses(sass):
        table = tables.get(at[0]) if at else None
        line = table.line(at[1]) if at and table else None
        origins.append(ptx[line - 1] if line and line <= len(ptx) else None)
    return origins
