"""Read what a cubin says of its kernels, to check what the ptxas log said.

A cubin is an ELF file (machine 190, `EM_CUDA`) of an undocumented dialect. What is used here was
found by assembling `tests/data/ptx` with ptxas 11.7.99, 12.4.99, 12.8.93, 12.9.86, 13.1.115,
13.3.33, 13.4.59 and 13.5.37 for sm_75 to sm_121 and comparing with `ptxas -v`:

- Target: `e_flags`, the lowest byte where `EI_OSABI` is 51 (11.7; 12.x below sm_100), the second
  lowest where it is 65 (12.x from sm_100 on; 13.x). The suffix (`a`, `f`) is not encoded in the
  same way by all versions, so it is left out.
- Entries: function symbols that have bit 4 of `st_other` set and a section `.text.<name>`.
- Registers: attribute 0x2f of `.nv.info`, everywhere; the top byte of the text section's `sh_info`
  as well, below sm_90 only.
- Frame: attribute 0x11 of `.nv.info`. Stack with callees: 0x12, all ones where recursion hides it
  (12.8 to 13.1 say the entry's own frame there).
- Static shared memory: the size of `.nv.shared.<name>`; no such section means none. From sm_90 on
  the size in an executable cubin (not in one from `--compile-only`) counts the driver's 1,024
  bytes too, whether or not (12.4) there is a section `.nv.shared.reserved.0`.
- Constants: the size of `.nv.constant<bank>.<name>`; bank 0 counts the launch parameters. The log
  prints them below sm_90 only.
- Threads: attribute 0x10 of `.nv.info.<name>`, where the PTX fixes them (`.reqntid`; 11.8 to 13.5).
- Parameters: attribute 0x17 of `.nv.info.<name>`, one for each: its number and
  offset (16 bits each) after the first word, and its size from bit 18 of the last word on.
- Barriers: attribute 0x4c of `.nv.info.<name>`, with `EI_OSABI` 65 only, left out for none.

An attribute of `.nv.info` is a format byte, an attribute byte and 16 bits: the value itself, or
(format 4) the size of the payload that follows. Spilled bytes, compile time and the size of dynamic
shared memory are not in the file.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import Section


_OSABI_OLD = 51
_OSABI_NEW = 65
_SIZED_PAYLOAD = 4
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_REQUIRED_THREADS = 0x10
_PARAMETER = 0x17
_REGCOUNT = 0x2F
_NUM_BARRIERS = 0x4C
_UNDETERMINED = 0xFFFFFFFF
_STO_CUDA_ENTRY = 0x10
_SYMBOL = struct.Struct("<IBBHQQ")
_DIMENSIONS = struct.Struct("<III")
_ONE_PARAMETER = struct.Struct("<IHHI")
_STT_FUNC = 2
_FUNCTIONS = {bytes([binding << 4 | _STT_FUNC]) for binding in range(16)}
_RESERVED_SHARED = 1024
_COUNTS_RESERVE = 90
_OF_CODE = re.compile(r"\.text\.|\.nv\.(?:constant\d+|global|global\.init|shared|info(?=\.))")
_LINKS = re.compile(r"\.rela?\.(?:text|nv\.constant\d+)\.")
# Attributes whose payload begins with numbers of symbols, and how many bytes these are: the bank of
# the parameters, and the functions outside.
_NUMBERED = {0x0A: 4, 0x0F: 1 << 16}
_WITH_BYTES = (".symtab", ".strtab", ".text.", ".nv.info", ".nv.constant")
# What pyelftools lets through besides its own error when a file is damaged (found by fuzzing).
_DAMAGE = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, struct.error)


class CubinError(ValueError):
    """The bytes are not a whole cubin; the message says what is wrong with them."""


class CubinEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of a cubin. Sizes are in bytes; None is what the file does not say.

    Attributes:
        n_regs: registers per thread.
        stack: frame of the entry itself, per thread.
        max_stack: stack with everything it calls, per thread; None where recursion hides it.
        static_shared: per block, without the part that the driver reserves.
        constants: pairs of bank and size, ordered by bank.
        barriers: named barriers that a block uses.
        threads: of a block, where the kernel takes no other number.
        parameters: the size of each.
    """

    name: str
    n_regs: int | None
    stack: int | None
    max_stack: int | None
    static_shared: int | None
    constants: tuple[tuple[int, int], ...]
    barriers: int | None
    threads: int | None = None
    parameters: tuple[int, ...] = ()


class Cubin(msgspec.Struct, frozen=True, kw_only=True):
    """A cubin: `target` is ten times the compute capability, None for an unknown ELF dialect."""

    target: int | None
    entries: tuple[CubinEntry, ...]

    def entry(self, name: str) -> CubinEntry | None:
        """The kernel of that name, if there is one."""
        return next((entry for entry in self.entries if entry.name == name), None)


def read_cubin(data: bytes) -> Cubin:
    """Read the kernels of a cubin, ordered as in its symbol table.

    Raises:
        CubinError: the bytes are cut off, damaged, or not a cubin.
    """
    # Takes 0.05 s, and commands that find all cubins read need none of it.
    from elftools.common.exceptions import ELFError  # noqa: PLC0415
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        elf = ELFFile(BytesIO(data))
        if elf["e_machine"] != "EM_CUDA" or elf.elfclass != 64 or not elf.little_endian:
            raise CubinError(f"an ELF file of machine {elf['e_machine']}, not a cubin")
        sections = _whole_sections(elf, data)
        osabi = elf["e_ident"]["EI_OSABI"]
        shift = {_OSABI_OLD: 0, _OSABI_NEW: 8}.get(osabi)
        target = None if shift is None else elf["e_flags"] >> shift & 0xFF
        # Bytes of the driver's that the size of every `.nv.shared` section includes.
        is_counted = target is not None and target >= _COUNTS_RESERVE and elf["e_type"] == "ET_EXEC"
        reserve = None if target is None else _RESERVED_SHARED if is_counted else 0
        file_info: dict[tuple[int, int], int] = {}
        if ".nv.info" in sections:
            for attribute, value, payload in _attributes(sections[".nv.info"].data()):
                if value == 8 and len(payload) == 8:
                    symbol, number = struct.unpack("<II", payload)
                    file_info[attribute, symbol] = number
        banks: dict[str, list[tuple[int, int]]] = {}
        for section_name, section in sections.items():
            prefix, _, owner = section_name.removeprefix(".nv.constant").partition(".")
            if prefix.isascii() and prefix.isdigit():
                banks.setdefault(owner, []).append((int(prefix), int(section["sh_size"])))
        entries = tuple(
            _entry(name, symbol, sections, file_info, sorted(banks.get(name, [])), osabi, reserve)
            for symbol, name in _entry_symbols(sections)
            if f".text.{name}" in sections
        )
        return Cubin(target=target, entries=entries)
    except CubinError:
        raise
    except (ELFError, *_DAMAGE) as error:
        raise CubinError(f"damaged cubin of {len(data):,} bytes: {error}") from error


def code_sha256(data: bytes) -> str:
    """A hash of the machine code: equal for cubins that differ in names and line tables only.

    What counts is the target, and of each kernel and function the instructions, the constants and
    initial values, the shared memory, the registers, the stack and what the driver needs to launch
    it. What no GPU looks at (`.debug_*`, `.nv_debug_*`, comments, the symbols' names) does not.

    Raises:
        CubinError: as `read_cubin`.
    """
    cubin = read_cubin(data)
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - as in `read_cubin`

    parts = [
        msgspec.json.encode(
            [cubin.target, *(structs.astuple(entry)[1:] for entry in cubin.entries)]
        )
    ]
    for section in ELFFile(BytesIO(data)).iter_sections():
        kind = _OF_CODE.match(section.name)
        if kind:
            is_stored = section["sh_type"] != "SHT_NOBITS" and not kind[0].startswith(".nv.shared")
            parts += [kind[0].encode(), section.data() if is_stored else b"%d" % section["sh_size"]]
    return _hashed(parts)


def code_of_kernels(data: bytes) -> dict[str, tuple[str, bytes, bool]]:
    """For each kernel a hash as `code_sha256`, its instructions, and whether it may call others.

    Where a kernel calls functions or addresses variables, all of those in the file count; the
    constants of the file always do. Numbers of symbols do not: other kernels move them.

    Raises:
        CubinError: as `read_cubin`.
    """
    cubin = read_cubin(data)
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - as in `read_cubin`

    own: dict[str, list[bytes]] = {
        entry.name: [msgspec.json.encode([cubin.target, *structs.astuple(entry)[1:]])]
        for entry in cubin.entries
    }
    texts: dict[str, bytes] = {}
    constants: list[bytes] = []
    called: list[bytes] = []
    links: dict[str, set[int]] = {}
    types = b""
    for section in ELFFile(BytesIO(data)).iter_sections():
        if link := _LINKS.match(section.name):
            records, step = _bytes_of(section, data), max(section["sh_entsize"], 16)
            links.setdefault(section.name[link.end() :], set()).update(
                int.from_bytes(records[at : at + 4], "little")
                for at in range(12, len(records), step)
            )
        elif section.name == ".symtab":
            types = _bytes_of(section, data)[4 :: _SYMBOL.size]
        kind = _OF_CODE.match(section.name)
        if not kind or kind[0].startswith(".nv.shared"):
            continue
        owner = section.name[kind.end() :].removeprefix(".")
        content = b"%d" % section["sh_size"]
        if section["sh_type"] != "SHT_NOBITS":
            content = _bytes_of(section, data)
        if kind[0].startswith(".nv.info"):
            content = b"".join(
                b"%d %d " % (attribute, value) + payload[_NUMBERED.get(attribute, 0) :]
                for attribute, value, payload in _attributes(content)
            )
        elif kind[0] == ".text.":
            texts[owner] = content
        is_constant = not owner and kind[0].startswith(".nv.constant")
        own.get(owner, constants if is_constant else called).extend((kind[0].encode(), content))
    codes = {}
    for name, parts in own.items():
        whole = [*parts, *constants, *(called if name in links else ())]
        may_call = any(types[link : link + 1] in _FUNCTIONS for link in links.get(name, ()))
        codes[name] = _hashed(whole), texts.get(name, b""), may_call
    return codes


def _bytes_of(section: Section, data: bytes) -> bytes:
    """As they lie in the file: what claims to be compressed is not unpacked."""
    start = section["sh_offset"]
    return data[start : start + section["sh_size"]]


def _hashed(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(b"%d " % len(part) + part for part in parts)).hexdigest()


def _whole_sections(elf: ELFFile, data: bytes) -> dict[str, Any]:
    """Sections by name, once the section table and what is read are known to lie in the file.

    Checked first, because pyelftools would loop over as many entries as a damaged header claims.
    Memory spaces (`.nv.shared`, `.nv.local`) have a size and no bytes, and not always the type
    that says so: relocatable cubins give them processor-specific types.
    """
    table_end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
    if elf["e_shnum"] == 0 or table_end > len(data):
        raise CubinError(f"cut off: the section table ends at {table_end:,} of {len(data):,} bytes")
    sections: dict[str, Any] = {}
    for section in elf.iter_sections():
        stop = section["sh_offset"] + section["sh_size"]
        if section.name.startswith(_WITH_BYTES) and stop > len(data):
            raise CubinError(f"cut off: {section.name} ends at {stop:,} of {len(data):,} bytes")
        sections[section.name] = section
    return sections


def _entry_symbols(sections: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Index and name of each kernel.

    The symbol table is unpacked here because pyelftools drops the bit of `st_other` that tells a
    kernel from a function.
    """
    if ".symtab" not in sections or ".strtab" not in sections:
        return
    table, names = sections[".symtab"].data(), sections[".strtab"].data()
    whole = len(table) - len(table) % _SYMBOL.size
    for index, symbol in enumerate(_SYMBOL.iter_unpack(table[:whole])):
        name_at, info, flags = symbol[:3]
        if info & 0xF == _STT_FUNC and flags & _STO_CUDA_ENTRY:
            yield index, names[name_at : names.index(b"\0", name_at)].decode()


def _entry(
    name: str,
    symbol: int,
    sections: Mapping[str, Any],
    file_info: Mapping[tuple[int, int], int],
    banks: Sequence[tuple[int, int]],
    osabi: object,
    reserve: int | None,
) -> CubinEntry:
    barriers = 0 if osabi == _OSABI_NEW else None
    threads = None
    parameters: dict[int, int] = {}
    if f".nv.info.{name}" in sections:
        for attribute, value, payload in _attributes(sections[f".nv.info.{name}"].data()):
            if attribute == _NUM_BARRIERS:
                barriers = value & 0xFF
            elif attribute == _REQUIRED_THREADS and len(payload) == _DIMENSIONS.size:
                threads = math.prod(_DIMENSIONS.unpack(payload))
            elif attribute == _PARAMETER and len(payload) == _ONE_PARAMETER.size:
                _, number, _, flags = _ONE_PARAMETER.unpack(payload)
                parameters[number] = flags >> 18
    max_stack = file_info.get((_MIN_STACK_SIZE, symbol))
    static_shared: int | None = 0
    if shared := sections.get(f".nv.shared.{name}"):
        static_shared = None if reserve is None else max(int(shared["sh_size"]) - reserve, 0)
    return CubinEntry(
        name=name,
        n_regs=file_info.get((_REGCOUNT, symbol))
        or sections[f".text.{name}"]["sh_info"] >> 24
        or None,
        stack=file_info.get((_FRAME_SIZE, symbol)),
        max_stack=None if max_stack == _UNDETERMINED else max_stack,
        static_shared=static_shared,
        constants=tuple(banks),
        barriers=barriers,
        threads=threads,
        parameters=tuple(size for _, size in sorted(parameters.items())),
    )


def _attributes(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        payload = b""
        if form == _SIZED_PAYLOAD:
            payload = data[at : at + value]
            at += value
        yield attribute, value, payload
