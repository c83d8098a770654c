"""The live view of a reduction: on a terminal only; elsewhere a line now and then. On stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table

from harness.cli.progress.steps import doing
from harness.minimize.reduction.driver import Size
from harness.minimize.reduction.words import MEASURES
from harness.minimize.reduction.work import ReductionStep, Watch

_FRAMES = 8


@contextlib.contextmanager
def watch_reduction(console: Console) -> Iterator[Watch]:
    """What to hand to a reduction; the display lives as long as the block."""

    def tell(line: str) -> None:
        console.print(line, soft_wrap=True)

    if not console.is_terminal:
        plain = _Plain(console)
        with doing(plain.words):
            yield Watch(tell=tell, stage=plain.stage, began=plain.began, step=plain.step)
        return
    view = _View()
    with Live(
        get_renderable=view.render, console=console, transient=True, refresh_per_second=_FRAMES
    ):
        yield Watch(tell=tell, stage=view.stage, began=view.began, step=view.step)


class _View:
    """What is known, redrawn a few times a second."""

    def __init__(self) -> None:
        self._name = self._level = ""
        self._first: Size | None = None
        self._last: ReductionStep | None = None
        self._stage = ""
        self._started = time.monotonic()

    def stage(self, words: str) -> None:
        self._stage = words

    def began(self, name: str, level: str, size: Size) -> None:
        self._name, self._level, self._first = name, level, size

    def step(self, step: ReductionStep) -> None:
        self._last, self._stage = step, ""

    def render(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        if self._first is None:
            grid.add_row(self._stage or "looking for the failure, and for the versions that accept")
            return grid
        size = self._last.best if self._last else self._first
        grid.add_row(
            self._name,
            f"{_extent(size, self._level)} left of {_extent(self._first, self._level)}",
            f"{size.bytes:,} of {self._first.bytes:,} bytes",
        )
        if self._last:
            step = self._last
            elapsed = time.monotonic() - self._started
            grid.add_row(
                self._stage or f"pass: {step.pass_name}",
                f"{step.tests:,} tests, {step.rate:.0f} a second, {elapsed:.0f} s",
                f"{step.accepted:,} accepted, {step.tests - step.accepted:,} rejected",
            )
        return grid


class _Plain:
    """What is known where there is no terminal: said every so often."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._level = ""
        self._stage = "looking for the failure, and for the versions that accept"
        self._last: ReductionStep | None = None

    def stage(self, words: str) -> None:
        self._stage = words

    def began(self, name: str, level: str, size: Size) -> None:
        self._level = level
        self._console.print(f"{name}: {_extent(size, level)}, {size.bytes:,} bytes", soft_wrap=True)

    def step(self, step: ReductionStep) -> None:
        self._last, self._stage = step, ""

    def words(self) -> str:
        step = self._last
        if step is None:
            return self._stage
        stage = f"{self._stage}; " if self._stage else ""
        return (
            f"{stage}{_extent(step.best, self._level)}, {step.best.bytes:,} bytes left; "
            f"{step.tests:,} tests, {step.accepted:,} accepted"
        )


def _extent(size: Size, level: str) -> str:
    count = size.lines if size.instructions is None else size.instructions
    return f"{count:,} {MEASURES.get(level, 'words')}"
