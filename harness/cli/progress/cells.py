"""A progress bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import (
    Progress as Bar,
)

from harness.cells.compile import RunProgress
from harness.values.row import Row

__all__ = ["show_progress"]

_PLAIN_SECONDS = 15.0


@contextlib.contextmanager
def show_progress(console: Console) -> Iterator[RunProgress]:
    """What to hand to a run; the display lives as long as the block."""
    if console.is_terminal:
        with _bar(console) as progress:
            yield progress
    else:
        with _plain(console) as progress:
            yield progress


@contextlib.contextmanager
def _bar(console: Console) -> Iterator[RunProgress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[found]}"),
    )
    counts: Counter[str] = Counter()
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("capturing", total=None, found="")

        def capturing(what: str) -> None:
            if not bar.tasks[0].total:
                bar.update(task, description=f"capturing with {what}")

        def planned(cells: int) -> None:
            total = (bar.tasks[0].total or 0) + cells
            bar.update(task, total=total, description="compiling")

        def done(row: Row) -> None:
            counts[row.verdict] += 1
            found = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
            bar.update(task, advance=1, found=found)

        yield RunProgress(capturing=capturing, planned=planned, done=done)


@contextlib.contextmanager
def _plain(console: Console) -> Iterator[RunProgress]:
    """A line now and then, and a last one where any was printed: it says that all are done."""
    state = {"planned": 0, "done": 0, "printed": 0}
    last = time.monotonic()

    def say() -> None:
        state["printed"] = state["done"]
        console.print(f"{state['done']} of {state['planned']} cells done")

    def planned(cells: int) -> None:
        state["planned"] += cells

    def done(row: Row) -> None:  # noqa: ARG001 - the counts say enough
        nonlocal last
        state["done"] += 1
        if time.monotonic() - last > _PLAIN_SECONDS:
            last = time.monotonic()
            say()

    yield RunProgress(planned=planned, done=done)
    if 0 < state["printed"] < state["done"]:
        say()
