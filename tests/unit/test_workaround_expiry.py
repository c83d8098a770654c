"""When a run shows that a workaround is no longer needed, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.logic.workaround_expiry import expired, is_known, to_run
from harness.values.change import Facts
from harness.values.row import Row
from harness.values.workaround import KeptWorkaround

HOME = {"num_warps": 4}
STUB = {"num_warps": 8}


def kept(*left_out: dict[str, int]) -> KeptWorkaround:
    baseline = Row(
        cell="k/default/num_warps=4@sm_100a/triton-3.6.0/ptxas-12.9.86-bundled",
        short="01234567",
        kernel="k",
        launch="default",
        config=dict(HOME),
        target="sm_100a",
        triton="3.6.0",
        ptxas="12.9.86",
        ptxas_origin="bundled",
        verdict="sick",
        reason="spills",
    )
    return KeptWorkaround(
        baseline=baseline,
        change="maxnreg none -> 256",
        proof=None,
        left_out=tuple(dict(config) for config in left_out),
    )


def facts(
    config: dict[str, int], verdict: str, triton: str = "3.8.0", ptxas: str = "", **more: Any
) -> Facts:
    values: dict[str, Any] = {
        "cell": f"k/{config}/{triton}/{ptxas}",
        "short": "0",
        "kernel": "k",
        "launch": "default",
        "config": config,
        "target": "sm_100a",
        "triton": triton,
        "ptxas": ptxas or "13.3.33",
        "ptxas_origin": "nvidia-cuda-nvcc" if ptxas else "bundled",
        "verdict": verdict,
        **more,
    }
    return Facts(**values)


def told(workaround: KeptWorkaround, *results: Facts) -> list[str]:
    return [each.words for each in expired([workaround], results)]


def test_a_baseline_that_is_healthy_on_the_newest_triton_needs_no_workaround() -> None:
    [words] = told(kept(), facts(HOME, "ok"), facts(HOME, "sick", "3.6.0"))
    assert words == (
        "workaround no longer needed: k on sm_100a: it is ok with Triton 3.8.0, ptxas 13.3.33 "
        "(found for Triton 3.6.0, ptxas 12.9.86: maxnreg none -> 256)"
    )


def test_only_the_newest_triton_counts() -> None:
    assert told(kept(), facts(HOME, "ok", "3.7.1"), facts(HOME, "sick", "3.10.0")) == []


def test_the_bundled_ptxas_is_what_a_user_has() -> None:
    assert told(kept(), facts(HOME, "sick"), facts(HOME, "ok", ptxas="13.5.37")) == []
    assert told(kept(), facts(HOME, "ok"), facts(HOME, "sick", ptxas="13.5.37"))
    assert told(kept(), facts(HOME, "ok", ptxas="13.5.37"))


def test_what_still_has_to_be_left_out_is_still_needed() -> None:
    assert told(kept(STUB), facts(HOME, "ok"), facts(STUB, "trap_stub")) == []
    # Not tried is not fixed.
    assert told(kept(STUB), facts(HOME, "ok")) == []
    [words] = told(kept(STUB), facts(HOME, "sick"), facts(STUB, "sick"))
    assert "all 1 configs that the patch leaves out compile" in words


def test_what_could_not_be_told_says_nothing() -> None:
    assert told(kept(), facts(HOME, "infra")) == []
    assert told(kept(), facts(HOME, "unsupported", "3.9.0"), facts(HOME, "ok", "3.8.0"))


def test_another_kernel_launch_or_gpu_says_nothing() -> None:
    for other in ({"kernel": "other"}, {"launch": "gqa"}, {"target": "sm_90a"}):
        assert told(kept(), facts(HOME, "ok", **other)) == []


def test_what_is_run_is_the_launch_as_it_was_set() -> None:
    home = replace(kept().baseline, launch="default:chunk=32#2")
    extra = to_run(replace(kept(), baseline=home, overrides=(("chunk", 32),)))
    assert (extra.kernel, extra.launch, extra.set) == ("k", "default", (("chunk", 32),))
    assert [str(target) for target in extra.targets] == ["sm_100a"]
    assert extra.config.wanted == ()


def test_that_what_is_worked_around_fails_is_known() -> None:
    mine = [kept(STUB)]
    assert is_known(mine, facts(HOME, "sick"))
    assert is_known(mine, facts(STUB, "trap_stub"))
    assert not is_known(mine, facts({"num_warps": 1}, "trap_stub"))
    assert not is_known(mine, facts(STUB, "trap_stub", target="sm_90a"))
    assert not is_known([], facts(STUB, "trap_stub"))
