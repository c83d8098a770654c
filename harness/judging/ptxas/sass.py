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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionMix:
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
        end = _SECTION_END.search(text, start.end(), limit)
        sections[start[1]] = text[start.end() : end.start() if end else limit]
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
        by_class[_class_of(opcode)] += count * (2 if opcode in _PACKED else 1)
    return InstructionMix(**by_class, total=sum(counts.values()))


def _class_of(opcode: str) -> str:
    if _TENSOR.fullmatch(opcode):
        return "tensor"
    for name, members in _CLASSES:
        if opcode in members:
            return name
    return "other"


_CLASSES = (
    ("vector", _VECTOR | _PACKED),
    ("special", _SPECIAL),
    ("memory", _MEMORY),
    ("local", _LOCAL),
    ("control", _CONTROL),
)
