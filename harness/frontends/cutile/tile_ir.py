"""Files of Tile IR's bytecode, which cuTile leaves: nothing is lowered, tileiras takes them."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import msgspec

from harness.frontends.back_end import BackEnd
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.cutile.tileiras import LATEST_BACK_END, read_tile_ir
from harness.frontends.file_front_end import (
    PassedOnFrontEnd,
    captured_file,
    launch_of_file,
    repro_of_file,
)
from harness.frontends.plan import CapturePlace, Plan, cells_of
from harness.frontends.readings import PtxReading
from harness.frontends.sessions import CapturedLaunch
from harness.io.files.reading import read_regular
from harness.values.errors import UsageError
from harness.values.kernel import Repro
from harness.values.outcome import LaunchFacts, Lowering, ProcessEnd
from harness.values.toolchain import Assembler

_MAGIC = b"\x7fTileIR\x00"
_HEADER = len(_MAGIC) + 4
_END, _STRINGS, _FUNCTIONS = 0, 1, 2
_ALIGNED = 0x80
_OFFSET = 4


class BytecodeError(ValueError):
    """It is none, or is damaged."""


class Bytecode(msgspec.Struct, frozen=True, kw_only=True):
    """The `version` that it is written in, and its functions.

    `first` names the first function; the places of the others depend on the code of each, which is
    not read. `names` are all strings of the file, the names of its functions among them.
    """

    version: str
    functions: int
    first: str
    names: frozenset[str]


def read_bytecode(data: bytes) -> Bytecode:
    """The header, and which functions there are.

    Raises:
        BytecodeError: it is not such a file, or ends early.
    """
    if not data.startswith(_MAGIC) or len(data) < _HEADER:
        raise BytecodeError("it is not bytecode of Tile IR: it does not begin as such a file does")
    try:
        sections = _sections(data)
        functions = _Reader(sections[_FUNCTIONS])
        strings = _strings(sections[_STRINGS])
        count = functions.number()
        first = strings[functions.number()] if count else ""
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise BytecodeError(
            "its bytecode of Tile IR is damaged: it cannot be read whole"
        ) from error
    if not count:
        raise BytecodeError("its bytecode of Tile IR holds no function")
    major, minor = data[len(_MAGIC)], data[len(_MAGIC) + 1]
    return Bytecode(
        version=f"{major}.{minor}", functions=count, first=first, names=frozenset(strings)
    )


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """One of seven bits a byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise IndexError(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def align(self, size: int) -> None:
        self.at += -self.at % size


def _sections(data: bytes) -> dict[int, bytes]:
    reader, sections = _Reader(data, _HEADER), {}
    while (kind := reader.byte()) != _END:
        size = reader.number()
        if kind & _ALIGNED:
            reader.align(max(1, reader.number()))
        sections[kind & ~_ALIGNED] = reader.take(size)
    return sections


def _strings(section: bytes) -> list[str]:
    """A table: how many, where each begins, and all of them."""
    reader = _Reader(section)
    count = reader.number()
    reader.align(_OFFSET)
    starts = [int.from_bytes(reader.take(_OFFSET), "little") for _ in range(count)]
    text = section[reader.at :]
    bounds = itertools.pairwise([*starts, len(text)])
    return [text[start:stop].decode() for start, stop in bounds]


_KIND = "tileir"
_MAX_BYTES = 256 << 20


class _TileIrFrontEnd(PassedOnFrontEnd):
    kind = _KIND
    title = "Tile IR"
    back_ends: tuple[BackEnd, ...] = (LATEST_BACK_END,)
    # As `CUDA_TILE_DUMP_BYTECODE` names them, and as the stage is called.
    suffixes: tuple[str, ...] = (".tileirbc", ".tileir")
    stages: tuple[str, ...] = (_KIND,)

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        code, _ = _read(path)
        if kernel is None and code.functions > 1:
            raise UsageError(f"{path}: it holds {code.functions} functions; name one: FILE::NAME")
        if kernel is not None and kernel not in code.names:
            raise UsageError(f"{path}: it holds no function {kernel!r}; the first is {code.first}")
        return repro_of_file(self.kind, path, kernel or code.first)

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan:
        repro = place.selection.repro
        code, data = _read(repro.file)
        kernel = repro.kernel or code.first
        key = content_key(bytecode=hashlib.sha256(data).hexdigest(), kernel=kernel)
        record = launch_of_file(key, kernel, {}, repro.file)
        captured = captured_file(place, (data, place.target), [record], key=key)
        return cells_of(self.back_end(place.target), place, captured)

    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[Lowering, dict[str, bytes]]:
        data, target = launch.request
        lowering = Lowering(
            end=ProcessEnd(exit_code=0),
            stage=_KIND,
            metadata={"entry": record.kernel},
            # The letter of a target goes to ptxas alone; the rest as cuTile has it.
            flags=("--gpu-name", str(target).rstrip("af"), "-O3", "--lineinfo"),
        )
        return lowering, {_KIND: data}

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        return content_key(record=record.key, target=str(launch.request[1]))

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        return read_tile_ir(bench, lowering, ptx)


def _read(path: Path) -> tuple[Bytecode, bytes]:
    data = read_regular(path, _MAX_BYTES)
    try:
        return read_bytecode(data), data
    except BytecodeError as error:
        raise UsageError(f"{path}: {error}") from error


TILE_IR_FRONT_END = _TileIrFrontEnd()
