"""A cubin: the entries of an ELF file, their parameters, constant banks, memory and variables.

The dialect is not documented. What is used here was found by assembling PTX with ptxas 13.5.37 for
sm_80, sm_90, sm_100a and sm_120, and reading what ptxas wrote: attributes of `.nv.info` (of
parameters: number, offset and, from bit 18 of the last word on, size), relocations of type 2 (a
64-bit address), and where constant bank 0 has the sizes of the launch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gpu_emulator.steps import SHARED_BASE, Entry, Variable
from gpu_emulator.values import Launch, NotExecutable

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION, _PLAIN_RELOCATION = struct.Struct("<QQq"), struct.Struct("<QQ")
_CUDA, _NO_BITS, _RELOCATIONS, _PLAIN, _OBJECT, _FUNCTION, _IS_ENTRY = 190, 8, 4, 9, 1, 2, 0x10
_ADDRESS_64 = 2
_CODE = ".text."
_FRAME, _STACK, _PARAMETER, _BANK_OF_PARAMETERS, _BRANCHES = 0x11, 0x12, 0x17, 0x0A, 0x34
_DIRECTIVES = {
    0x05: ".maxntid", 0x10: ".reqntid", 0x3D: ".reqnctapercluster", 0x3E: ".explicitcluster",
    0x3F: ".maxclusterrank",
}  # fmt: skip
_UNKNOWN = 0xFFFF_FFFF
_COLUMNS = "__nv_reservedSMEM_tcgen05_partition"

# Where constant bank 0 has what the launch says, by where its parameters begin (sm_80, sm_90,
# sm_100 and sm_120): sizes of the block and of the grid, the stack pointer, where the generic
# addresses of shared and of local memory and of parameters begin, what goes with accesses to global
# memory; the bytes of dynamic shared memory, the numbers of the grid, of SMs and of the graph; of
# clusters whether there are any, sizes, one over sizes y and z (ptxas multiplies an index by it and
# rounds down), the number of CTAs, and how many clusters there are. From sm_100 on, ptxas subtracts
# 160 times SR_CgaSize, which is 0 here, from where it reads sizes of clusters and dynamic memory.
_LAYOUTS = {
    0x160: {"block": 0x0, "grid": 0xC, "stack": 0x28, "shared": 0x18, "local": 0x20, "any": 0x118,
            "bank": 0x40, "dynamic": 0x2C, "grid number": 0x30, "SMs": 0x10C, "graph": 0x130},
    0x210: {"block": 0x0, "grid": 0xC, "stack": 0x28, "local": 0x20, "any": 0x208, "param": 0x198,
            "is cluster": 0x140, "cluster": 0x144, "parts": 0x154, "ranks": 0x188,
            "clusters": 0x15C, "dynamic": 0x2C, "grid number": 0x30, "SMs": 0x10C, "graph": 0x190},
    0x380: {"block": 0x360, "grid": 0x370, "stack": 0x37C, "local": 0x2F8, "any": 0x358,
            "param": 0x348, "is cluster": 0x36C, "cluster": 0x2A0, "parts": 0x2B4, "ranks": 0x2CC,
            "clusters": 0x2C0, "dynamic": 0x2AC, "grid number": 0x140, "SMs": 0x2D0,
            "graph": 0x2E8},
}  # fmt: skip
_SIZES = {"block": 12, "grid": 12, "stack": 4, "is cluster": 4, "cluster": 12, "ranks": 4,
          "clusters": 12, "dynamic": 4, "SMs": 4}  # fmt: skip


@dataclass(slots=True)
class CubinEntry(Entry):
    """An entry. `parameters_at` is where its parameters begin in constant bank 0.

    The first of them is `parameters_from` bytes behind that: tensor maps are aligned in the bank.
    `banks` are the constant banks: bytes, and (offset, symbol, addend) of addresses that go there.
    `stack` and `shared` are sizes in bytes; static shared memory begins at `shared_start`.
    `columns` are the bytes of the driver's shared memory in which ptxas keeps which columns of
    tensor memory are given out: start and end.
    `functions` maps the names of code to offsets in the entry's section, `branches` the offset of
    an indirect branch to those of its targets. `directives` are those of PTX that say what
    launches there may be.
    """

    parameters_at: int = 0
    stack: int = 0
    shared: int = 0
    shared_start: int = 0
    columns: tuple[int, int] | None = None
    banks: dict[int, tuple[bytes, list[tuple[int, str, int]]]] = field(default_factory=dict)
    branches: dict[int, list[int]] = field(default_factory=dict)

    @property
    def known_words(self) -> frozenset[int]:
        """The offsets of words of constant bank 0 whose meaning is known."""
        words = _LAYOUTS[self.parameters_at]
        spans = [(at, _SIZES.get(name, 8)) for name, at in words.items()]
        spans.append((self.parameters_at, len(self.banks[0][0]) - self.parameters_at))
        return frozenset(at for start, size in spans for at in range(start, start + size, 4))

    def launch_words(self, launch: Launch, windows: Mapping[str, int]) -> dict[int, int]:
        """What a launch puts into constant bank 0, beside its parameters, by offset."""
        at = _LAYOUTS[self.parameters_at]
        words = {at["block"] + 4 * axis: size for axis, size in enumerate(launch.block)}
        words |= {at["grid"] + 4 * axis: size for axis, size in enumerate(launch.grid)}
        words[at["stack"]] = self.stack
        counts = [size // own for size, own in zip(launch.grid, launch.cluster, strict=True)]
        parts = [int(_part(size).view(np.uint32)) for size in launch.cluster[1:]]
        for name, values in (
            ("is cluster", [int(launch.cluster_size > 1)]), ("cluster", launch.cluster),
            ("parts", parts), ("ranks", [launch.cluster_size]), ("clusters", counts),
            ("dynamic", [launch.dynamic_shared]), ("grid number", [1, 0]), ("SMs", [1]),
            ("graph", [0, 0]),
        ):  # fmt: skip
            if name in at:
                words |= {at[name] + 4 * axis: value for axis, value in enumerate(values)}
        starts = {**windows, "bank": windows["param"] - self.parameters_at}
        for space in ("shared", "local", "param", "bank"):
            if space in at:
                words[at[space]] = starts[space] % (1 << 32)
                words[at[space] + 4] = starts[space] >> 32
        return words


def _part(size: int) -> np.float32:
    """One over a size, rounded up: the quotient of a multiple of the size is not one too small."""
    near = np.float32(1 / size)
    return near if float(near) * size >= 1 else np.nextafter(near, np.float32(1))


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    data: bytes
    size: int
    align: int
    kind: int
    target: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int
    size: int
    kind: int
    is_entry: bool


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (struct.error, LookupError, ValueError) as error:
        raise NotExecutable(f"the cubin cannot be read: {error!r}") from error


def entry_names(elf: bytes) -> list[str]:
    """The names of the entries of a cubin; NotExecutable if it cannot be read."""
    with _reading():
        return [symbol.name for symbol in _entries(_symbols(elf))]


def code_bytes(elf: bytes) -> dict[str, bytes]:
    """The code of each entry and function in which nothing is filled in when it is loaded."""
    with _reading():
        sections = _sections(elf)
    filled = {one.target for one in sections if one.kind in (_RELOCATIONS, _PLAIN) and one.data}
    return {
        section.name.removeprefix(_CODE): section.data
        for number, section in enumerate(sections)
        if section.name.startswith(_CODE) and number not in filled
    }


def _entries(symbols: list[_Symbol]) -> list[_Symbol]:
    return [symbol for symbol in symbols if symbol.kind == _FUNCTION and symbol.is_entry]


def read_entry(elf: bytes, name: str | None) -> CubinEntry:
    """An entry of a cubin; None: the only one. NotExecutable where there is none."""
    with _reading():
        return _entry(_sections(elf), _symbols(elf), name)


@lru_cache(maxsize=4)
def _sections(elf: bytes) -> list[_Section]:
    head = _HEADER.unpack_from(elf)
    if not elf.startswith(b"\x7fELF\x02\x01") or head[2] != _CUDA:
        raise ValueError("no ELF file with code for a GPU")
    start, count, names_at = head[6], head[12], head[13]
    rows = [_SECTION.unpack_from(elf, start + number * _SECTION.size) for number in range(count)]
    names = elf[rows[names_at][4] : rows[names_at][4] + rows[names_at][5]]
    return [
        _Section(
            _text(names, row[0]), b"" if row[1] == _NO_BITS else elf[row[4] : row[4] + row[5]],
            row[5], row[8], row[1], row[7],
        )
        for row in rows
    ]  # fmt: skip


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


@lru_cache(maxsize=4)
def _symbols(elf: bytes) -> list[_Symbol]:
    sections = _sections(elf)
    table = next(section for section in sections if section.name == ".symtab")
    names = next(section for section in sections if section.name == ".strtab").data
    return [
        _Symbol(_text(names, name), section, value, size, info & 15, bool(other & _IS_ENTRY))
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(table.data)
    ]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each attribute of a `.nv.info` section: its number and its bytes."""
    at = 0
    while at + 4 <= len(data):
        form, number, value = struct.unpack_from("<BBH", data, at)
        size = value if form == 4 else 0
        yield number, data[at + 4 : at + 4 + size]
        at += 4 + size


def _entry(sections: list[_Section], symbols: list[_Symbol], name: str | None) -> CubinEntry:
    entries = _entries(symbols)
    if name is None and len(entries) != 1:
        raise NotExecutable(f"the cubin has {len(entries)} entries; name one of them")
    chosen = next((symbol for symbol in entries if name in (None, symbol.name)), None)
    if chosen is None:
        raise NotExecutable(f"the cubin has no entry {name}")
    entry, by_name = CubinEntry(chosen.name), {section.name: section for section in sections}
    info = by_name[".nv.info"].data if ".nv.info" in by_name else b""
    entry.stack = _stacks(info).get(symbols.index(chosen), 0)
    _parameters(entry, by_name)
    shared = by_name.get(f".nv.shared.{entry.name}")
    # From sm_90 on the first KiB is the driver's, and counted.
    entry.shared_start = 0 if entry.parameters_at == min(_LAYOUTS) else SHARED_BASE
    entry.shared = max(shared.size - entry.shared_start, 0) if shared else 0
    _banks(entry, sections, symbols)
    entry.functions = {
        symbol.name: symbol.value
        for symbol in symbols
        if symbol.kind == _FUNCTION and symbol.section == chosen.section
    }
    for symbol in symbols:
        if symbol.name == _COLUMNS:
            entry.columns = symbol.value, symbol.value + symbol.size
        section = sections[symbol.section] if symbol.section < len(sections) else None
        if symbol.kind == _OBJECT and section and section.name in (".nv.global", ".nv.global.init"):
            data = section.data[symbol.value : symbol.value + symbol.size] or None
            entry.variables.append(
                Variable(symbol.name, "global", "b8", symbol.size, section.align, data)
            )
    return entry


@lru_cache(maxsize=4)
def _stacks(info: bytes) -> dict[int, int]:
    """By symbol the stack with all that it calls, or its own where recursion hides that."""
    stacks: dict[int, int] = {}
    for attribute, payload in _attributes(info):
        if attribute in (_FRAME, _STACK):
            symbol, size = struct.unpack("<II", payload)
            if size != _UNKNOWN:
                stacks[symbol] = max(stacks.get(symbol, 0), -(-size // 16) * 16)
    return stacks


def _parameters(entry: CubinEntry, sections: Mapping[str, _Section]) -> None:
    own = f".nv.info.{entry.name}"
    rows: list[tuple[int, int, int]] = []
    bank = sections[f".nv.constant0.{entry.name}"]
    entry.parameters_at = bank.size
    for attribute, payload in _attributes(sections[own].data if own in sections else b""):
        if attribute == _PARAMETER:
            _, number, offset, flags = struct.unpack("<IHHI", payload)
            rows.append((number, offset, flags >> 18))
        elif attribute == _BANK_OF_PARAMETERS:
            entry.parameters_at = struct.unpack("<IHH", payload)[1]
        elif attribute in _DIRECTIVES:
            numbers = map(str, struct.unpack(f"<{len(payload) // 4}I", payload))
            entry.directives += (f"{_DIRECTIVES[attribute]} {', '.join(numbers)}".strip(),)
        elif attribute == _BRANCHES:
            words = struct.unpack(f"<{len(payload) // 4}I", payload)
            entry.branches[words[0]] = list(words[3:])
    if entry.parameters_at not in _LAYOUTS:
        raise NotExecutable(
            f"parameters begin at {entry.parameters_at:#x} of constant bank 0, which is the layout"
            " of no target that is known"
        )
    entry.parameters_from = min((offset for _, offset, _ in rows), default=0)
    for number, offset, size in sorted(rows):
        # Its alignment counts from the bank's start on; behind what comes before it, a multiple of
        # its offset is the offset.
        align = offset or 256
        entry.parameters.append(Variable(f"parameter {number}", "param", "b8", size, align))


def _relocations(table: _Section, data: bytes) -> Iterator[tuple[int, int, int]]:
    """Offset, kind and symbol, addend: the last stands in the data where the table has it not."""
    if table.kind == _RELOCATIONS:
        yield from _RELOCATION.iter_unpack(table.data)
    elif table.kind == _PLAIN:
        for offset, info in _PLAIN_RELOCATION.iter_unpack(table.data):
            yield offset, info, struct.unpack_from("<q", data, offset)[0]


def _banks(entry: CubinEntry, sections: list[_Section], symbols: list[_Symbol]) -> None:
    numbers = {
        f".nv.constant{number}{end}": number
        for number in range(5)
        for end in ("", f".{entry.name}")
    }
    for at, section in enumerate(sections):
        if section.name not in numbers:
            continue
        addresses: list[tuple[int, str, int]] = []
        for table in sections:
            if table.target != at:
                continue
            for offset, info, addend in _relocations(table, section.data):
                if info % (1 << 32) != _ADDRESS_64:
                    raise NotExecutable(f"a relocation of type {info % (1 << 32)}")
                addresses.append((offset, symbols[info >> 32].name, addend))
        entry.banks[numbers[section.name]] = section.data, addresses
