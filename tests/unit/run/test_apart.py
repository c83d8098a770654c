from __future__ import annotations

import pytest

from harness.run.following import read_another, read_element
from harness.values.errors import UsageError

LONG = f"num_stages={'9' * 5000}"


def test_what_is_beside_is_named_by_what_differs() -> None:
    found = read_another("num_stages=1, sm=80")
    assert dict(found.options) == {"num_stages": 1}
    assert (str(found.target), found.compiler, found.words) == (
        "sm_80",
        None,
        "num_stages=1, sm=80",
    )


@pytest.mark.parametrize(
    "text",
    ["", "num_stages", "num_stages=", "num_stages=x", "BLOCK=64", "sm=80,,", "num_stages=²", LONG],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="write NAME=VALUE"):
        read_another(text)


def test_an_element_is_named_by_its_indices() -> None:
    assert read_element("out") == ("out", None)
    assert read_element("c[0, 3]") == ("c", (0, 3))


@pytest.mark.parametrize("text", ["out[]", "out[1,,2]", "out[ ]", "out[1 2]", f"out[{'9' * 5000}]"])
def test_an_element_without_numbers_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="write NAME or NAME"):
        read_element(text)
