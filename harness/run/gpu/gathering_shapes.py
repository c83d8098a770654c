"""Launches at the size at which a user launches them, for their times: nothing is executed here.

Their shapes, strides and numbers were captured; floating-point memory is filled with a pattern on
the GPU (`patterns`). What comes back of it is a digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from gpu_emulator.values import Budget
from harness.cells.evaluate import with_flags
from harness.frontends.registry import front_end, plan_launch
from harness.judging.ptxas.options import level_change
from harness.run.gpu.gathering import Gathering, add_cells
from harness.run.gpu.patterns import pattern
from harness.run.gpu.trip import TripLaunch
from harness.run.launching import NotRunError, emulation_of
from harness.run.matching import tensors_of
from harness.run.numbers.noise import types_in
from harness.values.errors import TriageError, UsageError
from harness.values.execution import Argument, Buffer, LaunchVariant
from harness.values.outcome import LaunchFacts

if TYPE_CHECKING:
    from harness.frontends.base import PlannedCell, Selection
    from harness.frontends.bench.bench import Workbench
    from harness.store.store import Store


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
