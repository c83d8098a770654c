"""What the files of a report do: compiled or executed again, from nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from harness.report.again import Retrial
    from harness.run.executing import Executed

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
    bench: Bench, places: Sequence[AttachedPlace], untried: dict[AttachedPlace | str, str]
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    """What each file computes there; what could not be executed, or not in time, is in `untried`.

    Every version gets the inputs that are recorded with the one of the case.
    """
    from harness.report.again import Retrial, execute_again  # noqa: PLC0415 - the emulator: 0.2 s

    case = bench.case
    found: dict[AttachedPlace | str, tuple[Row, RunRow]] = {}
    for file in dict.fromkeys(place.file for place in places):
        words = SelectionOptions(
            kernel=str(bench.folder / file),
            sm=[case.target],
            compiler=[f"{case.compiler}=={case.compiler_version}"],
            formal=bench.formal,
        )
        like = Config.of(case.config)
        points: dict[AttachedPlace | str, Retrial] = {
            place: Retrial(compiler=place.version, target=place.target, like=like)
            for place in places
            if place.file == file
        }
        try:
            done = await execute_again(
                select(words), points.values(), bench.store, bench.how, seconds=bench.seconds
            )
        except TriageError as error:
            untried |= dict.fromkeys(points, str(error))
        else:
            found |= _told(done, points, untried)
    return found


def _told(
    done: Mapping[Retrial, Executed | str],
    points: Mapping[AttachedPlace | str, Retrial],
    untried: dict[AttachedPlace | str, str],
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    found: dict[AttachedPlace | str, tuple[Row, RunRow]] = {}
    for subject, point in points.items():
        executed = done[point]
        if isinstance(executed, str):
            untried[subject] = executed
        else:
            found[subject] = executed.done.row, executed.row
    return found


async def launch_places(
    bench: Bench,
    given: Selection,
    places: Sequence[AttachedPlace],
    runner: str | None,
    untried: dict[AttachedPlace | str, str],
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    """What the cubin of each file computes on a GPU there; what cannot be tried is in `untried`.

    A file with a launch beside it gets that, any other what the repro of `given` says.
    """
    from harness.report.case import launched_rows  # noqa: PLC0415 - the emulator: 0.2 s
    from harness.run.raw_ptx import LAUNCH_INPUTS, RawInputs, inputs_of, read_launch  # noqa: PLC0415 - as above

    found: dict[AttachedPlace | str, tuple[Row, RunRow]] = {}
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
        try:
            done = await launched_rows(
                select(words), inputs, bench.store, bench.how, lambda _: None, runner
            )
        except TriageError as error:
            untried |= dict.fromkeys(mine, str(error))
            continue
        rows = {each.row.compiled.ptxas: each for each in done if each.row.compiled}
        for place in mine:
            if executed := rows.get(place.version):
                found[place] = executed.done.row, executed.row
            else:
                untried[place] = f"ptxas {place.version} made no cubin of it that was launched"
    return found


async def execute_rows(
    bench: Bench, selection: Selection, rows: Sequence[Row], untried: dict[AttachedPlace | str, str]
) -> dict[AttachedPlace | str, tuple[Row, RunRow]]:
    """What the kernel itself computes, by cell; what cannot be tried in time is in `untried`."""
    from harness.report.again import execute_again, retrial_of  # noqa: PLC0415 - as above

    points: dict[AttachedPlace | str, Retrial] = {row.cell: retrial_of(row) for row in rows}
    done = await execute_again(
        selection, points.values(), bench.store, bench.how, seconds=bench.seconds
    )
    return _told(done, points, untried)


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
