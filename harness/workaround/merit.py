"""Which of two compilations of one kernel is worth a look, from figures that need no disassembly.

These choose where the search goes on and what is shown; the order of what is shown is that of
`harness.workaround.expected`. Nothing here has been run. The order of criteria, and why:

1. The verdict: healthy, then sick, then what does not work at all.
2. Spill traffic: bytes that ptxas says a thread stores and loads, times the threads of a block,
   times `turns`: a tile of half the size is worked on twice as often, by more blocks or in more
   turns of a loop, and ptxas' figures do not know of that. On an H200 spilled bytes ranked the
   configs of the project's first kernel with a Spearman correlation of 0.89 against measured time
   (its forward kernel 0.89, a third one 0.71); nothing else that is known without running comes
   near. It is compared in steps of a half: the figures are static, and a tenth says nothing. Less
   than makes a kernel sick (`harness.values.verdict`) is noise beside its loads: none at all.
3. Where spills do not tell them apart: warps that an SM can hold (occupancy), in steps of an
   eighth of what it can hold; below that hiding a latency is hardest, so more is better.
4. The instruction mix: the share of instructions that touch local memory, in steps of a tenth.
5. What a block takes away from its neighbours: tensor memory, shared memory.

Every criterion is monotone in its figure. So a compilation that is better in everything ranks
first. Beyond these, the nearer setting comes first (`harness.workaround.settings.rank_key`): equal
figures are not a reason to change a toolchain.

Sources: measured on the H200 by this project; `occupancy` is that of NVIDIA's cuda_occupancy.h;
256-thread blocks at 25 % hid latencies that 12.5 % did not in a serving stack's tuning of the same
family of kernels (facts of the project, `chunk_scan`).

Pure.
"""

from __future__ import annotations

import math

from harness.values.row import Row
from harness.values.verdict import DEFAULT_THRESHOLDS, VerdictKind

_SPILL_STEP = 1.5
_OCCUPANCY_STEP = 0.125
_SHARE_STEP = 0.1
_UNIT = 1024


def spill_bytes_per_block(row: Row) -> int | None:
    """Bytes that one block stores to and loads from local memory where registers do not suffice."""
    if row.spill_stores is None or row.spill_loads is None or not row.threads:
        return None
    return (row.spill_stores + row.spill_loads) * row.threads


def merit(row: Row, turns: float = 1.0) -> tuple[float, ...]:
    """Sorts the likely faster first; what is not known counts as worst.

    `turns` is how many times as often the code is run, for all that is known.
    """
    return (
        _standing(VerdictKind(row.verdict)),
        _spill_step(row, turns),
        -_floored(row.occupancy, _OCCUPANCY_STEP),
        _local_share(row),
        _or_worst(row.tmem_size),
        _or_worst(row.shared),
    )


def is_clearly_better(merit: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether the first four criteria tell: what is shown to a user has to gain something."""
    return merit[:4] < other[:4]


def _standing(kind: VerdictKind) -> int:
    if kind is VerdictKind.OK or kind.is_fine_run:
        return 0
    return 1 if kind is VerdictKind.SICK else 3 if kind.tells_nothing else 2


def _spill_step(row: Row, turns: float) -> float:
    bytes_of_block = spill_bytes_per_block(row)
    if bytes_of_block is None:
        return math.inf
    if (row.spill_stores or 0) + (row.spill_loads or 0) < DEFAULT_THRESHOLDS.spill_bytes:
        return 0
    return 1 + math.floor(math.log(max(bytes_of_block * turns / _UNIT, 1), _SPILL_STEP))


def _floored(value: float | None, step: float) -> float:
    return 0.0 if value is None else math.floor(value / step + 1e-9) * step


def _local_share(row: Row) -> float:
    mix = row.instructions
    total = mix.get("total", 0) if mix else 0
    if not mix or not total:
        return math.inf
    return math.floor(mix.get("local", 0) / total / _SHARE_STEP)


def _or_worst(value: int | None) -> float:
    return math.inf if value is None else float(value)
