"""Raw PTX: nothing is lowered; each entry of a file is a kernel without configs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from gpu_emulator.ptx.text.facts import MAX_BYTES, retarget
from harness.frontends.bench import Workbench
from harness.frontends.file_front_end import FileFrontEnd
from harness.frontends.plan import CapturePlace, Plan, PlannedCell
from harness.frontends.readings import read_stored
from harness.frontends.texts.ir_inputs import OPTIONS_ARGUMENT, repro_of
from harness.io.files.reading import read_regular
from harness.io.toolchains.install import bundled_nvdisasm
from harness.judging.ptxas.ptxas_options import read_options
from harness.values.cell import CellId, program_label
from harness.values.errors import UsageError
from harness.values.kernel import Config, Repro, Scalar
from harness.values.limits import limits_of
from harness.values.toolchain import PTX, Compiler


class _PtxFrontEnd(FileFrontEnd):
    kind = PTX
    title = "PTX"
    suffixes: tuple[str, ...] = (".ptx",)
    stages: tuple[str, ...] = (PTX,)

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        return repro_of(path, kernel)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return []

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        raise UsageError(f"{spec}: PTX has no versions of a compiler")

    def installed(self) -> list[Compiler]:
        return [self.install("")]

    def default(self) -> Compiler:
        return self.install("")

    def install(self, version: Version | str) -> Compiler:
        return Compiler(kind=PTX, version="", origin=PTX)

    def read(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - it is called by mistake only
        raise AssertionError("PTX is what the assembler takes: nothing is lowered")

    judge = install_line = config_line = read

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan:
        selection, repro = place.selection, place.selection.repro
        assert repro.ptx is not None
        header = dict(place.launch.overrides)
        options = read_options(str(header.pop(OPTIONS_ARGUMENT, "")))
        raw = _put(bench, repro.ptx, header)
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
                launch=place.launch.label,
                config=Config(),
                target=place.target,
                compiler=program_label(raw),
                ptxas=ptxas.label,
            )
            cells.append(
                PlannedCell(
                    cell=cell,
                    compiler=place.compiler,
                    ptxas=ptxas,
                    limits=limits_of(place.target.capability),
                    nvdisasms=nvdisasms,
                    raw_ptx=raw,
                    entry=entry,
                    options=options,
                )
            )
        return Plan(cells=tuple(cells))


def _put(bench: Workbench, file: Path, header: Mapping[str, Scalar | None]) -> str:
    """Keep PTX, with another `.version` or `.target` where one was set; its sha256."""
    if not header:
        return bench.store.artifacts.put_file(file)
    words = {name: str(value) for name, value in header.items()}
    return bench.store.artifacts.put(
        retarget(read_regular(file, MAX_BYTES).decode(), **words).encode()
    )


PTX_FRONT_END = _PtxFrontEnd()
