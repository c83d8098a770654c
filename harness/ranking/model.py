"""What a config is expected to cost, from what compilers tell. Pure.

A multiprocessor works through its blocks, so many of them at once. A block costs at least the issue
slots of its warps, which the blocks beside it want too; and at least the time that one warp takes
from its first instruction to its last, which blocks beside it hide. The cost of a block is a smooth
maximum of the two.

How often a loop turns is not in the code. Tiles of a launch do the same work in the end: as many
multiply-adds (bytes of global memory, where there are none), so that a small tile turns more often.
Configs that differ in warps and stages alone turn as often.

The weights were fitted to the times of 37 launches of this project's corpus on one H200
(`docs/ranking.md`, which says how well they fit, and what they give for launches that they were not
fitted to). They are in issue slots of a warp's scheduler, and mean nothing by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.ranking.features import Features, LoopFacts

__all__ = ["MODEL", "SPREAD", "Model", "costs", "spread_of"]

SPREAD = 0.6
"""Standard deviation of the logarithms of the costs from which on they tell the order.

The model's own error is 0.25 or so on the same scale: what it expects to be nearer than that says
nothing.
"""

_SCHEDULERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Weights. `turns` are those of the loops of the largest tile, `inner` of a loop in a loop.

    `issue_*` are slots beside the one of each instruction, `work` of a multiply-add of a warp.
    `wait*` are what an instruction delays its own warp; `wait_control` is of branches and barriers,
    and `wait_warps` what each warp of the block adds to it. `begin` is of a block.
    """

    turns: float = 1.5
    inner: float = 0.28
    issue_memory: float = 1.9
    issue_local: float = 18.0
    issue_special: float = 8.4
    work: float = 0.0007
    begin: float = 2700.0
    wait: float = 1.3
    wait_memory: float = 31.0
    wait_local: float = 66.0
    wait_special: float = 3.4
    wait_control: float = 4.7
    wait_warps: float = 14.5
    sharpness: float = 4.6


MODEL = Model()


def costs(
    configs: Sequence[Features], tiles: Sequence[object], model: Model = MODEL
) -> list[float]:
    """The expected cost of each config of one launch; configs with equal `tiles` do equal turns."""
    turns = _turns(configs, tiles, model)
    return [_cost(each, turn, model) for each, turn in zip(configs, turns, strict=True)]


def spread_of(expected: Sequence[float]) -> float:
    """The standard deviation of the logarithms; 0 of equal costs."""
    logs = [math.log(each) for each in expected]
    mean = sum(logs) / len(logs)
    return math.sqrt(sum((each - mean) ** 2 for each in logs) / len(logs))


def _turns(configs: Sequence[Features], tiles: Sequence[object], model: Model) -> list[float]:
    """How often the loops of each turn, beside the others."""
    is_tensor = any(loop.tensor_work for each in configs for loop in each.loops)
    work: dict[object, list[tuple[float, float]]] = {}
    for each, tile in zip(configs, tiles, strict=True):
        work.setdefault(tile, []).append(_work(each, is_tensor=is_tensor))
    if len(work) == 1:
        return [model.turns] * len(configs)
    means = {tile: _mean(found) for tile, found in work.items()}
    whole = max(fixed + model.turns * turning for fixed, turning in means.values())
    turns: Mapping[object, float] = {
        tile: max(1.0, (whole - fixed) / turning) if turning else model.turns
        for tile, (fixed, turning) in means.items()
    }
    return [turns[tile] for tile in tiles]


def _mean(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    fixed, turning = (sum(column) / len(found) for column in zip(*found, strict=True))
    return fixed, turning


def _work(config: Features, *, is_tensor: bool) -> tuple[float, float]:
    """Of all warps of the grid, outside of loops and in one turn of each."""

    def of(is_inside: bool) -> float:  # noqa: FBT001 - one letter of a formula
        loops = [loop for loop in config.loops if bool(loop.depth) is is_inside]
        one = (loop.tensor_work if is_tensor else 32.0 * loop.global_bytes for loop in loops)
        return config.blocks * config.warps * sum(one)

    return of(False), of(True)  # noqa: FBT003 - as above


def _cost(config: Features, turns: float, model: Model) -> float:
    issue = wait = 0.0
    for loop in config.loops:
        times = 1.0 if not loop.depth else turns if loop.depth == 1 else turns * model.inner
        issue += times * _issue(loop, model)
        wait += times * _wait(loop, config.warps, model)
    blocks = math.ceil(config.blocks / config.multiprocessors)
    beside = min(config.per_sm, blocks)
    shared = config.warps * issue / _SCHEDULERS
    alone = (model.begin + wait) / beside
    block: float = (shared**model.sharpness + alone**model.sharpness) ** (1 / model.sharpness)
    return blocks * block


def _issue(loop: LoopFacts, model: Model) -> float:
    return (
        loop.total
        + model.issue_memory * loop.memory
        + model.issue_local * loop.local
        + model.issue_special * loop.special
        + model.work * loop.tensor_work
    )


def _wait(loop: LoopFacts, warps: int, model: Model) -> float:
    return (
        model.wait * loop.total
        + model.wait_memory * loop.memory
        + model.wait_local * loop.local
        + model.wait_special * loop.special
        + (model.wait_control + model.wait_warps * warps) * loop.control
        + _SCHEDULERS * model.work * loop.tensor_work
    )
