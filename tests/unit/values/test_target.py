from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.values.errors import UsageError
from harness.values.target import EXAMPLES, Target


@pytest.mark.parametrize("text", ["90a", "sm_90a", "SM_90A", "sm90a", "compute_90a", " sm_90a "])
def test_spellings(text: str) -> None:
    assert Target.parse(text) == Target(capability=90, suffix="a")


@given(st.integers(10, 999), st.sampled_from(["", "a", "f"]))
def test_what_is_printed_can_be_read(capability: int, suffix: str) -> None:
    target = Target(capability=capability, suffix=suffix)
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "text",
    ["", "100z", "sm_", "sm_9", "sm_1000", "sm_090", "90aa", "9.0", "sm_-90", "٩٠", "sm_90 a"],
)
def test_what_is_not_a_target(text: str) -> None:
    with pytest.raises(UsageError, match="is not a GPU target; write it as ptxas does"):
        Target.parse(text)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *[("H100", "sm_90a"), ("h200", "sm_90a"), ("A100", "sm_80"), ("rtx 4090", "sm_89")],
        *[("a10", "sm_86"), ("3090", "sm_86"), ("rtx-5090", "sm_120a"), ("gb200", "sm_100a")],
        *[("b300", "sm_103a"), ("t4", "sm_75"), ("Tesla T4", "sm_75"), ("Hopper", "sm_90a")],
        *[("NVIDIA H100 80GB HBM3", "sm_90a"), ("NVIDIA GeForce RTX 3080 Ti", "sm_86")],
        *[("NVIDIA A100-SXM4-80GB", "sm_80"), ("NVIDIA RTX 6000 Ada Generation", "sm_89")],
        *[("A10", "sm_86"), ("L40S", "sm_89"), ("RTX PRO 6000", "sm_120a"), ("GB10", "sm_121a")],
    ],
)
def test_a_gpu_may_be_named_as_it_is_sold(name: str, target: str) -> None:
    assert str(Target.parse(name)) == target


def test_the_examples_of_the_message_are_true() -> None:
    examples = re.findall(r"([A-Z][\w ]+) \((\w+)\)", EXAMPLES)
    assert len(examples) == EXAMPLES.count("(")
    for name, target in examples:
        assert str(Target.parse(name)) == target
    with pytest.raises(UsageError, match=r"'blackwell' is .* name a GPU: V100 \(sm_70\), .*H100"):
        # Its GPUs have several compute capabilities.
        Target.parse("blackwell")


def test_targets_sort_by_capability() -> None:
    words = ["sm_120", "sm_90a", "sm_100f", "sm_90", "sm_100a"]
    assert [str(target) for target in sorted(map(Target.parse, words))] == [
        "sm_90",
        "sm_90a",
        "sm_100a",
        "sm_100f",
        "sm_120",
    ]
