"""From a selection to a trip: cubins are assembled, and each PTX gets its inputs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import ml_dtypes
import msgspec
import numpy as np

from harness.cells.evaluate import evaluate, with_flags
from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.judging.ptxas.options import level_change
from harness.run.gpu.trip import Trip, TripCase
from harness.run.launch import Launch, tensors_of
from harness.run.launching import LaunchSource, NotRunError, launch_of
from harness.run.recorded_launch import lower_cell
from harness.store.store import Store
from harness.values.errors import TriageError
from harness.values.execution import Argument, Buffer, LaunchVariant
from harness.values.outcome import LaunchFacts
from harness.values.toolchain import GPU

_PLAIN, _FULL = 0, 3


@dataclass(slots=True, kw_only=True)
class Gathering:
    """A trip that is being put together; `how` says all but what travels."""

    how: Trip
    launches: list[Launch] = field(default_factory=list)
    cases: list[TripCase] = field(default_factory=list)
    timings: list[tuple[int, ...]] = field(default_factory=list)

    def time_new(self) -> None:
        """Have the cases that were added since the last time timed in turns."""
        first = max((number + 1 for group in self.timings for number in group), default=0)
        self.timings.append(tuple(range(first, len(self.cases))))

    def launch(self, launch: Launch) -> int:
        """The number of a launch; one that is there already is not taken twice."""
        if launch not in self.launches:
            self.launches.append(launch)
        return self.launches.index(launch)

    def trip(self) -> Trip:
        """All of it."""
        return replace(
            self.how,
            launches=tuple(self.launches),
            cases=tuple(self.cases),
            timings=tuple(self.timings),
        )

    async def add(
        self,
        source: LaunchSource,
        cells: Sequence[tuple[Workbench, PlannedCell]],
        levels: Sequence[int] = (),
        *,
        is_witnessed: bool = True,
    ) -> None:
        """Add cells at these levels of optimisation, with their launches; assembled on the benches.

        What cannot be launched, or not assembled, is a case with a problem.
        """
        launches = await asyncio.gather(*(_launch_or_why(source, *each) for each in cells))
        wanted: list[tuple[Workbench, PlannedCell, bool, int | str]] = []
        witnesses: set[str] = set()
        for (bench, cell), launch in zip(cells, launches, strict=True):
            number = launch if isinstance(launch, str) else self.launch(launch)
            named = replace(cell, cell=source.named(cell.cell))
            for one, is_witness in leveled(named, levels, is_witnessed=is_witnessed):
                if not is_witness or str(one.cell) not in witnesses:
                    wanted.append((bench, one, is_witness, number))
                if is_witness:
                    witnesses.add(str(one.cell))
        rows = await asyncio.gather(*(evaluate(bench, cell) for bench, cell, _, _ in wanted))
        for (_, cell, is_witness, number), evaluated in zip(wanted, rows, strict=True):
            row, problem = evaluated.row, number if isinstance(number, str) else None
            if not problem and not row.cubin_sha256:
                problem = f"it does not compile: {row.verdict}, {row.reason}"
            self.cases.append(
                TripCase(
                    cell=replace(cell.cell, on=GPU),
                    compiled=row,
                    launch=None if problem else int(number),
                    problem=problem,
                    is_witness=is_witness,
                )
            )


async def _launch_or_why(source: LaunchSource, bench: Workbench, cell: PlannedCell) -> Launch | str:
    try:
        return await source.launch_for(bench, cell)
    except TriageError as error:
        return str(error)


def leveled(
    cell: PlannedCell, levels: Sequence[int], *, is_witnessed: bool = True
) -> list[tuple[PlannedCell, bool]]:
    """A cell at each optimisation level, or as it is; and whether it is only there as a witness.

    One level alone has no witness of the same ptxas: then the farthest other one is added, unless
    the cell has flags of its own.
    """
    if cell.change:
        return [(cell, False)]
    wanted = [(with_flags(cell, level_change(level)), False) for level in levels]
    if not levels:
        wanted = [(cell, False)]
    if is_witnessed and len(wanted) == 1:
        other = _FULL if tuple(levels) == (_PLAIN,) else _PLAIN
        wanted.append((with_flags(cell, level_change(other)), True))
    return wanted


# What fills the buffers of a launch that is too large for its values to be computed.
#
# The time of a kernel depends on where it reads and writes, and how long its loops are: on shapes
# and
# integers, not on floating-point values. So these are a pattern, and integers are not made up.

# A prime: rows of a tensor hold different values, whatever their length.
_ELEMENTS = 262_139
_SEED = 14
_FLOATS = {
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


@functools.cache
def pattern(dtype: str) -> bytes | None:
    """Numbers between -1 and 1, none of them zero; None where the type is none of floats."""
    kind = _FLOATS.get(dtype)
    if kind is None:
        return None
    random = np.random.default_rng(_SEED)
    signs = random.choice([-1.0, 1.0], _ELEMENTS)
    return (signs * random.uniform(0.0625, 1.0, _ELEMENTS)).astype(kind).tobytes()


# Launches at the size at which a user launches them, for their times: nothing is executed here.
#
# Their shapes, strides and numbers were captured; floating-point memory is filled with a pattern on
# the GPU (`patterns`). What comes back of it is a digest.


def shaped_variant(record: LaunchFacts, store: Store) -> LaunchVariant:
    """What a captured launch is given, with a pattern in its buffers.

    Raises:
        NotRunError: its arguments are not known, or depend on integers in memory.
    """
    if not record.views or record.grid is None:
        raise NotRunError("the capture does not say what the launch is given")
    arguments = msgspec.convert(record.views, tuple[Argument, ...])
    types: dict[int, str] = {}
    for each in tensors_of(arguments):
        types.setdefault(each.buffer, each.dtype)
        if pattern(each.dtype) is None:
            raise NotRunError(
                f"{each.name} holds {each.dtype}: what the launch code computes for it is not "
                "known at this shape, and is not made up"
            )
    buffers = []
    for number, size in enumerate(record.storages):
        data = pattern(types[number]) or b""
        buffers.append(Buffer(sha256=store.artifacts.put(data[:size]), size=size))
    return LaunchVariant(
        config=record.config,
        grid=tuple(record.grid),
        arguments=arguments,
        buffers=tuple(buffers),
        described=record.arguments,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedLaunches(LaunchSource):
    """Launches each cell at its own shape."""

    digest: Literal["whole", "windows"] = "windows"

    async def launch_for(self, bench: Workbench, cell: PlannedCell) -> Launch:
        """As in `LaunchSource`."""
        if cell.launch is None or cell.record is None:
            raise NotRunError("a file of PTX has no launch that was captured")
        variant = shaped_variant(cell.record, bench.store)
        launch = launch_of(bench, await lower_cell(bench, cell), variant)
        return replace(launch, digest=self.digest)
