"""`triage run` on a GPU: here, elsewhere by a command, or elsewhere by a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import click

from gpu_emulator.values import Budget
from harness.cells.selection import select_all
from harness.cli.amounts import FilePath, FiniteRange, Words
from harness.cli.output import print_json, print_line, print_remarks, print_said, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import compile_options, run_to_the_end, selection_words
from harness.run.gpu.device.contents import MOST_RUNS
from harness.run.gpu.evaluating import GpuQuestion, GpuReport, ask_gpu, import_results, pack_for_gpu
from harness.run.gpu.packing import inspect_pack, place_of
from harness.run.gpu.trip import LIMIT, REPEATS
from harness.run.jobs import RunTrial
from harness.run.raw_ptx import RawInputs
from harness.run.table import measured_said, runs_document, times_said
from harness.values.errors import UsageError
from harness.values.execution import RunVerdict
from harness.values.kernel import Repro
from harness.values.row import SCHEMA

F = TypeVar("F", bound=Callable[..., Any])

_LEVEL = re.compile(r"([0-3])(?:\.\.([0-3]))?")


def gpu_options(function: F) -> F:
    """What executes it, and how a GPU that is elsewhere is reached."""
    options = (
        click.option(
            "--on",
            type=click.Choice(["emulator", "gpu"]),
            help="What executes it. Default: the emulator; the GPU with one of the options below.",
        ),
        click.option(
            "-O",
            "levels",
            type=Words(),
            metavar="LEVELS",
            help="GPU: ptxas' optimisation levels, side by side: 0..3, or 0,3. Default for PTX: "
            "0,3.",
        ),
        click.option(
            "--runner",
            type=Words(),
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
    for option in reversed(options):
        function = option(function)
    return function


def is_for_gpu(options: Mapping[str, Any]) -> bool:
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


def look_at_pack(options: Mapping[str, Any]) -> int:
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


def run_on_gpu(
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
    question = GpuQuestion(
        selections=selections,
        inputs=inputs,
        levels=((0, 3) if is_ptx else ()) if levels is None else levels,
        trials=trials,
        budget=budget,
        limit=options["limit"],
        repeats=options["repeats"] or REPEATS,
        measure=options["measure"],
        sanitize=options["sanitize"],
    )
    how = compile_options(options)
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
