"""`triage run`.

Example:
  triage run --kernel mamba2_chunk_scan_fwd --sm 80 --config num_warps=4
  triage run case.ptx --buffer out=u32[128] --buffer x=f32[64]:random --scalar n=32 --block 32
  triage run case.ptx --buffer out=u32[128] --buffer x=u32[128]:random --trace out[17]
  triage run --kernel scaled_values --sm 100a --trace out --beside num_stages=1
  triage run case.ptx --buffer out=u32[128] --ptxas 13.0.88 --ptxas 13.5.37 -O 0,3 --on sass
  triage run case.ptx --buffer out=u32[128] --ptxas 13.0.88 --ptxas 13.5.37 -O 0,3 --pack case.pack

Exit code 0: nothing is wrong with all that was run. 1: something is wrong, or configs of one launch
compute different things. 4: something could not be run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import numpy as np
from msgspec import structs

from gpu_emulator.values import Budget, Schedule
from harness.cells.compile import SamplePolicy
from harness.cells.next_steps import cell_words
from harness.cells.places import CompileOptions
from harness.cells.repros.find import find_kernels
from harness.cells.spelling import SelectionOptions, on_compiler, spell_command, spelled
from harness.cli.amounts import FilePath, FiniteRange
from harness.cli.gpu_way import (
    EXECUTOR,
    ONE_WAY,
    GpuOptions,
    import_option,
    pack_option,
    runner_option,
)
from harness.cli.options import Options, goes_with, json_option, option, silent, verb
from harness.cli.output import print_json, print_line, print_next, print_remarks, print_said
from harness.cli.progress.steps import narrating
from harness.cli.ptx_inputs import PtxOptions
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end, select_named, selection_options
from harness.run.emulator_jobs import RunTrial
from harness.run.executing import Follow, RunReport
from harness.run.executors import run_ptx, run_selections
from harness.run.following import follow_value, read_another, read_element
from harness.run.gpu.device.contents import MOST_RUNS
from harness.run.gpu.evaluating import GpuQuestion, ask_gpu, import_results
from harness.run.gpu.gpu_batch import LIMIT, REPEATS, GpuBatch
from harness.run.gpu.packing import inspect_pack
from harness.run.gpu.raw_cubin import run_cubin
from harness.run.launch_sources import takes_inputs
from harness.run.raw import RawInputs, RawReport
from harness.run.run_table import (
    measured_said,
    runs_document,
    runs_said,
    times_said,
    traces_said,
    values_said,
)
from harness.run.schedules import DEFAULT, INSTRUCTIONS, PROGRAMS, read_schedules, trials_of
from harness.tables.samples import samples_said
from harness.values.errors import UsageError
from harness.values.execution import RunRow
from harness.values.row import SCHEMA
from harness.values.toolchain import EMULATOR, GPU, SASS, TRITON, takes_cubins
from harness.values.verdict import VerdictKind

_LEVEL = re.compile(r"([0-3])(?:\.\.([0-3]))?")


def _levels(text: str) -> tuple[int, ...]:
    """The levels of `0..3` or `0,3`.

    Raises:
        UsageError: it is neither.
    """
    levels: list[int] = []
    for word in text.split(","):
        match = _LEVEL.fullmatch(word.strip())
        if not match:
            raise UsageError(f"-O {text}: write levels from 0 to 3, for example 0..3 or 0,3")
        low, high = int(match[1]), int(match[2] or match[1])
        if low > high:
            raise UsageError(f"-O {text}: {low} is more than {high}")
        levels += range(low, high + 1)
    return tuple(dict.fromkeys(levels))


class _GpuOptions(Options, rules=[ONE_WAY]):
    """What executes it; on a GPU, what is done there, and how it is reached."""

    on: str | None = option(
        often=True,
        type=EXECUTOR,
        help="What executes it: the PTX (the default); what ptxas makes of it, its SASS, without a "
        "GPU; or a GPU (the default with one of the options below).",
    )
    levels: tuple[int, ...] | None = option(
        "-O",
        reads=_levels,
        metavar="LEVELS",
        help="GPU, SASS: ptxas' optimisation levels, side by side: 0..3, or 0,3. Default for PTX: "
        "0,3.",
    )
    runner: str | None = runner_option()
    pack: Path | None = pack_option()
    results: Path | None = import_option(help="What such a program gave there.")
    inspect: Path | None = option(
        type=FilePath(read=True),
        metavar="PACK",
        help="GPU: say what a pack holds; nothing of it is run.",
    )
    measure: bool = option(
        help="GPU: how long each takes; a kernel at its own shape, or the one that you --set."
    )
    sanitize: bool = option(
        help="GPU: what compute-sanitizer says of each cubin: memcheck, racecheck, initcheck, "
        "synccheck. SASS: whether its schedule waits for each result (statically suspect)."
    )
    repeats: int | None = option(
        "--repeat",
        type=click.IntRange(2, MOST_RUNS),
        help=f"GPU: runs of each cubin, {REPEATS} by default; many show what differs rarely.",
    )
    limit: float = silent(
        "--gpu-timeout",
        type=FiniteRange(0.1, 3600),
        default=LIMIT,
        help="GPU: seconds for one run of a cubin. Longer is a hang where the emulator saw the PTX "
        "end, else `not_run`.",
    )

    @property
    def executor(self) -> str:
        """What is to execute it, as `--on` names it.

        Raises:
            UsageError: an option of the GPU, and something else is named.
        """
        of_cubins = {"-O": self.levels is not None}
        options = {
            "--runner": self.runner is not None,
            "--pack": self.pack is not None,
            "--measure": self.measure,
            "--sanitize": self.sanitize,
            "--repeat": self.repeats is not None,
        }
        if self.on == SASS:
            del options["--sanitize"]
        else:
            options = {**of_cubins, **options}
        own = [word for word, is_given in options.items() if is_given]
        if own and self.on in (EMULATOR, SASS):
            verb = "is" if len(own) == 1 else "are"
            raise UsageError(f"{' and '.join(own)} {verb} for a GPU: leave out --on {self.on}")
        return GPU if own else self.on or EMULATOR


_PTX, _CUBIN = ".ptx", ".cubin"


class _RunOptions(Options, rules=[goes_with("--trace", "--beside")]):
    """What is executed, on what inputs, and what is looked at."""

    words: SelectionOptions = selection_options(kernel_required=False)
    schedules: tuple[Schedule, ...] = option(
        default=DEFAULT,
        multiple=False,
        reads=read_schedules,
        metavar="WARPS/COMPLETION[:SEED][@BLOCKS],...",
        help="Orders to run it in. WARPS: lockstep, first, last or random; COMPLETION of "
        "asynchronous operations: early, late or random; BLOCKS: so many at once, not all.",
    )
    max_instructions: int = silent(
        often=True,
        metavar="N",
        type=click.IntRange(1),
        default=INSTRUCTIONS,
        help="Instructions of all threads that one run may take; one that takes more is `not_run`.",
    )
    programs: int | None = option(
        often=True,
        type=click.IntRange(1),
        help=f"The most programs of a grid to execute, evenly spread over it. Default: {PROGRAMS}; "
        "all of a file of PTX.",
    )
    races: bool = option("--races/--no-races", default=True, help="Look for races.")
    formal: bool = option(
        help="A race counts too that breaks only the letter of the memory model, or changes "
        "rounding alone."
    )
    trace: str | None = option(
        metavar="NAME[INDEX]",
        help="Follow an element back to where two of the runs first differ: out[17]; out takes the "
        "first that differs.",
    )
    beside: str | None = option(
        metavar="NAME=VALUE,...",
        help="With --trace: follow it to what it is made of here, and not in another PTX of the "
        "launch: num_stages=1, sm=80, triton=3.6.0.",
    )
    inputs: PtxOptions
    dump: Path | None = silent(
        "--out",
        type=FilePath(file_okay=False),
        help="PTX: write each buffer after the run as NAME.npy below this folder.",
    )
    gpu: _GpuOptions
    how: CompileOptions = execution_options()
    as_json: bool = json_option()

    @property
    def trials(self) -> tuple[RunTrial, ...]:
        """The orders in which each is executed."""
        return trials_of(self.schedules, races=self.races)

    @property
    def budget(self) -> Budget:
        """The limits of one run; all programs of a grid where their number is not limited."""
        budget = Budget(max_instructions=self.max_instructions)
        return replace(budget, max_ctas=self.programs) if self.programs else budget

    @property
    def follow(self) -> Follow | None:
        """What follows the tensor element of `--trace`; None without it.

        Raises:
            UsageError: `--trace` or `--beside` cannot be read.
        """
        if not self.trace:
            return None
        read_element(self.trace)
        another = read_another(self.beside) if self.beside else None
        return partial(follow_value, element=self.trace, another=another)


@verb()
def command(options: _RunOptions) -> int:
    """Execute what was compiled, on small real inputs, and say what came out.

    Every cell is lowered to PTX, and the PTX is executed by an emulator under the PTX ISA's rules,
    without a GPU. Its results are held to those of the same kernel without pipelining, and of
    Triton's interpreter; the configs of one launch, to one another. What it says is *emulated*:
    true of the PTX, not of what ptxas or a chip makes of it.

    With --on sass, what ptxas makes of the PTX is executed beside it, without a GPU: a cubin that
    alone computes something else is accused.

    A file of PTX or CUDA C++, or a cubin, is executed on inputs that you name; what you leave out
    is guessed, and said.
    """
    name, gpu, inputs = options.words.kernel, options.gpu, options.inputs
    if gpu.inspect or gpu.results:
        word = "--inspect" if gpu.inspect else "--import"
        if name or (gpu.inspect and gpu.results):
            raise UsageError(f"{word} takes its kernels from the file: name nothing else")
        return _look_at_pack(gpu, options.how, as_json=options.as_json)
    if not name:
        raise UsageError("name a kernel: `triage run FILE.ptx`, or --kernel NAME")
    options = replace(options, words=structs.replace(options.words, formal=options.formal))
    path, _, entry = name.partition("::")
    repros = [] if path.endswith((_PTX, _CUBIN, ".py")) else find_kernels(name)
    if path.endswith(_CUBIN):
        return _run_files([(Path(path), entry or None, inputs.named())], options)
    if takes_cubins(on := gpu.executor):
        return _run_cubins(options, on)
    if path.endswith(_PTX):
        return _run_files([(Path(path), entry or None, inputs.named())], options)
    if repros and all(repro.ptx for repro in repros):
        files = [(repro.ptx, repro.kernel, inputs.named(repro)) for repro in repros if repro.ptx]
        return _run_files(files, options)
    if not (repros and all(map(takes_inputs, repros))):
        inputs.refuse("a file of PTX or of CUDA C++")
    return _run_kernels(options)


def _run_kernels(options: _RunOptions) -> int:
    if options.dump:
        raise UsageError("--out is for a file of PTX")
    budget = options.budget if options.programs else replace(options.budget, max_ctas=PROGRAMS)
    selections = select_named(options.words)
    survey = SamplePolicy(options.words, "run", "executed")
    with open_results() as store, narrating("executing") as tell:
        report = run_to_the_end(
            run_selections(
                selections,
                store,
                options.how,
                options.trials,
                budget,
                tell,
                follow=options.follow,
                survey=survey,
                given=options.inputs.named,
            )
        )
    print_remarks(*report.notes, *report.failures)
    if options.as_json:
        summary = {"not_tried": report.samples, "notes": report.notes}
        print_json(runs_document(report.rows, **summary, failures=report.failures))
    else:
        print_said([*runs_said(report.rows), *samples_said(report.samples)])
        print_said(traces_said(report.rows))
        print_next(_next(report.rows, options.words, is_one=len(selections) == 1))
    return _exit_code(report.rows, has_failures=bool(report.failures))


_WELL = (VerdictKind.RIGHT, VerdictKind.AS_INTERPRETED)


def _next(
    rows: Sequence[RunRow], words: SelectionOptions, *, is_one: bool
) -> Iterator[tuple[str, str]]:
    """What is to be asked next of what the emulator executed; `is_one`: of one kernel."""
    compiled = [row.compiled for row in rows if row.compiled]
    wrong = [row.compiled for row in rows if row.compiled and row.run.is_failure]
    if wrong and is_one:
        cell = cell_words(wrong[0], compiled, words)
        if wrong[0].compiler == TRITON:
            since = on_compiler(cell, None, None)
            command = spell_command("bisect", since, "--run", "--axis", "triton")
            yield command, "since which Triton it is so"
        yield spell_command("blame", cell, "--run"), "whose fault it is"
    elif rows and all(row.run in _WELL for row in rows) and not words.formal:
        yield spell_command("run", words, "--on", "sass"), "is what ptxas makes of it right, too?"


def _run_files(files: Sequence[tuple[Path, str | None, RawInputs]], options: _RunOptions) -> int:
    words, reports = options.words, []
    if options.beside:
        raise UsageError("--beside is for kernels: a file of PTX has no other configs")
    if options.dump and len(files) > 1:
        raise UsageError(f"--out is for one file of PTX, {words.kernel} names {len(files)}")
    # What chooses among launches, configs and compilers: a file of PTX has none.
    choosing = structs.replace(words, kernel="", formal=False, surroundings=())
    is_cubin = files[0][0].suffix == _CUBIN
    if others := spelled(choosing)[2:]:
        what = "a cubin" if is_cubin else "PTX"
        raise UsageError(
            f"{files[0][0]}: {others[0]} does not apply (leave it out): {what} is executed as it is"
        )
    if is_cubin:
        _check_cubin(files[0][0], options)
    with open_results() as store, narrating("executing") as tell:
        for path, entry, inputs in files:
            given = (path, entry, inputs, store, options.how, options.trials, options.budget, tell)
            job = (
                run_cubin(*given, sanitize=options.gpu.sanitize)
                if is_cubin
                else run_ptx(*given, follow=options.follow, formal=words.formal)
            )
            reports.append(run_to_the_end(job))
    if options.dump:
        _dump(reports[0], options.dump)
    rows = [report.row for report in reports]
    if options.as_json:
        notes = [note for report in reports for note in report.notes]
        print_json(runs_document(rows, notes=notes, failures=()))
    else:
        print_said(runs_said(rows))
        if len(reports) == 1:
            print_said(values_said(reports[0].before, reports[0].after))
        print_said(traces_said(rows))
    return _exit_code(rows)


def _check_cubin(path: Path, options: _RunOptions) -> None:
    """Refuse what is not done with a cubin.

    Raises:
        UsageError: it says what.
    """
    if options.gpu.on == EMULATOR or options.gpu.executor == GPU:
        raise UsageError(f"{path}: a cubin without its PTX is executed by --on {SASS} alone")
    not_for_cubins = {
        "-O": options.gpu.levels is not None,
        "--trace": options.trace,
        "--formal": options.words.formal,
    }
    for name, is_given in not_for_cubins.items():
        if is_given:
            raise UsageError(f"{path}: {name} is for PTX")


def _dump(report: RawReport, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in report.after.items():
            # What numpy does not know by itself (bfloat16, float8) is kept as its bits.
            is_known = values.dtype.isbuiltin == 1
            bits = values if is_known else values.view(f"u{values.itemsize}")
            np.save(folder / f"{name}.npy", bits, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror or error}") from error


def _exit_code(rows: Sequence[RunRow], *, has_failures: bool = False) -> int:
    if any(row.is_accused for row in rows):
        return 1
    return 4 if has_failures or any(row.run is VerdictKind.NOT_RUN for row in rows) else 0


# Cubins: their SASS emulated, or on a GPU: here, elsewhere by a command, or elsewhere by a file.


def _look_at_pack(gpu: _GpuOptions, how: CompileOptions, *, as_json: bool) -> int:
    """`--inspect` and `--import`: what is there already; the exit code.

    Raises:
        UsageError: the file is not what it should be.
    """
    if gpu.inspect:
        lines, document = inspect_pack(gpu.inspect)
        if as_json:
            print_json({"schema": SCHEMA, **document})
        else:
            for line in lines:
                print_line(line)
        return 0 if document["is_ours"] else 1
    assert gpu.results
    with open_results() as store, narrating("reading results") as tell:
        report = run_to_the_end(import_results(gpu.results, store, how, tell))
    return _show(report, as_json=as_json)


def _run_cubins(options: _RunOptions, on: str) -> int:
    """Have the cubins of what is selected executed, or write a pack; the exit code."""
    gpu, how = options.gpu, options.how
    of_ptx = {"--trace": options.trace, "--formal": options.words.formal, "--out": options.dump}
    for name, is_given in of_ptx.items():
        if is_given:
            raise UsageError(f"{name} is for the emulator of PTX, not for --on {on}")
    # Before anything is compiled: is there a GPU to be reached?
    way = GpuOptions(on=on, runner=gpu.runner, pack=gpu.pack).way()
    selections = select_named(options.words)
    is_ptx = all(selection.repro.ptx for selection in selections)
    question = GpuQuestion(
        selections=selections,
        inputs=options.inputs.named,
        levels=((0, 3) if is_ptx else ()) if gpu.levels is None else gpu.levels,
        trials=options.trials,
        budget=options.budget,
        how=GpuBatch(
            command=how.command,
            limit=gpu.limit,
            repeats=gpu.repeats or REPEATS,
            sanitize=gpu.sanitize,
            on=on,
        ),
        measure=gpu.measure,
    )
    with open_results() as store, narrating("compiling") as tell:
        report = run_to_the_end(ask_gpu(question, way, store, how, tell))
    if isinstance(report, RunReport):
        return _show(report, as_json=options.as_json)
    assert gpu.pack, "a batch that was packed"
    cubins = len(report.carried)
    if options.as_json:
        print_json({"schema": SCHEMA, "pack": str(gpu.pack), "cubins": cubins})
    else:
        print_line(f"{gpu.pack}: {cubins} cubins with their inputs")
        print_line(f"  there:  python3 {gpu.pack.name} --out results.jsonl")
        print_line("  here:   triage run --import results.jsonl")
    return 0


def _show(report: RunReport, *, as_json: bool) -> int:
    print_remarks(*report.notes)
    rows = report.rows
    if as_json:
        print_json(runs_document(rows, device=report.device, notes=report.notes))
    else:
        print_said(measured_said(rows, report.device))
        print_said(times_said(rows, report.device))
    return _exit_code(rows)
