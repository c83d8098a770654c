"""Kernels of cuTile as files of their own, which are lowered without a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from harness.frontends.cutile.lowering import CHILD, FILES, PROGRAM, asked_for, lowering_of
from harness.frontends.cutile.one_file import (
    DIALECT,
    ROOTS,
    read_standalone,
    render,
    with_constraints,
)
from harness.frontends.cutile.tileiras import TILEIRAS_BACK_END, tileiras_in
from harness.frontends.cutile.versions import TITLE, pins_with_ptxas
from harness.frontends.readings import PtxReading
from harness.frontends.source_form import FileForm, Lowered
from harness.io.files.scratch import scratch_disk
from harness.values.errors import UsageError
from harness.values.outcome import LaunchFacts
from harness.values.standalone import Export, SourceInstall, Standalone
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.sessions import JobResult
    from harness.io.processes.hub import ResourceLimits


class _Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What the child tells: `parameters` are constraints by name, `keywords` those of each."""

    error: str | None
    export: Export | None = None
    parameters: dict[str, str] = {}
    keywords: dict[str, dict[str, str]] = {}


class _CuTileForm:
    roots = ROOTS

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        return render(standalone, header=header)

    def read(self, text: str) -> Standalone:
        return read_standalone(text)

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        return SourceInstall(
            title=TITLE,
            module="cuda.tile",
            packages=tuple(map(str, pins_with_ptxas(version, assembler.version))),
            needs=("typing_extensions",),
            has_pins=True,
            cache="CUDA_TILE_CACHE_DIR",
            died="Return code -{}",
        )

    async def export(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> Standalone:
        done = await CHILD.export(bench, launch, record)
        died = {"error": f"its process ended ({done.words})"}
        found = msgspec.convert(done.result or died, _Exported)
        bench.hub.drop_folder(done.folder)
        if found.export is None:
            raise UsageError(f"{record.kernel} cannot be written as one file: {found.error}")
        from harness.frontends.inline import inline  # noqa: PLC0415 - libcst: 0.3 s

        made = inline(found.export, DIALECT)
        return replace(made, launch=with_constraints(made.launch, found.parameters, found.keywords))

    async def compile(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        text: str,
        *,
        ptxas: Assembler | None,
        limits: ResourceLimits,
        until: Stage | None = None,
        suffix: str = ".py",  # noqa: ARG002 - there are no files of its IR
        options: Mapping[str, object] | None = None,  # noqa: ARG002 - as above
    ) -> Lowered | None:
        own = tileiras_in(launch.compiler)
        tileiras = ptxas or TILEIRAS_BACK_END.brought_along(own)
        source = bench.hub.new_folder("standalone")
        try:
            with scratch_disk():
                (source / "kernel.py").write_text(text, encoding="utf-8")
            request = replace(
                launch.request,
                file=source / "kernel.py",
                function=None,
                overrides={},
                paths=(),
                bare=(),
                beside=(),
                settings={**launch.request.settings, **asked_for(tileiras)},
            )
            done = await CHILD.compile_file(bench, launch.compiler, request, limits)
            try:
                found = _read(done)
            finally:
                bench.hub.drop_folder(done.folder)
        finally:
            bench.hub.drop_folder(source)
        if found.program is not None and until is not None and until.value in FILES:
            return None
        return replace(found, picked_ptxas=str(own))


def _read(done: JobResult) -> Lowered:
    """What a job left."""
    lowering, program = lowering_of(done), done.folder / PROGRAM
    if not lowering.end.ok or lowering.error or not program.is_file():
        return Lowered(lowering=lowering)
    kernel = str(lowering.metadata["entry"])
    reading = PtxReading(facts=None, body_sha256="", kernel=kernel)
    return Lowered(lowering=lowering, program=program.read_bytes(), reading=reading)


CUTILE_FORM: FileForm = _CuTileForm()
