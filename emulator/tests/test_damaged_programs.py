"""Damaged PTX: whatever a file holds, a run ends with an outcome that says so."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from gpu_emulator.api import run
from gpu_emulator.values import Allocation, Budget, Checks, Launch, Outcome, Pointer

SEEDS = Path(__file__).parent / "data" / "damaged.ptx"
WORD = re.compile(r"[%\w.$:]+|[-+{}()\[\],;@!|<>=]")
SPARE = [
    "%r1", "%rd1", "%p1", "%h1", "%q1", "_", "0", "-1", "017", "0x80000000", "1.5", "0f7fc00000",
    "WARP_SZ", "%tid.x", "{", "}", "[", "]", "(", ")", ",", ";", "@", "!", "|", "s32", "u64",
    "f16x2", "b128", "pred", ".ftz", ".sat", ".cc", ".v4", ".global", ".shared", ".param",
    "buffer", "k", "",
    "bra", "ret", "call", "exit", "f", "LOOP", "v0", "\x00", "é",
]  # fmt: skip


def damaged(text: str, rng: random.Random) -> str:
    """One of several small changes, up to three times."""
    for _ in range(rng.randrange(1, 4)):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        kind = rng.randrange(6)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice(lines))
        elif kind == 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif "<" not in lines[at] and ".b8" not in lines[at]:
            words = list(WORD.finditer(lines[at]))
            if words:
                one = rng.choice(words)
                other = rng.choice([*SPARE, *(each[0] for each in words)])
                if kind == 3 and "." in one[0]:
                    parts = one[0].split(".")
                    parts[rng.randrange(len(parts))] = other.lstrip(".")
                    other = ".".join(parts)
                lines[at] = lines[at][: one.start()] + other + lines[at][one.end() :]
        text = "\n".join(lines)
    return text


def outcome_of(ptx: str) -> Outcome:
    buffers = tuple(Allocation(name=name, data=np.zeros(256, np.uint8)) for name in "ab")
    launch = Launch(
        ptx=ptx, grid=(2, 1, 1), block=(64, 1, 1), allocations=buffers,
        arguments=(Pointer(allocation=0), Pointer(allocation=1)),
    )  # fmt: skip
    limits = Budget(max_instructions=30_000, max_memory=1 << 26)
    return run(launch, None, limits, Checks(races=True, validity=True))


def test_the_program_itself_runs() -> None:
    found = outcome_of(SEEDS.read_text())
    assert found.not_run is None, found.not_run
    assert not found.faults, found.faults


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_program_ends_with_an_outcome(seed: int) -> None:
    text = SEEDS.read_text()
    rng = random.Random(seed)
    kinds = set()
    for _ in range(40):
        ptx = damaged(text, rng)
        found = outcome_of(ptx)
        said = str(found.not_run)
        # What no rule foresaw names no line: it would be a defect of the emulator.
        assert "the emulator cannot execute" not in said, (said, ptx)
        assert "PTX line 0" not in said
        kinds.add("not_run" if found.not_run else "fault" if found.faults else "ran")
    assert "not_run" in kinds
    assert "ran" in kinds
