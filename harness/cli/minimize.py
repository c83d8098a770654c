"""`triage minimize`."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import click
from msgspec import structs

from harness.cells.places import CompileOptions
from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath, Seconds
from harness.cli.gpu_way import Execution, execution_of
from harness.cli.main import CONTEXT
from harness.cli.options import EXECUTES, SilentOption, Verb, apart, exclusive, json_option
from harness.cli.output import command_line, print_json, print_said, results_console, status_console
from harness.cli.progress.reduction import watch_reduction
from harness.cli.progress.steps import preparing
from harness.cli.ptx_inputs import PtxOptions, ptx_options
from harness.cli.results import open_results
from harness.cli.running import (
    check_single,
    execution_options,
    hubs_of,
    run_to_the_end,
    scheduler_option,
    selection_options,
)
from harness.judging.conditions import parse_condition
from harness.minimize.minimizing import LEVELS, minimize
from harness.minimize.reduction.minimization import Ending, Minimization, NothingToReduce
from harness.minimize.reduction.reduction_words import (
    folder_files,
    minimization_document,
    minimization_said,
    nothing_document,
)
from harness.minimize.reduction.work import MinimizedFolder, MinimizeOptions, subject_of
from harness.values.errors import UsageError
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, GPU, SASS

_EPILOG = """\b
Example:
  triage minimize --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115
  triage minimize broken.ptx --sm 100a --ptxas 13.1.115 --max-time 10m
  triage minimize slow.ptx --while "n_regs<=32 and spill_stores>4096"
  triage minimize --kernel two_dots --sm 100a --triton 3.8.0 --run
  triage minimize --kernel late_use --sm 80 --triton 3.5.0 --run --level ttgir
  triage minimize racy.ptx --run --buffer out=f32[64] --buffer x=f32[64]:random --block 128
  triage minimize --kernel fold_prmt_sign --run --on gpu --ptxas 13.0.88 --ptxas 13.5.37

Exit code 0: it was reduced. 1: there is nothing to reduce. 4: this machine or a toolchain failed;
the best until then is kept. Ctrl-C keeps it too, and --resume goes on from it."""


@click.command("minimize", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--while", "--script")
@apart(["-O"], "--formal", because="races are seen by the emulator")
@apart(EXECUTES, "--while", "--script", because="what comes out is followed")
@selection_options(kernel_required=False)
@click.option("--while", "condition", metavar="CONDITION", help="What each candidate has to meet.")
@click.option(
    "--script", metavar="COMMAND", help="Your own predicate: exit code 0 means interesting."
)
@execution_of(
    "Execute each candidate on the emulator: it must go wrong in the same way.",
    "SASS emulated, or on a GPU: the cubin of the first --ptxas goes wrong, and those of the "
    "others hold it.",
    takes=(EMULATOR, SASS, GPU),
)
@click.option(
    "-O",
    "opt_level",
    type=click.IntRange(0, 3),
    metavar="LEVEL",
    help="With --on sass or gpu: the level at which ptxas gets it wrong. Default: 3.",
)
@ptx_options
@click.option("--level", type=click.Choice(LEVELS), default="auto", show_default=True)
@click.option(
    "--defined",
    "is_defined",
    is_flag=True,
    help="Leave no more registers undefined than the original does.",
)
@click.option(
    "--max-time",
    cls=SilentOption,
    type=Seconds(),
    help="When to stop: 10m, 90s; with what was spent before --resume.",
)
@click.option(
    "--max-tries",
    cls=SilentOption,
    type=click.IntRange(1, 10**15),
    metavar="N",
    help="After how many tests to stop, with those before --resume.",
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
def command(
    *,
    words: SelectionOptions,
    condition: str | None,
    script: str | None,
    execution: Execution,
    opt_level: int | None,
    inputs: PtxOptions,
    level: str,
    is_defined: bool,
    max_time: float | None,
    max_tries: int | None,
    seed: int,
    out: Path | None,
    resume: bool,
    scheduler: str | None,
    how: CompileOptions,
    as_json: bool,
) -> None:
    """Reduce a failing kernel to the smallest input that fails in the same way.

    Takes the first config that fails. A candidate must fail with the same signature, and be
    accepted by the nearest older and newer versions that accept the original: so that what is left
    shows the same bug and not another one.
    """
    if not words.kernel:
        raise UsageError("what is to be reduced? give FILE, or --kernel")
    if opt_level is not None:
        if execution.on == EMULATOR:
            raise UsageError("-O and --runner are for a GPU: leave out --on emulator")
        execution = structs.replace(execution, run=True, on=execution.on or GPU)
    _check(words, execution, level)
    on = f"--on {execution.on}"
    for option, is_here in {on: execution.of_cubins, "--script": script is not None}.items():
        if is_here and scheduler:
            raise UsageError(f"{option} executes on this machine: leave out --scheduler")
    if not execution.run:
        inputs.refuse("--run")
    if resume and not words.sm:
        words = structs.replace(words, sm=_targets_there(words.kernel, out))
    status = status_console()
    with preparing(status):
        selection = select(words)
    # On a GPU, the ptxas after the first hold what that gets wrong.
    single = ("--sm", "--launch", "--triton", *(() if execution.of_cubins else ("--ptxas",)))
    check_single(selection, "a reduction follows one", *single)
    if execution.run and not selection.repro.ptx:
        inputs.refuse()
    options = MinimizeOptions(
        folder_of=lambda row: out or folder_of(row),
        resume=resume,
        condition=parse_condition(condition) if condition else None,
        script=script,
        level=level,
        seconds=max_time,
        tests=max_tries,
        seed=seed,
        is_defined=is_defined,
        run=execution.run,
        # Those of a kernel are recorded.
        inputs=inputs.named(selection.repro) if execution.run and selection.repro.ptx else None,
        on=execution.on,
        gpu_level=3 if opt_level is None else opt_level,
        runner=execution.runner,
    )

    async def minimized() -> Minimization | NothingToReduce:
        async with hubs_of(scheduler, how, watch.tell) as (there, open_hub):
            return await minimize(selection, store, there, options, watch, open_hub)

    with open_results() as store, watch_reduction(status) as watch:
        result = run_to_the_end(minimized())
    if isinstance(result, NothingToReduce):
        if as_json:
            print_json(nothing_document(result))
        else:
            results_console().print(f"Nothing to reduce: {result.reason}", soft_wrap=True)
        raise click.exceptions.Exit(1)
    folder = MinimizedFolder(path=Path(result.path), suffix=result.suffix)
    own_command = command_line(map(_portable, sys.argv[1:]))
    for name, text in folder_files(result, command=own_command).items():
        folder.write(name, text, executable=name.endswith(".sh"))
    if result.spent.trouble:
        status.print(f"triage: stopped: {result.spent.trouble}", soft_wrap=True)
    if as_json:
        print_json(minimization_document(result))
    else:
        _print(result, folder.best)
    codes = {Ending.INTERRUPTED: 128 + signal.SIGINT, Ending.TROUBLE: 4}
    raise click.exceptions.Exit(codes.get(result.spent.ending, 0))


def _check(words: SelectionOptions, execution: Execution, level: str) -> None:
    if execution.of_cubins and level not in ("auto", "ptx"):
        where = "on a GPU" if execution.on == GPU else f"with --on {execution.on}"
        raise UsageError(f"--level {level}: {where}, PTX is reduced")
    if execution.of_cubins and not words.ptxas:
        raise UsageError(f"--on {execution.on}: name the ptxas that gets it wrong, by --ptxas X")
    if execution.run and words.ptxas and not execution.of_cubins:
        raise UsageError("--ptxas does not apply to --run: PTX is executed without ptxas")
    if execution.run and level == "config":
        raise UsageError("--level config does not apply to --run: use source, ttgir or ptx")


def _targets_there(kernel: str, out: Path | None) -> list[str]:
    """The target of the reduction of a kernel that is there, which is said; none is no target.

    Raises:
        UsageError: there are several, for different targets.
        StorageError: a log cannot be read.
    """
    file, _, entry = kernel.partition("::")
    targets = {}
    for folder in [out] if out else sorted(Path("minimized").glob("*")):
        subject = subject_of(folder)
        name, _, its_entry = subject.get("kernel", "").partition("::")
        if Path(name).name == Path(file).name and entry in ("", its_entry):
            targets[subject["target"]] = folder
    if len(targets) > 1:
        raise UsageError(f"--resume: there are reductions for {', '.join(targets)}: --sm names one")
    for target, folder in targets.items():
        status_console().print(f"triage: --resume: {folder} is for {target}", soft_wrap=True)
    return list(targets)


def folder_of(row: Row, under: str = "minimized") -> Path:
    """Where the reduction of a cell lies: a name that says what it is, whatever the kernel's is."""
    path, _, entry = row.kernel.partition("::")
    name = entry or Path(path).stem
    return Path(under) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:80]}-{row.short}"


def _portable(word: str) -> str:
    """A word of the command line without the folders of this machine."""
    path, colons, entry = word.partition("::")
    return f"{Path(path).name}{colons}{entry}" if Path(path).is_absolute() else word


def _print(result: Minimization, best: Path) -> None:
    console = results_console()
    print_said(minimization_said(result))
    for note in result.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(f"\n{best}", soft_wrap=True)
    if result.spent.ending is not Ending.FINISHED:
        is_spent = result.spent.ending is Ending.BUDGET
        more = " and a larger --max-time or --max-tries" if is_spent else ""
        console.print(f"The same command with --resume{more} goes on from there.", soft_wrap=True)
