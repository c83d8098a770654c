"""The live view of a reduction: on a terminal only; elsewhere a line now and then. On stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.live import Live
from rich.table import Table

from harness.cli.output import status_console
from harness.cli.progress.steps import doing
from harness.minimize.reduction.reducer import Size
from harness.minimize.reduction.reduction_words import MEASURES
from harness.minimize.reduction.work import ReductionStep, Watch

_FRAMES = 8


@contextlib.contextmanager
def watch_reduction() -> Iterator[Watch]:
    """What to hand to a reduction; the display lives as long as the block."""
    state, console = _State(), status_console()

    def tell(line: str) -> None:
        console.print(line, soft_wrap=True)

    def began(name: str, level: str, size: Size) -> None:
        state.name, state.level, state.first = name, level, size
        if not console.is_terminal:
            tell(f"{name}: {state.extent(size)}, {size.bytes:,} bytes")

    def stage(words: str) -> None:
        state.stage = words

    def step(step: ReductionStep) -> None:
        state.last, state.stage = step, ""

    if console.is_terminal:
        shown: contextlib.AbstractContextManager[object] = Live(
            get_renderable=state.view, console=console, transient=True, refresh_per_second=_FRAMES
        )
    else:
        shown = contextlib.nullcontext()
    with shown, doing(lambda: "" if console.is_terminal else state.words):
        yield Watch(tell=tell, stage=stage, began=began, step=step)


@dataclass(slots=True)
class _State:
    """What is known of the reduction so far."""

    name: str = ""
    level: str = ""
    first: Size | None = None
    last: ReductionStep | None = None
    stage: str = "looking for the failure, and for the versions that accept"
    started: float = field(default_factory=time.monotonic)

    def extent(self, size: Size) -> str:
        count = size.lines if size.instructions is None else size.instructions
        return f"{count:,} {MEASURES.get(self.level, 'words')}"

    @property
    def words(self) -> str:
        step = self.last
        if step is None:
            return self.stage
        stage = f"{self.stage}; " if self.stage else ""
        return (
            f"{stage}{self.extent(step.best)}, {step.best.bytes:,} bytes left; "
            f"{step.tests:,} tests, {step.accepted:,} accepted"
        )

    def view(self) -> Table:
        """What a terminal shows, redrawn a few times a second."""
        grid = Table.grid(padding=(0, 2))
        if self.first is None:
            grid.add_row(self.stage)
            return grid
        size = self.last.best if self.last else self.first
        grid.add_row(
            self.name,
            f"{self.extent(size)} left of {self.extent(self.first)}",
            f"{size.bytes:,} of {self.first.bytes:,} bytes",
        )
        if self.last:
            step = self.last
            elapsed = time.monotonic() - self.started
            grid.add_row(
                self.stage or f"pass: {step.pass_name}",
                f"{step.tests:,} tests, {step.rate:.0f} a second, {elapsed:.0f} s",
                f"{step.accepted:,} accepted, {step.tests - step.accepted:,} rejected",
            )
        return grid
