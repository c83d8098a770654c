"""A blame in sentences: who, on what evidence, and what would determine the rest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.blame.executed_sentences import executed_sentences
from harness.blame.grid import Grid
from harness.blame.ground import Culprit, Ground, culprit_of, ground_of
from harness.blame.measured_sentences import measured_sentences
from harness.blame.sentences import sentences
from harness.values.cell import CellId
from harness.values.row import Row
from harness.values.toolchain import TRITON, compiler_name


class Wanted(StrEnum):
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
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The answer: `headline` names the culprit, `reasons` are the evidence, one sentence each."""

    culprit: Culprit | None
    ground: Ground
    headline: str
    reasons: tuple[str, ...]
    wanted: Wanted | None = None


_HEADLINES = {
    Ground.NOTHING_FAILS: "Nothing that was tried shows a failure.",
    Ground.DIALECT: "Incompatible versions: this source does not compile with every {title}.",
    Ground.LIMIT: "The kernel is to blame: it asks for more than the target has.",
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
_WANTED = {
    Ground.ONE_TRITON: Wanted.OTHER_TRITONS,
    Ground.ONE_PTXAS: Wanted.OTHER_PTXAS,
    Ground.NO_COMMON_PTXAS: Wanted.OTHER_PTXAS,
    Ground.RAW_PTX: Wanted.SOURCE,
    Ground.OUT_OF_BOUNDS: Wanted.MORE_ROOM,
    Ground.NO_TRITON: Wanted.LOG,
    Ground.STUB_BY_ALL: Wanted.IR,
    Ground.FRAGILE: Wanted.REDUCTION,
    Ground.FLAKY: Wanted.AGAIN,
    Ground.NO_BETTER: Wanted.WORKAROUND,
    Ground.NOTHING_IS_RIGHT: Wanted.CHECK,
}


def blame(grid: Grid) -> Blame:
    """Whose failure the one in focus is."""
    ground = ground_of(grid)
    said = executed_sentences if grid.is_executed else sentences
    if grid.device:
        said = measured_sentences
    culprit = culprit_of(ground)
    return Blame(
        culprit=culprit,
        ground=ground,
        headline=(_HEADLINES.get(ground) or _HEADLINES[culprit]).format(
            title=grid.title, tool=grid.tool, culprit=_WITH_BACKEND.get(grid.title, grid.title)
        ),
        reasons=tuple(dict.fromkeys(said(grid, ground))) if culprit else (),
        wanted=_WANTED.get(ground),
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
