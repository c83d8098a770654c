"""`triage package`: the kernels of a package that a target leaves without configs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from harness.cells.places import CompileOptions
from harness.cells.selection import select_repros
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath
from harness.cli.main import CONTEXT
from harness.cli.options import Verb, as_value, json_option
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.cells import show_progress
from harness.cli.progress.steps import preparing
from harness.cli.results import open_results
from harness.cli.running import (
    execution_options,
    read_selection,
    run_to_the_end,
    sm_option,
    toolchain_options,
)
from harness.package.package import package_document, package_said, reach, survey_package

_EPILOG = """\b
Example:
  triage package fla-core==0.6.0 --sm 80 --sm 90a --sm 120a
  triage package liger-kernel==0.8.5 --sm 90a --triton 3.9.0 --json
  triage package fla-core==0.6.0 --sm 120a --launch my_training_step.py

Exit code 0: every kernel that was reached keeps at least half of its configs on each target. 1: one
loses all or most. 2: wrong usage, or no such package or release. 3: no repro takes kernels from it,
and no --launch is given. 4: some launches or configs could not be determined."""


@click.command("package", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@click.argument("package", metavar="NAME==VERSION")
@sm_option(required=True)
@click.option(
    "--launch",
    "files",
    type=FilePath(read=True),
    multiple=True,
    metavar="FILE",
    help="A Python file that launches kernels of the package too: its launch() function, or the "
    "whole file as a program. Repeatable.",
)
@as_value("words", read_selection, toolchain_options)
@execution_options
@json_option
def command(
    *,
    package: str,
    sm: Sequence[str],
    files: Sequence[Path],
    words: SelectionOptions,
    how: CompileOptions,
    as_json: bool,
) -> None:
    """Find the kernels of a package that a target leaves without configs.

    Compiles every config of every kernel that the launches of repros reach in this release of the
    package, for each target; says which tuning lists lose all or most of their configs, and writes
    a pruning function that leaves out what fails. Repros that pin another release are launched with
    this one. Without a GPU: nothing is run.
    """
    status = status_console()
    with preparing(status):
        reached = reach(package, list(map(str, files)))
        selections = select_repros(replace(words, kernel=package, sm=sm), reached.launches)
    with open_results() as store, show_progress(status) as progress:
        report = run_to_the_end(survey_package(reached, selections, store, how, progress))
    print_remarks((*reached.complaints, *report.compiled.notes, *report.compiled.failures))
    if as_json:
        print_json(package_document(report))
    else:
        print_said(package_said(report))
    raise click.exceptions.Exit(1 if report.losing else 4 if report.is_incomplete else 0)
