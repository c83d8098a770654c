"""Read the kernels of finished binaries: of each cubin, and which have PTX, too.

What a cubin says beyond `cubin.py`, read off those of ptxas 11.7.99 to 13.5.37 and of nvlink:

- The exact target: in the note `.note.nv.tkinfo` (`-arch sm_90a`) where `EI_OSABI` is 65; elsewhere
  the suffix `a` is bit 11 of `e_flags`. The note has the version of the tool, too.
- Accesses to local memory: instructions have 16 bytes from sm_70 on, and their lowest 12 bits are
  0x387 for STL and 0x983 for LDL (as nvdisasm 13.5.37 prints of sm_75 to sm_120). The 4 bits above
  are the predicate, and all ones are never true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from harness.judging.ptxas.cubin import code_of_kernels, read_cubin
from harness.values.binary import BinaryKernel, EmbeddedPtx

_EXACT_FLAG = 0x800
_NOTED = re.compile(rb"\0Cuda compilation tools, release [\d.]{1,20}, V([\d.]{1,20})\0")
_ARCH = re.compile(rb"-arch (sm_[1-9]\d{1,2}[af]?)\b")
_NOTE = slice(0, 4096)
_WIDE_SINCE = 70
_STL, _LDL = 0x387, 0x983
_OPENS = re.compile("[<(]")
_PTX_HEAD = re.compile(rb"^[ \t]*\.target[ \t]+(sm_\d{2,3}[af]?)\b", re.MULTILINE)
_PTX_ENTRY = re.compile(rb"^[ \t]*(?:\.\w+[ \t]+)*\.entry\s+([\w$.%]{1,4096})", re.MULTILINE)


def kernels_of_cubin(data: bytes, file: str) -> tuple[BinaryKernel, ...]:
    """The kernels of a cubin, in the order of its symbol table.

    Raises:
        CubinError: the bytes are cut off, damaged, or not a cubin.
    """
    cubin = read_cubin(data)
    codes = code_of_kernels(data)
    found = data.find(b"NVIDIA Corp\0")
    note = data[max(found, 0) :][_NOTE] if found >= 0 else b""
    made_by, arch = _NOTED.search(note), _ARCH.search(note)
    flags = int.from_bytes(data[48:52], "little")
    target = f"sm_{cubin.target}" if cubin.target else None
    if arch:
        target = arch[1].decode()
    elif target and flags & _EXACT_FLAG and cubin.target == flags & 0xFF:
        target += "a"
    kernels = []
    for entry in cubin.entries:
        code, text, has_callees = codes[entry.name]
        stack = max(filter(None, (entry.stack, entry.max_stack)), default=entry.stack)
        accesses: tuple[int | None, int | None] = None, None
        if cubin.target and cubin.target >= _WIDE_SINCE:
            accesses = _local_accesses(text)
        is_dry = entry.stack == 0 == entry.max_stack or (accesses == (0, 0) and not has_callees)
        kernels.append(
            BinaryKernel(
                file=file,
                name=entry.name,
                target=target,
                n_regs=entry.n_regs,
                stack=stack,
                static_shared=entry.static_shared,
                local_stores=accesses[0],
                local_loads=accesses[1],
                spills=0 if is_dry else None,
                made_by=made_by[1].decode() if made_by else None,
                code=code,
            )
        )
    return tuple(kernels)


def _local_accesses(text: bytes) -> tuple[int, int]:
    """How many instructions store to local memory, and how many load from it."""
    import numpy as np  # noqa: PLC0415 - 0.1 s, and commands that read no binary need none of it

    low = np.frombuffer(text[: len(text) & ~15], "<u2")[::8]
    opcodes = (low & 0xFFF)[low >> 12 != 15]
    return int((opcodes == _STL).sum()), int((opcodes == _LDL).sum())


def read_embedded(data: bytes, file: str) -> EmbeddedPtx | None:
    """A module of PTX; None for one without kernels."""
    text = data.rstrip(b"\0")
    head = _PTX_HEAD.search(text)
    entries = dict.fromkeys(name.decode() for name in _PTX_ENTRY.findall(text))
    if not head or not entries:
        return None
    return EmbeddedPtx(file=file, target=head[1].decode(), entries=tuple(entries), text=text)


def with_ptx(
    kernels: Iterable[BinaryKernel], modules: Iterable[EmbeddedPtx]
) -> Iterator[BinaryKernel]:
    """The kernels, each with the targets of its PTX; then those that there is PTX of alone."""
    targets: dict[tuple[str, str], set[str]] = {}
    for module in modules:
        for name in module.entries:
            targets.setdefault((stem_of(module.file), name), set()).add(module.target)
    seen = set()
    for kernel in kernels:
        key = stem_of(kernel.file), kernel.name
        seen.add(key)
        yield replace(kernel, ptx=tuple(sorted(targets.get(key, ()))))
    for key, found in targets.items():
        if key not in seen:
            yield BinaryKernel(file=key[0], name=key[1], ptx=tuple(sorted(found)))


def stem_of(file: str) -> str:
    """Equal for a cubin and the PTX that a compiler left beside it."""
    return file.removesuffix(".cubin").removesuffix(".ptx")


def plain_name(demangled: str) -> str:
    """A function's name without its type, its namespaces, its parameters and its arguments."""
    head = _OPENS.split(demangled.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return head.rpartition(" ")[2].rpartition("::")[2]


def selects(patterns: Sequence[str], name: str, demangled: str) -> bool:
    """Whether a pattern matches the name as it stands, in words, or without its surroundings."""
    names = (name, demangled, plain_name(demangled))
    return not patterns or any(fnmatchcase(n, pattern) for n in names for pattern in patterns)
