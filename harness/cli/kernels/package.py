"""`triage package`."""

from __future__ import annotations

from typing import Any

import click

from harness.cells.selection import select_repros
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath, Words
from harness.cli.main import CONTEXT
from harness.cli.options import execution_options, json_option, toolchain_options
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.cells import show_progress
from harness.cli.progress.steps import preparing
from harness.cli.results import open_results
from harness.cli.running import compile_options, run_to_the_end, surroundings
from harness.workaround.package.losses import PackageReport, package_document, package_said
from harness.workaround.package.survey import reach, survey_package

_EPILOG = """\b
Example:
  triage package fla-core==0.6.0 --sm 80 --sm 90a --sm 120a
  triage package liger-kernel==0.8.5 --sm 90a --triton 3.9.0 --json
  triage package fla-core==0.6.0 --sm 120a --launch my_training_step.py

Exit code 0: every kernel that was reached keeps at least half of its configs on each target. 1: one
loses all or most. 2: wrong usage, or no such package or release. 3: no repro takes kernels from it,
and no --launch is given. 4: some launches or configs could not be determined."""


@click.command("package", context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("package", type=Words(), metavar="NAME==VERSION")
@click.option(
    "--sm",
    type=Words(),
    multiple=True,
    required=True,
    metavar="SM",
    help="GPU target: 90a, sm_100a, 100f ... Repeatable.",
)
@click.option(
    "--launch",
    "files",
    type=FilePath(read=True),
    multiple=True,
    metavar="FILE",
    help="A Python file that launches kernels of the package too: its launch() function, or the "
    "whole file as a program. Repeatable.",
)
@toolchain_options
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Find the kernels of a package that a target leaves without configs.

    Compiles every config of every kernel that the launches of repros reach in this release of the
    package, for each target; says which tuning lists lose all or most of their configs, and writes
    a pruning function that leaves out what fails. Repros that pin another release are launched with
    this one. Without a GPU: nothing is run.
    """
    status = status_console()
    with preparing(status):
        reached = reach(options["package"], [str(file) for file in options["files"]])
        selections = select_repros(_words(options), reached.launches)
    how = compile_options(options)
    with open_results() as store, show_progress(status) as progress:
        report = run_to_the_end(survey_package(reached, selections, store, how, progress))
    print_remarks((*reached.complaints, *report.compiled.notes, *report.compiled.failures))
    if options["as_json"]:
        print_json(package_document(report))
    else:
        print_said(package_said(report))
    raise click.exceptions.Exit(_exit_code(report))


def _words(options: dict[str, Any]) -> SelectionOptions:
    return SelectionOptions(
        kernel=options["package"],
        sm=options["sm"],
        triton=options["triton"],
        compiler=options["compiler"],
        ptxas=options["ptxas"],
        assembler=options["assembler"],
        surroundings=surroundings(),
    )


def _exit_code(report: PackageReport) -> int:
    if report.losing:
        return 1
    return 4 if report.is_incomplete else 0
