"""What a config is expected to cost, from what compilers tell. Pure.

A multiprocessor works through its blocks, so many of them at once. Three things take time, and the
cost is a smooth maximum of them:

- *issue*: its four schedulers issue the instructions of all warps of all its blocks;
- *latency*: a warp waits for what it asked for. Blocks that an SM holds at once wait together;
- *memory*: what the launch is given has to come from the GPU's memory once, or go there.

That is a roofline (Williams, Waterman, Patterson 2009) with latency as a third roof (Little's law:
what is under way at once hides the time that each of it takes).

How often a loop turns is not in the code. It is inferred from the work that is to be done: what the
launch is given is touched, so that few bytes in a turn mean many turns; and tiles of one launch do
the same work in the end (multiply-adds; bytes of global memory, where there are none), so that a
small tile turns more often. A tile that is larger than what there is, and threads that hold
copies, do work that is for nothing; so the least that is found counts.

The weights are those that `python benchmarks/ranking.py` prints, from times of an H200
(`docs/measured/ranking.md`, with what they give for kernels that they were not fitted to). They are
in cycles of an SM and of the size that hardware has, but fitted: none of them was measured alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.judging.ptxas.sass import Loop
from harness.values.limits import Limits
from harness.values.row import Row

_SHAPELESS = re.compile(r"UTC\w*MMA")
"""Tensor instructions whose shape is in a descriptor: the code does not say how much they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """One loop of the machine code, as `harness.judging.ptxas.sass.Loop` has it; counts of a warp.

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
        names = ("total", "tensor", "memory", "local", "special", "control")
        return cls(
            depth=loop.depth,
            tensor_work=loop.tensor_work,
            global_bytes=loop.global_bytes,
            **{name: getattr(loop.mix, name) for name in names},
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


_SCHEDULERS = 4
_LEAST_TURNS = 2.0
"""Of a loop of the largest tile, where nothing says more: compilers unroll what turns once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Weights, in cycles.

    `issue_*` are slots beside the one of each instruction. `wait*` are what an instruction delays
    its own warp; `wait_control` is of branches and barriers, and `wait_warps` what each warp of
    the block adds to it. `wait_turn` is of a turn that loads from global memory, nothing of it
    ahead; `begin` is of a block. `bytes_a_cycle` are those of GPU memory for each multiprocessor.
    """

    issue_memory: float = 9.94
    issue_local: float = 24.8
    begin: float = 3130.0
    wait: float = 2.0
    wait_memory: float = 8.23
    wait_local: float = 20.7
    wait_control: float = 11.0
    wait_warps: float = 2.16
    wait_turn: float = 1700.0
    bytes_a_cycle: float = 20.7
    sharpness: float = 2.0


MODEL = Model()


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpWork:
    """What one warp of a config does in all turns of its loops, and how many of them there are.

    `loads` are turns that wait for global memory, each divided by how many are on their way at
    once: what lies before the loop has loaded for so many turns ahead. `blocks` are those of one
    multiprocessor, of which it holds `beside` at once; `bytes` come from memory for it.
    """

    total: float
    memory: float
    local: float
    control: float
    loads: float
    warps: int
    blocks: int
    beside: int
    bytes: float


def costs(
    configs: Sequence[Features], tiles: Sequence[object], model: Model = MODEL
) -> list[float]:
    """The expected cost of each config of one launch; configs with equal `tiles` do equal turns."""
    return [cost_of(work, model) for work in works_of(configs, tiles)]


def cost_of(work: WarpWork, model: Model) -> float:
    """In cycles of a multiprocessor."""
    issue = work.total + model.issue_memory * work.memory + model.issue_local * work.local
    wait = (
        model.begin
        + model.wait * work.total
        + model.wait_memory * work.memory
        + model.wait_local * work.local
        + (model.wait_control + model.wait_warps * work.warps) * work.control
        + model.wait_turn * work.loads
    )
    roofs = (
        work.blocks * work.warps * issue / _SCHEDULERS,
        work.blocks * wait / work.beside,
        work.bytes / model.bytes_a_cycle,
    )
    sharp = model.sharpness
    highest = max(roofs)
    return highest * math.pow(math.fsum((roof / highest) ** sharp for roof in roofs), 1 / sharp)


def works_of(configs: Sequence[Features], tiles: Sequence[object]) -> list[WarpWork]:
    """The work of each config of one launch, which has no weights in it."""
    turns = _turns(configs, tiles)
    return [_work(config, turns[tile]) for config, tile in zip(configs, tiles, strict=True)]


def _work(config: Features, turns: float) -> WarpWork:
    times = [(turns if loop.depth else 1.0, loop) for loop in config.loops]
    blocks = max(1, math.ceil(config.blocks / config.multiprocessors))
    loading = sum(loop.global_bytes > 0 for loop in config.loops if loop.depth)
    inside = sum(loop.global_bytes for loop in config.loops if loop.depth)
    outside = sum(loop.global_bytes for loop in config.loops if not loop.depth)
    ahead = min(outside / inside, _MOST_AHEAD) if inside else 0.0
    return WarpWork(
        total=sum(number * loop.total for number, loop in times),
        memory=sum(number * loop.memory for number, loop in times),
        local=sum(number * loop.local for number, loop in times),
        control=sum(number * loop.control for number, loop in times),
        loads=turns * loading / (1 + ahead),
        warps=config.warps,
        blocks=blocks,
        beside=min(config.per_sm, blocks),
        bytes=config.memory / config.multiprocessors,
    )


_MOST_AHEAD = 8.0
"""Of what lies before a loop, more than the loads of so many turns is there for something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """Of something that all blocks of a launch do together: in no loop, and in one turn of all."""

    once: float
    turning: float

    def turns(self, whole: float) -> float:
        return max(1.0, (whole - self.once) / self.turning) if self.turning else 0.0


def _turns(configs: Sequence[Features], tiles: Sequence[object]) -> Mapping[object, float]:
    is_tensor = any(loop.tensor_work for config in configs for loop in config.loops)
    by_tile: dict[object, list[Features]] = {}
    for features, tile in zip(configs, tiles, strict=True):
        by_tile.setdefault(tile, []).append(features)
    memory = configs[0].memory if configs else 0
    least = {
        tile: max(_LEAST_TURNS, _least(group, is_tensor=False).turns(memory))
        for tile, group in by_tile.items()
    }
    amounts = {tile: _least(group, is_tensor=is_tensor) for tile, group in by_tile.items()}
    wholes = [
        amount.once + least[tile] * amount.turning
        for tile, amount in amounts.items()
        if amount.turning
    ]
    if len(by_tile) == 1 or not wholes:
        return least
    return {tile: amount.turns(min(wholes)) or least[tile] for tile, amount in amounts.items()}


def _least(configs: Sequence[Features], *, is_tensor: bool) -> _Amount:

    def of(config: Features, *, inside: bool) -> float:
        loops = [loop for loop in config.loops if bool(loop.depth) is inside]
        work = sum(loop.tensor_work if is_tensor else 32.0 * loop.global_bytes for loop in loops)
        return config.blocks * config.warps * work

    return _Amount(
        once=min(of(each, inside=False) for each in configs),
        turning=min(of(each, inside=True) for each in configs),
    )
