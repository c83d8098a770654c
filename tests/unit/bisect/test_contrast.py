"""What a failure takes: parameters and flags, one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bisect.contrast import Point, carriers
from harness.judging.answers import VerdictAnswer
from harness.judging.ptxas.ptxas_options import single_changes
from harness.values.kernel import Config

SAME, OK, OTHER = VerdictAnswer.SAME, VerdictAnswer.OK, VerdictAnswer.OTHER


def points(*found: tuple[dict[str, int], VerdictAnswer]) -> list[Point]:
    return [
        Point(label=str(config), outcome=outcome, reason="", config=Config.of(dict(config)))
        for config, outcome in found
    ]


def test_only_a_change_of_one_parameter_says_what_it_carries() -> None:
    origin = {"num_warps": 8, "num_stages": 1}
    tried = points(
        (origin, SAME),
        ({"num_warps": 4, "num_stages": 1}, SAME),
        ({"num_warps": 2, "num_stages": 1}, OK),
        ({"num_warps": 8, "num_stages": 2}, SAME),
        # Differs in two: says nothing of either.
        ({"num_warps": 2, "num_stages": 3}, OTHER),
        ({"num_warps": 8, "num_stages": 1, "maxnreg": 128}, OTHER),
    )
    warps, stages, maxnreg = carriers(Config.of(dict(origin)), tried)
    assert (warps.name, warps.fails, warps.works, warps.carries) == (
        "num_warps",
        ("8", "4"),
        ("2",),
        True,
    )
    assert (stages.fails, stages.works, stages.carries) == (("1", "2"), (), False)
    assert (maxnreg.fails, maxnreg.other, maxnreg.carries) == (("none",), ("128",), None)


VALUES = st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.integers(0, 2)})


@given(VALUES, st.lists(st.tuples(VALUES, st.sampled_from([SAME, OK, OTHER])), max_size=9))
def test_a_carrier_rests_on_a_neighbour_that_works(
    origin: dict[str, int], tried: list[tuple[dict[str, int], VerdictAnswer]]
) -> None:
    for found in carriers(Config.of(dict(origin)), points((origin, SAME), *tried)):
        alone = [
            outcome
            for config, outcome in tried
            if all(config[name] == origin[name] for name in config if name != found.name)
        ]
        assert (found.carries is True) == (OK in alone)


def test_a_level_replaces_the_one_that_is_there() -> None:
    flags = ("-lineinfo", "-v", "--opt-level", "1", "--gpu-name=sm_90a")
    changes = {change.label: change.apply(flags) for change in single_changes(flags)}
    assert changes["-O3"] == ("-lineinfo", "-v", "--gpu-name=sm_90a", "-O3")
    assert changes["without -lineinfo"] == ("-v", "--opt-level", "1", "--gpu-name=sm_90a")
    assert changes["with --fmad=false"] == (*flags, "--fmad=false")
    assert "with -lineinfo" not in changes


@pytest.mark.parametrize("flags", [(), ("-O2",), ("--opt-level=3", "-g"), ("-v", "-lineinfo")])
def test_every_change_keeps_what_names_the_gpu(flags: tuple[str, ...]) -> None:
    flags = (*flags, "--gpu-name=sm_80")
    labels = [change.label for change in single_changes(flags)]
    assert len(labels) == len(set(labels))
    for change in single_changes(flags):
        changed = change.apply(flags)
        assert "--gpu-name=sm_80" in changed
        assert sum(flag.startswith(("-O", "--opt-level")) for flag in changed) <= 1
