from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from harness.hunt.causes import Cause, LeastProgram
from harness.hunt.plan import HuntState, KeptHunt
from harness.hunt.voting import HuntAnswer, Vote
from harness.site.hunts import hunt_view


def cause(versions: dict[str, str]) -> Cause:
    least = LeastProgram(
        text="",
        seed=1,
        answer=HuntAnswer(vote=Vote.WRONG, levels=(3,)),
        name="bfe at -O3",
        opcodes=("bfe.u32",),
        instructions=3,
        versions=versions,
    )
    return Cause(programs=[least], hits=7)


def test_a_hunt_is_shown_with_its_rate_and_causes_over_time() -> None:
    versions = {"12.9.86": "right", "13.0.88": "wrong -O3", "13.5.37": "right"}
    state = HuntState(
        tried=400,
        seconds=10.0,
        votes={"refused": 100, "right": 300},
        causes=[cause(versions), cause({})],
        cpu=200.0,
        curve=[(2.0, 100, 1, 50.0), (5.0, 200, 2, 100.0)],
    )
    kept = KeptHunt(title="ptxas 13.0.88", version="13.0.88", state=state)
    view = SimpleNamespace(**hunt_view(kept))
    assert (view.rate, view.refused, view.hits) == (40.0, 0.25, 14)
    assert [(first, newest) for _, first, newest in view.causes] == [
        ("13.0.88", "fixed in 13.5.37"),
        ("not asked", "not asked"),
    ]
    # A step up at a quarter and at half of the time, and level from there on.
    (left, low), *_, (right, high) = view.points
    half, middle = (left + right) / 2, (low + high) / 2
    assert high < low
    corners = np.array(view.points[-3:])
    np.testing.assert_allclose(corners, [(half, middle), (half, high), (right, high)], atol=0.1)


def test_a_hunt_that_found_nothing_has_no_line_to_divide_by() -> None:
    kept = KeptHunt(title="ptxas", version="13.0.88", state=HuntState())
    view = SimpleNamespace(**hunt_view(kept))
    assert view.rate is None
    assert view.refused == 0
    assert view.causes == ()
