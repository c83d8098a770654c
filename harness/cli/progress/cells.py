"""The progress of cells: a view on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.cells.places import RunProgress
from harness.cli.output import status_console
from harness.cli.progress.steps import doing
from harness.tables.summary import plural
from harness.values.row import Row

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_FAILURES = 6
_REASON_WIDTH = 80


@contextlib.contextmanager
def show_progress() -> Iterator[RunProgress]:
    """What to hand to a run; the display lives as long as the block."""
    state, console = _State(), status_console()
    progress = RunProgress(
        capturing=state.capture,
        planned=state.plan,
        done=state.finish,
        work=state.work,
        lowered=state.lower,
    )
    if console.is_terminal:
        from rich.live import Live  # noqa: PLC0415 - a terminal only

        live = Live(state, console=console, transient=True, refresh_per_second=4)
        with live, doing(lambda: ""):
            yield progress
    else:
        with doing(lambda: state.words):
            yield progress


class _State:
    """What is known so far; `worked` are cells that were not from the store.

    Drawn again by `Live` as often as it likes.
    """

    def __init__(self) -> None:
        self.started = self.latest = time.monotonic()
        self.compiler = ""
        self.planned = self.finished = self.worked = self.lowered = 0
        self.work_left = ""
        self.verdicts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}

    def capture(self, compiler: str) -> None:
        self.compiler = compiler

    def lower(self) -> None:
        self.lowered += 1
        self.latest = time.monotonic()

    def plan(self, cells: int) -> None:
        self.planned += cells

    def finish(self, row: Row) -> None:
        self.finished += 1
        self.worked += not row.cached
        self.latest = time.monotonic()
        self.verdicts[row.verdict] += 1
        kind = row.verdict
        if kind.fails:
            key = row.signature or row.verdict
            self.failures[key] += 1
            self.reasons.setdefault(key, f"{row.verdict}: {row.reason}")

    def work(self, lowerings: int, assemblies: int) -> None:
        self.work_left = f"{lowerings:,} lowerings and up to {assemblies:,} assemblies left; "

    @property
    def to_assemble(self) -> int:
        """The cells that are lowered and not done."""
        return max(self.lowered - self.finished, 0)

    @property
    def eta(self) -> str:
        """By the pace of the steps that took work: to lower a cell is one, to assemble it another.

        It changes with each step, not with the clock; cells that are not planned yet are not in it.
        """
        steps = 2 * self.worked + self.to_assemble
        left = 2 * (self.planned - self.finished) - self.to_assemble
        if not steps or not left:
            return "-"
        seconds = int((self.latest - self.started) / steps * left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    @property
    def words(self) -> str:
        if not self.planned:
            return f"capturing with {self.compiler}" if self.compiler else "capturing"
        counts = ", ".join(f"{count:,} {name}" for name, count in self.verdicts.most_common())
        share = f"{self.finished:,} of {self.planned:,} cells done{counts and f' ({counts})'}"
        if self.lowered < self.planned and self.compiler:
            share += f"; lowering {self.lowered + 1:,} of {self.planned:,} ({self.compiler})"
        if self.to_assemble:
            share += f"; {self.to_assemble:,} to assemble"
        return f"{share}; {self.work_left}ETA {self.eta}"

    def __rich__(self) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 - a terminal only
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        bar = ProgressBar(total=max(self.planned, 1), completed=self.finished, width=40)
        parts: list[RenderableType] = [bar, Text(self.words)]
        if self.failures:
            table = Table(box=None, show_header=False, padding=(0, 1))
            for key, count in self.failures.most_common(_SHOWN_FAILURES):
                table.add_row(f"{count:,}", Text(key), Text(self.reasons[key][:_REASON_WIDTH]))
            parts.append(table)
            if (more := len(self.failures) - _SHOWN_FAILURES) > 0:
                parts.append(Text(f"and {plural(more, 'more signature')}"))
        return Group(*parts)
