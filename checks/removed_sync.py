"""Removes each barrier, wait and proxy fence of a kernel in turn, and says what is found.

    python checks/removed_sync.py [KERNEL@SM ...] [--triton X]

Each is taken out of the PTX that Triton generates for a kernel of the corpus, alone, and the rest
is executed: with the race check, and under four schedules against what the whole PTX leaves. What
is found by neither is `silent`: nothing that it orders is ordered by nothing else. Of the whole PTX
nothing may be found.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from run import as_launch, prepared

from gpu_emulator.api import run
from gpu_emulator.values import Budget, Checks, Launch, Outcome, Schedule
from harness.cells.places import CompileOptions, open_bench
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions
from harness.frontends.plan import Selection
from harness.io.processes.hub import Hub
from harness.run.schedules import DEFAULT, read_schedules
from harness.store.store import Store

PLACES = ("mamba2_chunk_scan_fwd@80", "fla_gla_fwd_h@90a", "two_dots@100a")
REMOVED = re.compile(
    r"\s*(?:@!?%\w+\s+)?((?:bar\.sync|bar\.warp\.sync|cp\.async\.wait_\w+|cp\.async\.bulk\.wait_group"
    r"(?:\.read)?|wgmma\.wait_group\.sync|tcgen05\.wait::\w+|fence\.proxy\.async)\b)[^;]*;"
)
LIMIT = Budget(max_instructions=50_000_000)


def without_each(ptx: str) -> Iterator[tuple[str, int, str]]:
    """What is removed, its line, and the PTX without it; labels on the line stay."""
    lines = ptx.splitlines()
    for number, line in enumerate(lines):
        found = REMOVED.match(line)
        if found:
            yield found[1], number + 1, "\n".join([*lines[:number], "", *lines[number + 1 :]])


def bytes_of(outcome: Outcome) -> list[bytes]:
    """What the buffers hold afterwards."""
    return [each.data.tobytes() for each in outcome.allocations]


def serious(outcome: Outcome) -> bool:
    """Whether races with effect were found."""
    return any(not race.formal for race in outcome.races)


def found_by(launch: Launch, whole: list[bytes], schedules: tuple[Schedule, ...]) -> str:
    """By what the change shows: `race`, `formal`, `value`, a fault's kind, or `silent`."""
    checked = run(launch, schedules[0], LIMIT, Checks(races=True))
    if checked.faults:
        return checked.faults[0].kind
    if serious(checked):
        return "race"
    for schedule in schedules:
        outcome = run(launch, schedule, LIMIT)
        if outcome.faults:
            return outcome.faults[0].kind
        if bytes_of(outcome) != whole:
            return "value"
    return "silent"


async def launch_for(selection: Selection, store: Store) -> Launch:
    """The first config of a kernel with its inputs."""
    async with Hub() as hub:
        how = CompileOptions(jobs=1, command="checks/removed_sync.py")
        emulation, _ = await prepared(open_bench(hub, store, how), selection)
    return as_launch(store.artifacts, emulation)


def study(place: str, triton: str, store: Store) -> None:
    """Print what is found of one kernel on one target."""
    kernel, _, sm = place.partition("@")
    schedules = read_schedules(DEFAULT)
    for selection in select_all(SelectionOptions(kernel=kernel, sm=[sm], triton=[triton])):
        launch = asyncio.run(launch_for(selection, store))
        base = run(launch, schedules[0], LIMIT, Checks(races=True))
        assert not base.faults, base.faults
        assert base.not_run is None, base.not_run
        assert not serious(base), "of the whole PTX nothing may be found"
        whole = bytes_of(base)
        counts: Counter[tuple[str, str]] = Counter()
        for what, line, ptx in without_each(launch.ptx):
            how = found_by(replace(launch, ptx=ptx), whole, schedules)
            counts[what, how] += 1
            print(f"  {place} line {line}: {what}: {how}", flush=True)
        for (what, how), count in sorted(counts.items()):
            print(f"{place}, Triton {triton}: {count} x {what} removed: {how}", flush=True)


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("places", nargs="*", default=PLACES)
    parser.add_argument("--triton", default="3.9.0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        for place in options.places:
            study(place, options.triton, store)


if __name__ == "__main__":
    main()
