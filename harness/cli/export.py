"""`triage export`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from harness.cli.amounts import FilePath
from harness.cli.main import CONTEXT
from harness.cli.options import Verb, exclusive
from harness.cli.output import print_bytes, status_console
from harness.cli.progress.steps import working
from harness.cli.results import read_results
from harness.cli.running import stored_options
from harness.cli.streams import reader_is_gone
from harness.diff.between_runs import all_runs, find_run
from harness.matrix.history import export_file, export_stream, rows_of
from harness.store.export import FORMATS, TEXT_FORMATS
from harness.store.results import StoredRow
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.matrix import Selector

_EPILOG = """\b
Example:
  triage export --format csv --out night.csv
  triage export --all --format sqlite --out history.sqlite
  triage export --format jsonl --kernel 'mamba3_*' --sm 100a | head -1

Columns are those of `--json`, after `run` and `created` (seconds since 1970). In CSV and SQLite
`config`, `instructions` and `ptxas_flags` are JSON text. Markdown has the columns that people
read."""


@click.command("export", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--run", "--all")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True)
@click.option("--run", metavar="RUN", help="A run's number, `last` (the default), or `last~1`.")
@click.option("--all", "every", is_flag=True, help="All runs, the oldest first.")
@click.option(
    "--out", type=FilePath(), metavar="FILE", help="Default: stdout, for the formats that are text."
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@stored_options
def command(
    *,
    form: str,
    run: str | None,
    every: bool,
    out: Path | None,
    force: bool,
    only: Sequence[Selector],
) -> None:
    """Write the results of a run, or of all, for other programs to read."""
    if out is None and form not in TEXT_FORMATS:
        raise UsageError(f"--format {form} is not text: say where it goes with --out FILE")
    with read_results() as store:
        all_of_store = all_runs(store)
        runs = all_of_store if every else [find_run(all_of_store, run or "last")]
        if not runs:
            raise EmptySelectionError("there are no runs; start one with `triage compile`")
        rows = rows_of(store, runs, only)
        if out is None:
            _print(rows, form)
            return
        with working(status_console(), f"writing {len(runs)} runs to {out}"):
            export_file(rows, form, out, overwrite=force)
    status_console().print(f"written to {out}", soft_wrap=True)


def _print(rows: Iterator[StoredRow], form: str) -> None:
    if sys.stdout.isatty():
        page = io.BytesIO()
        export_stream(rows, form, page, lambda: True)
        print_bytes(page.getvalue())
    else:
        export_stream(rows, form, sys.stdout.buffer, lambda: not reader_is_gone())
