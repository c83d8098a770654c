"""CUDA C++ behind the door: see `harness.frontends.base`. Each config is one run of nvcc or NVRTC.

A file has no launch: what is compiled is every `__global__` function that it defines or
instantiates, with each combination of the values that it lists (see `source`).
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.bench.bench import content_key
from harness.frontends.cuda.drivers import NVCC_DRIVER, NVRTC_DRIVER, CudaDriver, defines
from harness.frontends.cuda.kernels import kernels_of
from harness.frontends.cuda.nvcc import tool_of
from harness.frontends.cuda.source import block_of, configs_of, kernels_in, read_source
from harness.frontends.cuda.source_form import CudaForm
from harness.frontends.file_front_end import (
    FileFrontEnd,
    captured_file,
    injected_configs,
    launch_of_file,
    repro_of_file,
)
from harness.frontends.planning import cells_of
from harness.frontends.ptxas_back_end import BUNDLED_BACK_END
from harness.frontends.readings import read_stored
from harness.io.packages.versions import exact_version, select
from harness.io.toolchains.environments import (
    compiler_in,
    environments_of,
    install_environment,
    planned_environment,
)
from harness.values.environment import Environment
from harness.values.errors import CaptureError
from harness.values.kernel import Config, Repro, Scalar
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.target import Target
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from packaging.version import Version

    from harness.frontends.back_end import BackEnd
    from harness.frontends.base import Adapt, FrontEnd, Plan, PlannedLaunch, Selection
    from harness.frontends.bench.bench import Kept, Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.readings import PtxReading
    from harness.frontends.source_form import SyntaxForm


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """A kernel in the PTX, None where there is none, and the block that it is launched with."""

    entry: str | None
    threads: int | None
    shared: int | None


class _CudaFrontEnd(FileFrontEnd):
    back_ends: tuple[BackEnd, ...] = (BUNDLED_BACK_END,)
    suffixes: tuple[str, ...] = (".cu",)
    levels: tuple[str, ...] = ("source",)

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self.kind, self.title = driver.kind, driver.title
        self.stages: tuple[str, ...] = (driver.kind, "ptx")
        self.source_form: SyntaxForm = CudaForm(driver)

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        configs_of(read_source(path), path)
        name = None if kernel is None else f"{path}::{kernel}"
        return repro_of_file(self.kind, path, kernel, name=name)

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return self._driver.available(prereleases=prereleases)

    def select(self, spec: str, *, prereleases: bool = False) -> list[Version]:
        exact = exact_version(spec)
        if exact is not None and self._installed(exact):
            return [exact]
        return select(
            self.available(prereleases=prereleases), spec, what=self.title, prereleases=prereleases
        )

    def installed(self) -> list[Compiler]:
        return [compiler_in(each) for each in environments_of(self.kind)]

    def _installed(self, version: Version | str) -> Compiler | None:
        """What is installed is used as it is: its partners were chosen then."""
        return next((each for each in self.installed() if each.version == str(version)), None)

    def environment(self, version: str) -> Environment:
        return self._driver.environment(version)

    def install(self, version: Version | str) -> Compiler:
        return self._installed(version) or install_environment(self.environment(str(version)))

    def planned(self, version: Version | str) -> Compiler:
        return self._installed(version) or planned_environment(self.environment(str(version)))

    def default(self) -> Compiler:
        here = self.installed()
        return here[-1] if here else self.install(self.available()[-1])

    async def plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,
    ) -> Plan:
        file = launch.spec.file or selection.repro.file
        configs = _configs(selection.repro, file, adapt)
        jobs = (self._driver.compiled(bench, file, config, target, compiler) for config in configs)
        done = await asyncio.gather(*jobs)
        return _planned(bench, selection, target, compiler, launch, configs, done, adapt is None)

    def stored_plan(
        self,
        bench: Workbench,
        selection: Selection,
        target: Target,
        compiler: Compiler,
        launch: PlannedLaunch,
        *,
        adapt: Adapt | None = None,
    ) -> Plan | None:
        file = launch.spec.file or selection.repro.file
        configs = _configs(selection.repro, file, adapt)
        done: list[Kept[Lowering]] = []
        for config in configs:
            kept = bench.read("lower", self._driver.key(file, config, target, compiler), Lowering)
            if kept is None:
                return None
            done.append(kept)
        return _planned(bench, selection, target, compiler, launch, configs, done, adapt is None)

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        file, target, entries = launch.request
        whole = await self._driver.compiled(bench, file, record.config, target, launch.compiler)
        key = self.lowering_key(launch, record, ptxas)
        known = entries.get(record.key)
        metadata: dict[str, object] = asdict(known) if known else {}
        lowering = replace(whole.value, metadata=metadata)
        kept = bench.keep("lower", key, lowering, whole.artifacts)
        return replace(kept, cached=whole.cached)

    def lowering_key(
        self,
        launch: CapturedLaunch,
        record: LaunchFacts,
        ptxas: Assembler,  # noqa: ARG002
    ) -> str:
        file, target, _ = launch.request
        return content_key(
            file=self._driver.key(file, record.config, target, launch.compiler), record=record.key
        )

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        entry = lowering.value.metadata.get("entry")
        return read_stored(bench, ptx, entry=str(entry) if entry else None)

    def judge(self, lowering: Lowering) -> Verdict:
        return self._driver.judge(lowering)

    def install_line(self, version: str) -> str:
        pins = (str(pin) for pin in self.environment(version).pins)
        return f"pip install {' '.join(pins)}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:  # noqa: ARG002
        return f"{self.title} {' '.join(defines(config.as_dict()))}  # for {kernel}"

    def identity(self, compiler: Compiler) -> object:
        return [compiler.identity, self._driver.identity()]


def _configs(repro: Repro, file: Path, adapt: Adapt | None) -> list[dict[str, Scalar]]:
    """The configs of a file, or those that take their place."""
    injected = injected_configs(file, adapt)
    return [config for configs in injected.values() for config in configs] or configs_of(
        read_source(file), file, repro.macros
    )


def _planned(
    bench: Workbench,
    selection: Selection,
    target: Target,
    compiler: Compiler,
    launch: PlannedLaunch,
    configs: list[dict[str, Scalar]],
    done: list[Kept[Lowering]],
    is_own: bool,  # noqa: FBT001
) -> Plan:
    """A cell for each kernel of each config; one for a config of which nothing is left.

    Raises:
        CaptureError: the file holds no kernel, or not the one that is meant.
    """
    file = launch.spec.file or selection.repro.file
    source = read_source(file)
    # Of what is refused, the source names the kernels.
    defined = kernels_in(source) or [selection.repro.kernel or file.stem]
    entries: dict[str, _Kernel] = {}
    records: list[LaunchFacts] = []
    for config, kept in zip(configs, done, strict=True):
        for name, entry, most in _kernels(bench, kept, defined):
            block = block_of(source, name, config, file)
            known = _Kernel(entry=entry, threads=block.threads or most, shared=block.shared)
            record = content_key(file=kept.key, kernel=name, **asdict(known))
            entries[record] = known
            records.append(launch_of_file(record, name, config, file))
    if not records:
        raise CaptureError(f"{file}: it defines no __global__ function, and instantiates none")
    captured = captured_file(
        compiler,
        (file, target, entries),
        records,
        key=content_key(lowerings=[each.key for each in done]),
        ptxas=str(tool_of(compiler, "ptxas")),
    )
    plan = cells_of(selection, target, launch, captured, is_own=is_own)
    cells = (
        replace(cell, entry=entries[cell.record.key].entry if cell.record else None)
        for cell in plan.cells
    )
    return replace(plan, cells=tuple(cells))


def _kernels(
    bench: Workbench, kept: Kept[Lowering], otherwise: list[str]
) -> list[tuple[str, str | None, int | None]]:
    """The kernels in the PTX that was left: name that is shown, name there, launch bounds."""
    sha256 = kept.artifacts.get("ptx")
    if sha256 is None:
        return [(name, None, None) for name in otherwise]
    text = bench.store.artifacts.get(sha256).decode(errors="replace")
    return [(each.name, each.entry, each.most_threads) for each in kernels_of(text)]


CUDA_FRONT_END: FrontEnd = _CudaFrontEnd(NVCC_DRIVER)
NVRTC_FRONT_END: FrontEnd = _CudaFrontEnd(NVRTC_DRIVER)
