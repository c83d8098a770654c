"""What is proposed, how it is ranked, which of it is shown, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from packaging.version import Version

from harness.judging.ptxas.ptxas_options import FlagChange
from harness.values.kernel import Config, Scalar
from harness.values.limits import limits_of
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.executed_trials import emulated_numerics
from harness.workaround.result import Equivalence
from harness.workaround.settings import (
    Setting,
    SettingKind,
    Tried,
    UserSetting,
    choose,
    explain,
    explain_step,
    is_gain,
    merit,
    neighbours,
    newest_of_each_minor,
    passed_on,
    rank_key,
    spill_bytes_per_block,
    spread,
    without,
)

HOME = Setting(config=Config.of({"num_warps": 2, "num_stages": 1}))
ORIGIN = UserSetting(setting=HOME, defaults={"chunk": 64, "ptxas": "12.9.86", "triton": "3.6.0"})


def row(verdict: str = "sick", spills: int | None = 1000, **more: object) -> Row:
    values = {
        "cell": "k/default/c@sm_100a/triton-3.6.0/ptxas-12.9.86",
        "short": "01234567",
        "kernel": "k",
        "launch": "default",
        "config": {},
        "target": "sm_100a",
        "triton": "3.6.0",
        "compiler": "triton",
        "compiler_version": "3.6.0",
        "ptxas": "12.9.86",
        "ptxas_origin": "bundled",
        "verdict": VerdictKind(verdict),
        "reason": "",
        "n_regs": 255,
        "spill_stores": spills,
        "spill_loads": spills,
        "shared": 1024,
        "tmem_size": 0,
        "threads": 64,
        "occupancy": 0.25,
        "instructions": {"local": 10, "total": 100},
        **more,
    }
    return Row(**values)  # type: ignore[arg-type]


def config(**values: Scalar) -> Config:
    return Config.of(values)


# --- proposals --------------------------------------------------------------------------------


def proposed(start: Config, *listed: Config, capability: int = 100) -> list[dict[str, Scalar]]:
    return [each.as_dict() for each in neighbours(start, listed, capability=capability)]


def test_a_neighbour_differs_in_one_value() -> None:
    start = config(BLOCK=64, num_warps=4, num_stages=2)
    found = proposed(start)
    for values in found:
        names = {*values, *start.as_dict()}
        changed = [name for name in names if values.get(name) != start.as_dict().get(name)]
        assert len(changed) == 1, values
    assert {values["num_warps"] for values in found} == {2, 4, 8}
    assert {values["num_stages"] for values in found} == {1, 2, 3}
    assert {values["BLOCK"] for values in found} == {32, 64, 128}
    assert {values.get("maxnreg") for values in found} == {None, 128, 255}
    assert {values.get("num_ctas") for values in found} == {None, 2}


def test_what_spills_gets_no_fewer_warps() -> None:
    found = neighbours(config(num_warps=4), [], capability=100, spills=True)
    assert {each.as_dict()["num_warps"] for each in found} == {4, 8}


def test_what_is_listed_is_not_proposed_in_whatever_order_it_is_written() -> None:
    start = config(num_warps=4, num_stages=2)
    found = proposed(start, config(num_stages=2, num_warps=8))
    assert 8 not in {values["num_warps"] for values in found}


def test_clusters_are_proposed_where_there_are_any() -> None:
    start = config(num_warps=4)
    assert not any("num_ctas" in values for values in proposed(start, capability=80))


def test_what_a_call_names_gets_another_value_and_never_none() -> None:
    start = config(BLOCK=64, num_warps=4, num_ctas=2, maxnreg=128)
    found = neighbours(start, [], capability=90, is_tuned=False)
    assert {each.as_dict().get("num_ctas") for each in found} == {1, 2}
    assert None not in {each.as_dict().get("maxnreg") for each in found}
    # Its grid and its arguments follow from what the launch code computes.
    assert {each.as_dict()["BLOCK"] for each in found} == {64}


@pytest.mark.parametrize("after", [None, 1])
def test_a_cluster_of_one_block_has_one_name(after: int | None) -> None:
    origin = UserSetting(setting=Setting(config=config(num_ctas=2)), defaults={})
    values = {} if after is None else {"num_ctas": after}
    [step] = origin.steps_to(Setting(config=config(**values)))
    assert step.words == "num_ctas 2 -> 1"


def test_a_parameter_of_the_launch_that_is_a_meta_parameter_can_be_changed() -> None:
    parameters = {"tile": 32, "head": 96, "block": 64, "n": 8, "flag": True}
    found = passed_on(parameters, config(TILE=32, HEAD=96, BLOCK=128, FLAG=True))
    assert found == {"tile": (16, 64)}


def test_a_newer_toolchain_is_shown_where_an_older_one_is_better() -> None:
    failing = row("pass_failure", None)
    older = row("ok", 0, cell="older", occupancy=0.5)
    newer = row("ok", 0, cell="newer", occupancy=0.25)
    pairs = [
        (HOME, failing),
        (replace(HOME, triton="3.5.1"), older),
        (replace(HOME, triton="3.9.0"), newer),
    ]
    origin = replace(ORIGIN, row=failing)
    for at_most in (8, 2):
        shown = {setting.triton for setting, _ in choose(origin, pairs, pairs[:1], at_most=at_most)}
        assert "3.9.0" in shown


def test_the_kernels_own_limits_of_registers_take_the_place_of_near_ones() -> None:
    start = config(num_warps=2, num_stages=1)
    listed = [config(num_warps=2, num_stages=s, maxnreg=256) for s in (1, 2)]
    found = {values.get("maxnreg") for values in proposed(start, *listed)}
    assert 255 not in found
    found = {values.get("maxnreg") for values in proposed(config(num_warps=2, maxnreg=128))}
    assert found == {None, 96, 128, 168, 255}


def test_what_is_no_power_of_two_and_what_is_true_stay() -> None:
    found = proposed(config(BLOCK=96, EVEN=True, num_warps=4))
    assert {values["BLOCK"] for values in found} == {96}
    assert {values["EVEN"] for values in found} == {True}


@given(
    st.builds(
        config,
        num_warps=st.sampled_from([1, 2, 4, 8, 16]),
        num_stages=st.integers(1, 8),
        BLOCK=st.sampled_from([1, 16, 96, 128]),
        maxnreg=st.sampled_from([32, 64, 100, 128, 255, 256]),
    )
)
def test_neighbours_are_legal_distinct_and_not_the_config_itself(start: Config) -> None:
    found = neighbours(start, [], capability=100)
    keys = [Setting(config=each).key for each in found]
    assert len(set(keys)) == len(keys)
    assert Setting(config=start).key not in keys
    for each in found:
        values = each.as_dict()
        assert 1 <= int(values["num_warps"]) <= 16
        assert 1 <= int(values["num_stages"]) <= 8
        assert int(values["BLOCK"]) >= 1


def test_the_newest_of_each_minor_release_and_what_is_installed_first() -> None:
    versions = [Version(v) for v in ("13.0.48", "13.0.88", "13.1.80", "13.1.115", "12.9.86")]
    found = newest_of_each_minor(versions, [Version("13.0.88")], besides="12.9.86")
    assert found == ["13.0.88", "13.1.115"]


def test_few_settings_stand_for_each_number_of_warps_and_each_fate() -> None:
    tried: list[Tried] = [
        (Setting(config=config(num_warps=w, num_stages=s)), row("sick" if w == 2 else "trap_stub"))
        for w in (2, 4, 8)
        for s in (1, 2, 3)
    ]
    found = [each.config.as_dict()["num_warps"] for each in spread(tried)]
    assert found == [2, 4, 8]


# --- steps ------------------------------------------------------------------------------------


def test_steps_name_what_is_different_with_the_defaults_that_are_unsaid() -> None:
    there = replace(
        HOME,
        config=config(num_warps=8, num_stages=1, maxnreg=256),
        launch=(("chunk", 32),),
        flags=FlagChange(label="-O1", added=("-O1",)),
        ptxas="13.5.37",
    )
    assert [step.words for step in ORIGIN.steps_to(there)] == [
        "num_warps 2 -> 8",
        "maxnreg none -> 256",
        "chunk 64 -> 32",
        "ptxas flags none -> -O1",
        "ptxas 12.9.86 -> 13.5.37",
    ]
    for step in ORIGIN.steps_to(there):
        left = ORIGIN.steps_to(without(there, step, HOME))
        assert step not in left
        assert len(left) == 4


def test_a_tile_of_half_the_size_is_worked_on_twice() -> None:
    assert ORIGIN.turns(replace(HOME, launch=(("chunk", 32),))) == 2.0
    assert ORIGIN.turns(replace(HOME, config=config(num_warps=8, num_stages=1))) == 1.0
    tiled = UserSetting(setting=Setting(config=config(BLOCK=64)), defaults={})
    assert tiled.turns(Setting(config=config(BLOCK=128))) == 0.5


# --- rank -------------------------------------------------------------------------------------

ROWS = st.builds(
    row,
    st.sampled_from([kind.value for kind in VerdictKind]),
    st.none() | st.integers(0, 50_000),
    threads=st.sampled_from([32, 64, 128, 256]),
    occupancy=st.none() | st.floats(0.01, 1.0),
    tmem_size=st.none() | st.integers(0, 512),
    shared=st.none() | st.integers(0, 200_000),
    instructions=st.none()
    | st.builds(lambda share: {"local": share, "total": 100}, st.integers(0, 100)),
)
SETTINGS = st.builds(
    Setting,
    config=st.builds(config, num_warps=st.sampled_from([1, 2, 4]), BLOCK=st.sampled_from([16, 64])),
    ptxas=st.sampled_from([None, "13.1.115", "13.5.37"]),
    triton=st.sampled_from([None, "3.8.0"]),
)


@given(st.lists(st.tuples(SETTINGS, ROWS), min_size=2, max_size=8), st.randoms())
def test_the_order_is_total_and_does_not_depend_on_the_order_of_the_tries(
    tried: list[Tried], random: object
) -> None:
    named = [(s, structs.replace(r, cell=str(n))) for n, (s, r) in enumerate(tried)]
    expected = sorted(named, key=lambda pair: rank_key(ORIGIN, *pair))
    shuffled = list(named)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(shuffled, key=lambda pair: rank_key(ORIGIN, *pair)) == expected


@given(ROWS, st.integers(0, 40), st.floats(0, 0.5), st.integers(0, 100), st.integers(0, 1000))
def test_what_is_better_in_everything_never_ranks_behind(
    found: Row, spills: int, occupancy: float, tmem: int, shared: int
) -> None:
    better = structs.replace(
        found,
        verdict=VerdictKind.OK,
        spill_stores=None if found.spill_stores is None else found.spill_stores // (1 + spills),
        spill_loads=None if found.spill_loads is None else found.spill_loads // (1 + spills),
        occupancy=None if found.occupancy is None else min(found.occupancy + occupancy, 1.0),
        tmem_size=None if found.tmem_size is None else max(found.tmem_size - tmem, 0),
        shared=None if found.shared is None else max(found.shared - shared, 0),
    )
    assert merit(better) <= merit(found)
    assert not is_gain(ORIGIN, (HOME, found), (HOME, better))


def test_the_verdict_comes_before_the_spills_and_they_before_the_occupancy() -> None:
    assert merit(row("ok", 60, occupancy=0.1)) < merit(row("sick", 0, occupancy=1.0))
    assert merit(row("sick", 500, occupancy=0.1)) < merit(row("sick", 5000, occupancy=1.0))
    assert merit(row("ok", 0, occupancy=0.5)) < merit(row("ok", 0, occupancy=0.25))
    assert merit(row("sick", 9999)) < merit(row("trap_stub", 0)) < merit(row("unsupported", 0))


def test_spills_count_by_block_and_by_turns() -> None:
    wide = row("sick", 600, threads=256)
    assert spill_bytes_per_block(wide) == 1200 * 256
    assert merit(row("sick", 900, threads=64)) < merit(wide)
    assert merit(wide, 1.0) < merit(wide, 4.0)


def test_equal_figures_are_no_reason_to_change_a_toolchain() -> None:
    near = (replace(HOME, config=config(num_warps=4, num_stages=1)), row("sick", 400))
    far = (replace(HOME, ptxas="13.5.37"), row("sick", 400))
    farther = (replace(HOME, triton="3.9.0"), row("sick", 400))
    keys = [rank_key(ORIGIN, *pair) for pair in (near, far, farther)]
    assert keys == sorted(keys)


# --- choice -----------------------------------------------------------------------------------


def test_what_gains_nothing_over_a_nearer_setting_is_not_shown() -> None:
    more = config(num_warps=2, num_stages=1, maxnreg=256)
    tried: list[Tried] = [
        (HOME, row("sick", 40_000)),
        (replace(HOME, config=more), row("sick", 8_000)),
        # As good with a newer ptxas, and no better: not worth it.
        (replace(HOME, config=more, ptxas="13.5.37"), row("sick", 8_000)),
        (replace(HOME, config=more, launch=(("chunk", 32),)), row("sick", 700)),
        (replace(HOME, config=config(num_warps=4, num_stages=1)), row("trap_stub", 0)),
    ]
    # The second is in the tuner's list, and the best there: that is a workaround too.
    found = choose(ORIGIN, tried, tried[:2])
    assert [len(ORIGIN.steps_to(setting)) for setting, _ in found] == [2, 1]
    assert choose(ORIGIN, list(reversed(tried)), tried[:2]) == found


def test_what_is_no_better_than_the_best_of_the_list_is_not_shown() -> None:
    best = (replace(HOME, config=config(num_warps=2, num_stages=1, maxnreg=256)), row(spills=8_000))
    small = (replace(HOME, config=config(num_warps=1, num_stages=1)), row(spills=20_000))
    tried: list[Tried] = [(HOME, row("sick", 40_000)), best, small]
    assert choose(ORIGIN, tried, tried[:2]) == [best]
    assert choose(ORIGIN, tried, tried[:1]) == [best, small]


def test_nothing_is_shown_where_nothing_is_better() -> None:
    tried: list[Tried] = [
        (HOME, row("sick", 100)),
        (replace(HOME, ptxas="13.5.37"), row("sick", 101)),
        (replace(HOME, ptxas="13.1.115"), row("ptxas_ice", None)),
    ]
    assert choose(ORIGIN, tried, tried[:1]) == []


# --- words ------------------------------------------------------------------------------------


def test_the_reason_is_made_of_the_figures_that_moved() -> None:
    [step] = ORIGIN.steps_to(replace(HOME, launch=(("chunk", 32),)))
    stub = row("trap_stub", 0, n_regs=4, tmem_size=544)
    fits = row("sick", 744, tmem_size=256)
    said = explain_step(step, stub, fits, limits_of(100))
    assert said == (
        "a smaller tile, chunk 64 -> 32: trap_stub -> sick; tensor memory 544 -> 256 columns "
        "(about half); sm_100a has 512 columns"
    )
    said = explain(row("sick", 44_324, n_regs=32), row("sick", 7_962, n_regs=255))
    assert "registers 32 -> 255" in said
    assert "spill stores 44,324 -> 7,962 B (6x less)" in said
    assert "tensor" not in said


def test_a_crash_of_ptxas_is_named() -> None:
    [step] = ORIGIN.steps_to(replace(HOME, ptxas="13.5.37"))
    assert step.kind is SettingKind.PTXAS
    crash = row("ptxas_ice", None, code="C7907", ptxas="13.1.115", n_regs=None, occupancy=None)
    said = explain_step(step, crash, row("ok", 0), limits_of(100))
    assert said.endswith("without it ptxas 13.1.115 says C7907")


def test_what_is_not_known_is_not_compared() -> None:
    assert explain(row("ok", None), row("ok", 5)) == "no figure that is known changes by a tenth"


def test_what_is_right_is_no_trouble_and_says_on_which_inputs() -> None:
    wrong, right, ran = (row(verdict, spills=None) for verdict in ("wrong_result", "right", "ran"))
    assert merit(right) == merit(ran) < merit(wrong)
    said = emulated_numerics(
        structs.replace(right, reason="emulated PTX: agrees with the reference")
    )
    assert said.known is Equivalence.EMULATED
    assert said.reason == "right on these inputs: agrees with the reference"
    assert emulated_numerics(ran).reason.startswith("nothing is wrong on these inputs")
