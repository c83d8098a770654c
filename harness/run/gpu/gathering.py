"""From a selection to a trip: cubins are assembled, and each PTX gets its inputs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import ml_dtypes
import msgspec
import numpy as np

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated, evaluate, with_flags
from harness.frontends.base import PlannedCell, PlannedLaunch, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end, plan_launch
from harness.judging.ptxas.options import level_change
from harness.run.comparing import types_in
from harness.run.executing import run_evidence
from harness.run.gpu.trip import REPEATS, KeptTrusted, Trip, TripCase, TripLaunch
from harness.run.jobs import RunTrial
from harness.run.judging import Trusted
from harness.run.launching import NotRunError, emulation_of
from harness.run.matching import tensors_of
from harness.run.raw_ptx import RawInputs, raw_launch
from harness.run.references import Found
from harness.run.same_inputs import SameInputs
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.errors import TriageError, UsageError
from harness.values.execution import Argument, Buffer, LaunchVariant
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import GPU, Compiler

_PLAIN, _FULL = 0, 3


@dataclass(slots=True, kw_only=True)
class Gathering:
    """A trip that is being put together."""

    command: str
    limit: float
    repeats: int = REPEATS
    launches: list[TripLaunch] = field(default_factory=list)
    cases: list[TripCase] = field(default_factory=list)
    timings: list[tuple[int, ...]] = field(default_factory=list)
    sanitize: bool = False

    def time_new(self) -> None:
        """Have the cases that were added since the last time timed in turns."""
        first = max((number + 1 for group in self.timings for number in group), default=0)
        self.timings.append(tuple(range(first, len(self.cases))))

    def launch(self, launch: TripLaunch) -> int:
        """The number of a launch; one that is there already is not taken twice."""
        if launch not in self.launches:
            self.launches.append(launch)
        return self.launches.index(launch)

    def trip(self) -> Trip:
        """All of it."""
        return Trip(
            launches=tuple(self.launches),
            cases=tuple(self.cases),
            command=self.command,
            limit=self.limit,
            repeats=self.repeats,
            timings=tuple(self.timings),
            sanitize=self.sanitize,
        )


def leveled(cell: PlannedCell, levels: Sequence[int]) -> list[tuple[PlannedCell, bool]]:
    """A cell at each optimisation level, or as it is; and whether it is only there as a witness.

    One level alone has no witness of the same ptxas: then the farthest other one is added.
    """
    wanted = [(with_flags(cell, level_change(level)), False) for level in levels]
    if not levels:
        wanted = [(cell, False)]
    if len(wanted) == 1:
        other = _FULL if tuple(levels) == (_PLAIN,) else _PLAIN
        wanted.append((with_flags(cell, level_change(other)), True))
    return wanted


def kept(trusted: Trusted, store: Store) -> KeptTrusted:
    """A reference with its buffers as artifacts."""
    return KeptTrusted(
        words=trusted.words,
        buffers=tuple(
            None if data is None else store.artifacts.put(data) for data in trusted.buffers
        ),
        is_final=trusted.is_final,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTripLaunch:
    """What a file of PTX is launched with; `named` puts a name for the inputs into a cell."""

    launch: TripLaunch
    notes: tuple[str, ...]
    named: Callable[[CellId], CellId]


def raw_trip_launch(
    bench: Workbench,
    selection: Selection,
    inputs: RawInputs,
    trials: Sequence[RunTrial],
    budget: Budget,
) -> RawTripLaunch:
    """The launch of a file of PTX.

    Raises:
        UsageError: the inputs do not fit the entry's parameters.
    """
    path = selection.repro.ptx
    assert path is not None
    raw = raw_launch(Path(path), selection.repro.kernel, inputs, bench.store)
    emulation, notes = raw.prepare(trials, budget)
    return RawTripLaunch(
        launch=TripLaunch(
            emulation=emulation,
            tensors=tuple(raw.tensors),
            trusted=tuple(kept(each, bench.store) for each in raw.trusted()),
        ),
        notes=tuple(notes),
        named=partial(raw.inputs_named, emulation=emulation),
    )


async def gather_ptx(
    bench: Workbench,
    selection: Selection,
    inputs: RawInputs,
    levels: Sequence[int],
    trials: Sequence[RunTrial],
    budget: Budget,
    gathering: Gathering,
    tell: Callable[[str], None],
) -> None:
    """Add a file of PTX to a trip: every ptxas, target and level that is selected, one launch.

    Raises:
        UsageError: the inputs do not fit the entry's parameters.
        TriageError: a toolchain cannot be used.
    """
    raw = raw_trip_launch(bench, selection, inputs, trials, budget)
    for note in raw.notes:
        tell(note)
    launch = gathering.launch(raw.launch)
    cells: list[tuple[PlannedCell, bool]] = []
    for target in selection.targets:
        plan = await plan_launch(bench, selection.place(target=target))
        for cell in plan.cells:
            cells += leveled(replace(cell, cell=raw.named(cell.cell)), levels)
    await add_cells(bench, gathering, cells, [launch] * len(cells))


async def add_cells(
    bench: Workbench,
    gathering: Gathering,
    cells: Sequence[tuple[PlannedCell, bool]],
    launches: Sequence[int | str],
) -> None:
    """Assemble cells and add them; each has the number of its launch, or why it has none."""
    done = await asyncio.gather(*(evaluate(bench, cell) for cell, _ in cells))
    for (cell, is_witness), launch, found in zip(cells, launches, done, strict=True):
        gathering.cases.append(_case(cell, found, launch, is_witness=is_witness))


def _case(cell: PlannedCell, found: Evaluated, launch: int | str, *, is_witness: bool) -> TripCase:
    named = replace(cell.cell, on=GPU)
    problem = launch if isinstance(launch, str) else _no_cubin(found.row)
    return TripCase(
        cell=named,
        compiled=found.row,
        launch=None if problem else int(launch),
        problem=problem,
        is_witness=is_witness,
    )


def _no_cubin(row: Row) -> str | None:
    if row.cubin_sha256:
        return None
    return f"it does not compile: {row.verdict}, {row.reason}"


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


# From a kernel's launch code to a trip: every config with the inputs that were recorded for it.


async def gather_launches(
    bench: Workbench,
    selection: Selection,
    levels: Sequence[int],
    trials: tuple[RunTrial, ...],
    budget: Budget,
    gathering: Gathering,
    tell: Callable[[str], None],
) -> None:
    """Add the cells of a kernel to a trip, at the small shapes of its launches.

    Raises:
        UsageError: launches of its compiler cannot be run with values.
        TriageError: nothing could be captured.
    """
    end = front_end(selection.repro.front_end)
    if end.interpreter is None:
        raise UsageError(
            f"{selection.repro.name}: launches of {end.title} cannot be run with values"
        )
    for launch in SameInputs.small(selection).launches:
        for target in selection.targets:
            for compiler in selection.compilers:
                one = replace(selection, launches=(launch,), targets=(target,))
                one = replace(one, compilers=(compiler,))
                same = SameInputs(
                    bench=bench, selection=one, tell=tell, trials=trials, budget=budget
                )
                await _place(bench, one, same, levels, gathering, (launch, target, compiler))


async def _place(
    bench: Workbench,
    selection: Selection,
    same: SameInputs,
    levels: Sequence[int],
    gathering: Gathering,
    place: tuple[PlannedLaunch, Target, Compiler],
) -> None:
    """Add the cells of one launch on one target with one compiler."""
    launch, target, compiler = place
    plan = await plan_launch(
        bench, selection.place(target=target, compiler=compiler, launch=launch)
    )
    try:
        cells: list[tuple[PlannedCell, bool]] = []
        launches: list[int | str] = []
        for cell in plan.cells:
            found = await launch_of(bench, same, cell)
            both = leveled(cell, levels)
            cells += both
            number = found if isinstance(found, str) else gathering.launch(found)
            launches += [number] * len(both)
        await add_cells(bench, gathering, cells, launches)
    finally:
        for session in {plan.session, *same.sessions()} - {None}:
            assert session is not None
            await bench.sessions.close(session)


async def launch_of(bench: Workbench, same: SameInputs, cell: PlannedCell) -> TripLaunch | str:
    """What the cubins of a cell get; or why there is nothing."""
    assert cell.launch is not None
    assert cell.record is not None
    end = front_end(cell.compiler.kind)
    try:
        variant = await same.variant(cell.record)
        lowering = await end.lower(bench, cell.launch, cell.record, ptxas=cell.seen_ptxas)
        emulation = emulation_of(bench, lowering, variant, same.trials, same.budget)
        author = await same.author(variant)
    except (NotRunError, TriageError) as error:
        return str(error)
    text = bench.store.artifacts.get(emulation.ptx).decode(errors="replace")
    known = run_evidence(bench.store.artifacts.get, variant, (), Found(), text, None)
    return TripLaunch(
        emulation=emulation,
        tensors=variant.arguments,
        trusted=tuple(kept(each, bench.store) for each in author),
        types=tuple(sorted(known.types)),
        unwritten=tuple(sorted(known.unwritten)),
    )


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


async def shaped_launch(
    bench: Workbench, cell: PlannedCell, digest: Literal["whole", "windows"] = "windows"
) -> TripLaunch:
    """The launch of a cell at its own shape.

    Raises:
        NotRunError: it cannot be launched so; the message says why.
        TriageError: it does not compile here.
    """
    if cell.launch is None or cell.record is None:
        raise NotRunError("a file of PTX has no launch that was captured")
    end = front_end(cell.compiler.kind)
    variant = shaped_variant(cell.record, bench.store)
    lowering = await end.lower(bench, cell.launch, cell.record, ptxas=cell.seen_ptxas)
    emulation = emulation_of(bench, lowering, variant, (), Budget())
    text = bench.store.artifacts.get(emulation.ptx).decode(errors="replace")
    return TripLaunch(
        emulation=emulation,
        tensors=variant.arguments,
        types=tuple(sorted(types_in(text))),
        digest=digest,
    )


async def gather_shapes(
    bench: Workbench,
    selection: Selection,
    levels: Sequence[int],
    gathering: Gathering,
    tell: Callable[[str], None],
) -> None:
    """Add the cells of a kernel to a trip, at the shapes of its launches, to be timed in turns.

    Raises:
        UsageError: its launches are not captured.
        TriageError: nothing could be captured.
    """
    end = front_end(selection.repro.front_end)
    if end.interpreter is None:
        raise UsageError(f"{selection.repro.name}: launches of {end.title} are not captured")
    for launch in selection.launches:
        for target in selection.targets:
            for compiler in selection.compilers:
                tell(f"{selection.repro.name}: {launch.label} on {target}")
                plan = await plan_launch(
                    bench, selection.place(target=target, compiler=compiler, launch=launch)
                )
                try:
                    await _add(bench, plan.cells, levels, gathering)
                finally:
                    if plan.session:
                        await bench.sessions.close(plan.session)


async def _shaped(bench: Workbench, cell: PlannedCell) -> TripLaunch | str:
    """The launch of a cell, or why it has none."""
    try:
        return await shaped_launch(bench, cell)
    except (NotRunError, TriageError) as error:
        return str(error)


async def _add(
    bench: Workbench, cells: Sequence[PlannedCell], levels: Sequence[int], gathering: Gathering
) -> None:
    leveled = [
        with_flags(cell, level_change(level)) if level is not None else cell
        for cell in cells
        for level in (levels or (None,))
    ]
    found = await asyncio.gather(*(_shaped(bench, cell) for cell in leveled))
    launches = [each if isinstance(each, str) else gathering.launch(each) for each in found]
    await add_cells(bench, gathering, [(cell, False) for cell in leveled], launches)
    gathering.time_new()
