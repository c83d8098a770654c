"""A blame in sentences: who, on what evidence, and what would determine the rest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.blame.grid import Cell, Culprit, Grid, Ground, Line, culprit_of, ground_of
from harness.blame.sentences import executed_sentences, measured_sentences, sentences
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
from harness.values.cell import CellId
from harness.values.row import SCHEMA, Row
from harness.values.toolchain import PTXAS, TRITON, compiler_name
from harness.values.verdict import VerdictKind


class NextStep(StrEnum):
    """What would determine more."""

    OTHER_TRITONS = "other_tritons"
    OTHER_PTXAS = "other_ptxas"
    SOURCE = "source"
    MORE_ROOM = "more_room"
    REDUCTION = "reduction"
    AGAIN = "again"
    LOG = "log"
    IR = "ir"
    WORKAROUND = "workaround"
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The answer: `headline` names the culprit, `reasons` are the evidence, one sentence each."""

    culprit: Culprit | None
    ground: Ground
    headline: str
    reasons: tuple[str, ...]
    next_step: NextStep | None = None


_HEADLINES = {
    Ground.NOTHING_FAILS: "Nothing that was tried shows a failure.",
    Ground.DIALECT: "Incompatible versions: this source does not compile with every {title}.",
    Ground.LIMIT: "The kernel is to blame: it asks for more than the target has.",
    Ground.EVERY_LEVEL: "Cannot determine whether {tool} is to blame, or the emulator.",
    Ground.UNSUPPORTED: "Incompatible versions: no component is at fault.",
    None: "Nothing that was tried shows a failure.",
    Culprit.PTXAS: "{tool} is to blame.",
    Culprit.TRITON: "{culprit} is to blame.",
    Culprit.KERNEL: "The kernel is to blame.",
    Culprit.PAIRING: "The combination is to blame: neither side fails alone.",
    Culprit.CANNOT_TELL: "Cannot determine who is to blame.",
}
# Compilers whose back end is LLVM: which of the two it is, the grid does not show.
_WITH_BACKEND = {compiler_name(TRITON): "Triton/LLVM"}
_NEXT_STEPS = {
    Ground.ONE_TRITON: NextStep.OTHER_TRITONS,
    Ground.ONE_PTXAS: NextStep.OTHER_PTXAS,
    Ground.NO_COMMON_PTXAS: NextStep.OTHER_PTXAS,
    Ground.RAW_PTX: NextStep.SOURCE,
    Ground.OUT_OF_BOUNDS: NextStep.MORE_ROOM,
    Ground.NO_TRITON: NextStep.LOG,
    Ground.STUB_BY_ALL: NextStep.IR,
    Ground.FRAGILE: NextStep.REDUCTION,
    Ground.FLAKY: NextStep.AGAIN,
    Ground.NO_BETTER: NextStep.WORKAROUND,
    Ground.NOTHING_IS_RIGHT: NextStep.RUN,
}


def blame(grid: Grid) -> Blame:
    """Whose failure the one in focus is."""
    ground = ground_of(grid)
    sentences_of = executed_sentences if grid.is_executed else sentences
    if grid.device:
        sentences_of = measured_sentences
    culprit = culprit_of(ground)
    return Blame(
        culprit=culprit,
        ground=ground,
        headline=(_HEADLINES.get(ground) or _HEADLINES[culprit]).format(
            title=grid.title, tool=grid.tool, culprit=_WITH_BACKEND.get(grid.title, grid.title)
        ),
        reasons=tuple(dict.fromkeys(sentences_of(grid, ground))) if culprit else (),
        next_step=_NEXT_STEPS.get(ground),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameReport:
    """The grid and what it says; `case` is the cell that the question begins with.

    `others` stand for the configs that were not followed. `remedy` are lines for a shell: they set
    up the combination that works, where the versions that were asked for do not go together.
    `troubles` are the toolchains that are not available, `notes` say what was left out. `executed`
    are the cells whose PTX was executed, where that is what was looked at.
    """

    case: Row
    cell: CellId
    grid: Grid
    blame: Blame
    others: tuple[CellId, ...]
    remedy: tuple[str, ...]
    troubles: tuple[str, ...]
    notes: tuple[str, ...]
    executed: tuple[Row, ...] = ()


# A blame as text, the small grid and what it says, and as a document.

_UNTRIED = "-"


def blame_said(grid: Grid, blame: Blame) -> list[Block]:
    """The grid, the culprit, and the evidence."""
    lines: list[Block] = [grid_said(grid), BLANK] if grid.lines else []
    lines.append(say(blame.headline, Tone.HEAD))
    return [*lines, *(say(f"  {reason}") for reason in blame.reasons)]


def grid_said(grid: Grid) -> SaidGrid:
    """A line for each program, by Triton; neighbouring ptxas under which all lines agree as one."""
    lines = grid.by_compiler()
    # Runs of columns in which no line says two things.
    runs: list[list[str]] = []
    for version in grid.assemblers:
        if runs and all(len(_said(line, [*runs[-1], version])) < 2 for line in lines):
            runs[-1].append(version)
        else:
            runs.append([version])
    has_version = grid.tool == PTXAS
    titles = [grid.title, *(["PTX"] if has_version else [])]
    titles += ["program"] if grid.is_assembled else []
    titles += ["\n- ".join(dict.fromkeys((run[0], run[-1]))) for run in runs]
    stops = any(program.stopped for program in lines)
    rows = []
    for program in lines:
        cells = [say(", ".join(program.compilers) or program.title)]
        made_for = f" for {program.made_for}" if program.made_for else ""
        cells += [say(f"{program.version or _UNTRIED}{made_for}")] if has_version else []
        cells += [say((program.body or _UNTRIED)[:8])] if grid.is_assembled else []
        cells += [_run_said(program, run, grid) for run in runs]
        if stops:
            cells.append(_cell_said(program.stopped, grid) if program.stopped else BLANK)
        rows.append(tuple(cells))
    titles += [grid.early if grid.is_assembled else "result"] * stops
    return SaidGrid(columns=tuple(GridColumn(title=title) for title in titles), rows=tuple(rows))


def _said(line: Line, run: Sequence[str]) -> set[tuple[VerdictAnswer, str]]:
    cells = (line.cells.get(version) for version in run)
    return {(cell.outcome, cell.verdict) for cell in cells if cell}


def _run_said(program: Line, run: Sequence[str], grid: Grid) -> SaidLine:
    cells = [program.cells[version] for version in run if version in program.cells]
    words = _cell_said(cells[0] if cells else None, grid)
    if 0 < len(cells) < len(run):
        words += say(f" {len(cells)}/{len(run)}", Tone.FAINT)
    return words


def _cell_said(cell: Cell | None, grid: Grid) -> SaidLine:
    if cell is None:
        return say(_UNTRIED, Tone.FAINT)
    if not cell.verdict:
        return say(cell.outcome.value, Tone.FAINT)
    words = verdict_said(VerdictKind(cell.verdict))
    # Of the same kind, but not this failure.
    if cell.outcome is VerdictAnswer.OTHER and cell.verdict == grid.focus.kind.value:
        words += say(" (another)", Tone.FAINT)
    return words


def blame_document(report: BlameReport, would_tell: list[str]) -> dict[str, Any]:
    """As `--json` prints it; `would_tell` are the commands that would determine more."""
    grid, blame = report.grid, report.blame
    return {
        "schema": SCHEMA,
        "blame": _component(report),
        "ground": blame.ground.value,
        "reasons": list(blame.reasons),
        "cell": report.case.cell,
        "config": report.cell.config.as_dict(),
        "signature": report.case.signature,
        "followed": grid.focus.words,
        "verdict": report.case.verdict,
        "reason": report.case.reason,
        "grid": [entry for line in grid.lines for entry in _entries(line)],
        "probes": [
            {
                "probe": trial.label,
                "triton": trial.version,
                "ptxas": trial.assembler,
                "before": trial.before.value,
                "outcome": trial.after.value,
                "verdict": trial.verdict,
                "changed": trial.changed,
            }
            for trial in grid.trials
        ],
        "remedy": list(report.remedy),
        "would_tell": would_tell,
        "notes": list(report.notes),
        "troubles": list(report.troubles),
    }


def _component(report: BlameReport) -> str | None:
    culprit = report.blame.culprit
    if culprit is Culprit.TRITON:
        return report.case.compiler or TRITON
    if culprit is Culprit.PTXAS:
        return report.case.assembler
    return culprit.value if culprit else None


def _entries(line: Line) -> Iterator[dict[str, Any]]:
    cells: list[tuple[str | None, Cell]] = list(line.cells.items())
    if line.stopped:
        cells.append((None, line.stopped))
    for version in line.compilers or (None,):
        for ptxas, cell in cells:
            yield {
                "triton": version,
                "made_for": line.made_for,
                "ptx_body_sha256": line.body,
                "ptx_version": line.version,
                "ptxas_flags": list(line.flags),
                "ptxas": ptxas,
                "verdict": cell.verdict or None,
                "reason": cell.reason,
                "signature": cell.signature,
                "outcome": cell.outcome.value,
            }
