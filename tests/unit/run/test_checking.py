"""Configs of one launch that compute different things are said; launches are kept apart."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from rich.console import Console

from harness.run import executors
from harness.run.executors import check_of
from harness.run.run_table import runs_said
from harness.tables.terminal import for_terminal
from harness.values.execution import (
    Agreement,
    Interpretation,
    LaunchComparison,
    RunRow,
    SameProgram,
)
from harness.values.outcome import LaunchFacts, RaisedError
from harness.values.verdict import VerdictKind


def described(dtype: str) -> list[dict[str, object]]:
    return [{"name": "x", "tensor": dtype, "shape": [8]}]


def record(block: int, dtype: str = "float32", suspect: str = "") -> LaunchFacts:
    return LaunchFacts(
        key="key",
        kernel="k",
        config={"BLOCK": block},
        autotuned=True,
        arguments=[*described(dtype), {"name": "added", "constexpr": "1"}],
        grid=None,
        file="/p/k.py",
        suspect=suspect,
    )


def program(block: int, group: int | None, dtype: str = "float32", **more: Any) -> SameProgram:
    return SameProgram(configs=[{"BLOCK": block}], described=described(dtype), group=group, **more)


FOUND = Interpretation(
    findings=[
        LaunchComparison(
            kernel="k",
            level="buffers",
            variants=[program(64, 1, tensor="out", rel_err=0.5, bad_frac=0.25), program(128, 0)],
        ),
        LaunchComparison(
            kernel="k",
            level="buffers",
            variants=[program(64, 0, "float16"), program(128, 0, "float16")],
        ),
    ]
)


def test_a_config_that_computes_something_else_differs_in_its_own_launch_alone() -> None:
    single = check_of(record(64), FOUND)
    assert (single.status, single.tensor, single.rel_err) == (Agreement.DIFFERS, "out", 0.5)
    assert check_of(record(128), FOUND).reason == "interpreted: the reference for the others"
    half = check_of(record(64, "float16"), FOUND)
    assert (half.status, half.reason) == (
        Agreement.AGREES,
        "interpreted: all that it writes agrees",
    )


def test_launches_without_a_tuner_are_not_configs_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls with other constants: nothing of one says what the other one must compute."""

    def cells(*, autotuned: bool) -> Any:
        return [
            SimpleNamespace(
                cell=SimpleNamespace(
                    kernel="k", launch="main", config=SimpleNamespace(label=f"BLOCK={block}")
                ),
                record=replace(record(block), key=f"key {block}", autotuned=autotuned),
            )
            for block in (64, 128)
        ]

    def asked(_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(executors, "interpreter_for", asked)
    place: Any = SimpleNamespace(launch=None, compiler=None)
    found = executors.check_place(cast(Any, None), place, cells(autotuned=False), ["k"])
    assert asyncio.run(found) == {}
    with pytest.raises(NotImplementedError):
        asyncio.run(executors.check_place(cast(Any, None), place, cells(autotuned=True), ["k"]))


def test_what_was_not_compared_says_why() -> None:
    missing = check_of(record(64, "bfloat16"), FOUND)
    assert missing.status is Agreement.NOT_CHECKED
    assert "the interpreted launch does not reach it" in missing.reason
    raised = RaisedError(type="ValueError", kinds=(), message="no\nmore")
    assert check_of(record(64), Interpretation(error=raised)).reason == (
        "the small launch raised ValueError: no"
    )
    assert "does not reach what is suspect" in check_of(record(128, suspect="half"), FOUND).reason


def test_a_run_says_it_under_its_own_words_and_counts_it_as_a_failure() -> None:
    rows = [
        RunRow(
            cell=f"k/main/n={block}@sm_80/triton-3.9.0/emulator",
            short="01234567",
            kernel="k",
            launch="main",
            config={"BLOCK": block},
            target="sm_80",
            triton="3.9.0",
            on="emulator",
            run=VerdictKind.AS_INTERPRETED,
            run_reason="agrees",
            check=check_of(record(block), FOUND),
            suspect="BLOCK=64 covers 64 of n=128" if block == 64 else None,
        )
        for block in (64, 128)
    ]
    assert [row.is_accused for row in rows] == [True, False]
    console = Console(width=300, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(runs_said(rows)))
    lines = [line.strip() for line in capture.get().splitlines() if line.strip()]
    assert lines[1:] == [
        "2 as_interpreted: agrees",
        (
            "1 differs from other configs [BLOCK=64]: interpreted: out differs from that of the "
            "other configs, beyond what rounding explains; rel_err 0.5, stable_max_rel infinite, "
            "bad_frac 0.25"
        ),
        "1 statically suspect: BLOCK=64 covers 64 of n=128",
    ]
