"""What is made of candidates that a GPU has timed."""

from __future__ import annotations

from typing import Any

from harness.run.gpu.timed_launches import TimedLaunch
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.timing import TimeMs
from harness.values.verdict import VerdictKind
from harness.workaround.executed_trials import judge_timed
from harness.workaround.result import Candidate, Equivalence, Numerics
from harness.workaround.settings import Setting, SettingKind, SettingStep

SAME, OTHER = ("1" * 64,), ("2" * 64,)


def row(cubin: str) -> Row:
    return Row(
        cell=f"k/default/x@sm_90a/triton-3.6.0/ptxas-{cubin}",
        short=cubin,
        kernel="k",
        launch="default",
        config={},
        target="sm_90a",
        triton="3.6.0",
        compiler="triton",
        compiler_version="3.6.0",
        ptxas="13.0.88",
        ptxas_origin="x",
        verdict=VerdictKind.OK,
        reason="",
        cubin_sha256=cubin,
    )


def candidate(cubin: str) -> Candidate:
    step = SettingStep(kind=SettingKind.FLAGS, name=cubin, before=None, after="-O1")
    return Candidate(
        setting=Setting(config=Config()),
        steps=(step,),
        row=row(cubin),
        is_listed=False,
        explanation=(),
        numerics=Numerics(known=Equivalence.COMPILED, reason="as compiled"),
        paste=(),
    )


def timed(ms: float, **changes: Any) -> TimedLaunch:
    time = TimeMs(median=ms, min=ms * 0.99, q3=ms * 1.01, samples=30, sm_mhz=1980)
    facts = {"device": "H200", "digest": SAME, "finite": 1.0, "bytes": 8, **changes}
    return TimedLaunch(**{"time": time, **facts})


def test_the_fastest_comes_first_and_equal_bits_are_said_to_be_equal() -> None:
    found = {"today": timed(10.0), "a": timed(5.0), "b": timed(2.0, digest=OTHER)}
    today, kept, notes = judge_timed(row("today"), [candidate("a"), candidate("b")], found)
    assert today.time_ms == found["today"].time
    assert [each.row.short for each in kept] == ["b", "a"]
    other, same = kept
    assert same.speedup is not None
    assert (same.speedup.times, same.speedup.is_bit_identical) == (2.0, True)
    assert same.numerics.known is Equivalence.MEASURED
    # Other bits say nothing of right and wrong: what was known before stands.
    assert other.numerics.known is Equivalence.COMPILED
    assert notes == []


def test_what_is_slower_faults_or_is_the_same_cubin_is_not_shown() -> None:
    broken = timed(1.0, time=None, problem="CUDA_ERROR_ILLEGAL_ADDRESS (700)")
    found = {"today": timed(10.0), "slow": timed(20.0), "broken": broken, "a": timed(5.0)}
    asked = [candidate(name) for name in ("slow", "broken", "a", "a")]
    _, kept, notes = judge_timed(row("today"), asked, found)
    assert [each.row.short for each in kept] == ["a"]
    assert [note.partition(": ")[2][:22] for note in notes] == [
        "not shown: 2.00 times ",
        "not shown: on H200, CU",
        "not shown: the same cu",
    ]


def test_intervals_that_overlap_are_ambiguous_and_bits_of_nothing_finite_prove_nothing() -> None:
    found = {"today": timed(10.0, finite=0.0), "a": timed(10.0, finite=0.0)}
    _, [kept], _ = judge_timed(row("today"), [candidate("a")], found)
    assert kept.speedup is not None
    assert kept.speedup.is_ambiguous
    assert kept.numerics.known is Equivalence.COMPILED


def test_without_a_time_of_today_nothing_is_called_faster() -> None:
    broken = timed(1.0, time=None, problem="refused")
    _, [kept], notes = judge_timed(row("today"), [candidate("a")], {"today": broken, "a": timed(5)})
    assert kept.speedup is not None
    assert kept.speedup.times is None
    assert notes == ["today's config: refused"]
