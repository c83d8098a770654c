"""Answers a batch without a GPU: the SASS of each cubin is emulated, on the inputs of its PTX."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpu_emulator.sass.hazards import find_hazards
from gpu_emulator.values import Cubin, NotExecutable
from harness.frontends.assemble import list_cubin
from harness.frontends.bench import Workbench
from harness.io.processes.tasks import in_parallel
from harness.io.toolchains.install import find_nvdisasm
from harness.run.emulating import emulate
from harness.run.emulator_jobs import Emulated, Emulation, Ran, RunTrial
from harness.run.gpu.gpu_batch import BatchCase, GpuBatch
from harness.run.gpu.measured import GpuFacts, GpuRun
from harness.run.gpu.packing import Answers, CubinRunner, place_of
from harness.run.judging import fault_identity, fault_words
from harness.values.execution import SanitizerFacts
from harness.values.toolchain import EXECUTOR_NAMES, SASS

_NO_GPU = GpuFacts(
    name="", capability=0, cuda="", memory=0, max_threads=0, multiprocessors=0, max_shared=0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SassEmulator(CubinRunner):
    """This machine's processor; `tell` hears how far it is."""

    name: str = EXECUTOR_NAMES[SASS]
    on: str = SASS
    tell: Callable[[str], None] = lambda text: None  # noqa: ARG005

    async def answers(self, bench: Workbench, gpu_batch: GpuBatch) -> Answers:
        """Emulate the cubins of a batch. What cannot be emulated is a problem of its case.

        Raises:
            InfrastructureError: nvdisasm or the emulator cannot be started.
            UnusableArtifactError: a cubin or a buffer is damaged.
        """
        answers = Answers.of(gpu_batch, _NO_GPU, SASS)
        answers.is_whole = True

        async def answer(number: int, case: BatchCase) -> None:
            measured, cubin = answers.measured[number], case.cubin or ""
            emulation = gpu_batch.launches[case.launch or 0].emulation
            if gpu_batch.sanitize:
                measured.checks = [await check_schedule(bench, cubin, emulation.entry)]
            result = await emulate_cubin(bench, cubin, emulation, self.tell)
            if isinstance(result, str):
                measured.problem = result
                return
            _, emulated = result
            measured.instructions = sum(ran.executed for ran in emulated.runs)
            # As on a GPU, one that does not end is the last.
            ends = next((n for n, ran in enumerate(emulated.runs, 1) if not ran.ended), None)
            runs = emulated.runs[:ends]
            if refusal := runs[-1].refusal if ends else emulated.problem:
                measured.problem = refusal
                return
            measured.runs = [_run(number, *pair) for pair in enumerate(runs)]

        await in_parallel(answer(*pair) for pair in enumerate(gpu_batch.carried))
        runs = itertools.chain(*(measured.runs for measured in answers.measured))
        names = {sha256 for run in runs for sha256 in run.buffers}
        answers.blobs = {sha256: bench.store.artifacts.get(sha256) for sha256 in names}
        return answers


def destination_of(
    on: str | None,
    runner: str | None,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> CubinRunner:
    """Where cubins are executed, as `--on` and `--runner` say it.

    Raises:
        UsageError: the runner is not a command.
        InfrastructureError: there is no GPU.
    """
    return SassEmulator(tell=tell) if on == SASS else place_of(runner)


async def emulate_cubin(
    bench: Workbench, cubin: str, emulation: Emulation, tell: Callable[[str], None]
) -> tuple[Emulation, Emulated] | str:
    """What a stored cubin does in the place of the launch's PTX; a text says why it has no SASS.

    Raises:
        InfrastructureError: nvdisasm or the emulator cannot be started.
        UnusableArtifactError: the cubin or a buffer is damaged.
    """
    listing = await list_cubin(bench, cubin, [find_nvdisasm()])
    if listing.value.problem:
        return f"its SASS cannot be read: {listing.value.problem}"
    # The PTX has no part in it: cubins of the same bytes are emulated once.
    mine = replace(emulation, ptx="", cubin=cubin, listing=listing.artifacts["listing"])
    mine = replace(mine, trials=_trials(emulation.trials))
    return mine, (await emulate(bench, mine, tell)).value


async def check_schedule(bench: Workbench, cubin: str, entry: str) -> SanitizerFacts:
    """Whether the schedule of a stored cubin waits for all that it should: read, not executed.

    Raises:
        InfrastructureError: nvdisasm cannot be started.
        UnusableArtifactError: the cubin is damaged.
    """
    listing = await list_cubin(bench, cubin, [find_nvdisasm()])
    if problem := listing.value.problem:
        return SanitizerFacts(tool="schedule", errors=None, words=problem)
    get = bench.store.artifacts.get
    text = get(listing.artifacts["listing"]).decode(errors="replace")
    try:
        found = find_hazards(Cubin(elf=get(cubin), listing=text), entry)
    except NotExecutable as error:
        return SanitizerFacts(tool="schedule", errors=None, words=str(error))
    words = f"statically suspect: {found[0]}" if found else ""
    return SanitizerFacts(tool="schedule", errors=len(found), words=words)


def _trials(trials: Sequence[RunTrial]) -> tuple[RunTrial, ...]:
    """The two orders that are farthest apart, and the run with other garbage.

    The other orders, and races, are looked at where the PTX is emulated.
    """
    orders = [trial for trial in trials if not trial.schedule.garbage]
    garbage = [trial for trial in trials if trial.schedule.garbage]
    chosen = dict.fromkeys((orders[0], orders[-1], *garbage))
    return tuple(replace(trial, checks=replace(trial.checks, races=False)) for trial in chosen)


def _run(case: int, number: int, ran: Ran) -> GpuRun:
    for fault in ran.faults:
        return GpuRun(
            case=case,
            run=None,
            status="hang" if fault.kind == "hang" else "fault",
            call=fault_identity(fault),
            name=fault.kind,
            words=fault_words(fault),
        )
    return GpuRun(case=case, run=number, status="ended", buffers=ran.buffers, seconds=ran.seconds)
