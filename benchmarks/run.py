"""Measures `triage run` against `triage compile`, everything in one run on one machine: ratios.

    python benchmarks/run.py [--kernel K ...] [--sm SM] [--triton X]

Each kernel's first config at the small size of its repro is compiled (Triton and ptxas), executed
under four schedules with a value check, and executed once with the race check and without it. CPU
seconds are compared, so that what else the machine does counts little.

value   four schedules, over compiling
races   the first schedule with the race check, over the same without it
memory  peak of this process, which executes, in MiB
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.bench.bench import Workbench
from harness.cells.plan import plan_launch
from harness.cells.run import CompileOptions, open_bench
from harness.cells.selection import SelectionOptions, select_all, small_launch
from harness.emulator.machine.launching import run
from harness.emulator.values import Allocation, Budget, Checks, Launch, Schedule
from harness.frontends.base import Selection
from harness.frontends.registry import front_end
from harness.frontends.triton.lower import fetch_launch_code
from harness.processes.hub import Hub
from harness.runs.emulating import Emulation
from harness.runs.jobs import JobBuffer
from harness.runs.launching import emulation_of
from harness.runs.matching import find_variant
from harness.runs.real_values import PLAIN_TARGET, recorded
from harness.runs.schedules import DEFAULT, read_schedules
from harness.store.files.artifacts import ArtifactStore
from harness.store.store import Store

KERNELS = ("liger_rms_norm_fwd", "mamba2_bmm_chunk_fwd", "mamba2_chunk_scan_fwd", "two_dots")


async def prepared(bench: Workbench, selection: Selection) -> tuple[Emulation, float]:
    """What is to be executed, and the CPU seconds of compiling it."""
    target, compiler = selection.targets[0], selection.compilers[0]
    launch = small_launch(selection, selection.launches[0])
    code = fetch_launch_code(selection.repro, launch.spec, launch.overrides)
    inputs = await recorded(
        bench, code, compiler, [selection.repro.kernel or "*"], (PLAIN_TARGET, target),
        budget=Budget(), tell=lambda _: None,
    )  # fmt: skip
    plan = await plan_launch(bench, selection, target, compiler, launch)
    cell = plan.cells[0]
    assert cell.launch is not None
    assert cell.record is not None
    variant = find_variant(inputs, cell.record)
    assert variant is not None, "the launch comes to it"
    lowering = await front_end(compiler.kind).lower(
        bench, cell.launch, cell.record, ptxas=cell.ptxas
    )
    return emulation_of(bench, lowering, variant, (), Budget()), lowering.value.end.cpu


def as_launch(artifacts: ArtifactStore, emulation: Emulation) -> Launch:
    """What the emulator's process would be given."""

    def allocation(buffer: JobBuffer) -> Allocation:
        raw = artifacts.get(buffer.file) if buffer.file else bytes(buffer.size)
        return Allocation(name=buffer.name, data=np.frombuffer(raw, np.uint8))

    return Launch(
        ptx=artifacts.get(emulation.ptx).decode(),
        entry=emulation.entry,
        grid=emulation.grid,
        block=emulation.block,
        cluster=emulation.cluster,
        dynamic_shared=emulation.dynamic_shared,
        allocations=tuple(map(allocation, emulation.buffers)),
        arguments=tuple(each.given() for each in emulation.arguments),
    )


def seconds(launch: Launch, schedules: Sequence[Schedule], checks: Checks) -> tuple[float, int]:
    """CPU seconds of a run under each schedule, and instructions of threads."""
    started, executed = time.process_time(), 0
    for schedule in schedules:
        outcome = run(launch, schedule, None, checks)
        assert outcome.not_run is None, outcome.not_run
        executed += outcome.executed
    return time.process_time() - started, executed


async def measure(selection: Selection, store: Store) -> tuple[float, float]:
    """The two ratios of one kernel, printed with what they are made of."""
    schedules = read_schedules(DEFAULT)
    async with Hub() as hub:
        how = CompileOptions(jobs=1, use_cache=False, command="benchmarks/run.py")
        emulation, compiling = await prepared(open_bench(hub, store, how), selection)
    launch = as_launch(store.artifacts, emulation)
    value, executed = seconds(launch, schedules, Checks())
    plain, _ = seconds(launch, schedules[:1], Checks())
    races, _ = seconds(launch, schedules[:1], Checks(races=True))
    print(
        f"{selection.repro.name} {selection.targets[0]}: compile {compiling:.2f} s, four schedules "
        f"{value:.2f} s ({executed / value / 1e6:.1f} million instructions a second), one "
        f"{plain:.2f} s, with the race check {races:.2f} s",
        flush=True,
    )
    return value / compiling, races / plain


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernel", nargs="+", default=KERNELS)
    parser.add_argument("--sm", nargs="+", default=["80", "100a"])
    parser.add_argument("--triton", default="3.9.0")
    options = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        for kernel in options.kernel:
            for sm in options.sm:
                words = SelectionOptions(kernel=kernel, sm=[sm], triton=[options.triton])
                ratios += [asyncio.run(measure(one, store)) for one in select_all(words)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    value, races = (statistics.median(each) for each in zip(*ratios, strict=True))
    print(f"value {value:.2f}   races {races:.2f}   memory {peak:.0f}   (medians, ratios, MiB)")


if __name__ == "__main__":
    main()
