"""The evidence of a blame whose cubins were launched on a GPU, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.executed_sentences import executed_sentences
from harness.blame.grid import Grid, Varied
from harness.blame.ground import Ground
from harness.blame.sentences import sentences
from harness.judging.answers import VerdictAnswer

_ORDER = (
    "{kind} with one cubin and not with another: the order of threads, and of sums, may decide it, "
    "which no {tool} is held to; the emulator finds no race."
)


def measured_sentences(grid: Grid, ground: Ground) -> list[str]:
    """Where cubins of one PTX disagree; else what is wrong with it, or with what it is held to."""
    begin = f"Measured on {grid.device}: cubins of one PTX were launched on the same inputs."
    if ground is Ground.LEVELS:
        return [begin, *_levels(grid), *_alike(grid)]
    if ground is Ground.ORDER:
        return [begin, _ORDER.format(kind=grid.focus.kind.value, tool=grid.tool)]
    if ground in (Ground.SPLIT, Ground.RAW_PTX):
        return [begin, *sentences(grid, ground)]
    alike = f"{grid.tool} is not involved: of one PTX, each that gave a result makes the same."
    return [begin, *executed_sentences(grid, ground, alike)]


def _levels(grid: Grid) -> Iterator[str]:
    trials = grid.varying(Varied.LEVEL)
    fails = [trial.what for trial in trials if trial.after is VerdictAnswer.SAME]
    works = [trial for trial in trials if trial.changed]
    tool = f"{grid.tool} {trials[0].ptxas}"
    yield (
        f"{grid.code} identical at each level: yes, so {grid.tool}. With {tool} it fails at "
        f"{', '.join(fails) or 'its default level'}, and works at "
        f"{', '.join(trial.what for trial in works)}."
    )


def _alike(grid: Grid) -> Iterator[str]:
    failing = grid.ptxas_with(VerdictAnswer.SAME)
    if len(failing) > 1:
        yield f"Every {grid.tool} that gave a result does it: {', '.join(failing)}."
