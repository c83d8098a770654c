"""What executes the cells of a selection, by the name that `--on` gives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpu_emulator.values import Budget
from harness.frontends.base import Selection
from harness.frontends.bench.bench import Workbench
from harness.run.executing import Executor, OnEmulator
from harness.run.gpu.evaluating import OnGpu
from harness.run.gpu.packing import place_of
from harness.run.launching import LaunchSource
from harness.run.raw_ptx import RawInputs, inputs_of, raw_launch
from harness.run.recorded_launch import RecordedLaunch, default_trials, small_selection
from harness.run.schedules import INSTRUCTIONS
from harness.values.toolchain import EMULATOR, GPU


def executed_selection(selection: Selection, on: str | None) -> Selection:
    """The selection with its launches at the sizes at which they are executed.

    Raises:
        UsageError: it is a file of PTX that no GPU is to execute, or of a compiler whose launches
            cannot be run.
    """
    return selection if on == GPU and selection.repro.ptx else small_selection(selection)


def executor_of(
    bench: Workbench,
    selection: Selection,
    tell: Callable[[str], None],
    on: str | None = EMULATOR,
    *,
    runner: str | None = None,
    inputs: RawInputs | None = None,
    command: str = "",
) -> Executor:
    """What executes the first launch of a selection: the emulator, or a GPU (by the `runner`).

    A file of PTX gets these `inputs`, else those that its repro names. `command` is what asks.

    Raises:
        UsageError: the inputs do not fit, or the runner is not a command.
        InfrastructureError: there is no GPU.
    """
    if on != GPU:
        return OnEmulator(source=RecordedLaunch(bench=bench, selection=selection, tell=tell))
    source: LaunchSource = RecordedLaunch(bench=bench, selection=selection, tell=tell)
    if path := selection.repro.ptx:
        source = raw_launch(
            Path(path),
            selection.repro.kernel,
            inputs or inputs_of(selection.repro),
            bench.store,
            default_trials(),
            Budget(max_instructions=INSTRUCTIONS),
        )
    destination = place_of(runner)
    return OnGpu(bench=bench, source=source, destination=destination, tell=tell, command=command)
