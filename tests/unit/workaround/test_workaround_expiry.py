"""When a run shows that a workaround is no longer needed, and when it does not."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from harness.values.bug import KeptSetting, KeptWorkaround
from harness.values.matrix import ToolChoice
from harness.values.row import Facts, Row
from harness.values.verdict import VerdictKind
from harness.workaround.expiry import broken, expired, is_known, to_retest, to_run

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
        compiler="triton",
        compiler_version="3.6.0",
        ptxas="12.9.86",
        ptxas_origin="bundled",
        verdict=VerdictKind.SICK,
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
        "compiler": "triton",
        "compiler_version": triton,
        "ptxas": ptxas or "13.3.33",
        "ptxas_origin": "nvidia-cuda-nvcc" if ptxas else "bundled",
        "verdict": VerdictKind(verdict),
        "reason": "",
        **more,
    }
    return Facts(**values)


def told(workaround: KeptWorkaround, *results: Facts) -> list[str]:
    return expired([workaround], results)


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
    home = structs.replace(kept().baseline, launch="default:chunk=32#2")
    extra = to_run(structs.replace(kept(), baseline=home, overrides=(("chunk", 32),)))
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


# --- the workaround itself --------------------------------------------------------------------

OPTIONS = "--minnctapersm 1"


def with_setting() -> KeptWorkaround:
    """The user's own config, with an option for ptxas."""
    found = kept()
    proof = structs.replace(
        found.baseline,
        cell=f"{found.baseline.cell},--minnctapersm_1",
        spill_stores=8_000,
        reason="spills 8,000 B",
    )
    setting = KeptSetting(config=dict(HOME), overrides=(("chunk", 32),), options=OPTIONS)
    return structs.replace(
        found, proof=proof, setting=setting, change=f"ptxas flags none -> {OPTIONS}"
    )


def again(verdict: str, spills: int, triton: str = "3.8.0", **more: Any) -> Facts:
    cell = f"k/default/c@sm_100a/triton-{triton}/ptxas-13.3.33-bundled,--minnctapersm_1"
    return facts(HOME, verdict, triton, **{"cell": cell, "spill_stores": spills, **more})


def test_the_workaround_itself_is_compiled_again_as_it_was_set() -> None:
    [extra] = to_retest(with_setting())
    assert extra.variant is not None
    assert extra.variant.config.as_dict() == HOME
    assert extra.variant.options == OPTIONS
    assert extra.set == (("chunk", 32),)
    assert (extra.compiler, extra.assembler) == (None, None)
    named = structs.replace(with_setting(), setting=KeptSetting(config=dict(HOME), ptxas="13.5.37"))
    assert to_retest(named)[0].assembler == ToolChoice(kind="ptxas", spec="13.5.37")
    # One that an older version kept says nothing of what it sets.
    assert to_retest(kept()) == ()


def test_a_workaround_that_no_longer_does_what_it_is_for_is_named() -> None:
    mine = [with_setting()]
    assert broken(mine, [again("sick", 8_000)]) == []
    assert broken(mine, [again("ok", 0)]) == []
    [worse] = broken(mine, [again("sick", 44_000)])
    assert worse.startswith(
        "workaround no longer works: k on sm_100a: ptxas flags none -> --minnctapersm 1: sick with "
        "Triton 3.8.0, ptxas 13.3.33"
    )
    assert worse.endswith("8,000 B of spill stores)")
    [fails] = broken(mine, [again("ptxas_ice", 0, reason="C7907")])
    assert "ptxas_ice with Triton 3.8.0, ptxas 13.3.33: C7907" in fails


def test_what_says_nothing_of_the_workaround_does_not_count() -> None:
    mine = [with_setting()]
    # Without the option it is the baseline; an older Triton, and what could not tell, do not count.
    assert broken(mine, [facts(HOME, "sick", spill_stores=44_000)]) == []
    assert broken(mine, [again("infra", 0)]) == []
    newer = again("sick", 8_000, "3.9.0")
    assert broken(mine, [again("sick", 44_000), newer]) == []
    assert broken([kept()], [again("sick", 44_000)]) == []
