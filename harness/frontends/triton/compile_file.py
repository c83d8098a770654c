"""Standalone files: written from a captured launch, and compiled in a living child.

What is tried while a file is reduced is compiled as any cell is, but not stored: there are
thousands of candidates, and none is asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from harness.frontends.source_form import FileForm, Lowered
from harness.frontends.triton.lower import read_lowering, stage_file
from harness.frontends.triton.one_file import DIALECT, read_standalone, render
from harness.frontends.triton.ptx_reading import read_texts
from harness.frontends.triton.sessions import sessions_of
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


# As Triton 3.2 - 3.9 say it of a ptxas that a signal has ended (`make_cubin` of its backend).
_PTXAS_DIED = "`ptxas` failed with error code -{}"
# A stub is made by Triton, but PTX shows it, and only ptxas' consent makes it one.
_BEFORE_LLVM = ("ttir", "ttgir")


async def export_launch(
    bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
) -> Standalone:
    """One config of a captured launch as a file of its own.

    Raises:
        UsageError: something of the launch cannot be written down.
        InfrastructureError: the child could not be kept alive.
    """
    async with bench.slot():
        done = await sessions_of(bench).export(
            launch.capture.key,
            launch.compiler,
            launch.request,
            record=record.key,
            limits=bench.limits,
        )
    found = done.result or {"error": f"its process ended ({done.words})"}
    bench.hub.drop_folder(done.folder)
    if found["error"]:
        raise UsageError(f"{record.kernel} cannot be written as one file: {found['error']}")
    from harness.frontends.inline import inline  # noqa: PLC0415 - libcst: 0.3 s

    return inline(msgspec.convert(found["export"], Export), DIALECT)


async def lower_text(
    bench: Workbench,
    launch: CapturedLaunch,
    text: str,
    *,
    ptxas: Assembler | None,
    limits: ResourceLimits,
    until: Stage | None = None,
    suffix: str = ".py",
    options: Mapping[str, object] | None = None,
) -> Lowered | None:
    """Run a standalone file as far as PTX, in the Triton of a capture and for its target.

    Triton sees `ptxas`, or the one that it picks itself. With another `suffix` it is Triton's IR,
    which is compiled with `options`.

    None where it got past `until`, the stage that matters: it is not compiled any further.

    Raises:
        InfrastructureError: the child could not be kept alive.
    """
    source = bench.hub.new_folder("standalone")
    try:
        with scratch_disk():
            (source / f"kernel{suffix}").write_text(text, encoding="utf-8")
        request = replace(
            launch.request,
            file=source / f"kernel{suffix}",
            function=None,
            overrides=options or {},
            paths=(),
            bare=(),
            beside=(),
        )
        async with bench.slot():
            done = await sessions_of(bench).compile_file(
                launch.compiler,
                request,
                ptxas=ptxas.path if ptxas else None,
                until=until.value if until and until.value in _BEFORE_LLVM else None,
                limits=limits,
            )
        bench.cpu_seconds += done.end.cpu
        try:
            return _read(done)
        finally:
            bench.hub.drop_folder(done.folder)
    finally:
        bench.hub.drop_folder(source)


def _read(done: JobResult) -> Lowered | None:
    """What a job left."""
    if done.result and done.result.get("is_past"):
        return None
    texts = {
        stage: file.read_text(encoding="utf-8", errors="replace")
        for stage in ("source", "ttir", "ttgir", "ptx")
        if (file := stage_file(done, stage))
    }
    lowering = read_lowering(done)
    if not lowering.end.ok or lowering.error or "ptx" not in texts:
        return Lowered(lowering=lowering)
    # The earliest IR there is: Gluon has no TTIR, and an old Triton keeps no source.
    ir = next((texts[stage] for stage in ("source", "ttir", "ttgir") if stage in texts), None)
    command = (done.result or {}).get("ptxas_command") or {}
    return Lowered(
        lowering=lowering,
        program=texts["ptx"].encode(),
        reading=read_texts(texts["ptx"], ir),
        picked_ptxas=command.get("executable"),
    )


class _TritonForm:
    roots = frozenset({"triton"})

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        return render(standalone, header=header)

    def read(self, text: str) -> Standalone:
        return read_standalone(text)

    def install(self, version: str, assembler: Assembler) -> SourceInstall:  # noqa: ARG002
        return SourceInstall(
            title="Triton",
            module="triton",
            packages=(f"triton=={version}",),
            cache="TRITON_CACHE_DIR",
            ptxas=("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"),
            died=_PTXAS_DIED,
        )

    async def export(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> Standalone:
        return await export_launch(bench, launch, record)

    async def compile(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        text: str,
        *,
        ptxas: Assembler | None,
        limits: ResourceLimits,
        until: Stage | None = None,
        suffix: str = ".py",
        options: Mapping[str, object] | None = None,
    ) -> Lowered | None:
        return await lower_text(
            bench,
            launch,
            text,
            ptxas=ptxas,
            limits=limits,
            until=until,
            suffix=suffix,
            options=options,
        )


TRITON_FORM: FileForm = _TritonForm()
