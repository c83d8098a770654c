"""The two lists of workarounds, by what a model expects of their times, or a GPU measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_workarounds import HOME, ORIGIN, config, row

from harness.judging.ptxas.ptxas_options import OPTIONS
from harness.tables.said import SaidGrid, SaidLine
from harness.values.timing import TimeMs
from harness.workaround.expected import KnownSetting, by_time
from harness.workaround.rank.model import Features, LoopFacts
from harness.workaround.result import (
    Candidate,
    Equivalence,
    Numerics,
    WorkaroundReport,
    workaround_document,
    workarounds_said,
)
from harness.workaround.settings import Setting

DATA = Path(__file__).parents[2] / "data" / "gpu" / "options-h200.json"
MEASURED = json.loads(DATA.read_text())["settings"]
COUNTS = ("depth", "total", "tensor", "memory", "local", "special", "control")


def features(of: dict[str, Any]) -> Features:
    names = (*COUNTS, "tensor_work", "global_bytes")
    loops = tuple(LoopFacts(**dict(zip(names, each, strict=True))) for each in of["loops"])
    return Features(**{**of, "loops": loops})


SPILLING = features(MEASURED[0]["features"])


def with_local(count: int) -> Features:
    """As many instructions of the loop touch local memory."""
    outside, inside = SPILLING.loops
    total = inside.total - inside.local + count
    return replace(SPILLING, loops=(outside, replace(inside, local=count, total=total)))


def options(words: str) -> Setting:
    return replace(HOME, flags=next(o.change for o in OPTIONS if o.words == words))


def candidate(setting: Setting, verdict: str = "sick", *, listed: bool = True) -> Candidate:
    return Candidate(
        setting=setting,
        steps=ORIGIN.steps_to(setting),
        row=row(verdict),
        is_listed=listed,
        explanation=(),
        numerics=Numerics(known=Equivalence.COMPILED, reason=""),
        paste=(),
    )


def known(of: Features | None, ms: float | None = None) -> KnownSetting:
    time = TimeMs(median=ms, min=ms * 0.99, q3=ms * 1.01, samples=30) if ms else None
    return KnownSetting(row=row(), features=of, time=time)


def changes(found: list[Candidate]) -> list[str]:
    return [each.change for each in found]


MORE = candidate(options("--minnctapersm 1"))
LESS = candidate(options("-O1"))
WARPS = candidate(replace(HOME, config=config(num_warps=8, num_stages=1)), listed=False)
FEWER = candidate(replace(HOME, config=config(num_warps=1, num_stages=1)), listed=False)
CHUNK = candidate(replace(HOME, launch=(("chunk", 16),)), "ok")
NEWER = candidate(replace(HOME, triton="3.9.0"), "ok")


@pytest.mark.parametrize("kernel", ["register_collapse", "mamba3_siso_bwd_dqkv"])
def test_what_is_expected_of_options_is_what_an_h200_measured(kernel: str) -> None:
    """In one kernel `-O1` is faster than `--minnctapersm 1`, in the other it is slower."""
    mine = {each["options"]: each for each in MEASURED if each["kernel"] == kernel}
    words = ["-O1", "--minnctapersm 1"]
    pairs = [(candidate(options(each)), known(features(mine[each]["features"]))) for each in words]
    found = by_time(known(features(mine[""]["features"])), pairs)
    # They are too near for the model: what optimises as before comes first.
    assert changes(found) == [f"ptxas flags none -> {each}" for each in reversed(words)]
    for each, other in zip(found, reversed(found), strict=True):
        assert each.setting.flags
        assert each.expected
        assert each.expected.not_apart == (other.change,)
        times = mine[""]["ms"] / mine[each.setting.flags.label]["ms"]
        assert each.expected.least < times < each.expected.most


def test_what_asks_for_no_source_is_a_list_of_its_own_and_comes_first() -> None:
    pairs = [(each, known(with_local(3000))) for each in (CHUNK, WARPS, LESS, NEWER, MORE)]
    found = by_time(known(SPILLING), pairs)
    assert [each.is_for_today for each in found] == [True, True, True, False, False]
    # Another Triton changes every other kernel, too; optimising less has a price of its own.
    assert changes(found[:3]) == [MORE.change, NEWER.change, LESS.change]
    # What the tuner's list has already needs no source; what it has not does.
    listed = candidate(WARPS.setting)
    assert listed.is_for_today
    assert not WARPS.is_for_today


def test_the_faster_comes_first_where_the_model_can_tell_and_else_the_healthier() -> None:
    alike = [(WARPS, known(with_local(1000))), (CHUNK, known(with_local(1000)))]
    assert changes(by_time(known(SPILLING), alike)) == [CHUNK.change, WARPS.change]
    apart = [(WARPS, known(with_local(200))), (CHUNK, known(with_local(3000)))]
    first, second = by_time(known(SPILLING), apart)
    assert (first.change, second.change) == (WARPS.change, CHUNK.change)
    assert first.expected
    assert second.expected
    assert first.expected.times > 1.5 * second.expected.times
    assert first.expected.not_apart == ()


def test_spilled_bytes_are_not_time() -> None:
    """The same bytes, outside of a loop and inside."""
    outside, inside = SPILLING.loops
    moved = replace(outside, local=inside.local, total=outside.total + inside.local)
    rest = replace(inside, local=0, total=inside.total - inside.local)
    once = replace(SPILLING, loops=(moved, rest))
    [found] = by_time(known(SPILLING), [(WARPS, known(once))])
    assert found.expected
    assert found.expected.least > 1.2


def test_times_that_were_measured_before_stand_in_place_of_what_is_expected() -> None:
    pairs = [(CHUNK, known(with_local(100), ms=4.0)), (WARPS, known(with_local(3000), ms=2.0))]
    first, second = by_time(known(SPILLING, ms=8.0), pairs, "NVIDIA H200")
    assert (first.change, second.change) == (WARPS.change, CHUNK.change)
    for each, times in ((first, 4.0), (second, 2.0)):
        assert each.expected
        assert each.expected.times == each.expected.least == each.expected.most == times
        assert each.expected.device == "NVIDIA H200"
        assert each.expected.not_apart == ()


def test_what_is_not_known_keeps_its_place() -> None:
    pairs = [
        (CHUNK, known(None)),
        (WARPS, known(with_local(3000))),
        (FEWER, known(with_local(100))),
    ]
    found = by_time(known(SPILLING), pairs)
    assert changes(found) == [CHUNK.change, FEWER.change, WARPS.change]
    assert found[0].expected is None
    # Where today's setting does not compile there is nothing to be faster than.
    assert {each.expected for each in by_time(known(None), pairs)} == {None}


def test_the_model_does_not_know_how_much_work_another_launch_is() -> None:
    elsewhere = replace(known(with_local(100)), launch=CHUNK.setting.launch)
    [found] = by_time(known(SPILLING), [(CHUNK, elsewhere)])
    assert found.expected is None
    measured = replace(elsewhere, time=TimeMs(median=2.0, min=1.9, q3=2.1, samples=30))
    [found] = by_time(known(SPILLING, ms=8.0), [(CHUNK, measured)], "NVIDIA H200")
    assert found.expected
    assert found.expected.times == 4.0


def test_code_whose_loop_is_not_recognised_is_not_compared() -> None:
    """As it came out for `-O1` on sm_100a: no loop, and everything else was taken for 2 turns."""
    _, inside = SPILLING.loops
    flat = replace(SPILLING, loops=(replace(inside, depth=0, local=300, total=2000),))
    [alone] = by_time(known(SPILLING), [(MORE, known(with_local(600)))])
    pairs = [(LESS, known(flat)), (MORE, known(with_local(600)))]
    first, second = by_time(known(SPILLING), pairs)
    assert first.expected == alone.expected
    assert (second.change, second.expected) == (LESS.change, None)


def test_two_short_lists_say_what_is_for_today_and_what_is_best() -> None:
    pairs = [(CHUNK, known(with_local(100))), (MORE, known(with_local(3000)))]
    report = WorkaroundReport(
        baseline=row("sick", 8_000),
        survivor=None,
        listed=(row("sick", 8_000),),
        candidates=tuple(by_time(known(SPILLING), pairs)),
        patch=None,
        tried=3,
        seconds=1.0,
    )
    blocks = workarounds_said(report)
    heads = [at for at, each in enumerate(blocks) if isinstance(each, SaidLine)]
    lists = {blocks[at].text: blocks[at + 1] for at in heads[:-1]}  # type: ignore[union-attr]
    today = lists["For today, without touching the source"]
    best = lists["The best there is, with a change of the source"]
    assert isinstance(today, SaidGrid)
    assert isinstance(best, SaidGrid)
    assert [line[1].text for line in today.rows] == ["now: default", MORE.change]
    assert [line[1].text for line in best.rows] == [CHUNK.change]
    document = workaround_document(report)["candidates"]
    assert [each["rank"] for each in document] == [1, 2]
    assert [each["evidence"]["list"] for each in document] == ["today", "best"]
    assert document[1]["evidence"]["expected"]["times"] > 1
