"""What a long compile says of itself before its first cell is done."""

from __future__ import annotations

from harness.cli.progress import cells


def test_lowering_counts_as_progress_with_its_compiler() -> None:
    state = cells._State()
    assert state.words == "capturing"
    state.capture("Triton 3.5.0, sm_90a")
    assert state.words == "capturing with Triton 3.5.0, sm_90a"
    state.plan(36)
    assert state.words == "0 of 36 cells done; lowering 1 of 36 (Triton 3.5.0, sm_90a); ETA -"
    for _ in range(6):
        state.lower()
    # Six of its 72 steps took a minute.
    state.started = state.latest - 60
    assert state.words == (
        "0 of 36 cells done; lowering 7 of 36 (Triton 3.5.0, sm_90a); 6 to assemble; ETA 0:11:00"
    )
    for _ in range(30):
        state.lower()
    state.started = state.latest - 60
    assert state.words == "0 of 36 cells done; 36 to assemble; ETA 0:01:00"


def test_the_words_change_with_the_work_and_not_with_the_clock() -> None:
    state = cells._State()
    state.plan(2)
    state.lower()
    before = state.words
    state.started -= 100
    state.latest -= 100
    assert state.words == before
