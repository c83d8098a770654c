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
from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.cuda.compilers import NVCC_DRIVER, NVRTC_DRIVER, CudaDriver, defines, tool_of
from harness.frontends.cuda.form import CudaForm
from harness.frontends.cuda.source import block_of, configs_of, kernels_in, kernels_of, read_source
from harness.frontends.file_front_end import (
    FileFrontEnd,
    captured_file,
    injected_configs,
    launch_of_file,
    repro_of_file,
)
from harness.frontends.packaged_front_end import PackagedFrontEnd
from harness.frontends.pins import PINS
from harness.frontends.planning import cells_of
from harness.values.errors import CaptureError
from harness.values.kernel import Config, Repro, Scalar
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.toolchain import Assembler, Compiler
from harness.values.verdict import Verdict

if TYPE_CHECKING:
    from harness.frontends.base import CapturePlace, Plan
    from harness.frontends.bench.bench import Kept, Workbench


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """A kernel in the PTX, None where there is none, and the block that it is launched with."""

    entry: str | None
    threads: int | None
    shared: int | None


class _CudaFrontEnd(PackagedFrontEnd, FileFrontEnd):
    suffixes: tuple[str, ...] = (".cu",)
    levels: tuple[str, ...] = ("source",)

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self.pins = PINS[driver.kind]
        self.kind, self.title = self.pins.kind, self.pins.title
        self.stages: tuple[str, ...] = (driver.kind, "ptx")
        self.source_form = CudaForm(driver)

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        configs_of(read_source(path), path)
        name = None if kernel is None else f"{path}::{kernel}"
        return repro_of_file(self.kind, path, kernel, name=name)

    async def plan(self, bench: Workbench, place: CapturePlace) -> Plan:
        file, configs = _configs(place)
        target, compiler = place.target, place.compiler
        jobs = (self._driver.compiled(bench, file, config, target, compiler) for config in configs)
        return _planned(bench, place, configs, await asyncio.gather(*jobs))

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan | None:
        file, configs = _configs(place)
        done: list[Kept[Lowering]] = []
        for config in configs:
            key = self._driver.key(file, config, place.target, place.compiler)
            kept = bench.read("lower", key, Lowering)
            if kept is None:
                return None
            done.append(kept)
        return _planned(bench, place, configs, done)

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

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        file, target, _ = launch.request
        return content_key(
            file=self._driver.key(file, record.config, target, launch.compiler), record=record.key
        )

    def judge(self, lowering: Lowering) -> Verdict:
        return self._driver.judge(lowering)

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        return f"{self.title} {' '.join(defines(config.as_dict()))}  # for {kernel}"

    def identity(self, compiler: Compiler) -> object:
        return [compiler.identity, self._driver.identity()]


def _configs(place: CapturePlace) -> tuple[Path, list[dict[str, Scalar]]]:
    """A file, and its configs or those that take their place."""
    repro = place.selection.repro
    file = place.launch.spec.file or repro.file
    injected = injected_configs(file, place).values()
    given = [config for configs in injected for config in configs]
    return file, given or configs_of(read_source(file), file, repro.macros)


def _planned(
    bench: Workbench,
    place: CapturePlace,
    configs: list[dict[str, Scalar]],
    done: list[Kept[Lowering]],
) -> Plan:
    """A cell for each kernel of each config; one for a config of which nothing is left.

    Raises:
        CaptureError: the file holds no kernel, or not the one that is meant.
    """
    repro = place.selection.repro
    file = place.launch.spec.file or repro.file
    source = read_source(file)
    # Of what is refused, the source names the kernels.
    defined = kernels_in(source) or [repro.kernel or file.stem]
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
        place,
        (file, place.target, entries),
        records,
        key=content_key(lowerings=[each.key for each in done]),
        ptxas=str(tool_of(place.compiler, "ptxas")),
    )
    plan = cells_of(place, captured)
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


CUDA_FRONT_END = _CudaFrontEnd(NVCC_DRIVER)
NVRTC_FRONT_END = _CudaFrontEnd(NVRTC_DRIVER)
