"""`triage matrix run` and `triage matrix merge`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from msgspec.structs import replace

from harness.cells.matrix_file import find_matrix_file, read_matrix
from harness.cells.matrix_rules import Shard
from harness.cells.places import CompileOptions
from harness.cells.repros.find import find_kernels
from harness.cli.amounts import SECONDS, FilePath, read_amount
from harness.cli.gpu_way import Execution, execution_of
from harness.cli.main import CONTEXT
from harness.cli.options import (
    SilentOption,
    Verb,
    json_option,
    kernel_options,
    package_version_option,
)
from harness.cli.output import (
    command_line,
    print_json,
    print_line,
    print_note,
    print_remarks,
    print_said,
    results_console,
    status_console,
)
from harness.cli.progress.cells import show_progress
from harness.cli.progress.steps import preparing, working
from harness.cli.results import open_results
from harness.cli.running import (
    jobs_option,
    no_cache_option,
    only_options,
    run_to_the_end,
    scheduler_option,
)
from harness.diff.diff_words import changes_said
from harness.io.processes.cluster import local_workers, open_machines
from harness.matrix.dry_run import (
    Listing,
    estimate_words,
    list_matrix,
    listing_document,
    listing_lines,
    matrix_document,
    matrix_lines,
)
from harness.matrix.merge import merge_stores
from harness.matrix.night import MatrixOptions, MatrixReport, make_plan, run_matrix
from harness.values.errors import UsageError
from harness.values.matrix import Selector
from harness.values.toolchain import EMULATOR, GPU, SASS

_EPILOG = """\b
Example:
  triage matrix merge shard-1 shard-2 shard-3

Exit code 4: a folder was refused (it is damaged, of a newer triage, or not of triage at all);
the others were taken over."""


@click.command(
    "merge",
    short_help="Take over the history of other results folders.",
    context_settings=CONTEXT,
    epilog=_EPILOG,
)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=FilePath(readable=False))
@json_option
def merge(folders: tuple[Path, ...], *, as_json: bool) -> None:
    """Take over the history of other results folders: runs, results, and what is said of bugs.

    Records come, too: hunts, minimized inputs, and packs whose results are not back yet; of two
    under one name the newer stays. DIR is a results folder or a triage.db in it. What is here
    already is left, in whatever order and however often they are merged. Shards of one night
    (`--night`) become one run.
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
            f"{report.workarounds:,} new workarounds, {report.records:,} new records"
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


_EPILOG = """\b
Example:
  triage matrix run --dry-run
  triage matrix run 'mamba3_*' --sm 100a --triton '>=3.6' --max-time 30m"""

_RUN_EPILOG = """\b
Example:
  triage matrix run --list --sm 120a
  triage matrix run --shard 2/4 --max-time 2h --json
  triage matrix run --scheduler local:4
  triage matrix run 'mamba2_*' --sm 80 --config num_warps=4 --run
  triage matrix run --package-version 'fla-core>=0.5' --sm 90a

Exit code 0: everything is as expected. 1: a failure that is not expected, a regression, or another
signature. 3: no cell is selected. 4: incomplete (this machine, a toolchain, or --max-time). 5: only
fixes, with --strict-fixed."""


def _seconds(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,
    text: str | None,
) -> float | None:
    seconds = None if text is None else read_amount(text, SECONDS)
    if text is not None and not seconds:
        raise click.BadParameter(
            f"{text!r} is not a duration; write 90s, 30m or 2h", param=parameter
        )
    return seconds


@click.group("matrix", context_settings=CONTEXT, epilog=_EPILOG)
def command() -> None:
    """Run a whole matrix of kernels, targets and toolchains, and say what changed."""


command.add_command(merge)


@command.command(
    "run",
    cls=Verb,
    short_help="Run every cell of the matrix.",
    context_settings=CONTEXT,
    epilog=_RUN_EPILOG,
)
@click.option(
    "--matrix",
    "file",
    type=FilePath(read=True),
    help="The matrix file. Default: ./matrix.yaml, else the one that comes with triage.",
)
@kernel_options("Only this kernel of the matrix, or a pattern; as the argument.", is_required=False)
@only_options
@package_version_option(
    "Kernels of a package in each of these releases of it: 'fla-core>=0.4,<0.6'; the name may be "
    "left out where all are of one."
)
@click.option("--shard", default="1/1", metavar="I/N", help="Only the I-th of N parts.")
@click.option(
    "--night",
    metavar="NAME",
    help="Shards with the same name are one run, once they are merged (`triage matrix merge`).",
)
@jobs_option
@scheduler_option("Have captures and their cells worked on")
@click.option(
    "--max-time",
    cls=SilentOption,
    callback=_seconds,
    metavar="TIME",
    help="Begin nothing new after this long (90s, 30m, 2h); the rest is left for the next run.",
)
@click.option(
    "--list",
    "as_list",
    cls=SilentOption,
    is_flag=True,
    help="Only list the cells, and why others are not.",
)
@execution_of(
    "Execute the cells on the emulator too, on small inputs, as `triage run` does.",
    "Their cubins: SASS emulated, or launched on a GPU.",
    takes=(EMULATOR, SASS, GPU),
    formal=False,
)
@click.option("--dry-run", cls=SilentOption, is_flag=True, help="Only say how much there is to do.")
@no_cache_option
@click.option(
    "--strict-fixed", cls=SilentOption, is_flag=True, help="Exit with 5 where something was fixed."
)
@json_option
def run(
    *,
    file: Path | None,
    kernel: str | None,
    only: Sequence[Selector],
    package_version: str | None,
    shard: str,
    night: str | None,
    jobs: int | None,
    scheduler: str | None,
    max_time: float | None,
    as_list: bool,
    execution: Execution,
    dry_run: bool,
    no_cache: bool,
    strict_fixed: bool,
    as_json: bool,
) -> None:
    """Run every cell of the matrix; cells whose result cannot have changed need no work.

    Killed or stopped, the same command goes on where it was. --list and --dry-run answer from what
    is stored: they install, fetch, capture and compile nothing.
    """
    matrix = read_matrix(file or find_matrix_file())
    if scheduler and execution.of_cubins:
        on = f"--on {execution.on}"
        raise UsageError(
            f"{on} launches from this machine: first compile with --scheduler, then run the same"
            f" with {on} and without --scheduler, which compiles nothing again"
        )
    if kernel and os.path.lexists(kernel.partition("::")[0]):
        find_kernels(kernel)  # what cannot be read says why
    how = MatrixOptions(
        only=[selector for one in only if (selector := replace(one, kernel=kernel)) != Selector()],
        shard=Shard.parse(shard),
        night=night,
        max_time=max_time,
        run=execution.run,
        on=execution.on,
        runner=execution.runner,
        package_version=package_version,
        work=CompileOptions(
            jobs=(local_workers(scheduler) if scheduler else jobs) or 0,
            timeout=matrix.timeout,
            use_cache=not no_cache,
            command=command_line(_whole(sys.argv[1:], night)),
        ),
    )
    status = status_console()
    with open_results() as store:
        if as_list or dry_run:
            plan = make_plan(matrix, how, store, installs=False)
            listing = run_to_the_end(list_matrix(matrix, store, how, plan))
            _tell_listing(listing, as_json=as_json, as_list=as_list, dry_run=dry_run)
            has_cells = listing.cells or listing.uncaptured
            raise click.exceptions.Exit(4 if listing.failures else 0 if has_cells else 3)
        with preparing(status):
            plan = make_plan(matrix, how, store)

        async def run() -> MatrixReport:
            if scheduler is None:
                return await run_matrix(matrix, store, how, progress, plan)
            from harness.matrix.workers import work_on_capture  # noqa: PLC0415 - only where it is wanted

            async with open_machines(scheduler, work_on_capture) as machines:
                return await run_matrix(matrix, store, how, progress, plan, machines)

        with show_progress(status) as progress:
            report = run_to_the_end(run())
    _tell(report, as_json=as_json)
    raise click.exceptions.Exit(report.exit_code(strict_fixed=strict_fixed))


def _whole(words: Sequence[str], night: str | None) -> list[str]:
    """The words that all shards of one night share; those of any other run, as they are."""
    if night is None:
        return list(words)
    shared: list[str] = []
    following = iter(words)
    for word in following:
        name, equals, _ = word.partition("=")
        if name not in ("--shard", "--night"):
            shared.append(word)
        elif not equals:
            next(following, None)
    return shared


def _tell_notes(warnings: tuple[str, ...], failures: tuple[str, ...]) -> None:
    for line in (*warnings, *failures):
        print_note(line)


def _tell(report: MatrixReport, *, as_json: bool) -> None:
    _tell_notes(report.warnings, report.failures)
    if as_json:
        print_json(matrix_document(report))
        return
    console = results_console()
    for line in matrix_lines(report):
        console.print(line, soft_wrap=True)
    if report.changes:
        print_said(changes_said(report.changes), whole_lines=True)


def _tell_listing(listing: Listing, *, as_json: bool, as_list: bool, dry_run: bool) -> None:
    _tell_notes(listing.warnings, listing.failures)
    if as_json:
        print_json(listing_document(listing, cells=as_list))
        return
    if as_list:
        for line in listing_lines(listing):
            print_line(line)
    if dry_run:
        print_line(estimate_words(listing.estimate))
