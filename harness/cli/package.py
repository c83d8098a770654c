"""`triage package`: the kernels of a package that a target leaves without configs.

Example:
  triage package fla-core==0.6.0 --sm 80 --sm 90a --sm 120a
  triage package liger-kernel==0.8.5 --sm 90a --triton 3.9.0 --json
  triage package fla-core==0.6.0 --sm 120a --launch my_training_step.py

Exit code 0: every kernel that was reached keeps at least half of its configs on each target. 1: one
loses all or most. 2: wrong usage, or no such package or release. 3: no repro takes kernels from it,
and no --launch is given. 4: some launches or configs could not be determined.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from harness.cells.places import CompileOptions
from harness.cells.selection import select_repros
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath
from harness.cli.options import Options, argument, group, json_option, option, verb
from harness.cli.output import print_remarks, print_result
from harness.cli.progress.cells import show_progress
from harness.cli.progress.steps import preparing
from harness.cli.results import open_results
from harness.cli.running import (
    TOOLCHAINS,
    execution_options,
    read_selection,
    run_to_the_end,
    sm_option,
)
from harness.package.package import package_document, package_said, reach, survey_package


class _PackageOptions(Options):
    package: str = argument(metavar="NAME==VERSION")
    sm: Sequence[str] = sm_option(required=True)
    files: tuple[Path, ...] = option(
        "--launch",
        type=FilePath(read=True),
        metavar="FILE",
        help="A Python file that launches kernels of the package too: its launch() function, or "
        "the whole file as a program. Repeatable.",
    )
    words: SelectionOptions = group(read_selection, of=SelectionOptions, **TOOLCHAINS)
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _PackageOptions) -> int:
    """Find the kernels of a package that a target leaves without configs.

    Compiles every config of every kernel that the launches of repros reach in this release of the
    package, for each target; says which tuning lists lose all or most of their configs, and writes
    a pruning function that leaves out what fails. Repros that pin another release are launched with
    this one. Without a GPU: nothing is run.
    """
    with preparing():
        reached = reach(options.package, list(map(str, options.files)))
        selections = select_repros(
            replace(options.words, kernel=options.package, sm=options.sm), reached.launches
        )
    with open_results() as store, show_progress() as progress:
        report = run_to_the_end(survey_package(reached, selections, store, options.how, progress))
    print_remarks(*reached.complaints, *report.compiled.notes, *report.compiled.failures)
    print_result(package_document(report), package_said(report), as_json=options.as_json)
    return 1 if report.losing else 4 if report.is_incomplete else 0
