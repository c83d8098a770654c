"""The progress of cells: a view on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.cells.places import RunProgress
from harness.cli.progress.steps import doing
from harness.values.row import Row
from harness.values.verdict import VerdictKind


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - only a terminal shows it

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[found]}"),
    )
    counts: Counter[str] = Counter()
    with Progress(*columns, console=console, transient=True) as bar:
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


_SHOWN_FAILURES = 6
_REASON_WIDTH = 80


@dataclass(slots=True)
class _State:
    """What is known so far; `worked` are cells that were not from the store."""

    started: float = field(default_factory=time.monotonic)
    planned: int = 0
    done: int = 0
    worked: int = 0
    lowerings: int = 0
    assemblies: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)

    def plan(self, cells: int) -> None:
        self.planned += cells

    def finish(self, row: Row) -> None:
        self.done += 1
        self.worked += not row.cached
        self.verdicts[row.verdict] += 1
        kind = VerdictKind(row.verdict)
        if not kind.compiles and not kind.tells_nothing:
            key = row.signature or row.verdict
            self.failures[key] += 1
            self.reasons.setdefault(key, f"{row.verdict}: {row.reason}")

    def work(self, lowerings: int, assemblies: int) -> None:
        self.lowerings, self.assemblies = lowerings, assemblies

    @property
    def eta(self) -> str:
        """By the pace of the cells that took work; those that are not planned yet are not in it."""
        left = self.planned - self.done
        if not self.worked or not left:
            return "-"
        seconds = int((time.monotonic() - self.started) / self.worked * left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    @property
    def words(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.verdicts.most_common())
        return (
            f"{self.done:,} of {self.planned:,} cells done ({counts or 'nothing yet'}); "
            f"{self.lowerings:,} lowerings and up to {self.assemblies:,} assemblies left; "
            f"ETA {self.eta}"
        )

    @property
    def progress(self) -> RunProgress:
        return RunProgress(planned=self.plan, done=self.finish, work=self.work)


class _View:
    """Drawn again by `Live` as often as it likes."""

    def __init__(self, state: _State) -> None:
        self._state = state

    def __rich__(self) -> RenderableType:
        state = self._state
        bar = ProgressBar(total=max(state.planned, 1), completed=state.done, width=40)
        parts: list[RenderableType] = [bar, Text(state.words)]
        if state.failures:
            table = Table(box=None, show_header=False, padding=(0, 1))
            for key, count in state.failures.most_common(_SHOWN_FAILURES):
                table.add_row(f"{count:,}", Text(key), Text(state.reasons[key][:_REASON_WIDTH]))
            parts.append(table)
            if (more := len(state.failures) - _SHOWN_FAILURES) > 0:
                parts.append(Text(f"and {more} more signatures"))
        return Group(*parts)


@contextlib.contextmanager
def show_matrix_progress(console: Console) -> Iterator[RunProgress]:
    """What to hand to a run; the display lives as long as the block."""
    state = _State()
    if console.is_terminal:
        with Live(_View(state), console=console, transient=True, refresh_per_second=4):
            yield state.progress
    else:
        with doing(lambda: state.words):
            yield state.progress
