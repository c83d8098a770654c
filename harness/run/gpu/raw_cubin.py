"""Emulates a cubin without its PTX, on inputs that the user names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions, at_bench
from harness.frontends.texts.ir_inputs import spelling
from harness.io.files.reading import read_regular
from harness.judging.ptxas.cubin import CubinEntry, CubinError, read_cubin
from harness.run.emulator_jobs import RunTrial
from harness.run.gpu.sass_emulator import check_schedule, emulate_cubin
from harness.run.inputs import Entry, EntryParameter
from harness.run.judging import Judgement, judge, run_row
from harness.run.launch import evidence_of
from harness.run.raw import RawInputs, RawLaunch, RawReport, launch_with
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.target import Target
from harness.values.toolchain import NO_ASSEMBLER, SASS
from harness.values.verdict import VerdictKind

_LARGEST = 1 << 28
_POINTER = 8
_TYPES = {1: "b8", 2: "b16", 4: "b32", _POINTER: "b64"}


async def run_cubin(
    path: Path,
    entry: str | None,
    inputs: RawInputs,
    store: Store,
    options: CompileOptions,
    trials: Sequence[RunTrial],
    budget: Budget,
    tell: Callable[[str], None],
    *,
    sanitize: bool = False,
) -> RawReport:
    """Emulate one entry of a cubin; `sanitize`: check its schedule, too.

    A cubin says how large its parameters are, and no more: one of 8 bytes that is not named gets a
    buffer. What comes out is kept by content, and is no part of the history: no cell has it.

    Raises:
        UsageError: the file is no cubin, has no such entry, or the inputs do not fit.
        InfrastructureError: nvdisasm or the emulator cannot be started.
    """
    data = read_regular(path, _LARGEST)
    try:
        cubin = read_cubin(data)
    except CubinError as error:
        raise UsageError(f"{path}: {error}") from error
    known = {known.name: known for known in cubin.entries}
    names = ", ".join(list(known)[:8]) or "none"
    if entry is None and len(known) != 1:
        raise UsageError(f"{path}: entries are: {names}; name one, by FILE::NAME")
    name = next(iter(known)) if entry is None else entry
    if name not in known:
        raise UsageError(f"{path}: no entry {name!r}; entries are: {names}")
    launch, notes = launch_with("", _head(known[name], inputs), inputs, store)
    launch = launch.run_as(trials, budget)
    for note in notes:
        tell(note)
    sha256 = store.artifacts.put(data)
    raw = RawLaunch(path=path, inputs=inputs, launch=launch)
    cell = CellId(
        kernel=f"{spelling(path)}::{entry}" if entry else spelling(path),
        launch="cubin",
        config=Config(),
        target=Target(capability=cubin.target or 0),
        compiler=f"cubin-{hashlib.sha256(data).hexdigest()[:8]}",
        ptxas="",
        on=SASS,
        assembler=NO_ASSEMBLER,
    )
    async with at_bench(store, options) as bench:
        emulated = await emulate_cubin(bench, sha256, launch.emulation, tell)
        checks = (await check_schedule(bench, sha256, name),) if sanitize else ()
    if isinstance(emulated, str):
        judgement = Judgement(verdict=VerdictKind.NOT_RUN, reason=emulated)
        row = run_row(raw.named(cell), judgement, on=SASS, triton=None, sanitizers=checks)
        return RawReport(row=row, notes=tuple(notes), before={}, after={})
    emulation, runs = emulated
    evidence = evidence_of(replace(launch, emulation=emulation), runs, store.artifacts.get)
    row = run_row(
        raw.named(cell),
        judge(evidence),
        on=SASS,
        triton=None,
        instructions_run=sum(ran.executed for ran in evidence.ran) or None,
        seconds=round(sum(ran.seconds for ran in evidence.ran), 3),
        sanitizers=checks,
    )
    return RawReport.of(row, notes, launch, evidence)


def _head(entry: CubinEntry, inputs: RawInputs) -> Entry:
    """The entry as it is known: types are guessed by their sizes."""
    parameters = (
        EntryParameter(
            name=str(number),
            type=_TYPES.get(size, "b8"),
            size=size,
            count=None if size in _TYPES else size,
            is_pointer=size == _POINTER,
        )
        for number, size in enumerate(entry.parameters)
    )
    # Of the shape of its blocks, the number of threads is known alone.
    is_known = inputs.block is not None or entry.threads is None
    block = None if is_known else (entry.threads or 1, 1, 1)
    return Entry(name=entry.name, parameters=tuple(parameters), block=block)
