"""What a command left out of its own accord, to be said where its result is said. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from harness.tables.said import Block, Tone, say
from harness.values.row import Row


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Of the configs of one kernel on one target and compiler, `tried` of `of` were tried.

    `left_out` counts the others by launch, `command` tries them all. `done` is what is done to
    configs: `compiled`, `executed`.
    """

    kernel: str
    target: str
    compiler: str
    done: str
    tried: int
    of: int
    left_out: dict[str, int]
    command: str

    @property
    def words(self) -> str:
        """The count, what is left out, and the command for all, in one line."""
        left = ", ".join(f"{count:,} of {launch}" for launch, count in self.left_out.items())
        return (
            f"{self.kernel}, {self.target}, {self.compiler}: {self.tried:,} of {self.of:,} configs "
            f"were {self.done}; not {self.done}: {left}. For all: {self.command}"
        )


def untried(rows: Sequence[Row], samples: Iterable[Sample]) -> int:
    """How many configs were left out of the launch, target and compiler that these rows share."""
    row = rows[0]
    place = (row.kernel, row.target, row.compiler_name)
    return sum(
        sample.left_out.get(row.launch, 0)
        for sample in samples
        if (sample.kernel, sample.target, sample.compiler) == place
    )


def samples_said(samples: Iterable[Sample]) -> list[Block]:
    """A line for each sample that left something out."""
    return [say(sample.words, Tone.HEAD) for sample in samples]
