"""Kernels of CUDA C++ as files of their own, which are reduced by their syntax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.frontends.cuda.compilers import tool_of
from harness.frontends.cuda.source import block_of, kernel_meant, kernels_of, one_file
from harness.frontends.cuda.syntax import CUDA_SYNTAX
from harness.frontends.pins import PINS
from harness.frontends.readings import read_text
from harness.frontends.source_form import Lowered, Written
from harness.io.files.whole_folders import scratch_disk
from harness.values.errors import UsageError
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.standalone import SourceInstall
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.cuda.compilers import CudaDriver
    from harness.io.processes.hub import ResourceLimits


_NO_KERNEL = "no such kernel"


class CudaForm:
    """See `harness.frontends.source_form.SyntaxForm`."""

    suffix = ".cu"
    syntax = CUDA_SYNTAX

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        pins = PINS[self._driver.kind]
        if not self._driver.program:
            raise UsageError(f"{pins.title} is a library: no command runs it")
        return SourceInstall(
            title=pins.title,
            module=self._driver.kind,
            packages=tuple(map(str, pins.pins(version))),
            has_pins=True,
            program=self._driver.program,
        )

    async def write(self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts) -> Written:
        file, _, entries = launch.request
        entry = entries[record.key].entry
        text = one_file(file, record.config)
        return Written(text=text, options={"kernel": entry or record.kernel})

    async def compile(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        text: str,
        *,
        ptxas: Assembler | None,
        limits: ResourceLimits,
        until: Stage | None = None,
        suffix: str = ".cu",
        options: Mapping[str, object] | None = None,
    ) -> Lowered | None:
        driver, (file, target, _) = self._driver, launch.request
        folder = bench.hub.new_folder("standalone")
        try:
            # Messages name the file.
            source = folder / file.name
            with scratch_disk():
                source.write_text(text, encoding="utf-8", newline="")
            run = await driver.run(
                bench, launch.compiler, source, (), target, keeps=False, limits=limits
            )
        finally:
            bench.hub.drop_folder(folder)
        lowering = Lowering(
            end=run.end,
            stage=driver.kind if run.text is None else "ptx",
            flags=("-v", f"--gpu-name={target}"),
            log=run.log,
        )
        if run.text is None:
            return Lowered(lowering=lowering)
        if until is not None and until.value == driver.kind:
            return None
        meant = kernel_meant(kernels_of(run.text), str((options or {}).get("kernel")))
        reading = read_text(run.text, entry=meant.entry if meant else _NO_KERNEL)
        if meant is not None:
            block = block_of(text, meant.name, {}, source)
            known: dict[str, object] = {
                "entry": meant.entry,
                "threads": block.threads or meant.most_threads,
                "shared": block.shared,
            }
            lowering = replace(lowering, metadata=known)
        return Lowered(
            lowering=lowering,
            program=run.text.encode(),
            reading=reading,
            picked_ptxas=str(tool_of(launch.compiler, "ptxas")),
        )
