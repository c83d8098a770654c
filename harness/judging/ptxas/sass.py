"""Count the instructions of each kernel by class, in the text of `nvdisasm -c FILE.cubin`.

`-c` prints only code sections. nvdisasm 13.5.37 decodes sm_75 to sm_121; `-hex` may be added, its
encodings are skipped. Counts are static: a loop body counts once.

One section `.text.<name>` is one kernel with the functions that it calls (ptxas puts them behind
it). Not counted, because they do no work: NOPs (padding and others), the branch to itself that
ends every function, and instructions whose predicate is never true (`@!PT`, `@!UPT`), which ptxas
puts in as spacers.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import msgspec

_SECTION = re.compile(r"^\.text\.([^\n]+):[ \t\r]*$", re.MULTILINE)
_SECTION_END = re.compile(r"^(?://-|[ \t]*\.section[ \t])", re.MULTILINE)
_INSTRUCTION = re.compile(
    r"^[ \t]*/\*[0-9a-f]{4,16}\*/[ \t{]*"
    r"(?:@(!?[A-Z0-9]+)[ \t]+)?"
    r"([A-Z][A-Z0-9_]*)"
    # A packed half instruction that multiplies by nothing is how ptxas loads a constant.
    r"([A-Za-z0-9_.]*[ \t]+R[0-9]+, -RZ, RZ,)?",
    re.MULTILINE,
)
_SELF_LOOP = re.compile(
    r"^(\.L_\w+):[ \t\r]*\n[ \t]*/\*[0-9a-f]+\*/[ \t]+BRA `\(\1\)[ \t]*;", re.MULTILINE
)
_ANNOTATED = re.compile(r"\b(?:LDL|STL|BRXU?|JMXU?)\b")
_NEVER = frozenset({"!PT", "!UPT"})
_CONSTANT_LOAD = "HFMA2 (constant)"

_TENSOR = re.compile(r"[A-Z]G?MMA|UTC\w*MMA")
_VECTOR = frozenset(
    {"FFMA", "FADD", "FMUL", "FFMA32I", "FADD32I", "FMUL32I", "DFMA", "DADD", "DMUL"}
    | {"HFMA2", "HADD2", "HMUL2", "HFMA2_32I", "HADD2_32I", "HMUL2_32I"}
)
_PACKED = frozenset({"FFMA2", "FADD2", "FMUL2"})
_SPECIAL = frozenset({"MUFU"})
_LOCAL = frozenset({"LDL", "STL"})
_MEMORY = frozenset(
    {"LD", "LDG", "LDGMC", "LDS", "LDSM", "LDGSTS", "ST", "STG", "STS", "STSM", "STAS"}
    | {"ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS", "REDAS"}
    | {"UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG"}
    | {"LDT", "LDTM", "STT", "STTM", "UTCCP"}
    | {"SULD", "SUST", "SURED", "SUATOM", "TEX", "TLD", "TLD4", "TMML", "TXD"}
)
_CONTROL = frozenset(
    {"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "KILL", "PREEXIT", "BPT"}
    | {"BSSY", "BSYNC", "BREAK", "BMOV", "WARPSYNC", "YIELD", "NANOSLEEP", "ENDCOLLECTIVE"}
    | {"BAR", "B2R", "DEPBAR", "LDGDEPBAR", "LDDEPBAR", "SYNCS", "ARRIVES", "UTCBAR", "WARPGROUP"}
    | {"WARPGROUPSET", "MEMBAR", "FENCE", "ERRBAR", "UCGABAR_ARV", "UCGABAR_WAIT", "CGAERRBAR"}
    | {"UTMACMDFLUSH", "ACQBULK", "ELECT"}
)


class InstructionMix(msgspec.Struct, frozen=True, kw_only=True):
    """Static instruction counts of one kernel.

    Attributes:
        tensor: HMMA, IMMA, DMMA, QMMA, OMMA, HGMMA, QGMMA, IGMMA, UTC*MMA and their like.
        vector: multiplications and additions of floating point: FFMA, FADD, FMUL, their double
            (DFMA) and packed half (HFMA2, one each, as one instruction of that pipe) forms.
            FFMA2, FADD2 and FMUL2 count as two. Loading a constant by HFMA2 does not count.
        special: MUFU.
        memory: loads, stores, atomics and copies of global, shared, distributed and tensor
            memory, textures and surfaces, the bulk and TMA copies among them; not constant banks.
        local: LDL and STL, spills and local arrays alike.
        control: branches, calls, barriers, fences, waits.
        other: the rest: integers, moves, comparisons, conversions.
        total: instructions; less than the sum of the classes where packed ones count twice.
    """

    tensor: int = 0
    vector: int = 0
    special: int = 0
    memory: int = 0
    local: int = 0
    control: int = 0
    other: int = 0
    total: int = 0


def can_be_annotated(text: str) -> bool:
    """Whether nvdisasm says more of this code with its dataflow analysis than without (`-ndf`).

    It marks spills and names the targets of indirect branches. Of all other code it prints the same
    either way, and takes up to twice the time for it.
    """
    return _ANNOTATED.search(text) is not None


def mixes(text: str) -> dict[str, InstructionMix]:
    """The instruction mix of each kernel in a disassembly, by the kernel's name.

    Text that holds no code section gives an empty dict.
    """
    return {name: instruction_mix(opcodes(body)) for name, body in code_sections(text).items()}


def code_sections(text: str) -> dict[str, str]:
    """The text of each code section, by the name of its kernel, in the order of the file."""
    starts = list(_SECTION.finditer(text))
    sections = {}
    for index, start in enumerate(starts):
        limit = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        stop = _SECTION_END.search(text, start.end(), limit)
        sections[start[1]] = text[start.end() : stop.start() if stop else limit]
    return sections


def opcodes(text: str) -> dict[str, int]:
    """How often each opcode occurs in the text of a function, without its modifiers.

    Constants loaded by `HFMA2 R0, -RZ, RZ, ...` are kept apart, as `HFMA2 (constant)`.
    """
    counts: Counter[str] = Counter()
    for (predicate, opcode, constant), count in Counter(_INSTRUCTION.findall(text)).items():
        if predicate in _NEVER or opcode == "NOP":
            continue
        counts[_CONSTANT_LOAD if constant and opcode.startswith("HFMA2") else opcode] += count
    counts["BRA"] -= sum(1 for _ in _SELF_LOOP.finditer(text))
    return dict(sorted((+counts).items()))


def instruction_mix(counts: Mapping[str, int]) -> InstructionMix:
    """Sort opcode counts (as from `opcodes`) into classes."""
    by_class: Counter[str] = Counter()
    for opcode, count in counts.items():
        classes = (name for name, members in _CLASSES if opcode in members)
        name = "tensor" if _TENSOR.fullmatch(opcode) else next(classes, "other")
        by_class[name] += count * (2 if opcode in _PACKED else 1)
    return InstructionMix(**by_class, total=sum(counts.values()))


_CLASSES = (
    ("vector", _VECTOR | _PACKED),
    ("special", _SPECIAL),
    ("memory", _MEMORY),
    ("local", _LOCAL),
    ("control", _CONTROL),
)


# Which line of the PTX each instruction of a cubin comes from, where ptxas was given `-lineinfo`.
#
# The section `.nv_debug_line_sass` is a DWARF 2 line table from addresses to lines of the PTX that
# ptxas read; each of its programs begins at the symbol that its relocation names. Compared by eye
# with what `nvdisasm -gp` prints of a cubin of ptxas 13.4.59; no specification of it is public.

_DEBUG_SECTION = ".nv_debug_line_sass"
_LARGEST = 16 << 20
# What pyelftools lets through besides its own error when a file is damaged.
_DAMAGE = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, struct.error)


class LineTable(msgspec.Struct, frozen=True):
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

    section = elf.get_section_by_name(_DEBUG_SECTION)
    relocations = elf.get_section_by_name(f".rela{_DEBUG_SECTION}")
    if section is None or relocations is None or section["sh_size"] > _LARGEST:
        return {}
    symbols = elf.get_section(relocations["sh_link"])
    names = {
        entry["r_offset"]: symbols.get_symbol(entry["r_info_sym"]).name
        for entry in relocations.iter_relocations()
    }
    data = section.data()
    stream = BytesIO(data)
    structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
    tables = {}
    start = 0
    while start < len(data):
        header = struct_parse(structs.Dwarf_lineprog_header, stream, start)
        begin, stop = stream.tell(), start + header["unit_length"] + 4
        name = next((name for offset, name in names.items() if begin <= offset < stop), None)
        program = LineProgram(header, stream, structs, begin, stop)
        states = [entry.state for entry in program.get_entries() if entry.state]
        if name is not None:
            steps = sorted(
                (entry.address, entry.line) for entry in states if not entry.end_sequence
            )
            tables[name] = LineTable(
                tuple(address for address, _ in steps), tuple(line for _, line in steps)
            )
        start = stop
    return tables


# Live registers at each instruction, in the text of `nvdisasm -c -lrm count FILE.cubin`.
#
# It appends a column for each kind of register to every line; `GPR` are the 32-bit registers of a
# thread. Read here as nvdisasm 12.4.99, 12.8.55, 13.1.80 and 13.5.37 print it.

_LIVE_LINE = re.compile(
    r"// \|(?P<kinds>[^\n]*\bGPR\b[^\n]*)\|"
    r"|^\.text\.(?P<kernel>[^\n]+?):[ \t]*(?://|$)"
    r"|^[ \t]*/\*(?P<address>[0-9a-f]{4,16})\*/[^\n]*// \|(?P<counts>[^\n]*)\|",
    re.MULTILINE,
)


class LiveRegisters(msgspec.Struct, frozen=True):
    """How many registers of a thread are live at each instruction of a kernel, in code order.

    `addresses` are bytes from the kernel's begin, `counts` as many numbers.
    """

    addresses: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most that are live at once."""
        return max(self.counts)

    @property
    def peak_address(self) -> int:
        """The first instruction at which so many are."""
        return self.addresses[self.counts.index(self.peak)]


def live_registers(text: str) -> dict[str, LiveRegisters]:
    """The counts of each kernel with the functions it calls, by its name.

    A kernel without columns is left out.
    """
    by_kernel: dict[str, list[tuple[int, int]]] = {}
    kernel, column = "", 0
    for match in _LIVE_LINE.finditer(text):
        if match["kinds"]:  # each section has its own
            column = [title.strip() for title in match["kinds"].split("|")].index("GPR")
        elif match["kernel"]:
            kernel = match["kernel"]
        else:
            # A blank column: none of its registers is live.
            words = match["counts"].split("|")[column].strip() or "0"
            by_kernel.setdefault(kernel, []).append((int(match["address"], 16), int(words)))
    return {
        name: LiveRegisters(*map(tuple, zip(*lines, strict=True)))
        for name, lines in by_kernel.items()
    }
