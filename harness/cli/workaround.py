"""`triage workaround`: which config to take, and how to go on with another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from harness.cells.places import CompileOptions
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath, Seconds
from harness.cli.gpu_way import GpuOptions, gpu_options
from harness.cli.main import CONTEXT
from harness.cli.options import SilentOption, Verb, apart, json_option
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import (
    check_single,
    execution_options,
    hubs_of,
    run_to_the_end,
    scheduler_option,
    selection_options,
)
from harness.values.errors import StorageError, UsageError
from harness.values.toolchain import EMULATOR, GPU, SASS
from harness.workaround.executed_trials import EXECUTED_KINDS, import_workarounds
from harness.workaround.result import WorkaroundReport, workaround_document, workarounds_said
from harness.workaround.settings import SettingKind
from harness.workaround.workarounds import WorkaroundOptions, find_workarounds

_EPILOG = """\b
Example:
  triage workaround --kernel mamba3_siso_bwd_dqkv --sm 100a --patch workaround.diff
  triage workaround --kernel two_dots --sm 100a --triton 3.8.0 --run
  triage workaround --kernel fold_sat_undone --ptxas 13.0.88 --on sass
  triage workaround --kernel my_kernel.py --sm 90a --config num_warps=2 --on gpu

Exit code 0: something better was found and proved, or nothing is wrong. 1: nothing better was
found. 2: wrong usage, or a launch that cannot be captured. 3: nothing matches. 4: this machine, or
a toolchain that is not available."""


@click.command("workaround", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@apart(
    ["--run"], "--on", "--runner", "--pack", "--import", because="it executes PTX on the emulator"
)
@apart(["--run"], "--ptxas", because="PTX is executed without ptxas")
@apart(["--run"], "--patch", because="a patch is proved by compiling it")
@apart(["--import"], "--scheduler", because="nothing is compiled")
@selection_options()
@click.option(
    "--max-time",
    "budget",
    cls=SilentOption,
    type=Seconds(),
    default="4m",
    show_default=True,
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
@gpu_options(
    "gpu: launch what is found, and time it: the fastest first. sass: execute what ptxas makes of "
    "each setting, without a GPU and without times: find what is right where a cubin computes the "
    "wrong thing.",
    takes=(SASS, GPU),
)
@scheduler_option("Have ptxas run")
@execution_options
@json_option
def command(
    *,
    words: SelectionOptions,
    budget: float,
    kinds: Sequence[str],
    run: bool,
    patch: Path | None,
    most: int,
    gpu: GpuOptions,
    scheduler: str | None,
    how: CompileOptions,
    as_json: bool,
) -> None:
    """Find what can be done today where a config fails, spills or is a stub.

    Tries other configs, parameters of the launch, ptxas' flags, other ptxas and Tritons, and what
    helps of these together. Two lists: what helps today without touching the source, and the
    best there is; each by the time that the model of `triage rank` expects, or a GPU measured. All
    of it is compiled again from nothing; what is known of the numerics is said, and what to paste.
    """
    is_sass, way = gpu.on == SASS, gpu.way() if gpu.is_named else None
    if is_sass and patch is not None:
        raise UsageError("--patch does not apply to --on sass: a patch is proved by compiling it")
    options = WorkaroundOptions(
        budget=budget,
        at_most=most,
        kinds=tuple(map(SettingKind, kinds)) or tuple(SettingKind),
        on=SASS if is_sass else EMULATOR if run else None,
        gpu=None if is_sass else way,
    )
    unseen = [kind for kind in options.kinds if run and kinds and kind not in EXECUTED_KINDS]
    if unseen:
        raise UsageError(
            f"--change {unseen[0]} does not apply to --run: PTX has not seen ptxas yet"
        )
    # Before minutes are spent on what could not be written.
    if patch is not None and not patch.parent.is_dir():
        raise UsageError(f"--patch {patch}: there is no folder {patch.parent}")
    status = status_console()
    with preparing(status):
        selection = select(words)
    check_single(selection, "a workaround is for one", "--sm", "--launch", "--triton", "--ptxas")

    async def find() -> WorkaroundReport:
        async with hubs_of(scheduler, how, tell) as (mine, open_hub):
            return await find_workarounds(selection, store, mine, options, tell, open_hub)

    with open_results() as store, narrating(status, "looking for what helps", who="") as tell:
        if gpu.results:
            report = import_workarounds(gpu.results, selection, store)
        else:
            report = run_to_the_end(find())
    if report.candidates or as_json:
        print_remarks(report.notes)
    if patch and report.patch:
        try:
            patch.write_bytes(report.patch.diff.encode())
        except OSError as error:
            raise StorageError(f"{patch}: cannot be written: {error.strerror}") from error
    elif patch:
        status.print(f"triage: there is no patch to write to {patch}", markup=False)
    if as_json:
        print_json(workaround_document(report))
    else:
        print_said(workarounds_said(report))
    raise click.exceptions.Exit(0 if report.candidates or not report.is_needed else 1)
