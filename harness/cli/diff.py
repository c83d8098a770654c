"""`triage diff`.

Example:
  triage diff
  triage diff last~1 last --json
  triage diff 12 15 --all
  triage diff --kernel 'mamba3_*' --sm 100a

Exit code 0: nothing got worse. 1: fewer configs of a launch work, a regression, another signature,
a metric that got worse, or a cell whose own runs disagree. 4: something known could not be
determined. 5: only fixes, with --strict-fixed.
"""

from __future__ import annotations

from pathlib import Path

from harness.cli.amounts import FilePath
from harness.cli.options import Options, argument, json_option, option, verb
from harness.cli.output import print_json, print_remarks, print_said
from harness.cli.results import read_results
from harness.cli.running import stored_options
from harness.diff.between_runs import choose_runs, compare_runs, matrix_of
from harness.diff.diff_words import changes_document, changes_said
from harness.values.errors import UsageError
from harness.values.matrix import Selector


class _DiffOptions(Options):
    runs: tuple[str, ...] = argument(metavar="[RUN] [RUN]")
    show_all: bool = option("--all", often=True, help="Also differences too small to matter.")
    matrix: Path | None = option(
        type=FilePath(read=True),
        metavar="FILE",
        help="Whose known failures are quiet, and whose exclusions are no loss. Default: the "
        "matrix that was run.",
    )
    strict_fixed: bool = option(help="Exit with 5 where something was fixed.")
    only: tuple[Selector, ...] = stored_options()
    as_json: bool = json_option()


@verb()
def command(options: _DiffOptions) -> int:
    """Say what changed from one run to another, and nothing else.

    RUN is a number, `last` (the last one that finished), or `last~1` (the one before it of the
    same command). Default: what `last` changed. A cell that is
    missing or cannot be determined is never fixed.
    """
    if len(options.runs) > 2:
        raise UsageError(f"{len(options.runs)} runs are given; two can be compared")
    with read_results() as store:
        older, newer = choose_runs(store, options.runs)
        theirs = matrix_of(store, newer, options.matrix)
        changes = compare_runs(store, older.id, newer.id, theirs, only=options.only)
    for run in (older, newer):
        if run.finished is None:
            print_remarks(f"run {run.id} did not finish; what it lacks counts as missing or new")
    if options.as_json:
        print_json(changes_document(changes, informational=options.show_all))
    else:
        print_said(changes_said(changes, informational=options.show_all), whole_lines=True)
    return changes.exit_code(strict_fixed=options.strict_fixed)
