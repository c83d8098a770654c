"""The interface that is kept stable: a launch in, an outcome out, never an exception.

`run` executes a `Launch` and returns an `Outcome`: the buffers afterwards, and the faults, races
and reads of unwritten memory that `Checks` ask for, within a `Budget`. `trace` and `origins` follow
one element of a buffer back through two runs, and return a `Trace`. What cannot be executed is an
outcome as well: `not_run` says why. `knows_sass` says which instructions of a cubin it executes.
`gpu_emulator.values` documents each type.

`ptx.text` (PTX as text), `ptx.forms` (which opcodes there are), `sass.cubin` (what a cubin holds)
and `sass.hazards` (what its schedule does not wait for) are kept stable, too. Everything else in
this package may change with any release.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_emulator.machine import launching, tracing
from gpu_emulator.ptx.program.decoding import decode
from gpu_emulator.sass.decoding import decode_cubin, is_known
from gpu_emulator.steps import Program
from gpu_emulator.values import (
    Allocation,
    Argument,
    Budget,
    Checks,
    Cubin,
    Element,
    Fault,
    Launch,
    Null,
    Outcome,
    Place,
    Pointer,
    Race,
    Scalar,
    Schedule,
    TensorMap,
    TensorMapArgument,
    Trace,
    TraceInput,
    TraceLink,
    Uninitialised,
)

__all__ = [
    "Allocation",
    "Argument",
    "Budget",
    "Checks",
    "Cubin",
    "Element",
    "Fault",
    "Launch",
    "Null",
    "Outcome",
    "Place",
    "Pointer",
    "Race",
    "Scalar",
    "Schedule",
    "TensorMap",
    "TensorMapArgument",
    "Trace",
    "TraceInput",
    "TraceLink",
    "Uninitialised",
    "knows_sass",
    "origins",
    "run",
    "trace",
]


def _program_of(launch: Launch) -> Program:
    if launch.cubin is not None:
        return decode_cubin(launch.cubin, launch.entry)
    return decode(launch.ptx, launch.entry)


def run(
    launch: Launch,
    schedule: Schedule | None = None,
    limits: Budget | None = None,
    check: Checks | None = None,
    heard: Callable[[int], None] = lambda executed: None,  # noqa: ARG005
) -> Outcome:
    """Execute a launch; every way in which it may end is an outcome, never an exception.

    `heard` gets the number of instructions of threads, now and then.
    """
    return launching.run(_program_of, launch, schedule, limits, check, heard)


def trace(
    launches: tuple[Launch, Launch],
    schedules: tuple[Schedule, Schedule],
    limits: Budget,
    element: Element,
) -> Trace:
    """Follow an element back to where two runs first differ. Never an exception, as `run`.

    The runs differ in their schedule, or in what the launches hold.
    """
    return tracing.trace(_program_of, launches, schedules, limits, element)


def origins(
    launches: tuple[Launch, Launch],
    schedules: tuple[Schedule, Schedule],
    limits: Budget,
    element: Element,
) -> Trace:
    """Which bytes an element is made of in one run and not in the other, and how they get there.

    The launches have the same buffers. Never an exception, as `run`.
    """
    return tracing.origins(_program_of, launches, schedules, limits, element)


def knows_sass(opcode: str) -> bool:
    """Whether an instruction of SASS of this name, with its modifiers, can be executed."""
    return is_known(opcode)
