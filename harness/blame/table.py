"""A blame as text: the small grid, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.blame.grid import Cell, Grid, Line
from harness.blame.words import Blame
from harness.judging.answers import VerdictAnswer
from harness.tables.rows import verdict_text

__all__ = ["render_blame", "render_grid"]

_UNTRIED = "-"


def render_blame(grid: Grid, blame: Blame) -> RenderableType:
    """The grid, the culprit, and the evidence."""
    lines: list[RenderableType] = [render_grid(grid), Text("")] if grid.lines else []
    lines.append(Text(blame.headline, style="bold"))
    lines += [Text(f"  {reason}") for reason in blame.reasons]
    return Group(*lines)


def render_grid(grid: Grid) -> RenderableType:
    """A line for each program, by Triton; neighbouring ptxas under which all lines agree as one."""
    lines = grid.by_triton()
    columns = _folded(lines, grid.ptxas)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in (grid.title, "PTX", "program"):
        table.add_column(title, no_wrap=True)
    for run in columns:
        table.add_column("\n- ".join(dict.fromkeys((run[0], run[-1]))), no_wrap=True)
    if any(line.stopped for line in lines):
        table.add_column("before ptxas", no_wrap=True)
    for line in lines:
        words = [Text(", ".join(line.tritons) or "raw PTX"), Text(_ptx_words(line))]
        words.append(Text((line.body or _UNTRIED)[:8]))
        words += [_run_text(line, run, grid) for run in columns]
        if line.stopped:
            words.append(_cell_text(line.stopped, grid))
        table.add_row(*words)
    return table


def _ptx_words(line: Line) -> str:
    words = line.version or _UNTRIED
    return f"{words} for {line.made_for}" if line.made_for else words


def _folded(lines: Sequence[Line], columns: Sequence[str]) -> list[list[str]]:
    """Runs of columns in which no line says two things."""
    runs: list[list[str]] = []
    for version in columns:
        if runs and all(len(_said(line, [*runs[-1], version])) < 2 for line in lines):
            runs[-1].append(version)
        else:
            runs.append([version])
    return runs


def _said(line: Line, run: Sequence[str]) -> set[tuple[VerdictAnswer, str]]:
    cells = (line.cells.get(version) for version in run)
    return {(cell.outcome, cell.verdict) for cell in cells if cell}


def _run_text(line: Line, run: Sequence[str], grid: Grid) -> Text:
    """What a line says in a run, and in how many of its columns where not in all."""
    tried = [line.cells[version] for version in run if version in line.cells]
    text = _cell_text(tried[0] if tried else None, grid)
    if 0 < len(tried) < len(run):
        text.append(f" {len(tried)}/{len(run)}", style="dim")
    return text


def _cell_text(cell: Cell | None, grid: Grid) -> Text:
    if cell is None:
        return Text(_UNTRIED, style="dim")
    if not cell.verdict:
        return Text(cell.outcome.value, style="dim")
    text = verdict_text(cell.verdict)
    # Of the same kind, but not this failure.
    if cell.outcome is VerdictAnswer.OTHER and cell.verdict == grid.focus.kind.value:
        text.append(" (another)", style="dim")
    return text
