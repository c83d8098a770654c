from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judging.ptxas.occupancy import LIMITERS, Occupancy, theoretical_occupancy
from harness.values.limits import KNOWN_CAPABILITIES, Limits, limits_of

if TYPE_CHECKING:
    from collections.abc import Iterator

POINTS = Path(__file__).parents[3] / "data" / "occupancy_points.txt"


def known(capability: int) -> Limits:
    limits = limits_of(capability)
    assert limits is not None
    return limits


def occupancy(capability: int, **use: Any) -> Occupancy:
    use = {"n_regs": 32, "shared": 0, "threads_per_block": 128} | use
    return theoretical_occupancy(known(capability), **use)


def points() -> Iterator[tuple[int, ...]]:
    for line in POINTS.read_text().splitlines()[1:]:
        yield tuple(map(int, line.split()))


def test_agrees_with_the_calculator_of_nvidia() -> None:
    seen = set()
    for capability, threads, n_regs, shared, barriers, blocks in points():
        found = occupancy(
            capability, threads_per_block=threads, n_regs=n_regs, shared=shared, barriers=barriers
        )
        assert found.blocks_per_sm == blocks, (capability, threads, n_regs, shared, barriers)
        seen.add(found.limiter)
    assert seen >= {"registers", "shared", "barriers", "warps", "blocks"}


@pytest.mark.parametrize(
    ("capability", "use", "fraction", "blocks", "limiter"),
    [
        # CUDA C++ Best Practices Guide, "Occupancy": 12 blocks are 75 %, 4 blocks are 63 %.
        (70, {"n_regs": 37, "threads_per_block": 128}, 0.75, 12, "registers"),
        (70, {"n_regs": 37, "threads_per_block": 320}, 0.625, 4, "registers"),
        # CUDA C++ Programming Guide, "Multiprocessor Level": 2 blocks, one more register, 1 block.
        (70, {"n_regs": 64, "threads_per_block": 512}, 0.5, 2, "registers"),
        (70, {"n_regs": 65, "threads_per_block": 512}, 0.25, 1, "registers"),
        # Mamba-3 MIMO on an H200, profiled: 6.2 %, 6.2 % and 12.5 %.
        (90, {"n_regs": 239, "shared": 196 * 1024}, 0.0625, 1, "shared"),
        (90, {"n_regs": 255, "shared": 196 * 1024}, 0.0625, 1, "shared"),
        (
            90,
            {"n_regs": 255, "shared": 227 * 1024, "threads_per_block": 256},
            0.125,
            1,
            "registers",
        ),
        # 255 x 32 = 8,160, allocated as 8,192: two warps in each of four partitions of 16,384.
        (80, {"n_regs": 255}, 0.125, 2, "registers"),
        # 32 x 32 = 1,024: 16 warps in each partition, 64 in all.
        (80, {"n_regs": 32}, 1.0, 16, "registers"),
        (80, {"n_regs": 16}, 1.0, 16, "warps"),
        (80, {"n_regs": 16, "threads_per_block": 32}, 0.5, 32, "blocks"),
        (86, {"n_regs": 16, "threads_per_block": 1024}, 32 / 48, 1, "warps"),
        # 40,960 + 1,024 reserved = 41,984; 167,936 / 41,984 is exactly 4. A byte more, and 3 fit.
        (80, {"n_regs": 16, "shared": 40_960}, 0.25, 4, "shared"),
        (80, {"n_regs": 16, "shared": 40_961}, 0.1875, 3, "shared"),
        (100, {"tmem_columns": 512}, 0.0625, 1, "tmem"),
        (100, {"tmem_columns": 256}, 0.125, 2, "tmem"),
        (100, {"tmem_columns": 32}, 1.0, 16, "registers"),
        (90, {"n_regs": 16, "barriers": 16}, 0.25, 4, "barriers"),
        (120, {"n_regs": 16, "barriers": 4}, 0.5, 6, "barriers"),
    ],
)
def test_points_worked_out_by_hand(
    capability: int, use: dict[str, Any], fraction: float, blocks: int, limiter: str
) -> None:
    found = occupancy(capability, **use)
    assert (found.fraction, found.blocks_per_sm, found.limiter) == (fraction, blocks, limiter)


@pytest.mark.parametrize(
    ("capability", "use", "limiter"),
    [
        (90, {"shared": 232_449}, "shared"),
        (90, {"shared": 255_512}, "shared"),
        (120, {"shared": 101_377}, "shared"),
        (80, {"n_regs": 256}, "registers"),
        (80, {"n_regs": 128, "threads_per_block": 544}, "registers"),
        (80, {"threads_per_block": 1025, "n_regs": 16}, "warps"),
        (100, {"tmem_columns": 544}, "tmem"),  # state-spaces/mamba#904
        (90, {"tmem_columns": 32}, "tmem"),
        (120, {"tmem_columns": 32}, "tmem"),
        (90, {"barriers": 17}, "barriers"),
    ],
)
def test_nothing_fits(capability: int, use: dict[str, Any], limiter: str) -> None:
    found = occupancy(capability, **use)
    assert (found.fraction, found.blocks_per_sm, found.warps_per_sm) == (0.0, 0, 0)
    assert found.limiter == limiter
    assert found.tied == (limiter,)


def test_the_most_that_fits_fits() -> None:
    assert occupancy(90, shared=232_448).blocks_per_sm == 1
    assert occupancy(120, shared=101_376).blocks_per_sm == 1
    assert occupancy(80, n_regs=128, threads_per_block=512).blocks_per_sm == 1


def test_a_tie_names_all_and_the_code_first() -> None:
    found = occupancy(80, n_regs=32, shared=9_472, threads_per_block=128)
    assert found.blocks_per_sm == 16
    assert found.tied == ("registers", "shared", "warps")
    assert found.limiter == "registers"


def test_columns_are_handed_out_in_powers_of_two() -> None:
    for columns, blocks in [(1, 16), (32, 16), (33, 8), (129, 2), (256, 2), (257, 1), (512, 1)]:
        found = occupancy(100, n_regs=16, threads_per_block=32, tmem_columns=columns)
        assert (found.blocks_per_sm, found.tied) == (blocks, ("tmem",)), columns


def test_unknown_barriers_limit_nothing() -> None:
    assert (
        occupancy(90, n_regs=16).blocks_per_sm == occupancy(90, n_regs=16, barriers=0).blocks_per_sm
    )
    assert occupancy(80, n_regs=16, barriers=16).blocks_per_sm == 16


@pytest.mark.parametrize(
    "use",
    [
        {"threads_per_block": 0},
        {"threads_per_block": -32},
        {"n_regs": -1},
        {"shared": -1},
        {"barriers": -1},
        {"tmem_columns": -1},
    ],
)
def test_nonsense_is_refused(use: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        occupancy(80, **use)


USES = {
    "n_regs": st.integers(0, 300),
    "shared": st.integers(0, 300_000),
    "threads_per_block": st.integers(1, 1200),
    "barriers": st.none() | st.integers(0, 20),
    "tmem_columns": st.integers(0, 600),
}


@given(st.sampled_from(KNOWN_CAPABILITIES), st.fixed_dictionaries(USES))
def test_the_answer_is_consistent(capability: int, use: dict[str, Any]) -> None:
    limits = known(capability)
    found = theoretical_occupancy(limits, **use)
    warps = -(-use["threads_per_block"] // 32)
    assert 0.0 <= found.fraction <= 1.0
    assert found.warps_per_sm == found.blocks_per_sm * warps <= limits.max_warps_per_sm
    assert found.fraction == found.warps_per_sm / limits.max_warps_per_sm
    assert found.tied[0] == found.limiter
    assert [name for name in LIMITERS if name in found.tied] == list(found.tied)
    held = use["shared"] + limits.reserved_shared_per_block
    assert found.blocks_per_sm * held <= limits.shared_per_sm
    assert found.blocks_per_sm * use["tmem_columns"] <= limits.tensor_memory_columns


@given(
    st.sampled_from(KNOWN_CAPABILITIES),
    st.fixed_dictionaries(USES),
    st.sampled_from(["n_regs", "shared", "tmem_columns"]),
    st.integers(1, 5000),
)
def test_asking_for_more_never_fits_more(
    capability: int, use: dict[str, Any], resource: str, more: int
) -> None:
    limits = known(capability)
    before = theoretical_occupancy(limits, **use).blocks_per_sm
    after = theoretical_occupancy(limits, **use | {resource: use[resource] + more}).blocks_per_sm
    assert after <= before
