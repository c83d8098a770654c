"""`triage check`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import click

from harness.cells.selection import select_all
from harness.cli.main import CONTEXT
from harness.cli.options import execution_options, json_option, selection_options
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.steps import preparing, working
from harness.cli.results import open_results
from harness.cli.running import compile_options, run_to_the_end, selection_words
from harness.run.checking import check_selections, checks_said
from harness.values.check import Agreement, CheckRow
from harness.values.row import SCHEMA

_EPILOG = """\b
Example:
  triage check --kernel chunk_scan_dstate --launch unpruned

Exit code 0: what could be checked agrees. 1: some configs differ. 4: nothing could be checked."""


@click.command("check", context_settings=CONTEXT, epilog=_EPILOG)
@selection_options
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Say which configs of a kernel compute something else than the others do.

    Runs each on the same small random input in Triton's interpreter, on the CPU. What it says is
    *interpreted*: of the source, not of what a compiler makes of it.
    """
    status = status_console()
    with preparing(status):
        selections = select_all(selection_words(options))
    if not options["sm"]:
        # One will do: a target has no part in it but for what pruning functions ask of it.
        selections = tuple(replace(each, targets=each.targets[:1]) for each in selections)
    with open_results() as store, working(status, "interpreting"):
        how = compile_options(options)
        report = run_to_the_end(check_selections(selections, store, how))
    print_remarks((*report.notes, *report.failures))
    if options["as_json"]:
        counts = Counter(row.status.value for row in report.rows)
        summary = {"statuses": counts, "notes": report.notes, "failures": report.failures}
        print_json({"schema": SCHEMA, "checks": report.rows, "summary": summary})
    else:
        print_said(checks_said(report.rows))
    raise click.exceptions.Exit(_exit_code(report.rows))


def _exit_code(rows: tuple[CheckRow, ...]) -> int:
    found = {row.status for row in rows}
    if Agreement.DIFFERS in found:
        return 1
    return 0 if Agreement.AGREES in found else 4
