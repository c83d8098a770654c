"""`triage minimize`."""

from __future__ import annotations

import re
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cells.selection import select
from harness.cli.amounts import SECONDS, FilePath, read_amount
from harness.cli.gpu_way import executed_on, formal_option, is_executed
from harness.cli.kernels.ptx_inputs import PTX_INPUTS, named_inputs, ptx_options, refuse_ptx_options
from harness.cli.main import CONTEXT
from harness.cli.options import (
    EXECUTES,
    apart,
    exclusive,
    execution_options,
    json_option,
    scheduler_option,
    selection_options,
)
from harness.cli.output import command_line, print_json, print_said, results_console, status_console
from harness.cli.progress.reduction import watch_reduction
from harness.cli.progress.steps import preparing
from harness.cli.results import open_results
from harness.cli.running import (
    check_scheduler,
    compile_options,
    hubs_of,
    run_to_the_end,
    selection_words,
)
from harness.frontends.base import Selection
from harness.judging.conditions import parse_condition
from harness.minimize.minimizing import LEVELS, minimize
from harness.minimize.reduction.result import Ending, Minimization, NothingToReduce
from harness.minimize.reduction.words import (
    folder_files,
    minimization_document,
    minimization_said,
    nothing_document,
)
from harness.minimize.reduction.work import MinimizedFolder, MinimizeOptions, Watch, subject_of
from harness.values.errors import UsageError
from harness.values.row import Row
from harness.values.toolchain import GPU

if TYPE_CHECKING:
    from harness.cells.places import CompileOptions
    from harness.run.raw_ptx import RawInputs
    from harness.store.store import Store


_FULL = 3
_EPILOG = """\b
Example:
  triage minimize --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115
  triage minimize broken.ptx --sm 100a --ptxas 13.1.115 --budget 10m
  triage minimize slow.ptx --while "n_regs<=32 and spill_stores>4096"
  triage minimize --kernel two_dots --sm 100a --triton 3.8.0 --run
  triage minimize --kernel late_use --sm 80 --triton 3.5.0 --run --level ttgir
  triage minimize racy.ptx --run --buffer out=f32[64] --buffer x=f32[64]:random --block 128
  triage minimize --kernel fold_prmt_sign --run --on gpu --ptxas 13.0.88 --ptxas 13.5.37

Exit code 0: it was reduced. 1: there is nothing to reduce. 4: this machine or a toolchain failed;
the best until then is kept. Ctrl-C keeps it too, and --resume goes on from it."""


class _Budget(click.ParamType[tuple[str, float]]):
    """A time with its unit, or a number of tests."""

    name = "budget"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, float]:
        text = str(value).strip()
        amount = read_amount(text, SECONDS)
        is_count = text.isdigit()
        if not amount or not (is_count or text[-1] in SECONDS):
            self.fail(f"{value!r} is not a budget; write 10m, 90s or 1500 (tests)", param, ctx)
        return "tests" if is_count else "seconds", amount


@click.command("minimize", context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--while", "--script")
@apart(EXECUTES, "--while", "--script", because="what comes out is followed")
@partial(selection_options, kernel_required=False)
@click.option("--while", "condition", metavar="CONDITION", help="What each candidate has to meet.")
@click.option(
    "--script", metavar="COMMAND", help="Your own predicate: exit code 0 means interesting."
)
@click.option(
    "--run",
    is_flag=True,
    help="Execute each candidate on the emulator: it must go wrong in the same way.",
)
@executed_on("On a GPU the cubin of the first --ptxas goes wrong, and those of the others hold it.")
@formal_option
@click.option(
    "-O",
    "opt_level",
    type=click.IntRange(0, 3),
    metavar="LEVEL",
    help="With --on gpu: the level at which ptxas gets it wrong. Default: 3.",
)
@ptx_options
@click.option("--level", type=click.Choice(LEVELS), default="auto", show_default=True)
@click.option(
    "--defined", is_flag=True, help="Leave no more registers undefined than the original does."
)
@click.option(
    "--budget",
    type=_Budget(),
    multiple=True,
    metavar="TIME|TESTS",
    help="When to stop: 10m, 90s, or 1500 tests, with what was spent before --resume. Give both to "
    "stop at the first.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--out",
    type=FilePath(file_okay=False),
    help="The folder to write. Default: minimized/KERNEL-CELL.",
)
@click.option("--resume", is_flag=True, help="Go on from what the folder holds.")
@scheduler_option("Have ptxas run")
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Reduce a failing kernel to the smallest input that fails in the same way.

    Takes the first config that fails. A candidate must fail with the same signature, and be
    accepted by the nearest older and newer versions that accept the original: so that what is left
    shows the same bug and not another one.
    """
    _check(options)
    if options["resume"] and not options["sm"]:
        _take_target(options)
    words = selection_words(options)
    status = status_console()
    with preparing(status):
        selection = select(words)
    _check_one(selection, on_gpu=options["on"] == GPU)
    budget = dict(options["budget"])
    asked = MinimizeOptions(
        folder_of=lambda row: options["out"] or _folder_of(row),
        resume=options["resume"],
        condition=parse_condition(options["condition"]) if options["condition"] else None,
        script=options["script"],
        level=options["level"],
        seconds=budget.get("seconds"),
        tests=int(budget["tests"]) if "tests" in budget else None,
        seed=options["seed"],
        is_defined=options["defined"],
        run=options["run"],
        inputs=_inputs(options, selection) if options["run"] else None,
        on_gpu=options["on"] == GPU,
        gpu_level=_FULL if options["opt_level"] is None else options["opt_level"],
        runner=options["runner"],
    )
    how = compile_options(options)
    with open_results() as store, watch_reduction(status) as watch:
        where = options["scheduler"]
        found = run_to_the_end(_minimized(selection, store, how, asked, watch, where))
    if isinstance(found, NothingToReduce):
        _nothing(found, as_json=options["as_json"])
        raise click.exceptions.Exit(1)
    _write(found)
    if found.trouble:
        status.print(f"triage: stopped: {found.trouble}", soft_wrap=True)
    if options["as_json"]:
        print_json(minimization_document(found))
    else:
        _print(found)
    raise click.exceptions.Exit(_exit_code(found))


async def _minimized(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    asked: MinimizeOptions,
    watch: Watch,
    where: str | None,
) -> Minimization | NothingToReduce:
    """On this machine, or with the help of those that are found there."""
    async with hubs_of(where, how, watch.tell) as (how, open_hub):
        return await minimize(selection, store, how, asked, watch, open_hub)


def _check(options: dict[str, Any]) -> None:
    if not options["kernel"]:
        raise UsageError("what is to be reduced? give FILE, or --kernel")
    if options["opt_level"] is not None or options["runner"] is not None:
        if options["on"] not in (None, GPU):
            raise UsageError("-O and --runner are for a GPU, and --on emulator")
        options["on"] = GPU
    on_gpu = options["on"] == GPU
    options["run"] = is_executed(options)
    check_scheduler(options, {"--on gpu": on_gpu, "--script": bool(options["script"])})
    if on_gpu and options["level"] not in ("auto", "ptx"):
        raise UsageError(f"--level {options['level']}: on a GPU, PTX is reduced")
    if on_gpu and not options["ptxas"]:
        raise UsageError("--on gpu: name the ptxas that gets it wrong, by --ptxas X")
    if options["run"] and options["ptxas"] and not on_gpu:
        raise UsageError("--ptxas does not apply to --run: PTX is executed without ptxas")
    if options["run"] and options["level"] == "config":
        raise UsageError("--level config does not apply to --run: use source, ttgir or ptx")
    if not options["run"]:
        refuse_ptx_options({name: options[name] for name in PTX_INPUTS}, "--run")


def _take_target(options: dict[str, Any]) -> None:
    """Go on for the target of the reduction that is there, and say so.

    Raises:
        UsageError: there are several, for different targets.
        StorageError: a log cannot be read.
    """
    file, _, entry = options["kernel"].partition("::")
    folders = [options["out"]] if options["out"] else sorted(Path("minimized").glob("*"))
    targets = {}
    for folder in folders:
        subject = subject_of(folder)
        name, _, its_entry = subject.get("kernel", "").partition("::")
        if Path(name).name == Path(file).name and entry in ("", its_entry):
            targets[subject["target"]] = folder
    if len(targets) > 1:
        raise UsageError(f"--resume: there are reductions for {', '.join(targets)}: --sm names one")
    for target, folder in targets.items():
        options["sm"] = [target]
        status_console().print(f"triage: --resume: {folder} is for {target}", soft_wrap=True)


def _inputs(options: dict[str, Any], selection: Selection) -> RawInputs | None:
    """What a file of PTX is launched with; None for a kernel, whose inputs are recorded."""
    if selection.repro.ptx:
        return named_inputs(options, selection.repro)
    refuse_ptx_options({name: options[name] for name in PTX_INPUTS})
    return None


def _check_one(selection: Selection, *, on_gpu: bool) -> None:
    counts = {
        "--sm": len(selection.targets),
        "--launch": len(selection.launches),
        # On a GPU, those after the first hold what it gets wrong.
        "--ptxas": 1 if on_gpu else len(selection.ptxas),
        "--triton": len(selection.compilers),
    }
    for name, count in counts.items():
        if count != 1:
            raise UsageError(f"{name}: {count} are meant; a reduction follows one")


def _folder_of(row: Row) -> Path:
    """A name that says what it is, whatever the kernel's name holds."""
    path, _, entry = row.kernel.partition("::")
    name = entry or Path(path).stem
    return Path("minimized") / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:80]}-{row.short}"


def _write(found: Minimization) -> None:
    folder = MinimizedFolder(path=Path(found.path))
    command = command_line(map(_portable, sys.argv[1:]))
    for name, text in folder_files(found, command=command).items():
        folder.write(name, text, executable=name.endswith(".sh"))


def _portable(word: str) -> str:
    """A word of the command line without the folders of this machine."""
    path, colons, entry = word.partition("::")
    return f"{Path(path).name}{colons}{entry}" if Path(path).is_absolute() else word


def _nothing(found: NothingToReduce, *, as_json: bool) -> None:
    if as_json:
        print_json(nothing_document(found))
    else:
        results_console().print(f"Nothing to reduce: {found.reason}", soft_wrap=True)


def _exit_code(found: Minimization) -> int:
    if found.ending is Ending.INTERRUPTED:
        return 128 + signal.SIGINT
    return 4 if found.ending is Ending.TROUBLE else 0


def _print(found: Minimization) -> None:
    console = results_console()
    print_said(minimization_said(found))
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(
        f"\n{MinimizedFolder(path=Path(found.path), suffix=found.suffix).best}", soft_wrap=True
    )
    if found.ending is not Ending.FINISHED:
        more = " and a larger --budget" if found.ending is Ending.BUDGET else ""
        console.print(f"The same command with --resume{more} goes on from there.", soft_wrap=True)
