"""`triage workaround`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cells.selection import select
from harness.cli.amounts import SECONDS, FilePath, read_amount
from harness.cli.gpu_way import gpu_way, gpu_way_options
from harness.cli.main import CONTEXT
from harness.cli.options import (
    apart,
    execution_options,
    json_option,
    scheduler_option,
    selection_options,
)
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import (
    check_scheduler,
    compile_options,
    hubs_of,
    run_to_the_end,
    selection_words,
)
from harness.frontends.base import Selection
from harness.values.errors import StorageError, UsageError
from harness.workaround.executed import EXECUTED_KINDS, import_workarounds
from harness.workaround.finding import WorkaroundOptions, find_workarounds
from harness.workaround.result import WorkaroundReport
from harness.workaround.settings import SettingKind
from harness.workaround.table import workaround_document, workarounds_said

if TYPE_CHECKING:
    from harness.cells.places import CompileOptions
    from harness.store.store import Store


_EPILOG = """\b
Example:
  triage workaround --kernel mamba3_siso_bwd_dqkv --sm 100a --patch workaround.diff
  triage workaround --kernel two_dots --sm 100a --triton 3.8.0 --run
  triage workaround --kernel my_kernel.py --sm 90a --config num_warps=2 --on gpu

Exit code 0: something better was found and proved, or nothing is wrong. 1: nothing better was
found. 2: wrong usage, or a launch that cannot be captured. 3: nothing matches. 4: this machine, or
a toolchain that is not available."""


@click.command("workaround", context_settings=CONTEXT, epilog=_EPILOG)
@apart(["--run"], "--on", "--runner", "--pack", "--import", because="the emulator executes PTX")
@apart(["--run"], "--ptxas", because="PTX is executed without ptxas")
@apart(["--run"], "--patch", because="a patch is proved by compiling it")
@apart(["--import"], "--scheduler", because="nothing is compiled")
@selection_options
@click.option(
    "--budget",
    default="4m",
    show_default=True,
    metavar="TIME",
    help="For the search, the proofs and the patch together: 90s, 4m, 1h.",
)
@click.option(
    "--change",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in SettingKind]),
    help="What may be changed. Repeatable. Default: all of these.",
)
@click.option(
    "--run",
    is_flag=True,
    help="Execute the PTX on the emulator: find what is right where a config computes the wrong "
    "thing.",
)
@click.option(
    "--patch",
    type=FilePath(dir_okay=False),
    metavar="FILE",
    help="Write the patch of the kernel's file here.",
)
@click.option(
    "--most",
    type=click.IntRange(1, 100),
    default=8,
    show_default=True,
    help="How many candidates are proved and shown.",
)
@click.option(
    "--on", type=click.Choice(["gpu"]), help="Launch what is found, and time it: the fastest first."
)
@gpu_way_options
@scheduler_option("Have ptxas run")
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Find what can be done today where a config fails, spills or is a stub.

    Tries other configs, parameters of the launch, ptxas' flags, other ptxas and Tritons, and what
    helps of these together. Two lists: what helps today without touching the source, and the
    best there is; each by the time that the model of `triage rank` expects, or a GPU measured. All
    of it is compiled again from nothing; what is known of the numerics is said, and what to paste.
    """
    asked = WorkaroundOptions(
        budget=_budget(options["budget"]),
        at_most=options["most"],
        kinds=tuple(SettingKind(word) for word in options["kinds"]) or tuple(SettingKind),
        run=options["run"],
        gpu=gpu_way(options),
    )
    _check_run(options)
    check_scheduler(options)
    _check_folder(options["patch"])
    selection = _selected(options)
    status = status_console()
    how = compile_options(options)
    with open_results() as store, narrating(status, "looking for what helps", who="") as tell:
        if options["results"]:
            report = import_workarounds(options["results"], selection, store)
        else:
            where = options["scheduler"]
            report = run_to_the_end(_found(selection, store, how, asked, tell, where))
    print_remarks(report.notes)
    if report.is_time_up:
        status.print("triage: the time was up before everything was tried (--budget)")
    _write(report, options["patch"])
    if options["as_json"]:
        print_json(workaround_document(report))
    else:
        print_said(workarounds_said(report))
    raise click.exceptions.Exit(0 if report.candidates or not report.is_needed else 1)


async def _found(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    asked: WorkaroundOptions,
    tell: Callable[[str], None],
    where: str | None,
) -> WorkaroundReport:
    """On this machine, or with the help of those that are found there."""
    async with hubs_of(where, how, tell) as (how, open_hub):
        return await find_workarounds(selection, store, how, asked, tell, open_hub)


def _selected(options: dict[str, Any]) -> Selection:
    with preparing(status_console()):
        selection = select(selection_words(options))
    for name, values in (
        ("--sm", selection.targets),
        ("--launch", selection.launches),
        ("--triton", selection.compilers),
        ("--ptxas", selection.ptxas),
    ):
        if len(values) > 1:
            raise UsageError(f"{name}: {len(values)} are meant; a workaround is for one")
    return selection


def _check_run(options: dict[str, Any]) -> None:
    if not options["run"]:
        return
    unseen = [word for word in options["kinds"] if SettingKind(word) not in EXECUTED_KINDS]
    if unseen:
        raise UsageError(
            f"--change {unseen[0]} does not apply to --run: PTX has not seen ptxas yet"
        )


def _budget(text: str) -> float:
    seconds = read_amount(text, SECONDS)
    if not seconds:
        raise UsageError(f"--budget {text}: write a time, for example 90s or 4m")
    return seconds


def _check_folder(path: Path | None) -> None:
    """Before minutes are spent on what could not be written."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--patch {path}: there is no folder {path.parent}")


def _write(report: WorkaroundReport, path: Path | None) -> None:
    if path is None:
        return
    if report.patch is None:
        status_console().print(f"triage: there is no patch to write to {path}", markup=False)
        return
    try:
        path.write_bytes(report.patch.diff.encode())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from error
