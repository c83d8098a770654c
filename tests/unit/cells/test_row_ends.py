"""What a row says of how a process ended is the compiler's own end, never that of our child."""

from __future__ import annotations

import pytest

from harness.cells.evaluate import compiler_end
from harness.values.outcome import Assembly, Lowering, ProcessEnd, RaisedError

RAISED = RaisedError(type="CompilationError", kinds=("CompilationError",), message="no")
FINE = ProcessEnd(exit_code=0)
ABORTED = ProcessEnd(signal=6)
ICE = ProcessEnd(exit_code=255)


def lowered(end: ProcessEnd, error: RaisedError | None = None) -> Lowering:
    return Lowering(end=end, stage="ttir", error=error)


def assembled(end: ProcessEnd) -> Assembly:
    return Assembly(end=end, flags=(), stdout="", stderr="", has_cubin=end.ok)


@pytest.mark.parametrize(
    ("lowering", "assembly", "end"),
    [
        (lowered(FINE, RAISED), None, None),  # the exit code of our child
        (lowered(FINE), None, None),
        (lowered(ABORTED), None, ABORTED),  # Triton took it down
        (lowered(ProcessEnd(exit_code=1)), None, ProcessEnd(exit_code=1)),  # LLVM ends it so
        (lowered(FINE), assembled(ICE), ICE),
        (lowered(FINE), assembled(FINE), FINE),
        (None, assembled(ICE), ICE),
        (None, None, None),
    ],
)
def test_the_end_of_the_compiler(
    lowering: Lowering | None, assembly: Assembly | None, end: ProcessEnd | None
) -> None:
    assert compiler_end(lowering, assembly) == end
