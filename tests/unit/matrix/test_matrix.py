"""What of a matrix is run, and in which order."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from packaging.version import Version

from harness.cells.matrix_rules import Rules, by_information, make_selector, spec_hint
from harness.store.store import Shard
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.matrix import (
    Coordinates,
    Excluded,
    Expectation,
    Matrix,
    Override,
    VersionChoice,
)
from harness.values.target import Target
from harness.values.verdict import VerdictKind

PTXAS = ["12.8.93", "12.9.86", "13.0.88", "13.1.115"]


def cell(
    kernel: str = "k", *, triton: str = "3.6.0", ptxas: str = "13.0.88", warps: int = 4
) -> Coordinates:
    return Coordinates(
        cell=f"{kernel}/default/num_warps={warps}@sm_90a/triton-{triton}/ptxas-{ptxas}",
        kernel=kernel,
        launch="default",
        config=Config.of({"num_warps": warps}),
        target="sm_90a",
        compiler="triton",
        version=triton,
        assembler="ptxas",
        ptxas=ptxas,
        ptxas_origin="nvidia-cuda-nvcc",
    )


def matrix(**changes: object) -> Matrix:
    base = Matrix(
        triton=VersionChoice(specs=(">=3.5",)),
        ptxas=VersionChoice(specs=("bundled",)),
        targets=(Target.parse("90a"),),
        kernels=("*",),
    )
    return replace(base, **changes)


def test_the_first_reason_is_told_and_every_rule_counts_as_used() -> None:
    one = Excluded(selector=make_selector(triton="<3.7"), reason="old", line=3)
    two = Excluded(selector=make_selector(target="sm_90*"), reason="hopper", line=4)
    rules = Rules(matrix=matrix(exclude=(one, two)))
    assert rules.excluded_early(cell()) == "old"
    assert rules.excluded_early(cell(triton="3.8.0")) == "hopper"
    assert rules.unmatched({}) == []


def test_what_needs_the_config_is_excluded_late() -> None:
    rule = Excluded(selector=make_selector(config="num_warps=8"), reason="wide")
    rules = Rules(matrix=matrix(exclude=(rule,)))
    assert rules.excluded_early(cell()) is None
    assert rules.excluded(cell()) is None
    assert rules.excluded(cell(warps=8)) == "wide"


def test_a_rule_that_matched_nothing_is_told_by_name_and_line() -> None:
    rules = Rules(
        matrix=matrix(
            exclude=(Excluded(selector=make_selector(ptxas="==12.8"), reason="r", line=7),),
            overrides=(Override(selector=make_selector(cell="*@sm_80*"), timeout=9.0, line=8),),
            expect=(
                Expectation(selector=make_selector(kernel="no"), verdict=VerdictKind.OK, line=9),
            ),
            file="m.yaml",
        )
    )
    rules.excluded(cell())
    rules.override_of(cell())
    rules.expected(cell())
    versions = {"ptxas": [Version(text) for text in PTXAS]}
    assert rules.unmatched(versions) == [
        "m.yaml:7: exclude[0] matches no cell; ptxas ==12.8 is one version; ==12.8.* takes 12.8.93",
        "m.yaml:8: overrides[0] matches no cell",
        "m.yaml:9: expect[0] matches no cell",
    ]


def test_rules_of_places_that_nobody_saw_are_not_called_useless() -> None:
    late = Excluded(selector=make_selector(kernel="k", config="num_warps=8"), reason="r")
    early = Excluded(selector=make_selector(kernel="k"), reason="all of it")
    rules = Rules(matrix=matrix(exclude=(early, late)))
    assert rules.excluded_early(cell()) == "all of it"
    assert rules.unmatched({}) == []


def test_overrides_add_up_and_the_last_counts() -> None:
    rules = Rules(
        matrix=matrix(
            timeout=100.0,
            overrides=(
                Override(selector=make_selector(kernel="k"), timeout=200.0, repeat=3),
                Override(selector=make_selector(config="num_warps=4", kernel="k"), timeout=1.0),
                Override(selector=make_selector(kernel="k", config="num_warps=4"), timeout=300.0),
            ),
        )
    )
    found = rules.override_of(cell())
    assert (found.timeout, found.memory, found.repeat) == (300.0, None, 3)
    other = rules.override_of(cell("other"))
    assert (other.timeout, other.repeat) == (100.0, 1)


@pytest.mark.parametrize(
    ("only", "kernel", "wanted"),
    [
        ({"kernel": "k"}, "k", True),
        ({"kernel": "k"}, "other", False),
        ({"kernel": "mamba3_*"}, "mamba3_x", True),
        ({"kernel": "mamba3_*", "target": "90a"}, "mamba2_x", False),
        ({"target": "90a"}, "anything", True),
        ({"kernel": "*", "config": "num_warps=8"}, "other", True),
    ],
)
def test_only_saves_captures_where_it_can(only: dict[str, str], kernel: str, wanted: bool) -> None:
    rules = Rules(matrix=matrix(), only=[make_selector(**only)])
    assert rules.is_wanted_early(cell(kernel)) is wanted
    # What is dropped early would have been dropped late.
    if not wanted:
        assert not rules.is_wanted(cell(kernel))


def test_an_only_that_means_nothing_is_told() -> None:
    rules = Rules(matrix=matrix(), only=[make_selector(kernel="k"), make_selector(kernel="no")])
    assert rules.is_wanted(cell("k"))
    assert not rules.is_wanted(cell("other"))
    assert rules.unmatched_only() == ["no"]


def test_shards_part_the_whole() -> None:
    captures = [f"k{number}/default@sm_90a/3.6.0" for number in range(200)]
    shards = [Shard.parse(f"{number}/3") for number in (1, 2, 3)]
    counts = [sum(shard.has(capture) for capture in captures) for shard in shards]
    assert sum(counts) == len(captures)
    assert min(counts) > 40
    assert all(sum(shard.has(capture) for shard in shards) == 1 for capture in captures)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "-1/2"])
def test_no_shard(text: str) -> None:
    with pytest.raises(UsageError, match="write I/N"):
        Shard.parse(text)


def test_order_is_new_then_failed_then_boundaries_then_the_newest() -> None:
    cells = [
        cell(ptxas="12.9.86"),  # 0: ok, not at a boundary
        cell(ptxas="13.0.88"),  # 1: ok, beside the one that fails
        cell(ptxas="13.1.115"),  # 2: fails
        cell(ptxas="13.3.33"),  # 3: never run
        cell(warps=8, ptxas="13.5.37"),  # 4: ok, not at a boundary, and the newest
    ]
    last = ["ok", "ok", "ptxas_ice", None, "sick"]
    assert [index for _, index in by_information(cells, last)] == [3, 2, 1, 4, 0]


def test_what_could_not_be_told_is_tried_before_what_is_known() -> None:
    cells = [cell(warps=1), cell(warps=2)]
    assert [index for _, index in by_information(cells, ["ok", "infra"])] == [1, 0]


def test_hints() -> None:
    versions = [Version(text) for text in PTXAS]
    assert spec_hint(">=12.8", versions) == ""
    assert spec_hint("==13.1", versions) == ("==13.1 is one version; ==13.1.* takes 13.1.115")
    assert spec_hint(">14", versions).startswith(">14 matches none of the versions, which are 12")
