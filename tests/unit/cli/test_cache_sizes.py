"""Sizes as `triage cache --trim` and `--memory` take them."""

from __future__ import annotations

import click
import pytest

from harness.cli.amounts import Gibibytes
from harness.cli.cache import _size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("7", 7),
        ("7B", 7),
        ("2k", 2_000),
        ("2kB", 2_000),
        ("2KiB", 2_048),
        ("500MB", 500_000_000),
        ("2G", 2_000_000_000),
        ("2GiB", 2 * 2**30),
        ("1.5TiB", 3 * 2**39),
    ],
)
def test_a_size_has_the_unit_that_it_names(text: str, size: int) -> None:
    assert _size(text) == size


@pytest.mark.parametrize("text", ["5IB", "5 GG", "-1", ""])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        _size(text)


@pytest.mark.parametrize(
    ("text", "gibibytes"),
    [
        ("6", 6),
        ("0.5", 0.5),
        ("6GiB", 6),
        ("512mib", 0.5),
        ("6GB", 6e9 / 2**30),
        ("6 g", 6e9 / 2**30),
    ],
)
def test_memory_is_gibibytes_or_has_a_unit(text: str, gibibytes: float) -> None:
    assert Gibibytes(0.1, 4096).convert(text, None, None) == gibibytes


@pytest.mark.parametrize(
    ("text", "said"), [("lots", "write GiB"), ("nan", "write GiB"), ("50MB", "range")]
)
def test_other_memory_is_refused_with_what_is_taken(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        Gibibytes(0.1, 4096).convert(text, None, None)
