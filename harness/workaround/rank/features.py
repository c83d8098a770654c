"""What compilers tell of one config, as numbers that a model of its time takes. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.judging.ptxas.loops import Loop
from harness.values.limits import Limits
from harness.values.row import Row

_SHAPELESS = re.compile(r"UTC\w*MMA")
"""Tensor instructions whose shape is in a descriptor: the code does not say how much they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """One loop of the machine code, as `harness.judging.ptxas.loops.Loop` has it; counts of a warp.

    `total` are instructions; of these `tensor`, `memory` (global and shared), `local` (spills and
    local arrays), `special` and `control`. `tensor_work` are multiply-adds, `global_bytes` of one
    thread.
    """

    depth: int
    total: int
    tensor: int
    memory: int
    local: int
    special: int
    control: int
    tensor_work: float
    global_bytes: int

    @classmethod
    def of(cls, loop: Loop) -> LoopFacts:
        """Those of a loop."""
        mix = loop.mix
        return cls(
            depth=loop.depth,
            total=mix.total,
            tensor=mix.tensor,
            memory=mix.memory,
            local=mix.local,
            special=mix.special,
            control=mix.control,
            tensor_work=loop.tensor_work,
            global_bytes=loop.global_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """One config: its launch, what an SM holds of it, and its code by loops.

    `blocks` is the grid, `per_sm` how many blocks an SM holds at once, `spills` the bytes that a
    thread spills and loads again, `memory` the bytes of all that the launch is given.
    """

    blocks: int
    threads: int
    per_sm: int
    multiprocessors: int
    registers: int
    spills: int
    shared: int
    memory: int
    loops: tuple[LoopFacts, ...]

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.threads // 32

    @property
    def waves(self) -> float:
        """How often all multiprocessors are filled; the last time counts as a whole one."""
        return self.blocks / (self.per_sm * self.multiprocessors)


def features_of(
    row: Row,
    grid: Sequence[int] | None,
    storages: Sequence[int],
    loops: Sequence[Loop],
    limits: Limits,
) -> Features | None:
    """The features of a compiled config; None where something of it is not known."""
    if not grid or not row.threads or row.occupancy is None or not loops:
        return None
    if limits.multiprocessors is None:
        return None
    if row.n_regs is None or row.spill_stores is None or row.spill_loads is None:
        return None
    if any(_SHAPELESS.fullmatch(opcode) for loop in loops for opcode in loop.opcodes):
        return None
    per_sm = round(row.occupancy * limits.max_warps_per_sm / math.ceil(row.threads / 32))
    if per_sm < 1:
        return None
    return Features(
        blocks=math.prod(grid),
        threads=row.threads,
        per_sm=per_sm,
        multiprocessors=limits.multiprocessors,
        registers=row.n_regs,
        spills=row.spill_stores + row.spill_loads,
        shared=row.shared or 0,
        memory=sum(storages),
        loops=tuple(LoopFacts.of(loop) for loop in loops),
    )
