"""Orders of configs: what they are worth, and what an H200 measured of them."""

from __future__ import annotations

import importlib.util
import lzma
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ptxas.loops import loops_of
from harness.ranking.again import MeasuredError, rank_again
from harness.ranking.features import Features, LoopFacts
from harness.ranking.model import MODEL, Model, costs, works_of
from harness.ranking.quality import quality_of, spearman
from harness.ranking.result import RankReport
from harness.ranking.sureness import hoped_spearman
from harness.ranking.table import ranks_as_markdown

ROOT = Path(__file__).parents[3]
MEASURED = ROOT / "tests" / "data" / "gpu" / "ranks-h200.json.xz"
UNSEEN = MEASURED.with_name("unseen-h200.json.xz")
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


def test_what_is_touched_says_how_often_a_loop_turns() -> None:
    twice_the_memory = replace(CONFIG, memory=CONFIG.blocks * CONFIG.threads * 64 * 40)
    (few,), (many,) = works_of([CONFIG], ["t"]), works_of([twice_the_memory], ["t"])
    assert (few.total, many.total) == (2 * LOOP.total, 40 * LOOP.total)


def test_a_small_tile_turns_more_often_and_copies_are_no_work() -> None:
    half = replace(LOOP, tensor_work=LOOP.tensor_work / 2)
    copies = replace(CONFIG, threads=2 * CONFIG.threads)
    large, doubled, small = works_of(
        [CONFIG, copies, replace(CONFIG, loops=(half,))], ["large", "large", "small"]
    )
    # The small tile does in two turns what the large one does in one; nothing is turned less.
    assert (large.total, doubled.total, small.total) == (100.0, 100.0, 200.0)


def test_loads_that_are_ahead_of_the_loop_hide_each_other() -> None:
    before = replace(LOOP, depth=0, total=0, memory=0, control=0, tensor_work=0.0, global_bytes=128)
    ahead = replace(CONFIG, loops=(before, LOOP))
    plain, hidden = works_of([CONFIG, ahead], ["a", "a"])
    assert hidden.loads == pytest.approx(plain.loads / 3)


@given(st.lists(st.floats(1.0, 1e6), min_size=3, max_size=20), st.floats(0.01, 2.0))
def test_less_is_hoped_for_with_a_larger_error(costs: list[float], error: float) -> None:
    hoped = hoped_spearman(costs, error)
    assert -1e-9 <= hoped <= 1 + 1e-9
    assert hoped_spearman(costs, 2 * error) <= hoped + 1e-9


def test_what_is_hoped_for_is_sure_far_apart_and_nothing_of_equals() -> None:
    assert hoped_spearman([1.0, 10.0, 100.0, 1000.0], 0.1) == pytest.approx(1.0)
    assert hoped_spearman([2.0, 2.0, 2.0], 0.1) == 0.0


def test_a_document_that_is_none_is_refused() -> None:
    for text in (b"{}", b"[]", b'{"launches": [{"kernel": 1}]}', b"no json"):
        with pytest.raises(MeasuredError):
            rank_again([text])


@pytest.fixture(scope="module")
def measured() -> RankReport:
    return rank_again([lzma.decompress(MEASURED.read_bytes())])


def test_the_published_ranking_is_what_the_model_makes_of_the_measured_times(
    measured: RankReport,
) -> None:
    page = (ROOT / "docs" / "ranking.md").read_text()
    assert page.rstrip().endswith(ranks_as_markdown(measured))
    regrets = sorted(
        each.quality.top_three
        for each in measured.launches
        if each.quality and each.quality.configs >= 3
    )
    assert len(regrets) >= 25
    assert regrets[len(regrets) // 2] <= 0.05


def test_what_is_told_of_kernels_that_played_no_part_holds(measured: RankReport) -> None:
    unseen = rank_again([lzma.decompress(UNSEEN.read_bytes())])
    assert ranks_as_markdown(unseen) in (ROOT / "docs" / "ranking.md").read_text()
    assert not {each.kernel for each in unseen.launches} & {e.kernel for e in measured.launches}
    told = [each.quality for each in unseen.launches if each.quality and not each.doubt]
    assert len(told) >= 5
    assert min(each.spearman or 0.0 for each in told) >= 0.8


@pytest.fixture(scope="module")
def fitting() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fitting", ROOT / "benchmarks" / "ranking.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_weights_are_those_that_the_measured_times_give(
    measured: RankReport, fitting: ModuleType
) -> None:
    samples = [each for each in map(fitting.sample_of, measured.launches) if each]
    assert fitting.fit(samples) == MODEL


def test_a_fit_finds_the_weights_that_made_the_times(
    measured: RankReport, fitting: ModuleType
) -> None:
    """Times that a model makes: its weights explain them better than where the search begins."""
    wanted = Model(**{name: value * 1.5 for name, value in asdict(fitting.PRIOR).items()})
    samples = [each for each in map(fitting.sample_of, measured.launches) if each][:12]
    made = [
        fitting.Sample(
            each.kernel,
            each.works,
            tuple(fitting.math.log(fitting.cost_of(work, wanted)) for work in each.works),
        )
        for each in samples
    ]
    free = fitting.Search(fitting.PRIOR, 0.0)
    before = fitting.loss(made, fitting.PRIOR, free)
    assert fitting.loss(made, fitting.fit(made, free), free) < before / 2
