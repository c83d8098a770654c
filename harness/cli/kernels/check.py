"""`triage check`."""

from __future__ import annotations

from collections import Counter

import click
from msgspec.structs import replace

from harness.cells.places import CompileOptions
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions
from harness.cli.main import CONTEXT
from harness.cli.options import Verb, json_option
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.steps import preparing, working
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end, selection_options
from harness.run.checking import check_selections, checks_said
from harness.values.check import Agreement
from harness.values.row import SCHEMA

_EPILOG = """\b
Example:
  triage check --kernel chunk_scan_dstate --launch unpruned

Exit code 0: what could be checked agrees. 1: some configs differ. 4: nothing could be checked."""


@click.command("check", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@selection_options()
@execution_options
@json_option
def command(*, words: SelectionOptions, how: CompileOptions, as_json: bool) -> None:
    """Say which configs of a kernel compute something else than the others do.

    Runs each on the same small random input in Triton's interpreter, on the CPU. What it says is
    *interpreted*: of the source, not of what a compiler makes of it.
    """
    status = status_console()
    with preparing(status):
        selections = select_all(words)
    if not words.sm:
        # One will do: a target has no part in it but for what pruning functions ask of it.
        selections = tuple(
            replace(selection, targets=selection.targets[:1]) for selection in selections
        )
    with open_results() as store, working(status, "interpreting"):
        report = run_to_the_end(check_selections(selections, store, how))
    print_remarks((*report.notes, *report.failures))
    if as_json:
        counts = Counter(row.status.value for row in report.rows)
        summary = {"statuses": counts, "notes": report.notes, "failures": report.failures}
        print_json({"schema": SCHEMA, "checks": report.rows, "summary": summary})
    else:
        print_said(checks_said(report.rows))
    statuses = {row.status for row in report.rows}
    code = 1 if Agreement.DIFFERS in statuses else 0 if Agreement.AGREES in statuses else 4
    raise click.exceptions.Exit(code)
