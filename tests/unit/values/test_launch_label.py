"""Labels of launches are taken apart as they were put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.values.cell import LaunchLabel, same_place

NAMES = st.from_regex(r"[A-Za-z_]\w*", fullmatch=True)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters=",#"))
LABELS = st.builds(
    LaunchLabel,
    name=NAMES,
    overrides=st.lists(st.builds("{}={}".format, NAMES, VALUES)).map(tuple),
    number=st.integers(1, 99),
)


@given(LABELS)
def test_what_is_spelled_is_read_again(label: LaunchLabel) -> None:
    assert LaunchLabel.parse(str(label)) == label
    assert LaunchLabel.parse(label.call).number == 1


@pytest.mark.parametrize(
    ("text", "name", "overrides", "number"),
    [
        ("default", "default", (), 1),
        ("default#3", "default", (), 3),
        ("f:chunk_size=32,headdim=64#2", "f", ("chunk_size=32", "headdim=64"), 2),
        ("f:dtype=a:b#c", "f", ("dtype=a:b#c",), 1),
        ("f:shape=16,32,n=1", "f", ("shape=16,32", "n=1"), 1),
        ("", "", (), 1),
        ("#", "#", (), 1),
        ("f#x#2:n=1", "f#x#2", ("n=1",), 1),
        ("f#2#2", "f#2", (), 2),
    ],
)
def test_parts(text: str, name: str, overrides: tuple[str, ...], number: int) -> None:
    label = LaunchLabel.parse(text)
    assert label == LaunchLabel(name=name, overrides=overrides, number=number)
    assert str(label) == text


@given(st.text())
def test_any_text_is_some_label(text: str) -> None:
    assert isinstance(LaunchLabel.parse(text).number, int)


FP32 = "softmax.py::softmax/main/num_warps=2@sm_90a/triton-3.9.0/ptxas-13.4.59-bundled"


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("softmax.py::softmax/main/num_warps=2@sm_90a/triton-3.2.0/ptxas-12.4.131", True),
        ("softmax.py::softmax/main#4/num_warps=2@sm_90a/triton-3.2.0/ptxas-12.4.131", False),
        ("softmax.py::softmax/main:n=8/num_warps=2@sm_90a/triton-3.9.0/ptxas-13.4.59", False),
        ("softmax.py::softmax/main/num_warps=4@sm_90a/triton-3.9.0/ptxas-13.4.59", False),
        ("softmax.py::scale/main/num_warps=2@sm_90a/triton-3.9.0/ptxas-13.4.59", False),
    ],
)
def test_a_place_is_kernel_launch_settings_and_config(other: str, *, is_same: bool) -> None:
    assert same_place(FP32, other) is is_same
    assert same_place(FP32, other.replace("sm_90a", "sm_80"), across_targets=True) is is_same
    assert not same_place(FP32, other.replace("sm_90a", "sm_80"))
