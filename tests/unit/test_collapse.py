"""When registers have collapsed, and in which words that is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.logic.collapse import collapse_of, collapse_words, is_lifted
from harness.values.row import Row

# As ptxas 12.9.86 does it: 64 threads on GPUs of 2,048 and of 1,536 threads an SM.
ROW = Row(
    cell="k/default/num_warps=2@sm_100a/triton-3.6.0/ptxas-12.9.86-bundled",
    short="01234567",
    kernel="k",
    launch="default",
    config={"num_warps": 2, "num_stages": 1},
    target="sm_100a",
    triton="3.6.0",
    ptxas="12.9.86",
    ptxas_origin="bundled",
    verdict="sick",
    reason="",
    n_regs=32,
    spill_stores=44_324,
    spill_loads=50_224,
    threads=64,
)


@pytest.mark.parametrize(
    ("target", "threads", "registers", "most", "blocks"),
    [
        ("sm_90a", 64, 32, 255, 32),
        ("sm_100a", 64, 32, 255, 32),
        ("sm_120a", 64, 40, 255, 24),
        ("sm_100a", 512, 32, 128, 4),
        # A block of one warp leaves half of an SM's threads empty, and so twice the registers.
        ("sm_100a", 32, 64, 255, 32),
    ],
)
def test_as_few_registers_as_keep_all_blocks_resident_are_a_collapse(
    target: str, threads: int, registers: int, most: int, blocks: int
) -> None:
    found = collapse_of(replace(ROW, target=target, threads=threads, n_regs=registers))
    assert found is not None
    assert (found.registers, found.most, found.blocks) == (registers, most, blocks)


@pytest.mark.parametrize(
    "other",
    [
        {"n_regs": 255, "spill_stores": 7_962},
        {"n_regs": 40},
        {"n_regs": 24},
        {"target": "sm_120a"},
        {"spill_stores": 200, "spill_loads": 200},
        {"config": {"num_warps": 2, "maxnreg": 32}},
        # 64 is all that a thread of so large a block can have.
        {"threads": 1024, "n_regs": 64},
        {"threads": None},
        {"n_regs": None},
    ],
)
def test_what_was_asked_for_or_cannot_be_more_is_none(other: dict[str, object]) -> None:
    assert collapse_of(replace(ROW, **other)) is None  # type: ignore[arg-type]


def test_the_words_name_what_lifts_it() -> None:
    found = collapse_of(ROW)
    assert found is not None
    lifted = replace(ROW, n_regs=255, spill_stores=7_962, spill_loads=9_136)
    assert is_lifted(ROW, lifted)
    assert not is_lifted(ROW, replace(ROW, spill_stores=100))
    assert not is_lifted(ROW, replace(lifted, spill_stores=30_000))
    first, second, third = collapse_words(
        found, ROW, [("--minnctapersm 1", lifted), ("-O1", lifted)], ["--minnctapersm 1", "-O1"]
    )
    assert first.startswith(
        "ptxas 12.9.86 gives 32 registers where a block of 64 threads could have 255: the most "
        "with which all 32 blocks of an SM are resident."
    )
    assert second == (
        "The collapse lifts with ptxas --minnctapersm 1: 32 -> 255 registers, 44,324 -> 7,962 B of "
        "spill stores (same PTX, byte for byte)."
    )
    assert third.startswith("It lifts likewise with ptxas -O1: ")
    assert collapse_words(found, ROW, [], ["-O1"])[1] == "It does not lift with ptxas -O1."
