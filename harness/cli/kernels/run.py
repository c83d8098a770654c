"""`triage run`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from gpu_emulator.values import Budget
from harness.cells.repros.find import find_kernels
from harness.cells.selection import select_all
from harness.cli.amounts import FilePath, FiniteRange
from harness.cli.kernels.ptx_inputs import named_inputs, ptx_options, refuse_ptx_options
from harness.cli.main import CONTEXT
from harness.cli.options import (
    exclusive,
    execution_options,
    goes_with,
    json_option,
    selection_options,
    together,
)
from harness.cli.output import print_json, print_line, print_remarks, print_said, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import compile_options, run_to_the_end, selection_words
from harness.run.executing import Follow
from harness.run.executors import run_selections
from harness.run.following import follow_value, read_another, read_element
from harness.run.gpu.device.contents import MOST_RUNS
from harness.run.gpu.evaluating import GpuQuestion, GpuReport, ask_gpu, import_results, pack_for_gpu
from harness.run.gpu.packing import inspect_pack, place_of
from harness.run.gpu.trip import LIMIT, REPEATS, Trip
from harness.run.jobs import RunTrial
from harness.run.raw_ptx import RawInputs, RawReport, run_ptx
from harness.run.schedules import DEFAULT, INSTRUCTIONS, PROGRAMS, read_schedules, trials_of
from harness.run.table import (
    measured_said,
    runs_document,
    runs_said,
    times_said,
    traces_said,
    values_said,
)
from harness.values.errors import UsageError
from harness.values.execution import RunRow, RunVerdict
from harness.values.kernel import Repro
from harness.values.row import SCHEMA

_LEVEL = re.compile(r"([0-3])(?:\.\.([0-3]))?")


_gpu_options = together(
    click.option(
        "--on",
        type=click.Choice(["emulator", "gpu"]),
        help="What executes it. Default: the emulator; the GPU with one of the options below.",
    ),
    click.option(
        "-O",
        "levels",
        metavar="LEVELS",
        help="GPU: ptxas' optimisation levels, side by side: 0..3, or 0,3. Default for PTX: 0,3.",
    ),
    click.option(
        "--runner",
        metavar="CMD",
        help="GPU: a command that takes `PACK --out RESULTS` to a GPU (ssh, srun, kubectl).",
    ),
    click.option(
        "--pack",
        type=FilePath(dir_okay=False),
        help="GPU: write a program for another machine; `python3 FILE --out RESULTS` there.",
    ),
    click.option(
        "--import",
        "results",
        type=FilePath(read=True),
        metavar="RESULTS",
        help="GPU: judge what a pack gave on another machine.",
    ),
    click.option(
        "--inspect",
        type=FilePath(read=True),
        metavar="PACK",
        help="GPU: say what a pack holds; nothing of it is run.",
    ),
    click.option(
        "--measure",
        is_flag=True,
        help="GPU: how long each takes; a kernel at its own shape, or the one that you --set.",
    ),
    click.option(
        "--sanitize",
        is_flag=True,
        help="GPU: what compute-sanitizer says of each cubin: memcheck, racecheck, initcheck, "
        "synccheck.",
    ),
    click.option(
        "--repeat",
        "repeats",
        type=click.IntRange(2, MOST_RUNS),
        help=f"GPU: runs of each cubin, {REPEATS} by default; many show what differs rarely.",
    ),
    click.option(
        "--limit",
        type=FiniteRange(0.1, 3600),
        default=LIMIT,
        show_default=True,
        help="GPU: seconds for one run of a cubin: more is a hang.",
    ),
)
"""What executes it, and how a GPU that is elsewhere is reached."""


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
    "ptxas": "--ptxas",
    "assembler": "--assembler",
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
    metavar="NAME[INDEX]",
    help="Follow an element back to where two of the runs first differ: out[17]; out takes the "
    "first that differs.",
)
@click.option(
    "--beside",
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
@_gpu_options
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
        raise click.exceptions.Exit(_look_at_pack(options))
    trials = trials_of(read_schedules(options["schedules"]), races=options["races"])
    name = options["kernel"]
    if not name:
        raise UsageError("name a kernel: `triage run FILE.ptx`, or --kernel NAME")
    budget = Budget(max_instructions=options["budget"])
    if options["programs"]:
        budget = replace(budget, max_ctas=options["programs"])
    path, _, entry = name.partition("::")
    repros = [] if path.endswith((_PTX, ".py")) else _ptx_repros(name)
    if _is_for_gpu(options):
        given = partial(named_inputs, options)
        code = _run_on_gpu(name, given, options, trials, budget)
    elif path.endswith(_PTX):
        file = (Path(path), entry or None, named_inputs(options))
        code = _run_files([file], options, trials, budget)
    elif repros:
        files = [
            (repro.ptx, repro.kernel, named_inputs(options, repro)) for repro in repros if repro.ptx
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


# On a GPU: here, elsewhere by a command, or elsewhere by a file.


def _is_for_gpu(options: Mapping[str, Any]) -> bool:
    """Whether a GPU is to execute it.

    Raises:
        UsageError: an option of the GPU, and the emulator.
    """
    names = {"levels": "-O", "runner": "--runner", "pack": "--pack", "measure": "--measure"}
    names |= {"sanitize": "--sanitize", "repeats": "--repeat"}
    own = [word for name, word in names.items() if options[name] not in (None, False)]
    if own and options["on"] == "emulator":
        raise UsageError(f"{own[0]} is for a GPU, and --on emulator")
    return bool(own) or options["on"] == "gpu"


def _levels(text: str | None) -> tuple[int, ...] | None:
    """The levels of `0..3` or `0,3`; None where none are named.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    found: list[int] = []
    for word in text.split(","):
        match = _LEVEL.fullmatch(word.strip())
        if not match:
            raise UsageError(f"-O {text}: write levels from 0 to 3, for example 0..3 or 0,3")
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            raise UsageError(f"-O {text}: {low} is more than {high}")
        found += range(low, high + 1)
    return tuple(dict.fromkeys(found))


def _look_at_pack(options: Mapping[str, Any]) -> int:
    """`--inspect` and `--import`: what is there already; the exit code.

    Raises:
        UsageError: a kernel is named as well, or the file is not what it should be.
    """
    word = "--inspect" if options["inspect"] else "--import"
    if options["kernel"] or (options["inspect"] and options["results"]):
        raise UsageError(f"{word} takes its kernels from the file: name nothing else")
    if options["inspect"]:
        found = inspect_pack(options["inspect"])
        if options["as_json"]:
            print_json({"schema": SCHEMA, **found.document})
        else:
            for line in found.lines:
                print_line(line)
        return 0 if found.is_ours else 1
    with open_results() as store, narrating(status_console(), "reading results") as tell:
        how = compile_options(options)
        report = run_to_the_end(import_results(options["results"], store, how, tell))
    return _show(report, options)


def _run_on_gpu(
    name: str,
    inputs: Callable[[Repro], RawInputs],
    options: Mapping[str, Any],
    trials: tuple[RunTrial, ...],
    budget: Budget,
) -> int:
    """Launch what is selected on a GPU, or write a pack; the exit code.

    `inputs` gives those of a repro of PTX.
    """
    levels = _levels(options["levels"])
    # Before anything is compiled: is there a GPU to be reached?
    place = None if options["pack"] else place_of(options["runner"])
    with preparing(status_console()):
        selections = select_all(replace(selection_words(options), kernel=name))
    is_ptx = all(selection.repro.ptx for selection in selections)
    how = compile_options(options)
    question = GpuQuestion(
        selections=selections,
        inputs=inputs,
        levels=((0, 3) if is_ptx else ()) if levels is None else levels,
        trials=trials,
        budget=budget,
        how=Trip(
            command=how.command,
            limit=options["limit"],
            repeats=options["repeats"] or REPEATS,
            sanitize=options["sanitize"],
        ),
        measure=options["measure"],
    )
    with open_results() as store, narrating(status_console(), "compiling for a GPU") as tell:
        if place is None:
            trip = run_to_the_end(pack_for_gpu(question, options["pack"], store, how, tell))
            _say_packed(options, len(trip.carried))
            return 0
        report = run_to_the_end(ask_gpu(question, place, store, how, tell))
    return _show(report, options)


def _say_packed(options: Mapping[str, Any], cubins: int) -> None:
    path = options["pack"]
    lines = [
        f"{path}: {cubins} cubins with their inputs",
        f"  there:  python3 {path.name} --out results.jsonl",
        "  here:   triage run --import results.jsonl",
    ]
    if options["as_json"]:
        print_json({"schema": SCHEMA, "pack": str(path), "cubins": cubins})
        return
    for line in lines:
        print_line(line)


def _show(report: GpuReport, options: Mapping[str, Any]) -> int:
    print_remarks(report.notes)
    rows = report.rows
    if options["as_json"]:
        print_json(runs_document(rows, device=report.device.name, notes=report.notes))
    else:
        print_said(measured_said(rows, report.device.name))
        print_said(times_said(rows, report.device.name))
    if any(row.run.is_wrong or any(each.errors for each in row.sanitizers) for row in rows):
        return 1
    return 4 if any(row.run is RunVerdict.NOT_RUN for row in rows) else 0
