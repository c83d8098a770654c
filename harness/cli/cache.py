"""`triage cache`: what is stored, and how it is trimmed.

Example:
  triage cache --trim 2GB
"""

from __future__ import annotations

from typing import Any

import click

from harness.cli.amounts import SIZES, FiniteRange, read_amount
from harness.cli.options import Options, json_option, option, verb
from harness.cli.output import print_json, print_line, size_words
from harness.cli.results import open_results, read_results
from harness.io.files.locations import home_dir, home_path
from harness.store.trim import make_room, store_stats, trim_store
from harness.values.errors import FullDiskError


def _size(value: str) -> int:
    """`500MB`, `2G`, `2GiB` (2 * 1024**3), or a number of bytes."""
    size = read_amount(value.upper(), {"": 1, **SIZES})
    if size is None:
        raise click.BadParameter(f"{value!r} is not a size; write for example 500MB or 2GiB")
    return int(size)


class _CacheOptions(Options):
    trim: int | None = option(
        reads=_size, metavar="SIZE", help="Delete what was longest unused until this much is left."
    )
    older_than: float | None = option(type=FiniteRange(0), help="Delete what was unused for DAYS.")
    as_json: bool = json_option()


@verb()
def command(options: _CacheOptions) -> None:
    """Show what is stored in this folder's results, and trim it.

    Trimming deletes IR, cubins and logs, which are made again when asked for. The rows of past
    runs stay, and so do records: hunts, minimized inputs, packs whose results are not back yet,
    and what was measured or learned.
    """
    report = None
    if options.trim is not None or options.older_than is not None:
        limits: dict[str, Any] = {
            "max_bytes": options.trim,
            "older_than": None if options.older_than is None else options.older_than * 86400,
        }
        try:
            with open_results() as store:
                report = trim_store(store, **limits)
        except FullDiskError:
            report = make_room(home_dir(), **limits)
    with read_results() as store:
        stats = store_stats(store)
    if options.as_json:
        print_json({"schema": 1, "stats": stats, "trimmed": report})
        return
    if report:
        print_line(
            f"deleted {report.evidence} pieces of evidence and {report.artifacts} artifacts, "
            f"{size_words(report.bytes)}"
        )
    print_line(f"{home_path()}: {stats.runs} runs, {stats.results.rows} results")
    for kind, evidence in stats.evidence.items():
        print_line(f"  {kind}: {evidence.rows} kept, {size_words(evidence.bytes)}")
    for kind, records in stats.records.items():
        size = size_words(records.bytes)
        print_line(f"  {kind}: {records.rows} kept, {size} (a record: never trimmed)")
    print_line(
        f"  artifacts: {stats.artifacts}, {size_words(stats.artifact_bytes)} on disk"
        f" ({stats.orphans} no longer used, {size_words(stats.orphan_bytes)})"
    )
    print_line(f"  database: {size_words(stats.database_bytes)}")
