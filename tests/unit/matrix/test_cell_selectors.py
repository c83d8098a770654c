"""Selectors as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harness.cells.matrix_rules import make_selector, read_specifiers, select_stored
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.matrix import Coordinates

CELL = Coordinates(
    cell="mamba3_x/default:n=4/num_warps=4@sm_100a/triton-3.6.0/ptxas-12.9.86-bundled",
    kernel="mamba3_x",
    launch="default:n=4",
    config=Config.of({"num_warps": 4}),
    target="sm_100a",
    compiler="triton",
    version="3.6.0",
    assembler="ptxas",
    ptxas="12.9.86",
    ptxas_origin="bundled",
)


@pytest.mark.parametrize(
    "words",
    [
        {"cell": "*@sm_100a*"},
        {"kernel": "mamba3_*"},
        {"kernel": "mamba3_x", "target": "100a"},
        {"target": "sm_10*"},
        {"kernel": "fla_*|mamba3_*", "target": "90a|100a"},
        {"launch": "other|default:n=4"},
        {"triton": ">=3.5,<3.8"},
        {"triton": "3.6.0", "ptxas": "bundled"},
        {"ptxas": ">=12.9,<13", "config": "num_warps=4|8"},
        {"launch": "default", "config": "num_warps=4"},
        {"kernel": "mamba3_x", "config": "maxnreg=none"},
        {"compiler": "triton"},
        {"compiler": "triton>=3.5,<3.8", "config": "num_warps=4"},
        {"assembler": "ptxas==12.9.*", "triton": "3.6.0"},
    ],
)
def test_what_means_the_cell(words: dict[str, str]) -> None:
    assert make_selector(**words).matches(CELL)


@pytest.mark.parametrize(
    "words",
    [
        {"cell": "*@sm_90a*"},
        {"kernel": "mamba2_*"},
        {"kernel": "fla_*|mamba2_*"},
        {"target": "80|sm_90*"},
        {"kernel": "mamba3_x", "target": "100"},
        {"triton": ">=3.5,<3.6"},
        {"ptxas": "12.9"},
        {"ptxas": ">=12.9,<13", "config": "num_warps=8"},
        {"launch": "other"},
        {"compiler": "toy"},
        {"compiler": "toy==3.6.0"},
        {"compiler": "triton<3.6"},
        {"assembler": "kettle==12.9.86"},
        {"assembler": "none"},
        {"assembler": "ptxas>=13"},
        {"compiler": "triton", "triton": "<3.6"},
    ],
)
def test_what_does_not(words: dict[str, str]) -> None:
    assert not make_selector(**words).matches(CELL)


@pytest.mark.parametrize(
    ("options", "means"),
    [
        ({}, True),
        ({"sm": ["90a", "100a"], "triton": ["3.5.1", ">=3.6"], "ptxas": ["bundled"]}, True),
        ({"sm": ["90a"]}, False),
        ({"triton": ["3.5.1", "3.7"]}, False),
        ({"triton": ["3.5.1"], "compiler": ["triton==3.6.0"]}, True),
        ({"compiler": ["nvcc", "toy>=1"]}, False),
        ({"ptxas": [">=13"], "assembler": ["ptxas<13"]}, True),
        ({"launch": "def*", "set": ["n=4"], "config": "num_warps=4|8"}, True),
        ({"set": ["n=4", "m=2"]}, False),
        ({"set": ["n=8"]}, False),
        ({"config": "num_warps=8"}, False),
    ],
)
def test_options_mean_any_of_one_and_all_of_several(options: Any, means: bool) -> None:
    assert any(selector.matches(CELL) for selector in select_stored(**options)) is means


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"triton": "new"}, "not a specifier"),
        ({"target": "sm_1"}, "not a GPU target"),
        ({"kernel": "a", "config": "num_warps"}, "not name=value"),
        ({"compiler": ">=3"}, "names no kind"),
        ({"assembler": "kettle 1.1"}, "names no kind"),
        ({"assembler": "kettle>=new"}, "not a specifier"),
    ],
)
def test_what_makes_no_sense(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_selector(**words)


def test_one_version_is_exactly_that() -> None:
    assert "3.6.0" in read_specifiers("3.6.0")
    assert "12.8.93" not in read_specifiers("12.8")
    assert "12.8.93" in read_specifiers("==12.8.*")


def test_bundled_is_no_version() -> None:
    assert make_selector(ptxas="bundled").bundled
    assert make_selector(ptxas="bundled").assemblers == ()


def test_a_version_of_triton_is_none_of_another_compiler() -> None:
    toy = replace(CELL, compiler="toy")
    assert not make_selector(triton="3.6.0").matches(toy)
    assert make_selector(compiler="toy==3.6.0").matches(toy)
    cup = replace(CELL, assembler="none", ptxas=None, ptxas_origin=None)
    assert make_selector(assembler="none").matches(cup)
    for words in ({"ptxas": ">=0"}, {"assembler": "none>=0"}, {"assembler": "ptxas"}):
        assert not make_selector(**words).matches(cup)
