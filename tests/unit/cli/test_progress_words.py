"""What a long compile says of itself before its first cell is done."""

from __future__ import annotations

from harness.cli.progress import cells


def test_lowering_counts_as_progress_with_its_compiler() -> None:
    state = cells._State()
    assert state.words == "capturing"
    state.capture("Triton 3.5.0, sm_90a")
    assert state.words == "capturing with Triton 3.5.0, sm_90a"
    state.plan(36)
    for _ in range(6):
        state.lower()
    assert state.words == ("0 of 36 cells done; lowering 7 of 36 (Triton 3.5.0, sm_90a); ETA -")
    for _ in range(30):
        state.lower()
    assert state.words == "0 of 36 cells done; ETA -"
