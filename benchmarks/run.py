"""Measures `triage run` against `triage compile`, everything in one run on one machine: ratios.

    python benchmarks/run.py [--kernel K ...] [--sm SM ...] [--triton X] [--time SECONDS] [--again]

Each kernel's first config at the small size of its repro is lowered by Triton to PTX (ptxas not
counted), executed under the four schedules of `triage run` with what it compares values by, and
executed once with the race check and once without it. CPU seconds are compared, so that what else
the machine does counts little. Rows are kept in `run-speed.jsonl` of the results folder as they are
found: a second call goes on where the first one ended, at most `--time` seconds; `--again` starts
over. The medians at the end are of all rows that were selected.

value    four schedules, over lowering
races    the first schedule with the race check, over the same without it
mamba-2  seconds of the four schedules of all `mamba2_*_fwd`, a whole forward, by target
memory   peak of this process, which executes, in MiB

    python benchmarks/run.py --commands [--kernel K ...] [--sm SM ...] [--triton X]

compares the two commands with all that they do: `triage compile` and `triage run`, each in an empty
results folder, all configs of a kernel; CPU seconds of both and of their children.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from gpu_emulator.api import run
from gpu_emulator.values import Allocation, Budget, Checks, Launch, Schedule
from harness.cells.places import CompileOptions, open_bench
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions
from harness.frontends.bench import Workbench
from harness.frontends.plan import Selection
from harness.frontends.registry import plan_launch
from harness.io.files.locations import home_dir
from harness.io.processes.hub import Hub
from harness.run.emulator_jobs import Emulation, JobBuffer
from harness.run.launch_sources import RecordedLaunch, lower_cell, small_selection
from harness.run.schedules import DEFAULT, read_schedules
from harness.store.artifacts import ArtifactStore
from harness.store.store import Store
from harness.values.errors import TriageError

ROWS = "run-speed.jsonl"
FORWARD = "mamba2_*_fwd"
Row = dict[str, Any]


async def prepared(bench: Workbench, selection: Selection) -> tuple[Emulation, float]:
    """What is to be executed, and the CPU seconds that compiling it took, once."""
    small = small_selection(selection)
    source = RecordedLaunch(bench=bench, selection=small, tell=lambda _: None, budget=Budget())
    cell = (await plan_launch(bench, small.place())).cells[0]
    lowering = await lower_cell(bench, cell)
    launch = await source.launch_of(cell, lowering)
    return replace(launch.emulation, trials=()), lowering.value.end.cpu


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
        arguments=tuple(passed.argument for passed in emulation.arguments),
    )


def seconds(launch: Launch, schedules: Sequence[Schedule], checks: Checks) -> tuple[float, int]:
    """CPU seconds of a run under each schedule, and instructions of threads.

    As in `triage run` one run stands for every order of warps where none matters.
    """
    started, executed = time.process_time(), 0
    settled: set[Schedule] = set()
    for schedule in schedules:
        if replace(schedule, warps="lockstep") in settled:
            continue
        outcome = run(launch, schedule, None, checks)
        assert outcome.not_run is None, outcome.not_run
        executed += outcome.executed
        if outcome.is_ordered:
            settled.add(replace(schedule, warps="lockstep"))
    return time.process_time() - started, executed


async def measure(selection: Selection, store: Store) -> Row:
    """What one kernel costs."""
    schedules = read_schedules(DEFAULT)
    async with Hub() as hub:
        how = CompileOptions(jobs=1, command="benchmarks/run.py")
        emulation, compiling = await prepared(open_bench(hub, store, how), selection)
    launch = as_launch(store.artifacts, emulation)
    value, executed = seconds(launch, schedules, Checks())
    plain, _ = seconds(launch, schedules[:1], Checks())
    races, _ = seconds(launch, schedules[:1], Checks(races=True))
    return {
        "compile": compiling, "value": value, "plain": plain, "races": races, "executed": executed,
    }  # fmt: skip


def cpu_seconds(command: str, place: Sequence[str]) -> float:
    """CPU seconds of one command and its children, in a results folder of its own."""
    kernel, sm, triton = place
    words = [sys.executable, "-m", "harness", command, "--kernel", kernel]
    words += ["--sm", sm.removeprefix("sm_"), "--triton", triton, "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as home:
        # What is wrong with a kernel (1, 4) costs no less.
        ended = subprocess.run(
            words, env={**os.environ, "TRIAGE_HOME": home}, check=False, capture_output=True
        )
    assert ended.returncode in (0, 1, 4), ended.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare_commands(selections: Sequence[Selection]) -> None:
    """Print what both commands cost for each selection."""
    for one in selections:
        compiling, running = (cpu_seconds(name, place_of(one)) for name in ("compile", "run"))
        print(
            f"{' '.join(place_of(one))}: compile {compiling:.1f} s, run {running:.1f} s:"
            f" {running / compiling:.2f}x",
            flush=True,
        )


def place_of(selection: Selection) -> list[str]:
    """Kernel, target and Triton."""
    return [selection.repro.name, str(selection.targets[0]), selection.compilers[0].version]


def rows_of(path: Path) -> dict[tuple[str, ...], Row]:
    """The last row of each place."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {tuple(row["place"]): row for row in map(json.loads, lines)}


def fill(path: Path, selections: Sequence[Selection], limit: float) -> None:
    """Measure what has no row yet, as long as there is time."""
    ends, known = time.monotonic() + limit, rows_of(path)
    left = [one for one in selections if tuple(place_of(one)) not in known]
    # One store: kernels of one operation need each other's values, and targets the same inputs.
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        for number, one in enumerate(left):
            if time.monotonic() > ends:
                print(f"no time left: {len(left) - number} of {len(selections)} are to be done")
                return
            place = place_of(one)
            try:
                row = asyncio.run(measure(one, store))
            except (TriageError, AssertionError, IndexError) as error:
                row = {"not_run": str(error) or type(error).__name__}
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            row = {"place": place, **row, "memory": memory}
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"[{number + 1}/{len(left)}] {' '.join(place)}: {words(row)}", flush=True)


def words(row: Row) -> str:
    """A row as a line."""
    if "not_run" in row:
        return f"not measured: {row['not_run'].splitlines()[0]}"
    rate = row["executed"] / max(row["value"], 1e-9) / 1e6
    return (
        f"lowered in {row['compile']:.2f} s, four schedules {row['value']:.2f} s"
        f" ({rate:.1f} million instructions a second), one {row['plain']:.2f} s,"
        f" with the race check {row['races']:.2f} s"
    )


def summary(rows: Sequence[Row]) -> None:
    """Print the medians, and the outer tenths."""
    done = [row for row in rows if "not_run" not in row]
    if not done:
        return
    for name, over in (("value", "compile"), ("races", "plain")):
        ratios = sorted(row[name] / max(row[over], 1e-9) for row in done)
        tenth = len(ratios) // 10
        print(
            f"{name}: median {statistics.median(ratios):.2f}, nine of ten at most"
            f" {ratios[-1 - tenth]:.2f}, most {ratios[-1]:.2f} ({len(done)} cells)"
        )
    for target in dict.fromkeys(row["place"][1] for row in done):
        forward = [row for row in done if fnmatchcase(row["place"][0], FORWARD)]
        found = [row["value"] for row in forward if row["place"][1] == target]
        if found:
            print(f"mamba-2 forward, {target}: {sum(found):.1f} s ({len(found)} kernels)")
    print(f"memory: {max(row['memory'] for row in done):.0f} MiB")


def main() -> None:
    """Measure what is missing, then print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kernel", nargs="+", default=["*"])
    parser.add_argument("--sm", nargs="+", default=["80", "90a", "100a", "120a"])
    parser.add_argument("--triton", default="3.9.0")
    parser.add_argument("--time", type=float, default=600.0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--commands", action="store_true")
    options = parser.parse_args()
    path = home_dir() / ROWS
    path.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        path.unlink(missing_ok=True)
    selections = [
        one
        for kernel in options.kernel
        for sm in options.sm
        for one in select_all(SelectionOptions(kernel=kernel, sm=[sm], triton=[options.triton]))
        # Those of the corpus that are made to fail, one of them by its memory.
        if not one.repro.name.startswith("verdict_")
    ]
    if options.commands:
        compare_commands(selections)
        return
    fill(path, selections, options.time)
    chosen = {tuple(place_of(one)) for one in selections}
    summary([row for place, row in rows_of(path).items() if place in chosen])


if __name__ == "__main__":
    main()
