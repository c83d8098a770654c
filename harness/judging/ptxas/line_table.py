"""Which line of the PTX each instruction of a cubin comes from, where ptxas was given `-lineinfo`.

The section `.nv_debug_line_sass` is a DWARF 2 line table from addresses to lines of the PTX that
ptxas read; each of its programs begins at the symbol that its relocation names. Compared by eye
with what `nvdisasm -gp` prints of a cubin of ptxas 13.4.59; no specification of it is public.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from io import BytesIO
from typing import Any

_SECTION = ".nv_debug_line_sass"
_LARGEST = 16 << 20
# What pyelftools lets through besides its own error when a file is damaged.
_DAMAGE = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, struct.error)


@dataclass(frozen=True, slots=True)
class LineTable:
    """Addresses in a kernel's code, ascending, and the line of the PTX that each begins."""

    addresses: tuple[int, ...]
    lines: tuple[int, ...]

    def line(self, address: int) -> int | None:
        """The line (from 1) of the instruction at that address; None before the first."""
        index = bisect_right(self.addresses, address) - 1
        return self.lines[index] if index >= 0 else None


def line_tables(data: bytes) -> dict[str, LineTable]:
    """The table of each kernel of a cubin, by its name; none where there is no line information.

    A file that is damaged has none, either: it is shown without links.
    """
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - 0.05 s
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        return _read(ELFFile(BytesIO(data)))
    except (ELFError, *_DAMAGE):
        return {}


def _read(elf: Any) -> dict[str, LineTable]:  # noqa: ANN401 - pyelftools has no types
    from elftools.common.utils import struct_parse  # noqa: PLC0415
    from elftools.dwarf.lineprogram import LineProgram  # noqa: PLC0415
    from elftools.dwarf.structs import DWARFStructs  # noqa: PLC0415

    section = elf.get_section_by_name(_SECTION)
    relocations = elf.get_section_by_name(f".rela{_SECTION}")
    if section is None or relocations is None or section["sh_size"] > _LARGEST:
        return {}
    symbols = elf.get_section(relocations["sh_link"])
    names = {
        each["r_offset"]: symbols.get_symbol(each["r_info_sym"]).name
        for each in relocations.iter_relocations()
    }
    data = section.data()
    stream = BytesIO(data)
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
    found = {}
    start = 0
    while start < len(data):
        header = struct_parse(structs.Dwarf_lineprog_header, stream, start)
        begin, end = stream.tell(), start + header["unit_length"] + 4
        name = next((name for offset, name in names.items() if begin <= offset < end), None)
        program = LineProgram(header, stream, structs, begin, end)
        states = [each.state for each in program.get_entries() if each.state]
        if name is not None:
            steps = sorted((each.address, each.line) for each in states if not each.end_sequence)
            found[name] = LineTable(
                tuple(address for address, _ in steps), tuple(line for _, line in steps)
            )
        start = end
    return found
