"""Times that a GPU measured before put workarounds in their order, without a GPU."""

from __future__ import annotations

from harness.frontends.assemble import keep_times
from harness.store.store import Store
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.timing import TimeMs
from harness.values.verdict import VerdictKind
from harness.workaround.executed_trials import judge_kept
from harness.workaround.result import Candidate, Equivalence, Numerics
from harness.workaround.settings import Setting, SettingKind, SettingStep

pytest_plugins = ("store_fixtures",)


def row(cubin: str) -> Row:
    return Row(
        cell=f"k/default/x@sm_90a/triton-3.6.0/ptxas-{cubin}",
        short=cubin,
        kernel="k",
        launch="default",
        config={},
        target="sm_90a",
        triton="3.6.0",
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


def took(ms: float) -> TimeMs:
    return TimeMs(median=ms, min=ms * 0.99, q3=ms * 1.01, samples=30)


def test_the_fastest_comes_first_where_today_and_a_candidate_were_measured(store: Store) -> None:
    asked = [candidate(name) for name in ("a", "b", "slow", "unknown")]
    today, shown, notes = judge_kept(store, row("today"), asked)
    assert (today, shown, notes) == (row("today"), asked, [])
    # Another GPU than the one of today's config says nothing of faster and slower.
    keep_times(store, "B200", [(row("b"), took(9.0))])
    assert judge_kept(store, row("today"), asked)[1] == asked

    measured = {"today": 8.0, "a": 4.0, "b": 2.0, "slow": 16.0}
    keep_times(store, "H200", [(row(name), took(ms)) for name, ms in measured.items()])
    today, shown, notes = judge_kept(store, row("today"), asked)
    assert today.time_ms == took(8.0)
    assert [each.row.short for each in shown] == ["b", "a", "unknown"]
    speedups = [each.speedup and (each.speedup.device, each.speedup.times) for each in shown]
    assert speedups == [("H200", 4.0), ("H200", 2.0), None]
    assert [note.partition(": ")[2] for note in notes] == [
        "not shown: 2.00 times as slow on H200",
        "not measured",
    ]
