"""One trip to a GPU: launches with their inputs, and the cubins that get them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import ml_dtypes
import msgspec
import numpy as np

from gpu_emulator.values import TensorMap
from harness.cells.evaluate import evaluate, with_flags
from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.judging.ptxas.options import level_change
from harness.run.jobs import Emulation, Passed
from harness.run.launch import Launch, tensors_of
from harness.run.launching import LaunchSource, NotRunError, launch_of
from harness.run.recorded_launch import lower_cell
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.errors import TriageError
from harness.values.execution import Argument, Buffer, LaunchVariant
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.toolchain import GPU

REPEATS = 2
"""Runs of each cubin: it is compared with another one only where it agrees with itself."""

LIMIT = 10.0
"""Seconds that one run may take until it counts as a hang; small launches take microseconds."""

SAMPLES = 30
"""Timed runs of each cubin; fewer of one that takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TripCase:
    """One cell: its row of a compile, and which launch its cubin gets.

    `problem` says why there is no cubin, or no launch for it. A `witness` is a cubin of the same
    PTX that was not asked for: it may confirm what the emulator says.
    """

    cell: CellId
    compiled: Row
    launch: int | None = None
    problem: str | None = None
    is_witness: bool = False

    @property
    def words(self) -> str:
        """Its assembler: `ptxas 13.0.88 -O3`."""
        tool, _, flags = self.cell.ptxas.partition(",")
        return " ".join(filter(None, ("ptxas", tool, flags.replace("_", " "))))

    @property
    def cubin(self) -> str | None:
        """The cubin's sha256, where it is to be launched."""
        return self.compiled.cubin_sha256 if self.launch is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """What goes to a GPU together, and the command that asked for it.

    `timings` are numbers of `cases` that are timed in turns, `samples` times each. `sanitize`: each
    case goes through compute-sanitizer's tools, too.
    """

    launches: tuple[Launch, ...] = ()
    cases: tuple[TripCase, ...] = ()
    command: str
    limit: float = LIMIT
    repeats: int = REPEATS
    timings: tuple[tuple[int, ...], ...] = ()
    samples: int = SAMPLES
    sanitize: bool = False

    @property
    def carried(self) -> list[TripCase]:
        """The cases that are launched, in the order of the manifest."""
        return [case for case in self.cases if case.cubin]

    @property
    def blobs(self) -> list[str]:
        """The sha256 of all that is needed there: cubins and buffers; and the PTX, to be read."""
        names: list[str] = []
        for launch in self.launches:
            names += [each.file for each in launch.emulation.buffers if each.file]
            names.append(launch.emulation.ptx)
        names += [case.cubin for case in self.carried if case.cubin]
        return list(dict.fromkeys(names))


def manifest(trip: Trip) -> dict[str, Any]:
    """What `pack.json` says: all that the runner needs, and no more."""
    place = {id(case): number for number, case in enumerate(trip.carried)}
    timings = [
        [place[id(trip.cases[n])] for n in group if trip.cases[n].cubin] for group in trip.timings
    ]
    return {
        "pack": 1,
        "limit": trip.limit,
        "repeats": trip.repeats,
        "samples": trip.samples,
        **({"sanitize": True} if trip.sanitize else {}),
        "timings": [group for group in timings if group],
        "launches": [{**_launch(each.emulation), "digest": each.digest} for each in trip.launches],
        "cases": [
            {
                "name": str(case.cell),
                "launch": case.launch,
                "entry": trip.launches[case.launch or 0].emulation.entry,
                "cubin": case.cubin,
            }
            for case in trip.carried
        ],
    }


def _launch(emulation: Emulation) -> dict[str, Any]:
    return {
        "ptx": emulation.ptx,
        "grid": emulation.grid,
        "block": emulation.block,
        "cluster": emulation.cluster,
        "shared": emulation.dynamic_shared,
        "buffers": [
            {"name": each.name, "file": each.file, "size": each.size} for each in emulation.buffers
        ],
        "arguments": _arguments(emulation.arguments),
    }


def _arguments(arguments: Sequence[Passed]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for each in arguments:
        if each.scalar is not None:
            found.append({"scalar": each.scalar.hex()})
        elif each.pointer is not None:
            found.append({"pointer": [each.pointer.allocation, each.pointer.offset]})
        elif each.tensor_map is not None:
            found.append({"map": _map(each.tensor_map.tensor_map)})
        else:
            found.append({})
    return found


def _map(wanted: TensorMap) -> dict[str, Any]:
    words = asdict(wanted)
    return {"pointer": [words.pop("allocation"), words.pop("offset")], **words}


# From cells to a trip: cubins are assembled, and each PTX gets its inputs.

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
# and integers, not on floating-point values. So these are a pattern, and integers are not made up.

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
