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
from msgspec import structs

from harness.judging.ptxas.sass import loops_of
from harness.tables.said import SaidGrid
from harness.values.kernel import Config
from harness.values.limits import limits_of
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.rank.model import (
    MODEL,
    Features,
    LoopFacts,
    Model,
    costs,
    features_of,
    works_of,
)
from harness.workaround.rank.order import (
    RankedConfig,
    RankedLaunch,
    RankReport,
    chance_of_faster,
    chance_of_order,
    first_lost,
    quality_of,
    ranks_as_markdown,
    ranks_said,
    spearman,
)
from harness.workaround.rank.ranking import MeasuredError, rank_again

ROOT = Path(__file__).parents[4]
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


def test_a_tensor_instruction_whose_work_the_code_does_not_say_is_not_ranked() -> None:
    """`UTCHMMA` takes its shape from a descriptor: how often a loop turns cannot be inferred."""
    compiled = Row(
        cell="k",
        short="k",
        kernel="k",
        launch="default",
        config={},
        target="sm_100a",
        triton="3.9.0",
        ptxas="13.4.59",
        ptxas_origin="bundled",
        verdict=VerdictKind.OK,
        reason="",
        n_regs=255,
        spill_stores=0,
        spill_loads=0,
        threads=128,
        occupancy=0.25,
    )
    limits = limits_of(100)
    assert limits
    ranked = features_of(compiled, (64,), (4096,), loops_of(SASS), limits)
    # Beside one whose work is known, in the same loop.
    line = "        /*0030*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8] ;\n"
    hidden = SASS.replace(".L_x_2:\n", f".L_x_2:\n{line}")
    assert ranked
    assert features_of(compiled, (64,), (4096,), loops_of(hidden), limits) is None


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
def test_a_larger_error_leaves_less_chance(costs: list[float], error: float) -> None:
    codes = range(len(costs))
    chance = chance_of_order(costs, codes, [error])
    assert 0 <= chance <= 1
    # Each of two sums of 2,000 draws has a standard deviation of 0.011 or less.
    assert chance_of_order(costs, codes, [4 * error]) <= chance + 0.05


def test_the_chance_is_sure_far_apart_and_nothing_of_equals() -> None:
    assert chance_of_order([1.0, 10.0, 100.0, 1000.0], range(4), [0.1]) == 1.0
    assert chance_of_order([2.0, 2.0, 2.0], range(3), [0.1]) == 0.0
    # Of the six orders of three, only the right one has 0.8.
    assert chance_of_order([1.0, 1.001, 1.002], range(3), [1.0]) == pytest.approx(1 / 6, abs=0.03)


def test_configs_of_one_cubin_have_one_error() -> None:
    """Three codes of nine configs each are three codes, and not 27 measurements."""
    costs = [cost for cost in (1.0, 1.2, 1.4) for _ in range(9)]
    codes = [place // 9 for place in range(27)]
    three = chance_of_order([1.0, 1.2, 1.4], range(3), [0.18])
    assert chance_of_order(costs, codes, [0.18]) == pytest.approx(three)
    assert chance_of_order(costs, range(27), [0.18]) != pytest.approx(three, abs=0.05)


def test_one_of_two_is_faster_with_a_chance_that_grows_with_the_distance() -> None:
    assert chance_of_faster(1.0, 1.0, [0.1, 0.2]) == 0.5
    assert chance_of_faster(1.0, 1.2, [0.1]) == pytest.approx(0.9013, abs=1e-3)
    assert chance_of_faster(1.0, 1.2, [0.1]) + chance_of_faster(1.2, 1.0, [0.1]) == pytest.approx(1)


def test_what_measured_below_the_bar_elsewhere_is_not_claimed(measured: RankReport) -> None:
    """Timed a second time on an H200, these correlated with 0.77 and 0.72: 0.8 is not certain."""
    told = {each.kernel: not each.doubt for each in measured.launches}
    assert not told["mamba3_siso_bwd_ddt_dtrap_dinput_states"]
    assert not told["mamba3_siso_bwd_rotary_bias_angles"]
    assert told["mamba3_siso_bwd_dqkv"]
    assert told["mamba3_siso_fwd"]


def test_as_many_orders_are_good_as_their_chances_say(measured: RankReport) -> None:
    """Over all launches, those never seen besides: neither too sure nor too timid."""
    unseen = rank_again([lzma.decompress(UNSEEN.read_bytes())])
    launches = [e for e in (*measured.launches, *unseen.launches) if e.quality]
    pairs = [
        (
            float(each.doubt.split("probability of ")[1].split("%")[0]) / 100,
            (each.quality.spearman or 0) >= 0.8,
        )
        for each in launches
        if each.quality and "probability" in each.doubt
    ]
    chances = sum(chance for chance, _ in pairs)
    good = sum(is_good for _, is_good in pairs)
    deviation = sum(chance * (1 - chance) for chance, _ in pairs) ** 0.5
    assert len(pairs) >= 30
    assert abs(good - chances) <= 2 * deviation


def reordered(launch: RankedLaunch, first: RankedConfig) -> RankedLaunch:
    """The launch with another config of the name of its first one."""
    place = launch.kernel, launch.launch, launch.target
    return RankedLaunch.ordered(place, [first, *launch.configs[1:]])


def test_a_first_choice_is_lost_where_both_orders_are_told(measured: RankReport) -> None:
    base = next(each for each in measured.launches if each.kernel == "mamba3_siso_fwd")
    first, second = base.configs[:2]
    assert first.features
    assert not base.doubt
    label = Config.of(dict(first.row.config)).label
    assert first_lost(base, base) is None

    # It spills in its loops: it is told by how much the one in its place is faster.
    loops = tuple(replace(loop, local=10 * loop.total) for loop in first.features.loops)
    spilling = replace(first, features=replace(first.features, spills=4096, loops=loops))
    head = reordered(base, spilling)
    lost = first_lost(base, head)
    assert lost
    assert lost.config == label
    assert lost.first == Config.of(dict(head.configs[0].row.config)).label != label
    place = [each.row.cell for each in head.configs].index(first.row.cell)
    costs = head.configs[place].cost, head.configs[0].cost
    assert (lost.rank, lost.expected) == (place + 1, (costs[0] or 0) / (costs[1] or 1))
    # Nothing is told where one of the orders is in doubt.
    assert first_lost(replace(base, doubt="cannot tell"), head) is None
    assert first_lost(base, replace(head, doubt="cannot tell")) is None

    # As the second but for one instruction: the model's errors are larger than that.
    assert second.features
    loops = tuple(replace(loop, total=loop.total + 1) for loop in second.features.loops)
    near = reordered(base, replace(first, features=replace(second.features, loops=loops)))
    assert near.configs[0].row.cell == second.row.cell
    assert first_lost(base, near) is None

    # It does not compile any more.
    row = structs.replace(first.row, verdict=VerdictKind.PTXAS_ERROR)
    gone = first_lost(base, reordered(base, RankedConfig(row=row)))
    assert gone
    assert (gone.config, gone.rank, gone.expected) == (label, None, None)


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
    page = (ROOT / "docs" / "measured" / "ranking.md").read_text()
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
    assert ranks_as_markdown(unseen) in (ROOT / "docs" / "measured" / "ranking.md").read_text()
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


def test_where_the_order_cannot_be_told_no_ranking_is_printed(measured: RankReport) -> None:
    [launch, *_] = measured.launches
    untimed = tuple(
        replace(config, row=structs.replace(config.row, time_ms=None)) for config in launch.configs
    )
    for doubt in ("", "cannot tell"):
        said = ranks_said(RankReport(launches=[replace(launch, configs=untimed, doubt=doubt)]))
        assert any(isinstance(block, SaidGrid) for block in said) is not bool(doubt)
