from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.run import comparing

if TYPE_CHECKING:
    import torch

    from harness.frontends.triton.child.interpreting import (
        ConfigTrial,
        Distance,
        compare,
        distance,
        group,
        launch_with,
        tolerance,
    )


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Every worker of the suite collects this file, and one runs it: torch takes seconds."""
    for name in ("interpreting",):
        module = importlib.import_module(f"harness.frontends.triton.child.{name}")
        globals().update(vars(module))
    globals()["torch"] = importlib.import_module("torch")


NAN, INF = float("nan"), float("inf")
NOTHING, WHOLLY = (0, 0, 0, 0, 1, 1), (INF, INF, 1, 1, 0, 0)


def measured(a: list[float], b: list[float], allowed: float = 0.1) -> Distance:
    return distance(torch.tensor(a), torch.tensor(b), allowed)


def test_the_three_measures_by_their_formulas() -> None:
    found = measured([3.0, 4.0, 1.0], [3.0, 4.0, 0.0])
    rms = math.sqrt(25 / 3)
    assert found.rel_err == pytest.approx(1 / 5)
    # An element near zero is judged against the whole tensor's scale.
    assert found.stable_max_rel == pytest.approx(1 / rms)
    assert found.bad_frac == pytest.approx(1 / 3)
    assert measured([3.0, 4.0, 1.0], [3.0, 4.0, 0.0], allowed=0.5).bad_frac == 0


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_agrees_with_itself_alone(value: float) -> None:
    assert measured([1.0, value], [1.0, value]) == NOTHING
    for other in {NAN, INF, -INF, 1.0} - {value}:
        if not (math.isnan(value) and math.isnan(other)):
            assert measured([1.0, other], [1.0, value]) == (INF, INF, 0.5, 0.5, 0.5, 0.5)


def test_zeros_shapes_dtypes_and_nothing() -> None:
    assert measured([0.0, 0.0], [0.0, 0.0]) == NOTHING
    assert measured([1.0, 0.0], [0.0, 0.0]).rel_err == INF
    assert measured([1.0], [1.0, 1.0]) == WHOLLY
    assert distance(torch.ones(1), torch.ones(1, dtype=torch.float64), 0.1) == WHOLLY
    assert measured([], []) == NOTHING
    whole = torch.tensor([1, 2, 3, 4])
    assert distance(whole, whole, 0.0) == NOTHING
    assert distance(whole, torch.tensor([1, 2, 3, 5]), 0.0) == (INF, INF, 0.25, 0.25, 0.75, 0.75)


def test_shares_of_elements_that_differ_and_that_are_near() -> None:
    wanted = [1.0, 100.0, 1e-4, 5.0]
    found = measured([1.0, 100.5, 2e-4, 6.0], wanted)
    assert (found.unequal, found.within_1e_3, found.within_1_percent) == (0.75, 0.5, 0.5)
    whole = torch.tensor([1, 1000, 3, 4])
    off = torch.tensor([1, 1001, 5, 4])
    assert distance(off, whole, 0.0)[3:] == (0.5, 0.5, 0.75)
    assert distance(whole * 1j, whole * 1j + 1e-4, 0.0)[3:] == (1, 1, 1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
@given(pairs=st.lists(st.tuples(st.integers(-200, 200), st.integers(-200, 200)), min_size=1))
def test_the_measures_are_those_of_triage_run(dtype: str, pairs: list[tuple[int, int]]) -> None:
    kind = getattr(torch, dtype)
    scale = 1 / 64 if kind.is_floating_point else 1
    left, right = (
        torch.tensor([x * scale for x in side]).to(kind) for side in zip(*pairs, strict=True)
    )
    ours = distance(left, right, 0.1)
    run = comparing.compare(left.numpy(), right.numpy(), 0.1)
    names = ("stable_max_rel", "unequal", "within_1e_3", "within_1_percent")
    for name in names:
        assert getattr(ours, name) == pytest.approx(getattr(run, name)), name


numbers = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20)


@given(numbers)
def test_a_tensor_is_no_distance_from_itself(values: list[float]) -> None:
    assert measured(values, values) == NOTHING


@given(numbers, st.floats(1e-3, 1e3))
def test_three_measures_do_not_depend_on_the_scale(values: list[float], scale: float) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    other = tensor + tensor.abs().max() * 0.01
    one = distance(other, tensor, 0.1)
    two = distance(other * scale, tensor * scale, 0.1)
    assert one[:3] == pytest.approx(two[:3], rel=1e-6)


def test_the_coarsest_dtype_decides_the_tolerance() -> None:
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    assert tolerance([fp32, bf16, torch.int32]) == 4 * torch.finfo(bf16).eps
    assert tolerance([fp16, fp32]) == 4 * torch.finfo(fp16).eps
    assert tolerance([fp32]) == 1000 * torch.finfo(fp32).eps
    assert tolerance([torch.int64, torch.bool]) == 0


def trial(*values: float) -> ConfigTrial:
    return ConfigTrial(tensors={"out": torch.tensor(values)})


def test_trials_are_grouped_and_the_one_to_trust_comes_first() -> None:
    a, b, broken = trial(1.0, 2.0), trial(9.0, 2.0), ConfigTrial(error="no")
    assert group([a, b, b, broken, a, a]) == [[0, 4, 5], [1, 2]]
    # Reading the source casts doubt on the larger group.
    assert group([a, b, b, broken, a, a], doubtful={0}) == [[1, 2], [0, 4, 5]]
    assert group([broken, broken]) == []


def test_the_worst_tensor_is_named() -> None:
    one = ConfigTrial(tensors={"x": torch.ones(2), "y": torch.tensor([1.0, 1.1])})
    two = ConfigTrial(tensors={"x": torch.ones(2), "y": torch.ones(2)})
    apart = compare(one, two)
    assert (apart.tensor, apart.differs) == ("y", True)
    assert not compare(one, one).differs
    assert compare(ConfigTrial(tensors={"x": torch.ones(2)}), two).tensor == "y"


@pytest.mark.parametrize(("configs", "resets"), [(2, ["total"]), (1, [])])
def test_the_hook_of_a_tuner_prepares_its_launch_where_it_has_chosen(
    configs: int, resets: list[str]
) -> None:
    calls: list[object] = []
    config = SimpleNamespace(
        all_kwargs=lambda: {"BLOCK": 32}, pre_hook=lambda named: calls.append(named["BLOCK"])
    )
    tuner = SimpleNamespace(
        nargs={"total": 1},
        configs=[config] * configs,
        pre_hook=lambda named, reset_only: calls.extend(sorted(named)[1:] * reset_only),
        fn=SimpleNamespace(run=lambda *args, **kwargs: calls.append((args, kwargs))),
    )
    launch_with(tuner, config, (1,), {})
    assert calls == [*resets, 32, ((1,), {"BLOCK": 32})]
