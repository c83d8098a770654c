from __future__ import annotations

from harness.bisect.contrast import other_options, other_targets
from harness.values.target import Target


def test_one_option_changes_at_a_time() -> None:
    config = {"BLOCK": 64, "num_warps": 4, "num_stages": 2}
    found = dict(other_options(config, ("num_warps", "num_stages", "maxnreg")))
    assert list(found) == [
        "num_stages=1",
        "num_stages=3",
        "num_warps=1",
        "num_warps=2",
        "num_warps=8",
    ]
    assert found["num_stages=1"] == {**config, "num_stages": 1}
    # What the compiler does not call an option may change the result.
    assert not other_options({"num_warps": 4}, ())
    assert not other_options({"BLOCK": 64}, ("num_warps",))


def test_one_gpu_of_each_other_generation() -> None:
    found = list(map(str, other_targets(Target.parse("sm_103a"))))
    assert "sm_80" in found
    assert "sm_90a" in found
    assert not {each for each in found if each.startswith("sm_10")}
    assert all(each.removesuffix("a")[-1] == "0" for each in found)
