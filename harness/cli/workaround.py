"""`triage workaround`, `triage rank`, `triage package`: which config to take, and what is left."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from harness.cells.places import CompileOptions
from harness.cells.selection import select, select_all, select_repros
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath, Seconds
from harness.cli.gpu_way import GpuOptions, gpu_options
from harness.cli.main import CONTEXT
from harness.cli.options import SilentOption, Verb, apart, as_value, goes_with, json_option
from harness.cli.output import print_json, print_remarks, print_said, print_text, status_console
from harness.cli.progress.cells import show_progress
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import (
    check_single,
    execution_options,
    hubs_of,
    read_selection,
    run_to_the_end,
    scheduler_option,
    selection_options,
    sm_option,
    toolchain_options,
)
from harness.io.files.reading import read_regular
from harness.package.package import package_document, package_said, reach, survey_package
from harness.values.errors import StorageError, UsageError
from harness.values.toolchain import EMULATOR, GPU, SASS
from harness.workaround.executed_trials import EXECUTED_KINDS, import_workarounds
from harness.workaround.rank.order import rank_document, ranks_as_markdown, ranks_said
from harness.workaround.rank.ranking import MeasuredError, rank, rank_again
from harness.workaround.result import WorkaroundReport, workaround_document, workarounds_said
from harness.workaround.settings import SettingKind
from harness.workaround.workarounds import WorkaroundOptions, find_workarounds

_WORKAROUND_EPILOG = """\b
Example:
  triage workaround --kernel mamba3_siso_bwd_dqkv --sm 100a --patch workaround.diff
  triage workaround --kernel two_dots --sm 100a --triton 3.8.0 --run
  triage workaround --kernel fold_sat_undone --ptxas 13.0.88 --on sass
  triage workaround --kernel my_kernel.py --sm 90a --config num_warps=2 --on gpu

Exit code 0: something better was found and proved, or nothing is wrong. 1: nothing better was
found. 2: wrong usage, or a launch that cannot be captured. 3: nothing matches. 4: this machine, or
a toolchain that is not available."""


@click.command("workaround", cls=Verb, context_settings=CONTEXT, epilog=_WORKAROUND_EPILOG)
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
def workaround_command(
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
    print_remarks(report.notes)
    if report.is_time_up:
        left_out = ", ".join(kind.value for kind in report.left_out)
        status.print(f"triage: the time was up (--max-time) before all was tried of: {left_out}")
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


_LARGEST = 1 << 28

_RANK_EPILOG = """\b
Example:
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a
  triage rank --kernel mamba2_chunk_scan_fwd --sm 90a --measure --on gpu

Exit code 0: the configs are ordered. 2: wrong usage. 3: nothing matches. 4: this machine, or a GPU
that cannot be reached."""


@click.command("rank", cls=Verb, context_settings=CONTEXT, epilog=_RANK_EPILOG)
@goes_with("--measure", "--on", "--runner", "--pack", "--import")
@selection_options(kernel_required=False)
@click.option(
    "--measure", is_flag=True, help="Time the configs on a GPU, and hold the order to it."
)
@gpu_options("--measure: this machine's GPU.")
@click.option(
    "--again",
    "documents",
    type=FilePath(read=True),
    multiple=True,
    metavar="FILE",
    help="Order what `--measure --json` wrote before (.xz, too). Repeatable.",
)
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="How good the orders are, as a table."
)
@execution_options
@json_option
def rank_command(
    *,
    words: SelectionOptions,
    measure: bool,
    gpu: GpuOptions,
    documents: Sequence[Path],
    as_markdown: bool,
    how: CompileOptions,
    as_json: bool,
) -> None:
    """Order the configs of a kernel by what compilers tell of their time, without running them.

    It says how sure the order is, and where it cannot tell. With --measure a GPU says how good it
    is: the correlation of ranks, and how much slower the first choices are than the best.
    """
    if documents:
        try:
            report = rank_again([_unpacked(path) for path in documents])
        except MeasuredError as error:
            raise UsageError(f"--again: no document of `triage rank --json`: {error}") from error
    elif words.kernel:
        way = gpu.way() if measure else None
        with preparing(status_console()):
            selections = select_all(words)
        with open_results() as store, narrating(status_console(), "compiling") as tell:
            report = run_to_the_end(rank(selections, store, how, way, tell))
        print_remarks(report.notes)
    else:
        raise UsageError("name a kernel: `triage rank FILE.py`, or --kernel NAME")
    if as_json:
        print_json(rank_document(report))
    elif not as_markdown:
        print_said(ranks_said(report))
    elif any(launch.quality for launch in report.launches):
        print_text(ranks_as_markdown(report))
    else:
        raise UsageError("--markdown says how good orders are: nothing was measured")


def _unpacked(path: Path) -> bytes:
    data = read_regular(path, _LARGEST)
    if path.suffix != ".xz":
        return data
    archive = lzma.LZMADecompressor()
    try:
        text = archive.decompress(data, _LARGEST + 1)
    except lzma.LZMAError as error:
        raise UsageError(f"--again {path}: {error}") from error
    if len(text) > _LARGEST:
        raise UsageError(f"--again {path}: more than {_LARGEST:,} bytes: it is not read")
    if not archive.eof:
        raise UsageError(f"--again {path}: it is cut off")
    return text


_PACKAGE_EPILOG = """\b
Example:
  triage package fla-core==0.6.0 --sm 80 --sm 90a --sm 120a
  triage package liger-kernel==0.8.5 --sm 90a --triton 3.9.0 --json
  triage package fla-core==0.6.0 --sm 120a --launch my_training_step.py

Exit code 0: every kernel that was reached keeps at least half of its configs on each target. 1: one
loses all or most. 2: wrong usage, or no such package or release. 3: no repro takes kernels from it,
and no --launch is given. 4: some launches or configs could not be determined."""


@click.command("package", cls=Verb, context_settings=CONTEXT, epilog=_PACKAGE_EPILOG)
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
def package_command(
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
