"""`triage minimize`.

Example:
  triage minimize --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115
  triage minimize broken.ptx --sm 100a --ptxas 13.1.115 --max-time 10m
  triage minimize slow.ptx --while "n_regs<=32 and spill_stores>4096"
  triage minimize --kernel two_dots --sm 100a --triton 3.8.0 --run
  triage minimize --kernel late_use --sm 80 --triton 3.5.0 --run --level ttgir
  triage minimize racy.ptx --run --buffer out=f32[64] --buffer x=f32[64]:random --block 128
  triage minimize --kernel fold_prmt_sign --run --on gpu --ptxas 13.0.88 --ptxas 13.5.37

Exit code 0: it was reduced. 1: there is nothing to reduce. 4: this machine or a toolchain failed;
the best until then is kept. Ctrl-C keeps it too, and --resume goes on from it.
"""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import click
from msgspec import structs

from harness.cells.places import CompileOptions
from harness.cells.spelling import SelectionOptions, execution_words, inputs_words, spell_command
from harness.cli.amounts import FilePath, Seconds
from harness.cli.gpu_way import Execution, execution_option
from harness.cli.options import (
    EXECUTES,
    Options,
    apart,
    exclusive,
    json_option,
    option,
    silent,
    verb,
)
from harness.cli.output import (
    command_line,
    print_json,
    print_line,
    print_next,
    print_remarks,
    print_said,
)
from harness.cli.progress.reduction import watch_reduction
from harness.cli.ptx_inputs import PtxOptions
from harness.cli.results import open_results
from harness.cli.running import (
    execution_options,
    hubs_of,
    run_to_the_end,
    scheduler_option,
    select_single,
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
from harness.values.toolchain import EMULATOR, GPU


class _AskedReduction(
    Options,
    rules=[
        exclusive("--while", "--script"),
        apart(["-O"], "--formal", because="races are seen by the emulator"),
        apart(EXECUTES, "--while", "--script", because="what comes out is followed"),
    ],
):
    words: SelectionOptions = selection_options(kernel_required=False)
    condition: str | None = option(
        "--while", often=True, metavar="CONDITION", help="What each candidate has to meet."
    )
    script: str | None = option(
        metavar="COMMAND", help="Your own predicate: exit code 0 means interesting."
    )
    execution: Execution = execution_option(
        "Execute each candidate on the emulator: it must go wrong in the same way.",
        "SASS emulated, or on a GPU: the cubin of the first --ptxas goes wrong, and those of the "
        "others hold it.",
    )
    opt_level: int | None = option(
        "-O",
        type=click.IntRange(0, 3),
        metavar="LEVEL",
        help="With --on sass or gpu: the level at which ptxas gets it wrong. Default: 3.",
    )
    inputs: PtxOptions
    level: str = option(type=click.Choice(LEVELS), default="auto")
    is_defined: bool = option(
        "--defined", help="Leave no more registers undefined than the original does."
    )
    max_time: float | None = silent(
        type=Seconds(), help="When to stop: 10m, 90s; with what was spent before --resume."
    )
    max_tries: int | None = silent(
        type=click.IntRange(1, 10**15),
        metavar="N",
        help="After how many tests to stop, with those before --resume.",
    )
    seed: int = option(type=click.IntRange(0), default=0)
    out: Path | None = option(
        often=True,
        type=FilePath(file_okay=False),
        help="The folder to write. Default: minimized/KERNEL-CELL.",
    )
    resume: bool = option(help="Go on from what the folder holds.")
    scheduler: str | None = scheduler_option("Have ptxas run")
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _AskedReduction) -> int:
    """Reduce a failing kernel to the smallest input that fails in the same way.

    Takes the first config that fails. A candidate must fail with the same signature, and be
    accepted by the nearest older and newer versions that accept the original: so that what is left
    shows the same bug and not another one.
    """
    words = options.execution.formally(options.words)
    execution, scheduler, inputs = options.execution, options.scheduler, options.inputs
    if not words.kernel:
        raise UsageError("what is to be reduced? give FILE, or --kernel")
    if options.opt_level is not None:
        if execution.on == EMULATOR:
            raise UsageError("-O and --runner are for a GPU: leave out --on emulator")
        execution = replace(execution, named=execution.on or GPU)
    of_cubins, level = execution.of_cubins, options.level
    if of_cubins and level not in ("auto", "ptx"):
        where = "on a GPU" if execution.on == GPU else f"with --on {execution.on}"
        raise UsageError(f"--level {level}: {where}, PTX is reduced")
    if of_cubins and not words.ptxas:
        raise UsageError(f"--on {execution.on}: name the ptxas that gets it wrong, by --ptxas X")
    if execution.run and words.ptxas and not of_cubins:
        raise UsageError("--ptxas does not apply to --run: PTX is executed without ptxas")
    if execution.run and level == "config":
        raise UsageError("--level config does not apply to --run: use source, ttgir or ptx")
    on, script = f"--on {execution.on}", options.script
    for name, is_here in {on: of_cubins, "--script": script is not None}.items():
        if is_here and scheduler:
            raise UsageError(f"{name} executes on this machine: leave out --scheduler")
    if not execution.run:
        inputs.refuse("--run")
    if options.resume and not words.sm:
        words = structs.replace(words, sm=_targets_there(words.kernel, options.out))
    # On a GPU, the ptxas after the first hold what that gets wrong.
    single = ("--sm", "--launch", "--triton", *(() if of_cubins else ("--ptxas",)))
    selection = select_single(words, "a reduction follows one", *single)
    if execution.run and not selection.repro.ptx:
        inputs.refuse()
    question = MinimizeOptions(
        folder_of=lambda row: options.out or folder_of(row),
        resume=options.resume,
        condition=parse_condition(options.condition) if options.condition else None,
        script=script,
        level=options.level,
        seconds=options.max_time,
        tests=options.max_tries,
        seed=options.seed,
        is_defined=options.is_defined,
        run=execution.run,
        # Those of a kernel are recorded.
        inputs=inputs.named(selection.repro) if execution.run and selection.repro.ptx else None,
        on=execution.on,
        gpu_level=3 if options.opt_level is None else options.opt_level,
        runner=execution.runner,
    )

    async def minimized() -> Minimization | NothingToReduce:
        async with hubs_of(scheduler, options.how, watch.tell) as (there, open_hub):
            return await minimize(selection, store, there, question, watch, open_hub)

    with open_results() as store, watch_reduction() as watch:
        result = run_to_the_end(minimized())
    if isinstance(result, NothingToReduce):
        if options.as_json:
            print_json(nothing_document(result))
        else:
            print_line(f"Nothing to reduce: {result.reason}")
        return 1
    folder = MinimizedFolder(path=Path(result.path), suffix=result.suffix)
    own_command = command_line(map(_portable, sys.argv[1:]))
    for name, text in folder_files(result, command=own_command).items():
        folder.write(name, text, executable=name.endswith(".sh"))
    if result.spent.trouble:
        print_remarks(f"stopped: {result.spent.trouble}")
    if options.as_json:
        print_json(minimization_document(result))
    else:
        print_said(minimization_said(result))
        for note in result.notes:
            print_line(f"note: {note}")
        print_line("")
        print_line(str(folder.best))
        if result.spent.ending is not Ending.FINISHED:
            is_spent = result.spent.ending is Ending.BUDGET
            more = " and a larger --max-time or --max-tries" if is_spent else ""
            print_line(f"The same command with --resume{more} goes on from there.")
        elif script is None:
            follows = ["--while", options.condition] if options.condition else []
            how = execution_words(run=execution.run, on=execution.on)
            if how and selection.repro.ptx:
                how += inputs_words(inputs.said(selection.repro))
            filed = spell_command("report", words, *follows, *how)
            print_next([(filed, "an issue for those who can fix it")])
    codes = {Ending.INTERRUPTED: 128 + signal.SIGINT, Ending.TROUBLE: 4}
    return codes.get(result.spent.ending, 0)


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
        print_remarks(f"--resume: {folder} is for {target}")
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
