"""Tries the programs of an issue where its claims need it: compiled, and executed without a GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from gpu_emulator.values import Budget
from harness.cells.compile import SamplePolicy, compile_selections
from harness.cells.places import CompileOptions, RunProgress
from harness.cells.selection import select_all
from harness.cells.spelling import SelectionOptions, on_assembler, on_compiler, spell_command
from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.registry import front_end, kinds, takes
from harness.frontends.texts.ir_inputs import OPTIONS_ARGUMENT
from harness.io.files.locations import create_folder
from harness.io.files.writing import write_atomically
from harness.io.toolchains.installed import installed_versions
from harness.run.executing import RunReport
from harness.run.executors import run_selections
from harness.run.gpu.evaluating import GpuQuestion, ask_gpu
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
from harness.values.row import Row
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


_OF_CUBIN = (VerdictKind.WRONG_RESULT, VerdictKind.NONDETERMINISTIC)
"""What a cubin does and its PTX does not; all else may be the fault of guessed inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTrials:
    """Tries the programs of an issue, which it writes into a folder; PTX is executed on `inputs`.

    `surroundings` are as in `SelectionOptions`.
    """

    programs: Sequence[Program]
    folder: Path
    store: Store
    how: CompileOptions
    surroundings: Sequence[str]
    inputs: Callable[[Repro], RawInputs]
    tell: Callable[[str], None]
    _runs: dict[Trial, Sequence[RunRow]] = field(default_factory=dict)

    async def see(self, trials: Iterable[Trial]) -> dict[Trial, Seen]:
        """What comes of each trial.

        Raises:
            StorageError: the folder, or the store, cannot be written.
        """
        create_folder(self.folder.absolute())
        distinct = list(dict.fromkeys(trials))
        seen = dict[Trial, Seen]()
        for trial in distinct:
            program = self.programs[trial.program]
            path = file_of(program, trial.program, trial.call, self.folder)
            write_atomically(path, program.called(trial.call).encode())
            self.tell(f"program {trial.program + 1}, {place_words(trial)}")
            alike = [each for each in distinct if _is_beside(each, trial)]
            seen[trial] = await self._try(trial, {0, *(each.level or 0 for each in alike)})
        return seen

    async def _try(self, trial: Trial, levels: Collection[int]) -> Seen:
        seen, program = Seen(), self.programs[trial.program]
        words = words_of(trial, program, self.folder)
        words = replace(words, surroundings=tuple(self.surroundings))
        try:
            policy = SamplePolicy(words)
            report = await compile_selections(
                select_all(words), self.store, self.how, RunProgress(), policy
            )
            seen = Seen(rows=report.rows, trouble="; ".join(report.failures))
            seen = replace(seen, log="\n".join(map(self._log, seen.rows)))
            if not trial.is_run or seen.failing or seen.refusal:
                return seen
            if program.compiler == PTX:
                runs = await self._run_ptx(trial, words, levels)
                faults = [run for run in runs if run.run.fails and run.run not in _OF_CUBIN]
                if faults:
                    why = f"its inputs may be at fault: {faults[0].run_reason}"
                    return replace(seen, trouble=why)
            else:
                executed = await run_selections(
                    select_all(words),
                    self.store,
                    self.how,
                    default_trials(),
                    Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS),
                    self.tell,
                    survey=policy,
                )
                runs = executed.rows
            return replace(seen, runs=tuple(runs))
        except StorageError:
            raise
        except TriageError as error:
            return replace(seen, trouble=str(error))

    def _log(self, row: Row) -> str:
        """What the compilers printed, where they failed."""
        data = None
        if row.verdict.fails:
            data = stage_bytes(self.store, self.store.find_cells(row.cell)[0], "log")
        return (data or b"").decode("utf-8", "replace")

    async def _run_ptx(
        self, trial: Trial, words: SelectionOptions, levels: Collection[int]
    ) -> Sequence[RunRow]:
        """What ptxas makes of PTX, its SASS executed and held to the PTX; each level once."""
        key = replace(trial, level=None)
        if key not in self._runs:
            question = GpuQuestion(
                selections=select_all(_without_level(words)),
                inputs=self.inputs,
                levels=tuple(sorted(levels)),
                trials=default_trials(),
                budget=Budget(max_instructions=INSTRUCTIONS),
                how=GpuBatch(command=self.how.command, on=SASS),
            )
            way = GpuWay(place=destination_of(SASS, None, self.tell))
            report = await ask_gpu(question, way, self.store, self.how, self.tell)
            assert isinstance(report, RunReport), "no pack is asked for"
            self._runs[key] = report.rows
        flag = f"-O{trial.level or 0}"
        rows = self._runs[key]
        return [row for row in rows if row.compiled and flag in row.compiled.ptxas_flags]


def _is_beside(one: Trial, other: Trial) -> bool:
    """Whether two trials differ in nothing but the level."""
    return replace(one, level=None) == replace(other, level=None)
