"""`triage workaround`: which config to take, and how to go on with another.

Example:
  triage workaround --kernel mamba3_siso_bwd_dqkv --sm 100a --patch workaround.diff
  triage workaround --kernel two_dots --sm 100a --triton 3.8.0 --run
  triage workaround --kernel fold_sat_undone --ptxas 13.0.88 --on sass
  triage workaround --kernel my_kernel.py --sm 90a --config num_warps=2 --on gpu

Exit code 0: something better was found and proved, or nothing is wrong. 1: nothing better was
found. 2: wrong usage, or a launch that cannot be captured. 3: nothing matches. 4: this machine, or
a toolchain that is not available.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from harness.cells.places import CompileOptions
from harness.cells.spelling import SelectionOptions, on_compiler, spell_command
from harness.cli.amounts import FilePath, Seconds
from harness.cli.gpu_way import GpuOptions, gpu_option
from harness.cli.options import Options, apart, json_option, option, silent, verb
from harness.cli.output import print_json, print_next, print_remarks, print_said
from harness.cli.progress.steps import narrating
from harness.cli.results import open_results
from harness.cli.running import (
    execution_options,
    hubs_of,
    run_to_the_end,
    scheduler_option,
    select_single,
    selection_options,
)
from harness.values.errors import StorageError, UsageError
from harness.values.toolchain import EMULATOR, GPU, SASS, TRITON
from harness.workaround.executed_trials import EXECUTED_KINDS, import_workarounds
from harness.workaround.result import WorkaroundReport, workaround_document, workarounds_said
from harness.workaround.settings import SettingKind
from harness.workaround.workarounds import WorkaroundOptions, find_workarounds


class _WorkaroundOptions(
    Options,
    rules=[
        apart(
            ["--run"],
            "--on",
            "--runner",
            "--pack",
            "--import",
            because="it executes PTX on the emulator",
        ),
        apart(["--run"], "--ptxas", because="PTX is executed without ptxas"),
        apart(["--run"], "--patch", because="a patch is proved by compiling it"),
        apart(["--import"], "--scheduler", because="nothing is compiled"),
    ],
):
    words: SelectionOptions = selection_options()
    budget: float = silent(
        "--max-time",
        type=Seconds(),
        default="4m",
        help="For the search, the proofs and the patch together: 90s, 4m, 1h.",
    )
    kinds: tuple[str, ...] = option(
        "--change",
        often=True,
        type=click.Choice([kind.value for kind in SettingKind]),
        help="What may be changed. Repeatable. Default: all of these.",
    )
    run: bool = option(
        often=True,
        help="Execute the PTX on the emulator: find what is right where a config computes the "
        "wrong thing.",
    )
    patch: Path | None = option(
        often=True,
        type=FilePath(dir_okay=False),
        metavar="FILE",
        help="Write the patch of the kernel's file here.",
    )
    most: int = option(
        type=click.IntRange(1, 100), default=8, help="How many candidates are proved and shown."
    )
    gpu: GpuOptions = gpu_option(
        "gpu: launch what is found, and time it: the fastest first. sass: execute what ptxas makes "
        "of each setting, without a GPU and without times: find what is right where a cubin "
        "computes the wrong thing.",
        SASS,
        GPU,
    )
    scheduler: str | None = scheduler_option("Have ptxas run")
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _WorkaroundOptions) -> int:
    """Find what can be done today where a config fails, spills or is a stub.

    Tries other configs, parameters of the launch, ptxas' flags, other ptxas and Tritons, and what
    helps of these together. Two lists: what helps today without touching the source, and the
    best there is; each by what a GPU measured, else by spills and occupancy. All of it is compiled
    again from nothing; what is known of the numerics is said, and what to paste.
    """
    patch = options.patch
    is_sass, way = options.gpu.on == SASS, options.gpu.way() if options.gpu.is_named else None
    if is_sass and patch is not None:
        raise UsageError("--patch does not apply to --on sass: a patch is proved by compiling it")
    question = WorkaroundOptions(
        budget=options.budget,
        at_most=options.most,
        kinds=tuple(map(SettingKind, options.kinds)) or tuple(SettingKind),
        on=SASS if is_sass else EMULATOR if options.run else None,
        gpu=None if is_sass else way,
    )
    unseen = [
        kind
        for kind in question.kinds
        if options.run and options.kinds and kind not in EXECUTED_KINDS
    ]
    if unseen:
        raise UsageError(
            f"--change {unseen[0]} does not apply to --run: PTX has not seen ptxas yet"
        )
    # Before minutes are spent on what could not be written.
    if patch is not None and not patch.parent.is_dir():
        raise UsageError(f"--patch {patch}: there is no folder {patch.parent}")
    single = ("--sm", "--launch", "--triton", "--ptxas")
    selection = select_single(options.words, "a workaround is for one", *single)

    async def find() -> WorkaroundReport:
        async with hubs_of(options.scheduler, options.how, tell) as (mine, open_hub):
            return await find_workarounds(selection, store, mine, question, tell, open_hub)

    with open_results() as store, narrating("looking for what helps", who="") as tell:
        if options.gpu.results:
            report = import_workarounds(options.gpu.results, selection, store)
        else:
            report = run_to_the_end(find())
    if report.candidates or options.as_json:
        print_remarks(*report.notes)
    if patch and report.patch:
        try:
            patch.write_bytes(report.patch.diff.encode())
        except OSError as error:
            raise StorageError(f"{patch}: cannot be written: {error.strerror}") from error
    elif patch:
        print_remarks(f"there is no patch to write to {patch}")
    if options.as_json:
        print_json(workaround_document(report))
    else:
        print_said(workarounds_said(report))
        print_next(_next(report, options))
    return 0 if report.candidates or not report.is_needed else 1


def _next(report: WorkaroundReport, options: _WorkaroundOptions) -> Iterator[tuple[str, str]]:
    """What is to be asked next where nothing is wrong, a patch was found, or nothing better."""
    words, of_triton = options.words, report.baseline.compiler == TRITON
    if options.run or options.gpu.is_named:
        return
    if not report.is_needed:
        if of_triton:
            yield spell_command("run", words), "does it compute what it must?"
    elif report.patch and not options.patch:
        patched = spell_command("workaround", words, "--patch", "workaround.diff")
        yield patched, "the same, as a patch of the kernel's file"
    elif not report.candidates and of_triton:
        since = spell_command("bisect", on_compiler(words, None, None), "--axis", "triton")
        yield since, "since which Triton it is so"
