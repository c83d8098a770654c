"""`triage matrix init`, `triage matrix run` and `triage matrix merge`.

Example:
  triage matrix init
  triage matrix run --dry-run
  triage matrix run 'mamba3_*' --sm 100a --triton '>=3.6' --max-time 30m
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import structs
from msgspec.structs import replace

from harness.cells.matrix_file import FILE, find_matrix_file, first_matrix, read_matrix
from harness.cells.places import CompileOptions
from harness.cells.repros.find import find_kernels
from harness.cli.amounts import FilePath, Seconds
from harness.cli.gpu_way import Execution, execution_option
from harness.cli.options import (
    Options,
    argument,
    examples,
    json_option,
    kernel_option,
    option,
    silent,
    verb,
)
from harness.cli.output import (
    command_line,
    print_json,
    print_line,
    print_next,
    print_remarks,
    print_said,
    print_text,
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
    sm_option,
)
from harness.diff.diff_words import changes_said
from harness.io.files.writing import write_atomically
from harness.io.processes.cluster import local_workers, open_machines
from harness.io.processes.machine import gpus
from harness.matrix.dry_run import (
    estimate_words,
    list_matrix,
    listing_document,
    listing_lines,
    matrix_document,
    matrix_lines,
)
from harness.matrix.night import MatrixReport, make_plan, run_matrix
from harness.matrix.run_policy import MatrixOptions
from harness.store.merge import merge_stores
from harness.store.store import Shard
from harness.values.errors import UsageError
from harness.values.matrix import Selector
from harness.values.target import Target


@click.group("matrix", epilog=examples(__doc__))
def command() -> None:
    """Run a whole matrix of kernels, targets and toolchains, and say what changed."""


_INIT_EPILOG = """\b
Example:
  triage matrix init --sm H100 --sm B200"""


class _InitOptions(Options):
    sm: tuple[str, ...] = sm_option(" Default: this machine's, else H100.")


@verb(command, short_help="Write matrix.yaml for the files here.", epilog=_INIT_EPILOG)
def init(options: _InitOptions) -> int:
    """Write a first ./matrix.yaml: the files of this folder that launch kernels."""
    if os.path.lexists(FILE):
        raise UsageError(f"{FILE} exists: edit it, or move it away; nothing was written")
    kernels = [repro.name for repro in find_kernels(".")]
    targets = [Target.parse(word) for word in options.sm or gpus() or ("H100",)]
    text = first_matrix(targets, kernels)
    write_atomically(Path(FILE), text.encode())
    print_text(f"{text}\n")
    print_next([("triage matrix run --max-time 10m", "the first night; again: what is left")])
    return 0


_MERGE_EPILOG = """\b
Example:
  triage matrix merge shard-1 shard-2 shard-3

Exit code 4: a folder was refused (it is damaged, of a newer triage, or not of triage at all);
the others were taken over."""


class _MergeOptions(Options):
    folders: tuple[Path, ...] = argument(
        required=True, metavar="DIR...", type=FilePath(readable=False)
    )
    as_json: bool = json_option()


@verb(command, short_help="Take over the history of other results folders.", epilog=_MERGE_EPILOG)
def merge(options: _MergeOptions) -> int:
    """Take over the history of other results folders: runs, results, and what is said of bugs.

    Records come, too: hunts, minimized inputs, and packs whose results are not back yet; of two
    under one name the newer stays. DIR is a results folder or a triage.db in it. What is here
    already is left, in whatever order and however often they are merged. Shards of one night
    (`--night`) become one run.
    """
    with open_results() as store, working(f"merging {len(options.folders)} folders"):
        report = merge_stores(store, options.folders)
    print_remarks(*report.refused)
    if options.as_json:
        print_json({"schema": 1, **structs.asdict(report)})
    else:
        print_line(
            f"{len(report.merged):,} of {len(options.folders):,} folders merged: "
            f"{report.runs:,} new runs, {report.results:,} new results, "
            f"{report.bugs:,} new notes on bugs, {report.workarounds:,} new workarounds, "
            f"{report.records:,} new records"
        )
        print_line(
            f"evidence: {report.evidence:,} new pieces with {report.artifacts:,} artifacts"
            + (f"; {report.lacking:,} were trimmed or damaged there" if report.lacking else "")
        )
        if report.unfinished:
            runs = ", ".join(map(str, report.unfinished))
            print_line(f"not finished, or still without some shards: run {runs}")
    return 4 if report.refused else 0


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


class _NightOptions(Options):
    file: Path | None = option(
        "--matrix",
        often=True,
        type=FilePath(read=True),
        help="The matrix file. Default: ./matrix.yaml, else the one that comes with triage.",
    )
    kernel: str | None = kernel_option(
        "Only this kernel of the matrix, or a pattern; as the argument.", is_required=False
    )
    only: tuple[Selector, ...] = only_options()
    package_version: str | None = option(
        metavar="SPEC",
        help="Kernels of a package in each of these releases of it: 'fla-core>=0.4,<0.6'; the name "
        "may be left out where all are of one.",
    )
    shard: str = option(
        default="1/1", show_default=False, metavar="I/N", help="Only the I-th of N parts."
    )
    night: str | None = option(
        metavar="NAME",
        help="Shards with the same name are one run, once they are merged (`triage matrix merge`).",
    )
    jobs: int | None = jobs_option()
    scheduler: str | None = scheduler_option("Have captures and their cells worked on")
    max_time: float | None = silent(
        often=True,
        type=Seconds(),
        metavar="TIME",
        help="Begin nothing new after this long (90s, 30m, 2h); the rest is left for the next run.",
    )
    as_list: bool = silent("--list", help="Only list the cells, and why others are not.")
    execution: Execution = execution_option(
        "Execute the cells on the emulator too, on small inputs, as `triage run` does.",
        "Their cubins: SASS emulated, or launched on a GPU.",
        takes_formal=False,
    )
    dry_run: bool = silent(often=True, help="Only say how much there is to do.")
    no_cache: bool = no_cache_option()
    strict_fixed: bool = silent(help="Exit with 5 where something was fixed.")
    as_json: bool = json_option()


@verb(command, short_help="Run every cell of the matrix.", epilog=_RUN_EPILOG)
def run(options: _NightOptions) -> int:
    """Run every cell of the matrix; cells whose result cannot have changed need no work.

    Killed or stopped, the same command goes on where it was. --list and --dry-run answer from what
    is stored: they install, fetch, capture and compile nothing.
    """
    matrix = read_matrix(options.file or find_matrix_file())
    if options.scheduler and options.execution.of_cubins:
        on = f"--on {options.execution.on}"
        raise UsageError(
            f"{on} launches from this machine: first compile with --scheduler, then run the same"
            f" with {on} and without --scheduler, which compiles nothing again"
        )
    kernel = options.kernel
    if kernel and os.path.lexists(kernel.partition("::")[0]):
        find_kernels(kernel)  # what cannot be read says why
    how = MatrixOptions(
        only=[
            selector
            for one in options.only
            if (selector := replace(one, kernel=kernel)) != Selector()
        ],
        shard=Shard.parse(options.shard, options.night),
        max_time=options.max_time,
        run=options.execution.run,
        on=options.execution.on,
        runner=options.execution.runner,
        package_version=options.package_version,
        work=CompileOptions(
            jobs=(local_workers(options.scheduler) if options.scheduler else options.jobs) or 0,
            timeout=matrix.timeout,
            use_cache=not options.no_cache,
            command=command_line(_whole(sys.argv[1:], options.night)),
        ),
    )
    with open_results() as store:
        if options.as_list or options.dry_run:
            plan = make_plan(matrix, how, store, installs=False)
            listing = run_to_the_end(list_matrix(matrix, store, how, plan))
            print_remarks(*listing.warnings, *listing.failures)
            if options.as_json:
                print_json(listing_document(listing, cells=options.as_list))
            else:
                for line in listing_lines(listing) if options.as_list else ():
                    print_line(line)
                if options.dry_run:
                    print_line(estimate_words(listing.estimate))
            has_cells = listing.cells or listing.uncaptured
            return 4 if listing.failures else 0 if has_cells else 3
        with preparing():
            plan = make_plan(matrix, how, store)

        async def run() -> MatrixReport:
            if options.scheduler is None:
                return await run_matrix(matrix, store, how, progress, plan)
            from harness.matrix.workers import work_on_capture  # noqa: PLC0415 - only where it is wanted

            async with open_machines(options.scheduler, work_on_capture) as machines:
                return await run_matrix(matrix, store, how, progress, plan, machines)

        with show_progress() as progress:
            report = run_to_the_end(run())
    print_remarks(*report.warnings, *report.failures)
    if options.as_json:
        print_json(matrix_document(report))
    else:
        for line in matrix_lines(report):
            print_line(line)
        if report.changes:
            print_said(changes_said(report.changes), whole_lines=True)
        print_next([("triage site --serve", "its pages: what is broken, since when")])
    return report.exit_code(strict_fixed=options.strict_fixed)


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
