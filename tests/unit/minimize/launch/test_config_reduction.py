"""Launches made small, against oracles that only read the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from harness.minimize.launch_level import LaunchSettings, differences, reduce_settings
from harness.minimize.reduction.reducer import Reducer, Reduction
from harness.values.kernel import Config, LaunchParameter, Scalar

CONFIGS = tuple(
    Config.of({"num_warps": warps, "num_stages": stages})
    for warps in (2, 4, 8)
    for stages in (1, 3)
)


def settings(
    flags: tuple[str, ...] = (), config: Config | None = None, **values: Scalar | None
) -> LaunchSettings:
    defaults: dict[str, Scalar | None] = {"n": 4096, "block": 64, "wide": True, "name": "x"}
    return LaunchSettings(
        parameters=tuple(LaunchParameter(name=n, default=v) for n, v in defaults.items()),
        values={**defaults, **values},
        config=config,
        flags=flags,
    )


def reduced(
    holds: Callable[[LaunchSettings], bool], begun: LaunchSettings, configs: Sequence[Config] = ()
) -> Reduction[LaunchSettings]:
    async def is_interesting(candidate: LaunchSettings) -> bool:
        return holds(candidate)

    async def main() -> Reduction[LaunchSettings]:
        reducer = Reducer(
            begun, is_interesting, size=lambda each: each.size, key=lambda each: each.key
        )
        await reduce_settings(reducer, configs)
        return reducer.reduction(is_minimal=True)

    return asyncio.run(main())


def test_what_does_not_matter_becomes_as_small_as_it_can() -> None:
    found = reduced(lambda _: True, settings(name="y"))
    assert found.is_minimal
    assert found.document.values == {"n": 1, "block": 1, "wide": False, "name": "x"}


def test_the_smallest_shape_that_still_does_it() -> None:
    def holds(candidate: LaunchSettings) -> bool:
        n, block = candidate.values["n"], candidate.values["block"]
        return isinstance(n, int) and isinstance(block, int) and n * block >= 2048 and block >= 16

    found = reduced(holds, settings(block=128)).document
    n, block = found.values["n"], found.values["block"]
    assert isinstance(n, int)
    assert isinstance(block, int)
    assert n * block == 2048


def test_an_override_that_is_not_needed_goes() -> None:
    found = reduced(lambda candidate: candidate.values["block"] == 64, settings(name="z"))
    assert "name" not in found.document.overrides
    assert "block" not in found.document.overrides


def test_the_smallest_config_of_the_tuner() -> None:
    def holds(candidate: LaunchSettings) -> bool:
        return candidate.config is not None and candidate.config.as_dict()["num_warps"] != 2

    found = reduced(holds, settings(config=CONFIGS[-1]), CONFIGS)
    assert found.document.config == Config.of({"num_warps": 4, "num_stages": 1})


def test_flags_that_matter_stay_and_the_target_is_not_touched() -> None:
    flags = ("-lineinfo", "-v", "--gpu-name=sm_90a", "--fmad=false", "-O1")
    found = reduced(lambda candidate: "-O1" in candidate.flags, settings(flags))
    assert found.document.flags == ("-v", "--gpu-name=sm_90a", "-O1")


def test_what_a_file_fixes_is_left_alone() -> None:
    fixed = LaunchSettings(
        parameters=(LaunchParameter(name="n", default=8, settable=False),), values={"n": 8}
    )
    assert reduced(lambda _: True, fixed).document.values == {"n": 8}


def test_differences_in_words() -> None:
    before = settings(("-v", "-g"), CONFIGS[3])
    after = settings(("-v",), CONFIGS[0], n=64)
    assert differences(before, after) == [
        "n: 4096 -> 64",
        "config: num_warps=4,num_stages=3 -> num_warps=2,num_stages=1",
        "without -g",
    ]
