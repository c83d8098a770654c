"""`triage matrix run --list` and `--dry-run`: the cells of a matrix, from what is stored alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from harness.cells.places import RunProgress, at_bench, stored_place
from harness.diff.diff_words import changes_document
from harness.frontends.plan import CapturePlace, PlannedCell
from harness.frontends.registry import front_end
from harness.matrix.night import MatrixReport
from harness.matrix.plan import MatrixPlan
from harness.matrix.run_policy import MatrixOptions, MatrixRun, launch_timeout
from harness.store.store import Store
from harness.tables.summary import plural
from harness.values.matrix import Matrix
from harness.values.row import SCHEMA

_SHIPPED = 1.1
"""Seconds of a core for each cell of a first night of the shipped matrix (measured/night.md)."""

# What a night has to say: before it begins, and when it ends.


def matrix_lines(report: MatrixReport) -> Iterator[str]:
    """How many cells came out how, and what is left."""
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in report.verdicts.most_common())
    total = report.verdicts.total()
    yield (
        f"run {report.run}: {plural(total, 'cell')}: {counts or 'none'}. "
        f"{report.carried:,} needed no work, {report.excluded:,} are excluded, "
        f"{report.unexpected:,} fail unexpectedly. {report.wall_seconds:,.1f} s."
    )
    if report.skipped or report.skipped_captures:
        yield (
            f"incomplete: time was up with {plural(report.skipped, 'cell')} not started, and "
            f"{plural(report.skipped_captures, 'capture')} whose cells are not all known; "
            "the same command goes on from here"
        )


def matrix_document(report: MatrixReport) -> dict[str, Any]:
    """As `--json` prints it."""
    changes = changes_document(report.changes) if report.changes else None
    return {
        "schema": SCHEMA,
        "run": report.run,
        "cells": report.verdicts,
        "changes": changes.changes if changes else None,
        "diff": changes,
        "unexpected": report.unexpected,
        "carried": report.carried,
        "excluded": report.excluded,
        "left": {"cells": report.skipped, "captures": report.skipped_captures},
        "complete": report.is_complete,
        "failures": report.failures,
        "warnings": report.warnings,
        "wall_seconds": round(report.wall_seconds, 3),
        "cpu_seconds": round(report.cpu_seconds, 3),
    }


def listing_document(listing: Listing, *, cells: bool) -> dict[str, Any]:
    """As `--json` prints it; with `cells`, each of them and why others are left out."""
    document: dict[str, Any] = {"schema": SCHEMA, "estimate": asdict(listing.estimate)}
    if cells:
        document["cells"] = listing.cells
        document["excluded"] = [
            {"cells": entry, "reason": reason} for entry, reason in listing.excluded
        ]
        document["uncaptured"] = [
            {"cells": entry, "configs": configs} for entry, configs in listing.uncaptured
        ]
    return document


def listing_lines(listing: Listing) -> Iterator[str]:
    """The cells, what is not captured yet, and why others are left out."""
    yield from listing.cells
    for entry, configs in listing.uncaptured:
        number = "an unknown number of configs"
        if configs is not None:
            number = f"{configs} configs by its repro"
        yield f"about {entry}: {number}, not captured yet"
    for cells, reason in listing.excluded:
        yield f"excluded {cells}: {reason}"


def estimate_words(estimate: Estimate) -> str:
    """How much there is to do, and about how long it takes."""
    if estimate.uncounted and not (estimate.cells or estimate.carried or estimate.excluded):
        return (
            f"{plural(estimate.uncaptured, 'launch is', 'launches are')} selected. Their configs "
            "are not counted yet: that takes their launch code. "
            "`triage matrix run --max-time 10m` runs a part of them, and then the rest is counted."
        )
    duration = (
        "unknown, nothing of it is captured and the repros state no count of configs; "
        "`--max-time 10m` runs a part of it, and then this is known"
    )
    if estimate.seconds is not None:
        minutes, seconds = divmod(round(estimate.seconds), 60)
        hours, minutes = divmod(minutes, 60)
        least = "at least " if estimate.uncounted else ""
        basis = "by what such cells took before"
        if not estimate.has_history:
            basis = (
                f"at {_SHIPPED} s of a core for each, as in the shipped matrix: none was run yet"
            )
        amount = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
        duration = f"{least}about {amount}, {basis}"
    about = "about " if estimate.uncaptured else ""
    words = (
        f"{about}{plural(estimate.cells, 'cell')}, {estimate.excluded:,} excluded; "
        f"{estimate.carried:,} need no work. "
        f"To do: {about}{plural(estimate.lowerings, 'lowering')} "
        f"({estimate.lowerings_stored:,} more are stored) and up to "
        f"{plural(estimate.assemblies, 'assembly', 'assemblies')}. Time: {duration}."
    )
    if not estimate.uncaptured:
        return words
    words = (
        f"{words} Not captured yet: {plural(estimate.uncaptured, 'launch', 'launches')}, with "
        f"{plural(estimate.about, 'cell')} by the counts of their repros, "
        "before any of them are excluded."
    )
    if not estimate.uncounted:
        return words
    return f"{words} The repros of {estimate.uncounted:,} of these launches state no count."


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run would do; `seconds` is None where no number of cells is known.

    `has_history`: they are by what was run before.

    `assemblies` is the most there can be: different lowerings may give the same PTX. `about` of the
    cells belong to launches that are not captured, counted by their repros; `uncaptured` counts
    those launches, and `uncounted` those among them whose configs are not known.
    """

    cells: int
    carried: int
    excluded: int
    lowerings: int
    lowerings_stored: int
    assemblies: int
    seconds: float | None
    has_history: bool
    about: int = 0
    uncaptured: int = 0
    uncounted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The cells of a matrix and those that are left out, with the reason.

    `uncaptured` are launches whose capture is not stored: their cells as a pattern, and how many
    configs its repro counts for its default, None where it counts none.
    """

    cells: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...]
    uncaptured: tuple[tuple[str, int | None], ...]
    estimate: Estimate
    failures: tuple[str, ...]
    warnings: tuple[str, ...]


async def list_matrix(
    matrix: Matrix, store: Store, options: MatrixOptions, plan: MatrixPlan
) -> Listing:
    """The cells, and what running them would take; nothing is captured, fetched or installed.

    Raises:
        StorageError: the store cannot be read.
    """
    async with at_bench(store, options.work, launch_timeout=launch_timeout(matrix)) as bench:
        night = MatrixRun(bench=bench, run=0, progress=RunProgress(), plan=plan, options=options)
        cells: dict[str, PlannedCell] = {}
        missing: list[CapturePlace] = []
        for place in plan.places:
            stored = stored_place(night, place)
            if stored is None:
                missing.append(place)
                continue
            chosen, _ = night.look(place, stored)
            cells.update((str(cell.cell), cell) for cell in chosen)
        # What they would match is not known.
        night.skipped_captures = len(missing)
        estimate = _estimate(night, list(cells.values()), missing)
    return Listing(
        cells=tuple(sorted({*cells, *night.settled})),
        excluded=(*plan.dropped.items(), *sorted(night.excluded.items())),
        uncaptured=tuple(
            (
                (
                    f"{place.selection.repro.name}/{place.launch.label}/*"
                    f"@{place.target}/{place.compiler.label}/*"
                ),
                _listed_configs(place),
            )
            for place in missing
        ),
        estimate=estimate,
        failures=night.problems,
        warnings=night.warnings,
    )


def _listed_configs(place: CapturePlace) -> int | None:
    return 1 if place.variant else place.selection.repro.configs


def _estimate(
    night: MatrixRun, cells: Sequence[PlannedCell], missing: Sequence[CapturePlace]
) -> Estimate:
    bench = night.bench
    work: dict[str, list[PlannedCell]] = {}
    assemblies = set()
    for cell in cells:
        key = cell.raw_ptx or ""
        if cell.launch and cell.record:
            key = front_end(cell.compiler.kind).lowering_key(
                cell.launch, cell.record, cell.seen_ptxas
            )
        work.setdefault(key, []).append(cell)
        assemblies.add((key, cell.ptxas.sha256))
    stored = set(bench.store.get_many("lower", work)) if bench.use_cache else set()
    lowered = [key for key, group in work.items() if group[0].launch]
    counted = [(place, _listed_configs(place) or 0) for place in missing]
    about = sum(configs * len(place.selection.ptxas) for place, configs in counted)
    more = sum(configs * _releases(place) for place, configs in counted)
    durations = _durations(night)
    groups = [group for key, group in work.items() if key not in stored]
    return Estimate(
        cells=len(cells) + night.carried + about,
        carried=night.carried,
        excluded=len(night.excluded),
        lowerings=sum(key not in stored for key in lowered) + more,
        lowerings_stored=sum(key in stored for key in lowered),
        assemblies=len(assemblies) + about,
        seconds=_seconds(night, durations, groups, counted),
        has_history=bool(durations) or not (groups or missing),
        about=about,
        uncaptured=len(missing),
        uncounted=sum(not configs for _, configs in counted),
    )


def _releases(place: CapturePlace) -> int:
    """How many lowerings one config takes: all ptxas of one release share one, frozen ones all."""
    if place.selection.freeze_ptx:
        return 1
    releases = {ptxas and ".".join(ptxas.version.split(".")[:2]) for ptxas in place.selection.ptxas}
    return len(releases)


def _seconds(
    night: MatrixRun,
    durations: Mapping[str, list[float]],
    work: Sequence[Sequence[PlannedCell]],
    missing: Sequence[tuple[CapturePlace, int]],
) -> float | None:
    """How long it takes, by what the same cells took, or else others of the kernel, or of any.

    Without any history, by what cells of the shipped matrix took. Launches that are not captured
    and have no count of configs take no time here; None where there are no others.
    """
    if not work and missing and not any(configs for _, configs in missing):
        return None
    jobs = night.bench.jobs
    if not durations:
        cells = sum(map(len, work)) + sum(n * len(at.selection.ptxas) for at, n in missing)
        return cells * _SHIPPED / jobs
    mean = sum(map(sum, durations.values())) / sum(map(len, durations.values()))
    total = 0.0
    for group in work:
        cell = group[0].cell
        durations_of = durations.get(str(cell)) or durations.get(cell.kernel) or [mean]
        total += sum(durations_of) / len(durations_of)
    seconds = total / jobs
    for place, configs in missing:
        durations_of = durations.get(place.selection.repro.name) or [mean]
        seconds += configs * _releases(place) * sum(durations_of) / len(durations_of) / jobs
    return seconds


def _durations(night: MatrixRun) -> dict[str, list[float]]:
    durations: dict[str, list[float]] = {}
    decode: Callable[[bytes], _Seconds] = msgspec.json.Decoder(_Seconds).decode
    for record in night.last.values():
        seconds = decode(record.row).seconds
        if seconds is not None:
            durations.setdefault(record.cell, []).append(seconds)
            durations.setdefault(record.kernel, []).append(seconds)
    return durations


class _Seconds(msgspec.Struct):
    seconds: float | None = None
