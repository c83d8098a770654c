"""`triage run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from gpu_emulator.values import Budget
from harness.cells.repros.find import find_kernels
from harness.cells.selection import select_all
from harness.cli.amounts import FilePath, Words
from harness.cli.kernels.ptx_inputs import (
    inputs_of_repro,
    named_inputs,
    ptx_options,
    refuse_ptx_options,
)
from harness.cli.kernels.run_on_gpu import gpu_options, is_for_gpu, look_at_pack, run_on_gpu
from harness.cli.main import CONTEXT
from harness.cli.options import (
    exclusive,
    execution_options,
    goes_with,
    json_option,
    selection_options,
)
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import compile_options, run_to_the_end, selection_words
from harness.run.executing import Follow
from harness.run.following import follow_value, read_another, read_element
from harness.run.jobs import RunTrial
from harness.run.raw_ptx import RawInputs, RawReport, run_ptx
from harness.run.schedules import DEFAULT, INSTRUCTIONS, PROGRAMS, read_schedules, trials_of
from harness.run.selections import run_selections
from harness.run.table import runs_document, runs_said, traces_said, values_said
from harness.values.errors import UsageError
from harness.values.execution import RunRow, RunVerdict
from harness.values.kernel import Repro

_PTX = ".ptx"
# What chooses among launches, configs and compilers: a file of PTX has none.
_OF_KERNELS = {
    "sm": "--sm",
    "triton": "--triton",
    "compiler": "--compiler",
    "launch": "--launch",
    "overrides": "--set",
    "config": "--config",
    "freeze_ptx": "--freeze-ptx",
}
_EPILOG = """\b
Example:
  triage run --kernel mamba2_chunk_scan_fwd --sm 80 --config num_warps=4
  triage run case.ptx --buffer out=u32[128] --buffer x=f32[64]:random --scalar n=32 --block 32
  triage run case.ptx --buffer out=u32[128] --buffer x=u32[128]:random --trace out[17]
  triage run --kernel scaled_values --sm 100a --trace out --beside num_stages=1
  triage run case.ptx --buffer out=u32[128] --ptxas 13.0.88 --ptxas 13.5.37 -O 0,3 --pack case.pack

Exit code 0: all that was run is right. 1: something is wrong. 4: something could not be run."""


@click.command("run", context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--pack", "--runner")
@goes_with("--trace", "--beside")
@lambda function: selection_options(function, kernel_required=False)
@click.option(
    "--schedules",
    type=Words(),
    default=DEFAULT,
    show_default=True,
    metavar="WARPS/COMPLETION[:SEED],...",
    help="Orders to run it in. WARPS: lockstep, first, last or random; COMPLETION of asynchronous "
    "operations: early, late or random.",
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    default=INSTRUCTIONS,
    show_default=True,
    help="Instructions of all threads in one run: more is a hang.",
)
@click.option(
    "--programs",
    type=click.IntRange(1),
    help=f"The most programs of a grid to execute, evenly spread over it. Default: {PROGRAMS}; all "
    "of a file of PTX.",
)
@click.option("--races/--no-races", default=True, show_default=True, help="Look for races.")
@click.option(
    "--formal",
    is_flag=True,
    help="A race that breaks only the letter of the memory model counts too.",
)
@click.option(
    "--trace",
    type=Words(),
    metavar="NAME[INDEX]",
    help="Follow an element back to where two of the runs first differ: out[17]; out takes the "
    "first that differs.",
)
@click.option(
    "--beside",
    type=Words(),
    metavar="NAME=VALUE,...",
    help="With --trace: follow it to what it is made of here, and not in another PTX of the "
    "launch: num_stages=1, sm=80, triton=3.6.0.",
)
@ptx_options
@click.option(
    "--dump",
    type=FilePath(file_okay=False),
    help="PTX: write each buffer after the run as NAME.npy below this folder.",
)
@gpu_options
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Execute what was compiled, on small real inputs, and say what came out.

    Every cell is lowered to PTX, and the PTX is executed by an emulator under the PTX ISA's rules,
    without a GPU. Its results are held to those of the same kernel without pipelining, and of
    Triton's interpreter. What it says is *emulated*: true of the PTX, not of what ptxas or a chip
    makes of it.

    A file of PTX is executed on inputs that you name; what you leave out is guessed, and said.
    """
    if options["inspect"] or options["results"]:
        raise click.exceptions.Exit(look_at_pack(options))
    trials = trials_of(read_schedules(options["schedules"]), races=options["races"])
    name = options["kernel"]
    if not name:
        raise UsageError("name a kernel: `triage run FILE.ptx`, or --kernel NAME")
    budget = Budget(max_instructions=options["budget"])
    if options["programs"]:
        budget = replace(budget, max_ctas=options["programs"])
    path, _, entry = name.partition("::")
    repros = [] if path.endswith((_PTX, ".py")) else _ptx_repros(name)
    if is_for_gpu(options):
        given = partial(inputs_of_repro, options)
        code = run_on_gpu(name, given, options, trials, budget)
    elif path.endswith(_PTX):
        file = (Path(path), entry or None, named_inputs(options, Path()))
        code = _run_files([file], options, trials, budget)
    elif repros:
        files = [
            (repro.ptx, repro.kernel, inputs_of_repro(options, repro))
            for repro in repros
            if repro.ptx
        ]
        code = _run_files(files, options, trials, budget)
    else:
        code = _run_kernels(options, trials, budget)
    raise click.exceptions.Exit(code)


def _ptx_repros(name: str) -> list[Repro]:
    """The repros of this name or pattern, if all of them are of raw PTX."""
    found = find_kernels(name)
    return found if all(repro.ptx for repro in found) else []


def _run_kernels(options: dict[str, Any], trials: tuple[RunTrial, ...], budget: Budget) -> int:
    refuse_ptx_options(options)
    if options["dump"]:
        raise UsageError("--dump is for a file of PTX")
    if not options["programs"]:
        budget = replace(budget, max_ctas=PROGRAMS)
    status = status_console()
    with preparing(status):
        selections = select_all(selection_words(options))
    with open_results() as store, narrating(status_console(), "executing") as tell:
        report = run_to_the_end(
            run_selections(
                selections,
                store,
                compile_options(options),
                trials,
                budget,
                tell,
                follow=_follow(options),
            )
        )
    print_remarks((*report.notes, *report.failures))
    if options["as_json"]:
        said = {"notes": report.notes, "failures": report.failures}
        print_json(runs_document(report.rows, **said))
    else:
        print_said(runs_said(report.rows))
        print_said(traces_said(report.rows))
    return _exit_code(report.rows, has_failures=bool(report.failures))


def _run_files(
    files: Sequence[tuple[Path, str | None, RawInputs]],
    options: dict[str, Any],
    trials: tuple[RunTrial, ...],
    budget: Budget,
) -> int:
    if options["beside"]:
        raise UsageError("--beside is for kernels: a file of PTX has no other configs")
    if options["dump"] and len(files) > 1:
        raise UsageError(f"--dump is for one file of PTX, {options['kernel']} names {len(files)}")
    for name, word in _OF_KERNELS.items():
        if options[name]:
            raise UsageError(f"{files[0][0]}: {word} does not apply: PTX is executed as it is")
    how, reports = compile_options(options), []
    with open_results() as store, narrating(status_console(), "executing") as tell:
        for path, entry, inputs in files:
            found = run_ptx(
                path,
                entry,
                inputs,
                store,
                how,
                trials,
                budget,
                tell,
                follow=_follow(options),
                formal=options["formal"],
            )
            reports.append(run_to_the_end(found))
    if options["dump"]:
        _dump(reports[0], options["dump"])
    rows = [report.row for report in reports]
    if options["as_json"]:
        notes = [note for report in reports for note in report.notes]
        print_json(runs_document(rows, notes=notes, failures=()))
    else:
        print_said(runs_said(rows))
        if len(reports) == 1:
            print_said(values_said(reports[0].before, reports[0].after))
        print_said(traces_said(rows))
    return _exit_code(rows, has_failures=False)


def _follow(options: dict[str, Any]) -> Follow | None:
    """The tensor element that `--trace` follows; None without `--trace`."""
    if not options["trace"]:
        return None
    read_element(options["trace"])
    another = read_another(options["beside"]) if options["beside"] else None
    return partial(follow_value, element=options["trace"], another=another)


def _dump(report: RawReport, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in report.after.items():
            # What numpy does not know by itself (bfloat16, float8) is kept as its bits.
            is_known = values.dtype.isbuiltin == 1
            bits = values if is_known else values.view(f"u{values.itemsize}")
            np.save(folder / f"{name}.npy", bits, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"--dump {folder}: {error.strerror or error}") from error


def _exit_code(rows: Sequence[RunRow], *, has_failures: bool) -> int:
    if any(row.run.is_wrong for row in rows):
        return 1
    return 4 if has_failures or any(row.run is RunVerdict.NOT_RUN for row in rows) else 0
