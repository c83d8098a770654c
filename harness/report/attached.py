"""What the files of a report do: compiled or executed again, from nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.bisect.neighbours import contrast
from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.frontends.base import Selection
from harness.judging.conditions import Condition
from harness.report.claims import AttachedPlace
from harness.store.store import Store
from harness.values.errors import TriageError
from harness.values.execution import RunRow
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.toolchain import BUNDLED, assembler_name
from harness.values.verdict import VerdictKind

MINIMAL = "min.ptx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where the files lie and how to compile them: `case` is the failing cell they are to show.

    With a `condition`, it is what the case shows in the place of a failure; `formal` is that of the
    selection. Nothing that is
    compiled is taken from `store`; `seconds` is how long all of it may take.
    """

    folder: Path
    case: Row
    store: Store
    how: CompileOptions
    seconds: float
    condition: Condition | None = None
    formal: bool = False


async def compile_places(
    bench: Bench, places: Sequence[AttachedPlace], untried: dict[AttachedPlace | str, str]
) -> dict[AttachedPlace, Row]:
    """What each file does there; what could not be compiled, or not in time, is in `untried`.

    The places that come first are compiled first.
    """
    started = time.monotonic()
    found: dict[AttachedPlace, Row] = {}
    groups: dict[tuple[str, ...], list[AttachedPlace]] = {}
    for each in places:
        key: tuple[str, ...] = (each.file, each.version)
        if each.flag:
            key = (each.file, "flag")
        elif each.target != bench.case.target:
            key = (each.file, "target")
        groups.setdefault(key, []).append(each)
    for group in groups.values():
        why = f"the {bench.seconds:.0f} s for all of them were over"
        rows: dict[AttachedPlace, Row] = {}
        if time.monotonic() - started <= bench.seconds:
            try:
                rows = await _compiled(bench, group)
                why = "it is not compiled there"
            except TriageError as error:
                why = str(error)
        for place in group:
            row = rows.get(place)
            if row and row.verdict != VerdictKind.INFRA.value:
                found[place] = row
            else:
                untried[place] = row.reason if row else why
    return found


async def _compiled(bench: Bench, group: Sequence[AttachedPlace]) -> dict[AttachedPlace, Row]:
    first = group[0]
    if first.flag or first.target != bench.case.target:
        axis = "flag" if first.flag else "target"
        selection = _selection(bench, first, bench.case.target)
        found = await contrast(
            selection, bench.store, bench.how, axis, None, _silent, condition=bench.condition
        )
        rows = {point.label: point.row for point in found.points}
        labels = {place: place.flag or place.target for place in group}
        return {place: row for place, label in labels.items() if (row := rows.get(label))}
    selection = _selection(bench, first, first.target)
    report = await compile_selections([selection], bench.store, bench.how, RunProgress())
    # The row of the case's config, where a file launches several.
    config = Config.of(bench.case.config)
    same = (row for row in report.rows if Config.of(row.config) == config)
    return dict.fromkeys(group, next(same, report.rows[0]))


async def execute_places(
    bench: Bench, places: Sequence[AttachedPlace]
) -> dict[AttachedPlace, tuple[Row, RunRow]]:
    """What each file computes there; what cannot be tried, or not in time, is left out.

    Every version gets the inputs that are recorded with the one of the case.
    """
    from harness.report.again import Retrial, execute_again  # noqa: PLC0415 - the emulator: 0.2 s

    case = bench.case
    found: dict[AttachedPlace, tuple[Row, RunRow]] = {}
    for file in dict.fromkeys(place.file for place in places):
        words = SelectionOptions(
            kernel=str(bench.folder / file),
            sm=[case.target],
            compiler=[f"{case.compiler}=={case.compiler_version}"],
            formal=bench.formal,
        )
        like = Config.of(case.config)
        points = {
            place: Retrial(compiler=place.version, target=place.target, like=like)
            for place in places
            if place.file == file
        }
        with contextlib.suppress(TriageError):
            done = await execute_again(
                select(words), points.values(), bench.store, bench.how, seconds=bench.seconds
            )
            ran = {place: done[point] for place, point in points.items() if point in done}
            found |= {place: (each.done.row, each.row) for place, each in ran.items()}
    return found


async def launch_places(
    bench: Bench, given: Selection, places: Sequence[AttachedPlace], runner: str | None
) -> dict[AttachedPlace, tuple[Row, RunRow]]:
    """What the cubin of each file computes on a GPU there; what cannot be tried is left out.

    A file with a launch beside it gets that, any other what the repro of `given` says.
    """
    from harness.report.case import launched_rows  # noqa: PLC0415 - the emulator: 0.2 s
    from harness.run.raw_ptx import LAUNCH_INPUTS, RawInputs, inputs_of, read_launch  # noqa: PLC0415 - as above  # noqa: PLC0415 - as above

    found: dict[AttachedPlace, tuple[Row, RunRow]] = {}
    for file in dict.fromkeys(place.file for place in places):
        inputs = inputs_of(given.repro)
        if file == MINIMAL and (bench.folder / LAUNCH_INPUTS).is_file():
            launch = read_launch((bench.folder / LAUNCH_INPUTS).read_bytes(), LAUNCH_INPUTS)
            inputs = RawInputs(launch=launch, folder=bench.folder)
        mine = [place for place in places if place.file == file]
        words = SelectionOptions(
            kernel=str(bench.folder / file),
            sm=[bench.case.target],
            ptxas=list(dict.fromkeys(place.version for place in mine)),
        )
        with contextlib.suppress(TriageError):
            done = await launched_rows(
                select(words), inputs, bench.store, bench.how, lambda _: None, runner
            )
            rows = {each.row.compiled.ptxas: each for each in done if each.row.compiled}
            ran = {place: rows[place.version] for place in mine if place.version in rows}
            found |= {place: (each.done.row, each.row) for place, each in ran.items()}
    return found


async def execute_rows(
    bench: Bench, selection: Selection, rows: Sequence[Row]
) -> dict[str, tuple[Row, RunRow]]:
    """What the kernel itself computes, cell by cell; what cannot be tried in time is left out."""
    from harness.report.again import execute_again, retrial_of  # noqa: PLC0415 - as above

    points = {row.cell: retrial_of(row) for row in rows}
    done = await execute_again(
        selection, points.values(), bench.store, bench.how, seconds=bench.seconds
    )
    ran = {cell: done[point] for cell, point in points.items() if point in done}
    return {cell: (each.done.row, each.row) for cell, each in ran.items()}


def _selection(bench: Bench, place: AttachedPlace, target: str) -> Selection:
    """The file on this version; for the target as the command line names it."""
    case = bench.case
    is_ptx = place.file.endswith(".ptx")
    is_assembler = place.tool == assembler_name(case.assembler)
    names_it = is_assembler or case.ptxas_origin != BUNDLED
    assembler = place.version if is_assembler else case.ptxas
    version = case.compiler_version if is_assembler else place.version
    return select(
        SelectionOptions(
            kernel=str(bench.folder / place.file),
            sm=[target],
            compiler=[] if is_ptx or version is None else [f"{case.compiler}=={version}"],
            assembler=[f"{case.assembler}=={assembler}"] if names_it and assembler else [],
        )
    )


def _silent(_label: str, _said: str) -> None:
    """Only the rows are wanted."""
