"""Samples that go with a report, as they are read again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.bisect.collapse.facts import (
    MeasuredTimes,
    TimedChange,
    read_times,
    times_figures,
    times_file,
)

PLAIN = TimedChange(
    change="",
    cubin_sha256="a",
    n_regs=32,
    spill_stores=64,
    ms=(2.0, 2.0, 2.1, 2.0, 2.0),
    memory=("m",),
)
FASTER = replace(PLAIN, change="-O1", cubin_sha256="b", ms=(1.0, 1.0, 1.1, 1.0, 1.0))
TIMES = MeasuredTimes(
    device="a GPU",
    driver=None,
    day=None,
    kernel="k",
    launch="default",
    config="num_warps=4",
    target="sm_90a",
    compiler="a compiler",
    tool="an assembler",
    changes=(PLAIN, FASTER),
)


def test_what_is_written_is_read() -> None:
    assert read_times(times_file(TIMES)) == TIMES


def test_figures_are_computed_from_the_samples() -> None:
    figures = times_figures(times_file(TIMES), "-O1")
    assert figures[:4] == ("-O1", 32, 64, 1.0)
    assert figures[7:9] == (2.0, True)


@pytest.mark.parametrize("data", ["", "{", "5", "[]", "{}", '{"changes": 3}', '{"changes": [3]}'])
def test_a_file_that_holds_something_else_is_words(data: str) -> None:
    assert str(times_figures(data.encode(), "")).startswith("not the samples of a report: ")


def test_a_change_without_samples_is_words() -> None:
    assert times_figures(times_file(TIMES), "-O0") == "no samples of -O0"
    none = {**json.loads(times_file(TIMES)), "changes": []}
    assert times_figures(json.dumps(none).encode(), "") == "no samples of no change"
