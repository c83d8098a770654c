"""Kernels of CuTe DSL as files of their own, which are lowered without a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from harness.frontends.cutedsl.lowering import CHILD, FILES, lowering_of
from harness.frontends.cutedsl.one_file import (
    DIALECT,
    ROOTS,
    read_standalone,
    render,
    with_arguments,
)
from harness.frontends.cutedsl.versions import TITLE, pins_without_ptxas
from harness.frontends.readings import read_text
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


# Where its modules lie, up to 4.5 and from 4.6 on: a file of the package tells Python.
_BELOW = ("nvidia_cutlass_dsl/python_packages", "nvidia_cutlass_dsl/dsl_packages")


class _Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What the child tells: `arguments` are calls that stand for data, by name."""

    error: str | None
    export: Export | None = None
    arguments: dict[str, str] = {}


class _CuteDslForm:
    roots = ROOTS

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        return render(standalone, header=header)

    def read(self, text: str) -> Standalone:
        return read_standalone(text)

    def install(self, version: str, assembler: Assembler) -> SourceInstall:  # noqa: ARG002 - it is inside
        return SourceInstall(
            title=TITLE,
            module="cutlass",
            packages=tuple(map(str, pins_without_ptxas(version))),
            needs=("numpy", "typing_extensions"),
            has_pins=True,
            cache="CUTE_DSL_CACHE_DIR",
            below=_BELOW,
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
        return replace(made, launch=with_arguments(made.launch, found.arguments))

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
                found = _read(launch, done)
            finally:
                bench.hub.drop_folder(done.folder)
        finally:
            bench.hub.drop_folder(source)
        if found.program is not None and until is not None and until.value not in ("ptx", "cubin"):
            return None
        return found


def _read(launch: CapturedLaunch, done: JobResult) -> Lowered:
    """What a job left."""
    lowering = lowering_of(launch, done)
    if not lowering.end.ok or lowering.error or lowering.stage != "ptx":
        return Lowered(lowering=lowering)
    program = (done.folder / FILES["ptx"]).read_bytes()
    entry = lowering.metadata.get("entry")
    reading = read_text(program.decode(errors="replace"), entry=str(entry) if entry else None)
    return Lowered(lowering=lowering, program=program, reading=reading)


CUTEDSL_FORM: FileForm = _CuteDslForm()
