"""`triage diff`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.cli.amounts import FilePath
from harness.cli.main import CONTEXT
from harness.cli.options import Verb, json_option
from harness.cli.output import print_json, print_said, status_console
from harness.cli.results import read_results
from harness.cli.running import stored_options
from harness.diff.between_runs import choose_runs, compare_runs, matrix_of
from harness.diff.diff_words import changes_document, changes_said
from harness.values.errors import UsageError
from harness.values.matrix import Selector

_EPILOG = """\b
Example:
  triage diff
  triage diff last~1 last --json
  triage diff 12 15 --all
  triage diff --kernel 'mamba3_*' --sm 100a

Exit code 0: nothing got worse. 1: fewer configs of a launch work, a regression, another signature,
a metric that got worse, or a cell whose own runs disagree. 4: something known could not be
determined. 5: only fixes, with --strict-fixed."""


@click.command("diff", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("runs", nargs=-1, metavar="[RUN] [RUN]")
@click.option("--all", "show_all", is_flag=True, help="Also differences too small to matter.")
@click.option(
    "--matrix",
    type=FilePath(read=True),
    metavar="FILE",
    help="Whose known failures are quiet, and whose exclusions are no loss. Default: the matrix "
    "that was run.",
)
@click.option("--strict-fixed", is_flag=True, help="Exit with 5 where something was fixed.")
@stored_options
@json_option
def command(
    runs: tuple[str, ...],
    *,
    show_all: bool,
    matrix: Path | None,
    strict_fixed: bool,
    only: Sequence[Selector],
    as_json: bool,
) -> None:
    """Say what changed from one run to another, and nothing else.

    RUN is a number, `last` (the last one that finished), or `last~1` (the one before it of the
    same command). Default: what `last` changed. A cell that is
    missing or cannot be determined is never fixed.
    """
    if len(runs) > 2:
        raise UsageError(f"{len(runs)} runs are given; two can be compared")
    with read_results() as store:
        older, newer = choose_runs(store, runs)
        theirs = matrix_of(store, newer, matrix)
        changes = compare_runs(store, older.id, newer.id, theirs, only=only)
    for run in (older, newer):
        if run.finished is None:
            status_console().print(
                f"triage: run {run.id} did not finish; what it lacks counts as missing or new"
            )
    if as_json:
        print_json(changes_document(changes, informational=show_all))
    else:
        print_said(changes_said(changes, informational=show_all), whole_lines=True)
    raise click.exceptions.Exit(changes.exit_code(strict_fixed=strict_fixed))
