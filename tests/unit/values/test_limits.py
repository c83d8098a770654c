from __future__ import annotations

import pytest

from harness.values.limits import KNOWN_CAPABILITIES, Limits, limits_of


def known(capability: int) -> Limits:
    limits = limits_of(capability)
    assert limits is not None
    return limits


EVERY = [known(capability) for capability in KNOWN_CAPABILITIES]


def test_every_capability_of_the_project_is_known() -> None:
    wanted = {70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121}
    assert set(KNOWN_CAPABILITIES) == wanted
    assert [limits.capability for limits in EVERY] == sorted(wanted)


@pytest.mark.parametrize("capability", [0, 9, 71, 85, 91, 99, 107, 111, 122, 1000, -80])
def test_an_unknown_capability_is_not_guessed(capability: int) -> None:
    assert limits_of(capability) is None


@pytest.mark.parametrize(
    ("capability", "per_block", "per_sm"),
    [
        (70, 98_304, 98_304),
        (75, 65_536, 65_536),
        (80, 166_912, 167_936),
        (86, 101_376, 102_400),
        (89, 101_376, 102_400),
        (90, 232_448, 233_472),  # 255,512 B was refused on an H200 for being over 232,448
        (100, 232_448, 233_472),  # ptxas 13.5.37 says 0x38c00 for sm_100a
        (103, 232_448, 233_472),
        (120, 101_376, 102_400),
    ],
)
def test_shared_memory(capability: int, per_block: int, per_sm: int) -> None:
    limits = known(capability)
    assert (limits.max_shared_per_block, limits.shared_per_sm) == (per_block, per_sm)


@pytest.mark.parametrize(
    ("capability", "threads", "warps", "blocks"),
    [
        (70, 2048, 64, 32),
        (75, 1024, 32, 16),
        (80, 2048, 64, 32),
        (86, 1536, 48, 16),
        (87, 1536, 48, 16),
        (89, 1536, 48, 24),
        (90, 2048, 64, 32),
        (100, 2048, 64, 32),
        (110, 1536, 48, 24),
        (120, 1536, 48, 24),
    ],
)
def test_residency(capability: int, threads: int, warps: int, blocks: int) -> None:
    limits = known(capability)
    assert limits.max_threads_per_sm == threads
    assert limits.max_warps_per_sm == warps
    assert limits.max_blocks_per_sm == blocks


def test_only_tcgen05_targets_have_tensor_memory() -> None:
    with_it = {limits.capability for limits in EVERY if limits.tensor_memory_columns}
    assert with_it == {100, 101, 103, 110}
    assert {limits.tensor_memory_columns for limits in EVERY} == {0, 512}


def test_what_the_driver_reserves_begins_with_ampere() -> None:
    for limits in EVERY:
        expected = (1024, 128) if limits.capability >= 80 else (0, 256)
        assert (limits.reserved_shared_per_block, limits.shared_allocation_unit) == expected
        together = limits.max_shared_per_block + limits.reserved_shared_per_block
        assert together == limits.shared_per_sm


@pytest.mark.parametrize("pair", [(101, 110), (100, 103), (120, 121), (86, 88)])
def test_twins_differ_in_nothing_that_limits(pair: tuple[int, int]) -> None:
    first, second = (known(capability) for capability in pair)
    of_the_product = {"product", "multiprocessors", "memory", "l2_cache", "integrated"}
    names = set(type(first).__struct_fields__) - {"capability"} - of_the_product
    assert {n: getattr(first, n) for n in names} == {n: getattr(second, n) for n in names}


def test_pretend_devices() -> None:
    products = {limits.capability: (limits.product, limits.multiprocessors) for limits in EVERY}
    assert products[80] == ("A100-SXM4", 108)
    assert products[90] == ("H100-SXM5", 132)
    assert products[100] == ("B200", 148)
    assert products[120] == ("GeForce RTX 5090", 170)
    assert products[88] == (None, None)


def test_what_is_not_known_of_a_product_is_null() -> None:
    facts = {each.capability: (each.memory, each.l2_cache, each.integrated) for each in EVERY}
    assert facts[89] == (24 << 30, 72 << 20, False)
    assert facts[75] == (16 << 30, 4 << 20, False)
    # Sold with 40 and with 80 GiB.
    assert facts[80] == (None, 40 << 20, False)
    assert facts[87] == (None, 4 << 20, True)
    assert facts[88] == (None, None, None)
    assert facts[72] == (None, None, True)
    # Both halves of it, as CUDA counts them: no whole number of MiB.
    assert facts[100] == (180 << 30, 253 << 19, False)
