"""`triage matrix merge`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from harness.cli.amounts import FilePath
from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, print_remarks, results_console, status_console
from harness.cli.progress.steps import working
from harness.cli.results import open_results
from harness.matrix.nights.merge import merge_stores

_EPILOG = """\b
Example:
  triage matrix merge shard-1 shard-2 shard-3

Exit code 4: a folder was refused (it is damaged, of a newer triage, or not of triage at all);
the others were taken over."""


@click.command("merge", context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=FilePath(readable=False))
@json_option
def merge(folders: tuple[Path, ...], *, as_json: bool) -> None:
    """Take over the history of other results folders: runs, results, and what is said of bugs.

    DIR is a results folder or a triage.db in it. What is here already is left, in whatever order
    and however often they are merged. Shards of one night (`--night`) become one run.
    """
    with open_results() as store, working(status_console(), f"merging {len(folders)} folders"):
        report = merge_stores(store, folders)
    print_remarks(report.refused)
    if as_json:
        print_json({"schema": 1, **asdict(report)})
    else:
        results_console().print(
            f"{len(report.merged):,} of {len(folders):,} folders merged: {report.runs:,} new runs, "
            f"{report.results:,} new results, {report.bugs:,} new notes on bugs, "
            f"{report.workarounds:,} new workarounds"
        )
        results_console().print(
            f"evidence: {report.evidence:,} new pieces with {report.artifacts:,} artifacts"
            + (f"; {report.lacking:,} were trimmed or damaged there" if report.lacking else ""),
            soft_wrap=True,
        )
        if report.unfinished:
            runs = ", ".join(map(str, report.unfinished))
            results_console().print(f"not finished, or still without some shards: run {runs}")
    raise click.exceptions.Exit(report.exit_code)
