from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.values.errors import UsageError
from harness.values.kernel import Config, ConfigFilter, LaunchParameter, Scalar

SCALARS = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20),
    st.sampled_from(["4", "true", "none", "null", "a,b=1", "bf16", ""]),
)  # fmt: skip


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (64, "32", 32),
        (64, "-1", -1),
        (64, "0x20", 32),
        (1.0, "2", 2.0),
        (1.0, "1e-3", 0.001),
        (True, "false", False),
        (False, "1", True),
        ("bf16", "fp32", "fp32"),
        ("bf16", "none", "none"),
        ("bf16", "4", "4"),
        (None, "none", None),
        (None, "4", 4),
        (None, "4.5", 4.5),
        (None, "True", True),
        (None, "bf16", "bf16"),
    ],
)
def test_a_value_has_the_type_of_its_default(
    default: Scalar | None, text: str, value: Scalar | None
) -> None:
    read = LaunchParameter(name="x", default=default).read(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("default", "text", "said"),
    [
        (64, "32.5", "expected an integer, like its default 64"),
        (64, "", "expected an integer"),
        (64, "none", "expected an integer"),
        (64, "9" * 5000, "expected an integer"),
        (1.0, "fast", "expected a number"),
        (True, "maybe", "expected true or false"),
        (True, "2", "expected true or false"),
    ],
)
def test_a_value_of_another_type_is_refused(default: Scalar, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        LaunchParameter(name="chunk", default=default).read(text)
    assert str(caught.value).startswith("--set chunk=")
    assert len(str(caught.value)) < 200


def test_the_label_of_a_config() -> None:
    values: dict[str, Scalar] = {"BLOCK_M": 64, "num_warps": 4, "fast": True, "kind": "bf16"}
    config = Config.of(values)
    assert config.label == "BLOCK_M=64,num_warps=4,fast=true,kind=bf16"
    assert config.as_dict() == values
    assert Config().label == "default"


@given(SCALARS, SCALARS)
def test_configs_that_differ_have_labels_that_differ(one: Scalar, other: Scalar) -> None:
    labels = Config.of({"x": one}).label, Config.of({"x": other}).label
    assert (labels[0] == labels[1]) == (type(one) is type(other) and repr(one) == repr(other))


def test_a_text_cannot_pose_as_two_items() -> None:
    assert Config.of({"a": "1,b=2"}).label != Config.of({"a": 1, "b": 2}).label


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("num_warps=4", True),
        (" num_warps = 4 , maxnreg=none", True),
        ("num_warps=2|4", True),
        ("num_warps=8", False),
        ("maxnreg=128", False),
        ("maxnreg=none|128", True),
        ("num_warps=none", False),
        ("kind=BF16", True),
        ("fast=True", True),
        ("number=4", True),
        ("num_warps=4,kind=fp32", False),
    ],
)
def test_a_filter(text: str, *, matches: bool) -> None:
    config = Config.of({"num_warps": 4, "kind": "bf16", "fast": True, "number": "4"})
    assert ConfigFilter.parse(text).matches(config) is matches


@pytest.mark.parametrize("text", ["num_warps", "=4", "num_warps=", "a=1,b", "a=1|", "a=|"])
def test_a_malformed_filter(text: str) -> None:
    with pytest.raises(UsageError, match="is not name=value; write for example num_warps=4"):
        ConfigFilter.parse(text)


def test_a_name_twice_in_a_filter() -> None:
    with pytest.raises(UsageError, match=r"num_warps twice; .* num_warps=4\|8"):
        ConfigFilter.parse("num_warps=4,num_warps=8")


@given(st.dictionaries(st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True), SCALARS, min_size=1))
def test_the_label_of_a_config_is_a_filter_that_finds_it(values: dict[str, Scalar]) -> None:
    """So that a command which is printed can be typed, whatever the values hold."""
    config = Config.of(values)
    assert ConfigFilter.parse(config.label).matches(config)


def test_commas_and_bars_within_quotes_part_nothing() -> None:
    config = Config.of({"order": "a,b|c", "num_warps": 4})
    assert config.label == 'order="a,b|c",num_warps=4'
    wanted = ConfigFilter.parse('order="a,b|c"|"x",num_warps=4|8')
    assert wanted.matches(config)
    assert wanted.matches(Config.of({"order": "x", "num_warps": 8}))
    assert not wanted.matches(Config.of({"order": "a", "num_warps": 4}))
