"""Find the kernels of finished binaries: files, archives, folders, wheels of the package index.

What a file is depends on how it begins, not on its name. All is read as data: nothing of them
is executed. What is damaged costs one line, and the rest is read all the same.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import structs
from packaging.version import InvalidVersion, Version

from harness.io.files.reading import open_regular
from harness.io.files.writing import Scratch, scratch_disk
from harness.io.packages.index import download, wheels
from harness.io.packages.versions import select
from harness.io.processes.hub import run_tool
from harness.judging.ptxas.binary import kernels_of_cubin, read_embedded, with_ptx
from harness.judging.ptxas.cubin import CubinError
from harness.judging.ptxas.fatbin import CUBIN, MAGIC, PTX, FatbinError, read_fatbins
from harness.values.binary import BinaryKernel, EmbeddedPtx
from harness.values.errors import ConfigurationError, EmptySelectionError, UsageError

_MOST_UNPACKED = 8 << 30
_MOST_ENTRY = 1 << 30
_MOST_PTX = 256 << 20
_MOST_FILES = 200_000
_MOST_DEPTH = 3
_LARGEST_WHEEL = 4 << 30
_CUDA, _ZIP, _ELF = 190, b"PK\x03\x04", b"\x7fELF"
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_PINNED = re.compile(r"([A-Za-z0-9][\w.-]*)==(\S+)")
# What the library lets through besides its own error when a file is damaged.
_DAMAGE = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, zlib.error, OSError)
_DAMAGED_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, ValueError),  # other compressions, encrypted, odd names
)


class BinaryContents(msgspec.Struct, kw_only=True):
    """What was found; a problem is a line on something that is not wholly read."""

    kernels: list[BinaryKernel] = []
    modules: list[EmbeddedPtx] = []
    problems: list[str] = []
    files: int = 0
    left: int = 0


def read_binaries(text: str) -> BinaryContents:
    """The kernels of a file, of an archive, of all files below a folder, or of `NAME==VERSION`.

    Raises:
        UsageError: there is no such thing, or it is of no kind that is read.
        EmptySelectionError: no kernel is in it.
        TriageError: the wheel cannot be fetched.
    """
    contents, path = BinaryContents(left=_MOST_UNPACKED), Path(text)
    pin = _PINNED.fullmatch(text)
    if pin and not os.path.lexists(path):
        with Scratch() as scratch:
            _read_file(contents, _fetch(pin[1], pin[2], scratch), "")
    elif path.is_dir():
        _read_folder(contents, path)
    elif not _read_file(contents, path, path.name):
        raise UsageError(
            f"{text}: neither a cubin, a fatbin, PTX, an ELF file, a wheel nor another zip"
        )
    kernels = list(with_ptx(contents.kernels, contents.modules))
    words = in_words([kernel.name for kernel in kernels])
    contents.kernels = [structs.replace(each, demangled=words[each.name]) for each in kernels]
    if not contents.kernels:
        why = f": {contents.problems[0]}" if contents.problems else " with machine code or PTX"
        error = UsageError if contents.problems else EmptySelectionError
        raise error(f"{text}: no kernel of CUDA was found{why}")
    return contents


def _fetch(name: str, version: str, folder: Path) -> Path:
    try:
        exact = Version(version)
    except InvalidVersion as error:
        raise UsageError(f"{version!r} is not a version of {name}") from error
    offered = {release.version: release for release in wheels(name, exact=exact)}
    select(offered, version, what=f"wheel of {name} for this machine")
    path = folder / offered[exact].filename
    download(offered[exact], path, limit=_LARGEST_WHEEL)
    return path


def _read_folder(contents: BinaryContents, folder: Path) -> None:
    for count, path in enumerate(_files(folder)):
        if count == _MOST_FILES:
            contents.problems.append(f"{folder}: only its first {_MOST_FILES:,} files are read")
            break
        name = os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")
        try:
            _read_file(contents, path, name, depth=1)
        except ConfigurationError as error:
            contents.problems.append(str(error))


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below a folder, in order; links are not followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _read_file(contents: BinaryContents, path: Path, name: str, *, depth: int = 0) -> bool:
    """Read a file; below a folder, where the `depth` is 1, links are not followed."""
    with open_regular(path, sys.maxsize, follow_links=not depth) as file:
        return _read(contents, file, name, depth)


def _read(contents: BinaryContents, file: BinaryIO, name: str, depth: int) -> bool:
    """Read an open file; whether it is of a kind that is read."""
    head = file.read(20)
    is_ptx = name.endswith(".ptx")
    if head.startswith(_ZIP):
        _read_archive(contents, file, name, depth)
        return True
    if not (head.startswith((_ELF, MAGIC)) or (is_ptx and head)):
        return False
    contents.files += 1
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if head.startswith(_ELF) and int.from_bytes(head[18:20], "little") == _CUDA:
            _read_cubin(contents, data[:], name)
        elif head.startswith(_ELF):
            _read_host(contents, data, name)
        elif head.startswith(MAGIC):
            _read_fatbins(contents, data, name, 0, len(data))
        elif len(data) > _MOST_PTX:
            contents.problems.append(f"{name}: more than {_MOST_PTX:,} bytes: it is not read")
        elif module := read_embedded(data[:], name):
            contents.modules.append(module)
    return True


def _read_archive(contents: BinaryContents, file: BinaryIO, name: str, depth: int) -> None:
    """Each member that may hold kernels, one at a time; at most so many bytes in all."""
    prefix = f"{name}:" if depth else ""
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                place = prefix + member.filename
                with archive.open(member) as stream:
                    head = stream.read(4)
                if not head.startswith((_ELF, MAGIC, _ZIP)) and not place.endswith(".ptx"):
                    continue
                contents.left -= member.file_size
                if contents.left < 0 or depth == _MOST_DEPTH:
                    why = "archives in archives" if depth == _MOST_DEPTH else "too large"
                    contents.problems.append(f"{place}: not unpacked: {why}")
                    return
                with tempfile.TemporaryFile() as copy:
                    with scratch_disk(), archive.open(member) as stream:
                        shutil.copyfileobj(stream, copy, 1 << 20)
                    copy.seek(0)
                    _read(contents, copy, place, depth + 1)
    except _DAMAGED_ARCHIVE as error:
        contents.problems.append(f"{name or 'the wheel'}: a damaged archive: {error}")


def _read_host(contents: BinaryContents, data: mmap.mmap, name: str) -> None:
    """The fatbins of a library, a program or an object file; those of the host's loader first."""
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - 0.05 s, as in `read_cubin`
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        elf = ELFFile(data)
        # Else the library loops over as many as a damaged header claims.
        if elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"] > len(data):
            raise ValueError("cut off: its table of sections lies behind its end")
        found = {
            section.name: (section["sh_offset"], section["sh_offset"] + section["sh_size"])
            for section in elf.iter_sections()
            if section.name in _SECTIONS and section["sh_type"] != "SHT_NOBITS"
        }
    except (ELFError, *_DAMAGE) as error:
        contents.problems.append(f"{name}: a damaged ELF file: {error}")
        return
    for section in _SECTIONS:
        start, stop = found.get(section, (0, 0))
        if stop > len(data):
            contents.problems.append(
                f"{name}: cut off: {section} ends at {stop:,} of {len(data):,}"
            )
        elif _read_fatbins(contents, data, name, start, stop):
            return


def _read_fatbins(
    contents: BinaryContents, data: mmap.mmap, name: str, start: int, stop: int
) -> bool:
    """Whether there was any entry."""
    count, unknown = 0, Counter[int]()
    try:
        for count, entry in enumerate(read_fatbins(data, start, stop), start=1):  # noqa: B007
            if entry.kind not in (PTX, CUBIN):
                unknown[entry.kind] += 1
                continue
            try:
                unpacked = entry.unpacked(min(_MOST_ENTRY, contents.left))
            except FatbinError as error:
                contents.problems.append(f"{name}: {error}")
                continue
            contents.left -= len(unpacked)
            if entry.kind == CUBIN:
                _read_cubin(contents, unpacked, name)
            elif module := read_embedded(unpacked, name):
                contents.modules.append(module)
    except FatbinError as error:
        contents.problems.append(f"{name}: {error}")
    contents.problems += [
        f"{name}: {number} entries of kind {kind} are not read" for kind, number in unknown.items()
    ]
    return bool(count)


def _read_cubin(contents: BinaryContents, data: bytes, name: str) -> None:
    try:
        contents.kernels += kernels_of_cubin(data, name)
    except (CubinError, *_DAMAGE) as error:
        contents.problems.append(f"{name}: {error}")


_MANGLED = re.compile(r"_Z[\w$.]{1,100000}")
_MOST_WORDS = 100_000
_DEMANGLER = "c++filt"
_DEMANGLER_SECONDS = 60.0


def in_words(names: Sequence[str]) -> dict[str, str]:
    """Names of C++ as they are written there, by c++filt where it is installed; else as they are.

    Raises:
        InfrastructureError: it cannot be started.
    """
    words = {name: name for name in names}
    open_names = [name for name in words if _MANGLED.fullmatch(name)]
    if not shutil.which(_DEMANGLER):
        return words
    while open_names:
        batch: list[str] = []
        size = 0
        while open_names and (not batch or size + len(open_names[-1]) < _MOST_WORDS):
            batch.append(open_names.pop())
            size += len(batch[-1])
        done = run_tool([_DEMANGLER, "--", *batch], timeout=_DEMANGLER_SECONDS)
        lines = done.stdout.splitlines()
        if done.end.ok and len(lines) == len(batch):
            words |= zip(batch, lines, strict=True)
    return words
