"""The two lists of workarounds: what is shown first, and what stands in them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs
from rich.console import Console
from test_workarounds import HOME, ORIGIN, config, row

from harness.judging.ptxas.ptxas_options import OPTIONS
from harness.tables.said import SaidGrid, SaidLine
from harness.tables.terminal import for_terminal
from harness.workaround.result import (
    Candidate,
    Equivalence,
    Numerics,
    WorkaroundReport,
    workaround_document,
    workarounds_said,
)
from harness.workaround.settings import Setting


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


MORE = candidate(options("--minnctapersm 1"))
LESS = candidate(options("-O1"))
WARPS = candidate(replace(HOME, config=config(num_warps=8, num_stages=1)), listed=False)
CHUNK = candidate(replace(HOME, launch=(("chunk", 16),)), "ok")
NEWER = candidate(replace(HOME, triton="3.9.0"), "ok")


def test_what_asks_for_no_source_is_a_list_of_its_own_and_comes_first() -> None:
    found = sorted((CHUNK, WARPS, LESS, NEWER, MORE), key=lambda each: each.tier)
    assert [each.is_for_today for each in found] == [True, True, True, False, False]
    # Another Triton changes every other kernel, too; optimising less has a price of its own.
    assert [each.change for each in found[:3]] == [MORE.change, NEWER.change, LESS.change]
    # What the tuner's list has already needs no source; what it has not does.
    listed = candidate(WARPS.setting)
    assert listed.is_for_today
    assert not WARPS.is_for_today


def test_two_short_lists_say_what_is_for_today_and_what_is_best() -> None:
    report = WorkaroundReport(
        baseline=row("sick", 8_000),
        survivor=None,
        listed=(row("sick", 8_000),),
        candidates=(MORE, CHUNK),
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
    said = "\n".join(each.text for each in blocks if isinstance(each, SaidLine))
    assert "this is not an\norder of times" in said
    document = workaround_document(report)["candidates"]
    assert [each["rank"] for each in document] == [1, 2]
    assert [each["evidence"]["list"] for each in document] == ["today", "best"]
    assert [each["evidence"]["measured"] for each in document] == [None, None]


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_changed_can_be_read_beside_long_numbers(width: int) -> None:
    large = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}
    now = structs.replace(
        row("out_of_resources", 123_456),
        config={**large, "num_warps": 4, "num_stages": 4},
        tmem_size=544,
        shared=294_944,
        occupancy=0.0625,
        threads=128,
    )
    best = structs.replace(now, cell="other", config={**large, "num_warps": 8, "num_stages": 3})
    report = WorkaroundReport(
        baseline=now, survivor=best, listed=(now,), candidates=(WARPS, CHUNK), patch=None
    )
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(workarounds_said(report)))
    text = capture.get()
    # What both share stands once, in the heading.
    assert " ".join(text.split()).count("BLOCK_M=128") == 1
    for words in ("now: num_warps=4,", "num_stages=4", "num_warps=8,", "294,944", "123,456"):
        assert words in text
    assert all(len(line) <= width for line in text.splitlines() if "compiled" not in line)
    _, _, left_out = text.partition("left out for width:")
    assert ("occupancy" in left_out) == (width == 80)
