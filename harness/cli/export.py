"""`triage export`.

Example:
  triage export --format csv --out night.csv
  triage export --all --format sqlite --out history.sqlite
  triage export --format jsonl --kernel 'mamba3_*' --sm 100a | head -1

Columns are those of `--json`, after `run` and `created` (seconds since 1970). In CSV and SQLite
`config`, `instructions` and `ptxas_flags` are JSON text. Markdown has the columns that people
read.
"""

from __future__ import annotations

import io
import sys
from itertools import takewhile
from pathlib import Path

import click

from harness.cli.amounts import FilePath
from harness.cli.options import Options, exclusive, option, verb
from harness.cli.output import print_bytes, status_console
from harness.cli.progress.steps import working
from harness.cli.results import read_results
from harness.cli.running import stored_options
from harness.cli.streams import reader_is_gone
from harness.diff.between_runs import find_run
from harness.matrix.history import export_file, rows_of
from harness.store.export import FORMATS, TEXT_FORMATS
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.matrix import Selector


class _ExportOptions(Options, rules=[exclusive("--run", "--all")]):
    form: str = option("--format", often=True, type=click.Choice(FORMATS), required=True)
    run: str | None = option(
        often=True, metavar="RUN", help="A run's number, `last` (the default), or `last~1`."
    )
    every: bool = option("--all", help="All runs, the oldest first.")
    out: Path | None = option(
        type=FilePath(), metavar="FILE", help="Default: stdout, for the formats that are text."
    )
    force: bool = option(help="Replace FILE if it exists.")
    only: tuple[Selector, ...] = stored_options()


@verb()
def command(options: _ExportOptions) -> None:
    """Write the results of a run, or of all, for other programs to read."""
    if options.out is None and options.form not in TEXT_FORMATS:
        raise UsageError(f"--format {options.form} is not text: say where it goes with --out FILE")
    with read_results() as store:
        all_of_store = store.all_runs()
        runs = all_of_store if options.every else [find_run(all_of_store, options.run or "last")]
        if not runs:
            raise EmptySelectionError("there are no runs; start one with `triage compile`")
        rows = rows_of(store, runs, options.only)
        if options.out:
            with working(f"writing {len(runs)} runs to {options.out}"):
                export_file(rows, options.form, options.out, overwrite=options.force)
            status_console().print(f"written to {options.out}", soft_wrap=True)
        elif sys.stdout.isatty():
            page = io.BytesIO()
            TEXT_FORMATS[options.form](rows, page)
            print_bytes(page.getvalue())
        else:
            heard = takewhile(lambda _: not reader_is_gone(), rows)
            TEXT_FORMATS[options.form](heard, sys.stdout.buffer)
