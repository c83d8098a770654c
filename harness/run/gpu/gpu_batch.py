"""One batch to a GPU: launches with their inputs, and the cubins that get them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import structs

from harness.cells.evaluate import evaluate, with_flags
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell
from harness.io.processes.tasks import in_parallel
from harness.judging.ptxas.ptxas_options import level_change
from harness.run.comparing import ELEMENTS
from harness.run.emulator_jobs import Emulation, Passed
from harness.run.executing import NOT_LAUNCHED
from harness.run.inputs import LaunchSource, launch_of
from harness.run.launch import Launch, NotRunError, tensors_of
from harness.run.launch_sources import lower_cell
from harness.values.cell import CellId
from harness.values.errors import TriageError
from harness.values.execution import Argument, Buffer, LaunchVariant
from harness.values.row import Row
from harness.values.toolchain import GPU, SASS

REPEATS = 2
"""Runs of each cubin: it is compared with another one only where it agrees with itself."""

LIMIT = 10.0
"""Seconds that one run may take; small launches take microseconds."""

SAMPLES = 30
"""Timed runs of each cubin; fewer of one that takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCase:
    """One cell: its row of a compile, and which launch its cubin gets.

    `problem` says why there is no cubin, or no launch for it. A `witness` is a cubin of the same
    PTX that was not asked for: it may confirm what the emulator says. `evidence` is what the row of
    the compile rests on, as in `Evaluated`.
    """

    cell: CellId
    compiled: Row
    launch: int | None = None
    problem: str | None = None
    is_witness: bool = False
    evidence: dict[str, str] = field(default_factory=dict)

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
class GpuBatch:
    """What goes to a GPU together, and the command that asked for it.

    `timings` are numbers of `cases` that are timed in turns, `samples` times each. `sanitize`: each
    case goes through compute-sanitizer's tools, or its schedule is read. `keeps`: a cubin stays
    loaded for the next case of it, which may find what was left in variables of the module. `on`
    names what executes them.
    """

    launches: tuple[Launch, ...] = ()
    cases: tuple[BatchCase, ...] = ()
    command: str
    limit: float = LIMIT
    repeats: int = REPEATS
    timings: tuple[tuple[int, ...], ...] = ()
    samples: int = SAMPLES
    sanitize: bool = False
    keeps: bool = False
    on: str = GPU

    @property
    def carried(self) -> list[BatchCase]:
        """The cases that are launched, in the order of the manifest."""
        return [case for case in self.cases if case.cubin]

    @property
    def blobs(self) -> list[str]:
        """The sha256 of all that is needed there: cubins and buffers; and the PTX, to be read."""
        names: list[str] = []
        for launch in self.launches:
            names += [*filter(None, launch.before), launch.emulation.ptx]
        names += [case.cubin for case in self.carried if case.cubin]
        return list(dict.fromkeys(names))

    def with_case(
        self,
        cell: CellId,
        compiled: Row,
        launch: Launch | str,
        *,
        is_witness: bool = False,
        evidence: Mapping[str, str] | None = None,
    ) -> GpuBatch:
        """With one more cell, which gets this launch; a text says why there is none for it."""
        launches, number, problem = self.launches, None, None
        if isinstance(launch, str):
            problem = launch
        elif not compiled.cubin_sha256:
            problem = f"it does not compile: {compiled.verdict}, {compiled.reason}"
        elif self.on == SASS and compiled.verdict in NOT_LAUNCHED:
            problem = f"{compiled.verdict}: it {compiled.reason}"
        else:
            launches = launches if launch in launches else (*launches, launch)
            number = launches.index(launch)
        case = BatchCase(
            cell=structs.replace(cell, on=self.on),
            compiled=compiled,
            launch=number,
            problem=problem,
            is_witness=is_witness,
            evidence=dict(evidence or {}),
        )
        return replace(self, launches=launches, cases=(*self.cases, case))

    async def with_cells(
        self,
        source: LaunchSource,
        cells: Sequence[tuple[Workbench, PlannedCell]],
        levels: Sequence[int] = (),
        *,
        is_witnessed: bool = True,
    ) -> GpuBatch:
        """With more cells at these levels of optimisation, assembled on the benches.

        What cannot be launched, or not assembled, is a case with a problem.
        """
        launches = await in_parallel(_launch_or_why(source, *pair) for pair in cells)
        jobs: list[tuple[Workbench, PlannedCell, bool, Launch | str]] = []
        witnesses: set[str] = set()
        for (bench, cell), launch in zip(cells, launches, strict=True):
            named = structs.replace(cell, cell=source.named(cell.cell))
            for variant, is_witness in leveled(named, levels, is_witnessed=is_witnessed):
                if not is_witness or str(variant.cell) not in witnesses:
                    jobs.append((bench, variant, is_witness, launch))
                if is_witness:
                    witnesses.add(str(variant.cell))
        results = await in_parallel(evaluate(bench, cell) for bench, cell, _, _ in jobs)
        gpu_batch = self
        for (_, cell, is_witness, launch), result in zip(jobs, results, strict=True):
            gpu_batch = gpu_batch.with_case(
                cell.cell, result.row, launch, is_witness=is_witness, evidence=dict(result.evidence)
            )
        return gpu_batch

    def timed(self) -> GpuBatch:
        """With the cases that were added since the last time timed in turns."""
        first = max((number + 1 for group in self.timings for number in group), default=0)
        return replace(self, timings=(*self.timings, tuple(range(first, len(self.cases)))))


def manifest(gpu_batch: GpuBatch) -> dict[str, Any]:
    """What `pack.json` says: all that the runner needs, and no more."""
    place = {id(case): number for number, case in enumerate(gpu_batch.carried)}
    timings = [
        [place[id(gpu_batch.cases[n])] for n in group if gpu_batch.cases[n].cubin]
        for group in gpu_batch.timings
    ]
    return {
        "pack": 1,
        "limit": gpu_batch.limit,
        "repeats": gpu_batch.repeats,
        "samples": gpu_batch.samples,
        **({"sanitize": True} if gpu_batch.sanitize else {}),
        **({"keeps": True} if gpu_batch.keeps else {}),
        "timings": [group for group in timings if group],
        "launches": [
            {**_launch(launch.emulation), "digest": launch.digest} for launch in gpu_batch.launches
        ],
        "cases": [
            {
                "name": str(case.cell),
                "launch": case.launch,
                "entry": gpu_batch.launches[case.launch or 0].emulation.entry,
                "cubin": case.cubin,
            }
            for case in gpu_batch.carried
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
            {"name": buffer.name, "file": buffer.file, "size": buffer.size}
            for buffer in emulation.buffers
        ],
        "arguments": list(map(_argument, emulation.arguments)),
    }


def _argument(argument: Passed) -> dict[str, Any]:
    if argument.scalar is not None:
        return {"scalar": argument.scalar.hex()}
    if argument.pointer is not None:
        return {"pointer": [argument.pointer.allocation, argument.pointer.offset]}
    if argument.tensor_map is None:
        return {}
    words = asdict(argument.tensor_map.tensor_map)
    return {"map": {"pointer": [words.pop("allocation"), words.pop("offset")], **words}}


_PLAIN, _FULL = 0, 3


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
    cells = [(with_flags(cell, level_change(level)), False) for level in levels] or [(cell, False)]
    if is_witnessed and len(cells) == 1:
        level = _FULL if tuple(levels) == (_PLAIN,) else _PLAIN
        cells.append((with_flags(cell, level_change(level)), True))
    return cells


# What fills the buffers of a launch that is too large for its values to be computed.
#
# The time of a kernel depends on where it reads and writes, and how long its loops are: on shapes
# and integers, not on floating-point values. So these are a pattern, and integers are not made up.

# A prime: rows of a tensor hold different values, whatever their length.
_ELEMENTS = 262_139
_SEED = 14
_FLOATS = {"float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"}


@functools.cache
def pattern(dtype: str) -> bytes | None:
    """Numbers between -1 and 1, none of them zero; None where the type is none of floats."""
    if dtype not in _FLOATS:
        return None
    random = np.random.default_rng(_SEED)
    signs = random.choice([-1.0, 1.0], _ELEMENTS)
    return (signs * random.uniform(0.0625, 1.0, _ELEMENTS)).astype(ELEMENTS[dtype]).tobytes()


# Launches at the size at which a user launches them, for their times: nothing is executed here.
#
# Their shapes, strides and numbers were captured; floating-point memory is filled with a pattern on
# the GPU (`patterns`). What comes back of it is a digest.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedLaunches(LaunchSource):
    """Launches each cell at its own shape, with a pattern in its buffers."""

    digest: Literal["whole", "windows"] = "windows"

    async def launch_for(self, bench: Workbench, cell: PlannedCell) -> Launch:
        """As in `LaunchSource`."""
        record = cell.record
        if cell.launch is None or record is None:
            raise NotRunError("a file of PTX has no launch that was captured")
        if not record.views or record.grid is None:
            raise NotRunError("the capture does not say what the launch is given")
        arguments = msgspec.convert(record.views, tuple[Argument, ...])
        types: dict[int, str] = {}
        for tensor in tensors_of(arguments):
            types.setdefault(tensor.buffer, tensor.dtype)
            if pattern(tensor.dtype) is None:
                raise NotRunError(
                    f"{tensor.name} holds {tensor.dtype}: what the launch code computes for it is "
                    "not known at this shape, and is not made up"
                )
        buffers = []
        for number, size in enumerate(record.storages):
            data = pattern(types[number]) or b""
            buffers.append(Buffer(sha256=bench.store.artifacts.put(data[:size]), size=size))
        variant = LaunchVariant(
            config=record.config,
            grid=tuple(record.grid),
            arguments=arguments,
            buffers=tuple(buffers),
            described=record.arguments,
        )
        launch = launch_of(bench, await lower_cell(bench, cell), variant)
        return replace(launch, digest=self.digest)
