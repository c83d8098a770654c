"""What a night has to say: before it begins, and when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harness.matrix.diff.words import changes_document
from harness.values.row import SCHEMA

if TYPE_CHECKING:
    from harness.matrix.nights.listing import Estimate, Listing
    from harness.matrix.nights.night import MatrixReport


def matrix_lines(report: MatrixReport) -> Iterator[str]:
    """How many cells came out how, and what is left."""
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in report.verdicts.most_common())
    total = report.verdicts.total()
    yield (
        f"run {report.run}: {total:,} cells: {counts or 'none'}. {report.carried:,} needed no "
        f"work, {report.excluded:,} are excluded, {report.unexpected:,} fail unexpectedly. "
        f"{report.wall_seconds:,.1f} s."
    )
    if report.skipped or report.skipped_captures:
        yield (
            f"incomplete: time was up with {report.skipped:,} cells not started, and "
            f"{report.skipped_captures:,} captures whose cells are not all known; the same command "
            "goes on from here"
        )


def matrix_document(report: MatrixReport) -> dict[str, Any]:
    """As `--json` prints it."""
    changes = changes_document(report.changes) if report.changes else None
    return {
        "schema": SCHEMA,
        "run": report.run,
        "cells": report.verdicts,
        "changes": changes["changes"] if changes else None,
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
            {"cells": each, "reason": reason} for each, reason in listing.excluded
        ]
        document["uncaptured"] = [asdict(each) for each in listing.uncaptured]
    return document


def listing_lines(listing: Listing) -> Iterator[str]:
    """The cells, what is not captured yet, and why others are left out."""
    yield from listing.cells
    for each in listing.uncaptured:
        yield f"about {each.cells}: {_configs(each.configs)}, not captured yet"
    for cells, reason in listing.excluded:
        yield f"excluded {cells}: {reason}"


def _configs(number: int | None) -> str:
    return "an unknown number of configs" if number is None else f"{number} configs by its repro"


def estimate_words(estimate: Estimate) -> str:
    """How much there is to do, and about how long it takes."""
    took = "unknown, nothing like it has been run"
    if estimate.seconds is not None:
        minutes, seconds = divmod(round(estimate.seconds), 60)
        took = f"about {minutes} min {seconds} s, by what such cells took before"
    about = "about " if estimate.uncaptured else ""
    words = (
        f"{about}{estimate.cells:,} cells, {estimate.excluded:,} excluded; "
        f"{estimate.carried:,} need no work. "
        f"To do: {about}{estimate.lowerings:,} lowerings ({estimate.lowerings_stored:,} more are "
        f"stored) and up to {estimate.assemblies:,} assemblies. Time: {took}."
    )
    if not estimate.uncaptured:
        return words
    words = (
        f"{words} Not captured yet: {estimate.uncaptured:,} launches, with {estimate.about:,} "
        f"cells by the counts of their repros, before any of them are excluded."
    )
    if not estimate.uncounted:
        return words
    return f"{words} The repros of {estimate.uncounted:,} of these launches state no count."
