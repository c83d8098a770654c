"""Tries the programs of an issue where its claims need it: compiled, and executed without a GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from gpu_emulator.values import Budget
from harness.cells.compile import SamplePolicy, compile_selections
from harness.cells.places import CompileOptions, RunProgress
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions, on_assembler, on_compiler, spell_command
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.plan import Selection
from harness.frontends.registry import front_end, kinds, takes
from harness.frontends.texts.ir_inputs import OPTIONS_ARGUMENT
from harness.io.files.locations import create_folder
from harness.io.files.writing import write_atomically
from harness.io.toolchains.installed import installed_versions
from harness.run.executors import run_selections
from harness.run.gpu.evaluating import GpuQuestion, GpuReport, ask_gpu
from harness.run.gpu.gpu_batch import GpuBatch
from harness.run.gpu.packing import GpuWay
from harness.run.gpu.sass_emulator import destination_of
from harness.run.raw import RawInputs
from harness.run.schedules import INSTRUCTIONS, PROGRAMS, default_trials
from harness.store.stages import stage_bytes
from harness.store.store import Store
from harness.values.errors import InfrastructureError, StorageError, TriageError
from harness.values.execution import RunRow
from harness.values.kernel import Repro
from harness.values.toolchain import PTX, PTXAS, SASS, TRITON
from harness.values.verdict import VerdictKind
from harness.verify.claims import IssueReading, read_claims
from harness.verify.programs import Program, read_blocks
from harness.verify.trials import ASSUMED_TARGET, Seen, Trial, place_words


def read_issue(text: str) -> tuple[IssueReading, Mapping[str, Sequence[str]]]:
    """What an issue holds, and the releases of each tool that there are."""
    modules = {module: kind for kind in kinds() for module in takes(kind)[1]}
    blocks, programs, prose = read_blocks(text, {**modules, "triton": TRITON})
    fronts = [front_end(kind) for kind in {program.compiler for program in programs}]
    releases = {front.kind: _releases(front) for front in fronts}
    # What is behind Triton may be named, too.
    behind = [front.back_end(ASSUMED_TARGET) for front in fronts]
    releases |= {back.kind: _releases(back) for back in behind}
    return read_claims(blocks, programs, prose, releases), releases


def _releases(tool: FrontEnd | BackEnd) -> tuple[str, ...]:
    """The versions of the index, oldest first; without an index, those that are installed."""
    try:
        return tuple(map(str, tool.available()))
    except InfrastructureError:
        return tuple(map(str, installed_versions(tool.kind)))


def file_of(program: Program, number: int, call: str, folder: Path) -> Path:
    """Where a program, with a call behind it, lies as a file."""
    call = call or program.call
    part = f"-{hashlib.sha256(call.encode()).hexdigest()[:6]}" if call else ""
    return folder / f"program-{number + 1}{part}{program.suffix}"


def words_of(trial: Trial, program: Program, folder: Path) -> SelectionOptions:
    """The options that select what a trial compiles."""
    words = SelectionOptions(
        kernel=str(file_of(program, trial.program, trial.call, folder)),
        sm=[str(trial.target)],
        set=[
            *([f"target={trial.target}"] if trial.is_retargeted else []),
            *([] if trial.level is None else [f"{OPTIONS_ARGUMENT}=-O{trial.level}"]),
        ],
    )
    if program.compiler != PTX and trial.compiler:
        words = on_compiler(words, program.compiler, trial.compiler)
    return on_assembler(words, PTXAS, trial.ptxas)


def command_of(trial: Trial, program: Program, folder: Path) -> str:
    """The command that shows what a trial showed."""
    words = words_of(trial, program, folder)
    if not trial.is_run:
        return spell_command("compile", words)
    if program.compiler != PTX:
        return spell_command("run", words)
    levels = ",".join(map(str, sorted({0, trial.level or 0})))
    return spell_command("run", _without_level(words), "-O", levels, "--on", SASS)


def _without_level(words: SelectionOptions) -> SelectionOptions:
    return replace(words, set=[word for word in words.set if OPTIONS_ARGUMENT not in word])


async def try_programs(
    programs: Sequence[Program],
    trials: Iterable[Trial],
    folder: Path,
    store: Store,
    how: CompileOptions,
    surroundings: Sequence[str],
    inputs: Callable[[Repro], RawInputs],
    tell: Callable[[str], None],
) -> dict[Trial, Seen]:
    """Write the programs into a folder, and try them; PTX is executed on `inputs`.

    Raises:
        StorageError: the folder, or the store, cannot be written.
    """
    seen = dict[Trial, Seen]()
    create_folder(folder.absolute())
    for trial in dict.fromkeys(trials):
        program = programs[trial.program]
        path = file_of(program, trial.program, trial.call, folder)
        write_atomically(path, program.called(trial.call).encode())
        words = replace(words_of(trial, program, folder), surroundings=tuple(surroundings))
        tell(f"program {trial.program + 1}, {place_words(trial)}")
        seen[trial] = await _tried(trial, program, words, store, how, inputs, tell)
    return seen


async def _tried(
    trial: Trial,
    program: Program,
    words: SelectionOptions,
    store: Store,
    how: CompileOptions,
    inputs: Callable[[Repro], RawInputs],
    tell: Callable[[str], None],
) -> Seen:
    seen = Seen()
    try:
        selections = select_all(words)
        policy = SamplePolicy(words)
        report = await compile_selections(selections, store, how, RunProgress(), policy)
        seen = Seen(rows=report.rows, trouble="; ".join(report.failures))
        failed = [row.cell for row in report.rows if row.verdict.fails]
        logs = [stage_bytes(store, store.find_cells(cell)[0], "log") for cell in failed]
        seen = replace(seen, log="\n".join(log.decode("utf-8", "replace") for log in logs if log))
        if not trial.is_run or seen.failing or seen.refusal:
            return seen
        if program.compiler == PTX:
            selections = select_all(_without_level(words))
            runs = await _assembled_runs(trial, selections, store, how, inputs, tell)
            if faults := [run for run in runs if run.run.fails and run.run not in _OF_CUBIN]:
                return replace(seen, trouble=f"its inputs are guessed: {faults[0].run_reason}")
        else:
            budget = Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS)
            executed = await run_selections(
                selections, store, how, default_trials(), budget, tell, survey=policy
            )
            runs = [*executed.rows]
        return replace(seen, runs=tuple(runs))
    except StorageError:
        raise
    except TriageError as error:
        return replace(seen, trouble=str(error))


_OF_CUBIN = (VerdictKind.WRONG_RESULT, VerdictKind.NONDETERMINISTIC)
"""What a cubin does and its PTX does not; all else may be the fault of guessed inputs."""


async def _assembled_runs(
    trial: Trial,
    selections: Sequence[Selection],
    store: Store,
    how: CompileOptions,
    inputs: Callable[[Repro], RawInputs],
    tell: Callable[[str], None],
) -> list[RunRow]:
    """What ptxas makes of PTX, its SASS executed and held to the PTX; at -O0, too."""
    level = trial.level or 0
    question = GpuQuestion(
        selections=selections,
        inputs=inputs,
        levels=tuple(sorted({0, level})),
        trials=default_trials(),
        budget=Budget(max_instructions=INSTRUCTIONS),
        how=GpuBatch(command=how.command, on=SASS),
    )
    way = GpuWay(place=destination_of(SASS, None, tell))
    report = await ask_gpu(question, way, store, how, tell)
    assert isinstance(report, GpuReport), "no pack is asked for"
    flag = f"-O{level}"
    return [row for row in report.rows if row.compiled and flag in row.compiled.ptxas_flags]
