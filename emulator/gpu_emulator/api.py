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

from gpu_emulator.machine.launching import run
from gpu_emulator.machine.tracing import origins, trace
from gpu_emulator.sass.decoding import is_known
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


def knows_sass(opcode: str) -> bool:
    """Whether an instruction of SASS of this name, with its modifiers, can be executed."""
    return is_known(opcode)
