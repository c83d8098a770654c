"""A blame as text: the small grid, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from harness.blame.grid import Cell, Grid, Line
from harness.blame.words import Blame
from harness.judging.answers import VerdictAnswer
from harness.tables.said import (
    BLANK,
    Block,
    GridColumn,
    SaidGrid,
    SaidLine,
    Tone,
    say,
    verdict_said,
)
from harness.values.toolchain import PTXAS

__all__ = ["blame_said", "grid_said"]

_UNTRIED = "-"


def blame_said(grid: Grid, blame: Blame) -> list[Block]:
    """The grid, the culprit, and the evidence."""
    lines: list[Block] = [grid_said(grid), BLANK] if grid.lines else []
    lines.append(say(blame.headline, Tone.HEAD))
    return [*lines, *(say(f"  {reason}") for reason in blame.reasons)]


def grid_said(grid: Grid) -> SaidGrid:
    """A line for each program, by Triton; neighbouring ptxas under which all lines agree as one."""
    lines = grid.by_triton()
    columns = _folded(lines, grid.ptxas)
    has_version = grid.tool == PTXAS
    titles = [grid.title, *(["PTX"] if has_version else []), "program"]
    titles += ["\n- ".join(dict.fromkeys((run[0], run[-1]))) for run in columns]
    stops = any(each.stopped for each in lines)
    rows = []
    for each in lines:
        cells = [say(", ".join(each.tritons) or "raw PTX")]
        cells += [say(_ptx_words(each))] if has_version else []
        cells.append(say((each.body or _UNTRIED)[:8]))
        cells += [_run_said(each, run, grid) for run in columns]
        if stops:
            cells.append(_cell_said(each.stopped, grid) if each.stopped else BLANK)
        rows.append(tuple(cells))
    return SaidGrid(
        columns=tuple(
            GridColumn(title=each) for each in [*titles, *([f"before {grid.tool}"] * stops)]
        ),
        rows=tuple(rows),
    )


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


def _run_said(program: Line, run: Sequence[str], grid: Grid) -> SaidLine:
    """What a line says in a run, and in how many of its columns where not in all."""
    tried = [program.cells[version] for version in run if version in program.cells]
    said = _cell_said(tried[0] if tried else None, grid)
    if 0 < len(tried) < len(run):
        said += say(f" {len(tried)}/{len(run)}", Tone.FAINT)
    return said


def _cell_said(cell: Cell | None, grid: Grid) -> SaidLine:
    if cell is None:
        return say(_UNTRIED, Tone.FAINT)
    if not cell.verdict:
        return say(cell.outcome.value, Tone.FAINT)
    said = verdict_said(cell.verdict)
    # Of the same kind, but not this failure.
    if cell.outcome is VerdictAnswer.OTHER and cell.verdict == grid.focus.kind.value:
        said += say(" (another)", Tone.FAINT)
    return said
