"""Raw PTX: nothing is lowered; each entry of a file is a kernel without configs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpu_emulator.ptx.text.facts import MAX_BYTES, retarget
from harness.frontends.base import Adapt, Plan, PlannedCell, PlannedLaunch
from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.file_front_end import FileFrontEnd
from harness.frontends.readings import PtxReading, read_stored
from harness.frontends.triton.ir_inputs import repro_of
from harness.io.files.regular_files import read_regular
from harness.io.toolchains.bundled import bundled_nvdisasm
from harness.values.cell import CellId, program_label
from harness.values.errors import UsageError
from harness.values.kernel import Config, Repro, Scalar
from harness.values.limits import limits_of
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.target import Target
from harness.values.toolchain import PTX, Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.base import FrontEnd, Selection
    from harness.frontends.bench.bench import Kept, Workbench


_PASS_ON = Compiler(kind=PTX, version="", origin=PTX)


class _PtxFrontEnd(FileFrontEnd):
    kind = PTX
    title = "PTX"
    suffixes: tuple[str, ...] = (".ptx",)
    stages: tuple[str, ...] = (PTX,)

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        return repro_of(path, kernel)

    def available(self, *, prereleases: bool = False) -> list[Version]:  # noqa: ARG002
        return []

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:  # noqa: ARG002
        raise UsageError(f"{spec}: PTX has no versions of a compiler")

    def installed(self) -> list[Compiler]:
        return [_PASS_ON]

    def install(self, version: Version | str) -> Compiler:  # noqa: ARG002
        return _PASS_ON

    def stored_plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,  # noqa: ARG002
    ) -> Plan:
        repro = selection.repro
        assert repro.ptx is not None
        raw = _put(bench, repro.ptx, launch.overrides)
        reading = read_stored(bench, raw, entry=repro.kernel).value
        if reading.facts is None:
            raise UsageError(f"{repro.ptx}: {reading.problem}")
        nvdisasms = tuple(tool for tool in (selection.nvdisasm, bundled_nvdisasm(None)) if tool)
        entries = [repro.kernel] if repro.kernel else reading.facts.entries
        is_named = repro.kernel is not None or len(entries) == 1
        cells = []
        for entry, ptxas in itertools.product(entries, selection.ptxas):
            assert ptxas is not None
            cell = CellId(
                kernel=repro.name if is_named else f"{repro.name}::{entry}",
                launch=launch.label,
                config=Config(),
                target=target,
                compiler=program_label(raw),
                ptxas=ptxas.label,
            )
            cells.append(
                PlannedCell(
                    cell=cell,
                    compiler=compiler,
                    ptxas=ptxas,
                    limits=limits_of(target.capability),
                    nvdisasms=nvdisasms,
                    raw_ptx=raw,
                    entry=entry,
                )
            )
        return Plan(cells=tuple(cells))

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        _nothing_to_lower(bench, launch, record, ptxas)

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        _nothing_to_lower(launch, record, ptxas)

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        _nothing_to_lower(bench, lowering, ptx)

    def judge(self, lowering: Lowering) -> Verdict:
        _nothing_to_lower(lowering)

    def install_line(self, version: str) -> str:
        _nothing_to_lower(version)

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        _nothing_to_lower(kernel, config, autotuned)

    def identity(self, compiler: Compiler) -> object:  # noqa: ARG002
        return None


def _nothing_to_lower(*_: object) -> NoReturn:
    raise AssertionError("the cells of PTX have their program: nothing is captured or lowered")


def _put(bench: Workbench, file: Path, header: Mapping[str, Scalar | None]) -> str:
    """Keep PTX, with another `.version` or `.target` where one was set; its sha256."""
    if not header:
        return bench.store.artifacts.put_file(file)
    words = {name: str(value) for name, value in header.items()}
    return bench.store.artifacts.put(
        retarget(read_regular(file, MAX_BYTES).decode(), **words).encode()
    )


PTX_FRONT_END: FrontEnd = _PtxFrontEnd()
