"""Files of Tile IR's bytecode, which cuTile leaves: nothing is lowered, tileiras takes them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.frontends.bench.bench import content_key
from harness.frontends.cutile.bytecode import Bytecode, BytecodeError, read_bytecode
from harness.frontends.cutile.tileiras import LATEST_BACK_END
from harness.frontends.file_front_end import (
    FileFrontEnd,
    captured_file,
    launch_of_file,
    repro_of_file,
)
from harness.frontends.planning import cells_of
from harness.frontends.readings import PtxReading
from harness.io.files.regular_files import read_regular
from harness.values.errors import UsageError
from harness.values.kernel import Config, Repro
from harness.values.outcome import LaunchFacts, Lowering, ProcessEnd
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import CapturePlace, Plan
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.captured_launch import CapturedLaunch


_KIND = "tileir"
_PASS_ON = Compiler(kind=_KIND, version="", origin=_KIND)
_MAX_BYTES = 256 << 20


class _TileIrFrontEnd(FileFrontEnd):
    kind = _KIND
    title = "Tile IR"
    back_ends: tuple[BackEnd, ...] = (LATEST_BACK_END,)
    # As `CUDA_TILE_DUMP_BYTECODE` names them, and as the stage is called.
    suffixes: tuple[str, ...] = (".tileirbc", ".tileir")
    stages: tuple[str, ...] = (_KIND,)

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        found, _ = _read(path)
        if kernel is None and found.functions > 1:
            raise UsageError(f"{path}: it holds {found.functions} functions; name one: FILE::NAME")
        if kernel is not None and kernel not in found.names:
            raise UsageError(f"{path}: it holds no function {kernel!r}; the first is {found.first}")
        return repro_of_file(self.kind, path, kernel or found.first)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return []

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        raise UsageError(f"{spec}: a file of Tile IR has no versions of a compiler")

    def installed(self) -> list[Compiler]:
        return []

    def default(self) -> Compiler:
        return _PASS_ON

    def install(self, version: Version | str) -> Compiler:
        return _PASS_ON

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan:
        repro = place.selection.repro
        found, data = _read(repro.file)
        kernel = repro.kernel or found.first
        key = content_key(bytecode=hashlib.sha256(data).hexdigest(), kernel=kernel)
        record = launch_of_file(key, kernel, {}, repro.file)
        captured = captured_file(place, (data, place.target), [record], key=key)
        return cells_of(place, captured)

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
        kernel = str(lowering.value.metadata["entry"])
        reading = PtxReading(facts=None, body_sha256=ptx, kernel=kernel)
        return bench.keep("ptx", content_key(tileir=ptx, kernel=kernel), reading, {})

    def judge(self, lowering: Lowering) -> Verdict:
        _nothing_to_lower(lowering)

    def install_line(self, version: str) -> str:
        _nothing_to_lower(version)

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        _nothing_to_lower(kernel, config, autotuned)


def _nothing_to_lower(*_: object) -> NoReturn:
    raise AssertionError("a file of Tile IR is what tileiras takes: nothing is lowered")


def _read(path: Path) -> tuple[Bytecode, bytes]:
    data = read_regular(path, _MAX_BYTES)
    try:
        return read_bytecode(data), data
    except BytecodeError as error:
        raise UsageError(f"{path}: {error}") from error


TILE_IR_FRONT_END = _TileIrFrontEnd()
