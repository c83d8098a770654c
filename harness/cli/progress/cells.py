"""A progress bar on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from harness.cells.places import RunProgress
from harness.cli.pulse import doing
from harness.values.row import Row


@contextlib.contextmanager
def show_progress(console: Console) -> Iterator[RunProgress]:
    """What to hand to a run; the display lives as long as the block."""
    if console.is_terminal:
        with _bar(console) as progress:
            yield progress
    else:
        with _plain() as progress:
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
def _plain() -> Iterator[RunProgress]:
    """How many are done, for lines every so often."""
    planned = done = 0
    capturing = "capturing"

    def words() -> str:
        return f"{done} of {planned} cells done" if planned else capturing

    def capture(what: str) -> None:
        nonlocal capturing
        capturing = f"capturing with {what}"

    def plan(cells: int) -> None:
        nonlocal planned
        planned += cells

    def finish(row: Row) -> None:  # noqa: ARG001 - the counts say enough
        nonlocal done
        done += 1

    with doing(words):
        yield RunProgress(capturing=capture, planned=plan, done=finish)
