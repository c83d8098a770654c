"""The interface that is kept stable: a launch in, an outcome out, never an exception.

`run` executes a `Launch` and returns an `Outcome`: the buffers afterwards, and the faults, races
and reads of unwritten memory that `Checks` ask for, within a `Budget`. `trace` and `origins` follow
one element of a buffer back through two runs, and return a `Trace`. What cannot be executed is an
outcome as well: `not_run` says why. `gpu_emulator.values` documents each type.

Everything else in this package may change with any release.
"""

from __future__ import annotations

from gpu_emulator.machine.launching import run
from gpu_emulator.machine.tracing import origins, trace
from gpu_emulator.values import (
    Allocation,
    Argument,
    Budget,
    Checks,
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
    "origins",
    "run",
    "trace",
]
