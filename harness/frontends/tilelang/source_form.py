"""Kernels of TileLang as files of their own, which are lowered without a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from harness.frontends.source_form import FileForm, Lowered
from harness.frontends.tilelang.lowering import CHILD, lowered_text
from harness.frontends.tilelang.one_file import DIALECT, read_standalone, render
from harness.frontends.tilelang.versions import KIND, TITLE, pins_without_nvcc
from harness.io.files.scratch import scratch_disk
from harness.values.errors import UsageError
from harness.values.outcome import LaunchFacts
from harness.values.standalone import Export, SourceInstall, Standalone
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.io.processes.hub import ResourceLimits


# Of what is shared with triage: modules that it imports.
_NEEDS = ("ml_dtypes", "numpy", "torch")


class _TileLangForm:
    roots = frozenset({"tilelang", "T", "tvm"})

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        return render(standalone, header=header)

    def read(self, text: str) -> Standalone:
        return read_standalone(text)

    def install(self, version: str, assembler: Assembler) -> SourceInstall:  # noqa: ARG002
        return SourceInstall(
            title=TITLE,
            module=KIND,
            packages=tuple(map(str, pins_without_nvcc(version))),
            needs=_NEEDS,
            has_pins=True,
            cache="TILELANG_CACHE_DIR",
        )

    async def export(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> Standalone:
        done = await CHILD.export(bench, launch, record)
        found = done.result or {"error": f"its process ended ({done.words})"}
        bench.hub.drop_folder(done.folder)
        if found["error"]:
            raise UsageError(f"{record.kernel} cannot be written as one file: {found['error']}")
        from harness.frontends.inline import inline  # noqa: PLC0415 - libcst: 0.3 s

        return inline(msgspec.convert(found["export"], Export), DIALECT)

    async def compile(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        text: str,
        *,
        ptxas: Assembler | None,  # noqa: ARG002 - it does not decide what is generated
        limits: ResourceLimits,
        until: Stage | None = None,
        suffix: str = ".py",  # noqa: ARG002 - there are no files of its IR
        options: Mapping[str, object] | None = None,  # noqa: ARG002 - as above
    ) -> Lowered | None:
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
            )
            done = await CHILD.compile_file(bench, launch.compiler, request, limits)
            try:
                return await lowered_text(bench, launch, done, until=until)
            finally:
                bench.hub.drop_folder(done.folder)
        finally:
            bench.hub.drop_folder(source)


TILELANG_FORM: FileForm = _TileLangForm()
