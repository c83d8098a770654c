"""Orders of configs: what they are worth, and what an H200 measured of them."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ptxas.loops import loops_of
from harness.ranking.again import MeasuredError, rank_again
from harness.ranking.features import Features, LoopFacts
from harness.ranking.model import costs
from harness.ranking.quality import quality_of, spearman
from harness.ranking.table import ranks_as_markdown

ROOT = Path(__file__).parents[3]
MEASURED = ROOT / "tests" / "data" / "gpu" / "ranks-h200.json.xz"
SASS = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P1 BRA `(.L_x_9) ;
.L_x_1:
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_2:
        /*0030*/                   HMMA.16816.F32 R4, R8, R8, R4 ;
        /*0040*/                   STL [R1], R0 ;
        /*0050*/               @P0 BRA `(.L_x_2) ;
        /*0060*/               @P2 BRA `(.L_x_8) ;
.L_x_3:
        /*0070*/               @P3 BRA `(.L_x_1) ;
        /*0080*/                   EXIT ;
.L_x_8:
        /*0090*/                   FADD R4, R4, R4 ;
        /*00a0*/                   BRA `(.L_x_3) ;
.L_x_9:
        /*00b0*/                   BRA `(.L_x_9) ;
"""


def test_loops_are_those_of_the_graph_and_not_of_the_text() -> None:
    outside, outer, inner = loops_of(SASS)
    assert [each.depth for each in (outside, outer, inner)] == [0, 1, 2]
    assert (inner.mix.tensor, inner.mix.local, inner.tensor_work) == (1, 1, 16 * 8 * 16)
    # A block at the end of the function that the loop goes through is part of it.
    assert (outer.opcodes["FADD"], outer.global_bytes) == (1, 16)
    assert outside.opcodes == {"LDC": 1, "BRA": 2, "EXIT": 1}


def test_regret_takes_the_slowest_of_equals() -> None:
    found = quality_of([1.0, 1.0, 2.0, 3.0], [4.0, 2.0, 1.0, 3.0])
    assert (found.first, found.top_three) == (3.0, 0.0)


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=30, unique=True))
def test_a_perfect_order_regrets_nothing(times: list[float]) -> None:
    found = quality_of(times, times)
    assert (found.first, found.top_three) == (0.0, 0.0)
    assert found.spearman == pytest.approx(1.0)
    assert spearman([-each for each in times], times) == pytest.approx(-1.0)


LOOP = LoopFacts(
    depth=1,
    total=100,
    tensor=4,
    memory=10,
    local=0,
    special=0,
    control=4,
    tensor_work=8192.0,
    global_bytes=64,
)
CONFIG = Features(
    blocks=4096,
    threads=128,
    per_sm=4,
    multiprocessors=132,
    registers=128,
    spills=0,
    shared=0,
    memory=1 << 20,
    loops=(LOOP,),
)


def test_more_spills_in_loops_and_fewer_blocks_at_once_cost_more() -> None:
    spilling = replace(CONFIG, loops=(replace(LOOP, local=50, total=150),))
    lonely = replace(CONFIG, per_sm=1)
    plain, worse, alone = costs([CONFIG, spilling, lonely], ["t", "t", "t"])
    assert worse > plain
    assert alone > plain


def test_a_document_that_is_none_is_refused() -> None:
    for text in (b"{}", b"[]", b'{"launches": [{"kernel": 1}]}', b"no json"):
        with pytest.raises(MeasuredError):
            rank_again([text])


def test_the_published_ranking_is_what_the_model_makes_of_the_measured_times() -> None:
    report = rank_again([lzma.decompress(MEASURED.read_bytes())])
    found = ranks_as_markdown(report)
    assert (ROOT / "docs" / "ranking.md").read_text().rstrip().endswith(found)
    known = [each.quality for each in report.launches if each.quality]
    regrets = sorted(each.top_three for each in known if each.configs >= 3)
    assert len(regrets) >= 25
    assert regrets[len(regrets) // 2] <= 0.05
