"""Whose failure it is, and on what ground that can be said. Pure: a grid in, a ground out.

A failure that differs over one PTX, byte for byte, is a failure of ptxas. One that every ptxas
shows on one PTX and none on another is a failure of the compiler that wrote the PTX. One that every
toolchain shows is the kernel's; but that every toolchain spills does not say why. A compiler that
crashes is at fault whatever its input; and a version that gave no result is not a pass.

Pure.
"""

from __future__ import annotations

from enum import StrEnum

from harness.blame.grid import Grid, PairTrial, Varied
from harness.judging.answers import LIMITS_OF_OURS, VerdictAnswer, works
from harness.judging.followed import PAIRING
from harness.values.verdict import VerdictKind


class Culprit(StrEnum):
    """The responsible component."""

    PTXAS = "ptxas"
    TRITON = "triton"
    KERNEL = "kernel"
    PAIRING = PAIRING
    CANNOT_TELL = "cannot_tell"


class Ground(StrEnum):
    """Why, in one word for each way to an answer; `harness.blame.words` spells them out."""

    NOTHING_FAILS = "nothing_fails"
    SPLIT = "split"
    LEVELS = "levels"
    ORDER = "order"
    PTXAS_CRASH = "ptxas_crash"
    TRITON_CRASH = "triton_crash"
    STUB = "stub"
    FOLLOWS_PTX = "follows_ptx"
    ANOTHER_TRITON = "another_triton"
    DIALECT = "dialect"
    REJECTED = "rejected"
    LIMIT = "limit"
    EVERY_TOOLCHAIN = "every_toolchain"
    NO_BETTER = "no_better"
    UNSUPPORTED = "unsupported"
    SETTINGS = "settings"
    BOTH = "both"
    POINTED = "pointed"
    ONE_TRITON = "one_triton"
    ONE_PTXAS = "one_ptxas"
    NO_COMMON_PTXAS = "no_common_ptxas"
    STUB_BY_ALL = "stub_by_all"
    RAW_PTX = "raw_ptx"
    OUT_OF_BOUNDS = "out_of_bounds"
    NO_TRITON = "no_triton"
    FRAGILE = "fragile"
    FLAKY = "flaky"
    OPTION = "option"
    TARGET = "target"
    NOTHING_IS_RIGHT = "nothing_is_right"


_CULPRITS = {
    Ground.SPLIT: Culprit.PTXAS,
    Ground.LEVELS: Culprit.PTXAS,
    Ground.PTXAS_CRASH: Culprit.PTXAS,
    Ground.TRITON_CRASH: Culprit.TRITON,
    Ground.STUB: Culprit.TRITON,
    Ground.FOLLOWS_PTX: Culprit.TRITON,
    Ground.ANOTHER_TRITON: Culprit.TRITON,
    Ground.OPTION: Culprit.TRITON,
    Ground.TARGET: Culprit.TRITON,
    Ground.REJECTED: Culprit.KERNEL,
    Ground.LIMIT: Culprit.KERNEL,
    Ground.EVERY_TOOLCHAIN: Culprit.KERNEL,
    Ground.UNSUPPORTED: Culprit.PAIRING,
    Ground.DIALECT: Culprit.PAIRING,
    Ground.SETTINGS: Culprit.PAIRING,
    Ground.BOTH: Culprit.PAIRING,
    Ground.POINTED: Culprit.PAIRING,
}
_OF_THREADS = (VerdictKind.RACE, VerdictKind.NONDETERMINISTIC, VerdictKind.HANG)
_STUBS = (VerdictKind.TRAP_STUB, VerdictKind.SICK)


def culprit_of(ground: Ground) -> Culprit | None:
    """Who is at fault on this ground; None where nothing fails."""
    if ground is Ground.NOTHING_FAILS:
        return None
    return _CULPRITS.get(ground, Culprit.CANNOT_TELL)


def ground_of(grid: Grid) -> Ground:
    """What the grid says of the failure in its focus."""
    focus = grid.focus
    if not grid.failing:
        return Ground.NOTHING_FAILS
    if grid.is_executed:
        return _executed(grid)
    if grid.device:
        return _launched(grid)
    if focus.is_pairing:
        return Ground.UNSUPPORTED
    if focus.is_crash and focus.before_ptxas:
        return Ground.TRITON_CRASH
    if focus.is_crash:
        return Ground.SPLIT if grid.splits and not grid.is_flaky else Ground.PTXAS_CRASH
    if grid.is_flaky:
        return Ground.FLAKY
    if grid.splits:
        # Not a crash but a refusal: where other PTX is welcome, either side may be in the wrong.
        is_refusal = focus.kind in (VerdictKind.PTXAS_ERROR, VerdictKind.PASS_FAILURE)
        return Ground.BOTH if is_refusal and grid.follows else Ground.SPLIT
    return _before_ptxas(grid) if focus.before_ptxas else _in_ptxas(grid)


def _executed(grid: Grid) -> Ground:
    """The PTX computes the wrong thing: no matter of ptxas.

    The source says what it must compute, whichever compiler takes it, with whichever of its
    options, for whichever target.
    """
    if grid.working:
        return Ground.ANOTHER_TRITON
    if any(trial.changed and not _hides(grid, trial) for trial in grid.varying(Varied.OPTION)):
        return Ground.OPTION
    if any(trial.changed for trial in grid.varying(Varied.TARGET)):
        return Ground.TARGET
    if len(grid.compilers_with(grid.focus.kind)) < 2:
        return Ground.ONE_TRITON
    # What a result is compared with may be wrong as well; what else is found needs no comparison.
    is_compared = grid.focus.kind is VerdictKind.WRONG_RESULT
    return Ground.NOTHING_IS_RIGHT if is_compared else Ground.EVERY_TOOLCHAIN


def _launched(grid: Grid) -> Ground:
    """Cubins go wrong on a GPU: one PTX, byte for byte, must do one thing on every ptxas."""
    by_level = any(trial.changed for trial in grid.varying(Varied.LEVEL))
    if grid.splits or by_level:
        # What the order of threads decides may come out otherwise with any other code.
        if grid.focus.kind in _OF_THREADS:
            return Ground.ORDER
        return Ground.SPLIT if grid.splits else Ground.LEVELS
    return Ground.RAW_PTX if grid.is_raw else _executed(grid)


def _hides(grid: Grid, trial: PairTrial) -> bool:
    """Whether a race that the kernel itself has would go away too: fewer threads, fewer races."""
    return grid.focus.kind in _OF_THREADS and not trial.what.startswith("num_stages")


def _before_ptxas(grid: Grid) -> Ground:
    kind = grid.focus.kind
    if grid.is_raw:
        return Ground.RAW_PTX
    if kind in _STUBS and not works(kind, grid.focus.stage):
        # Code that breaks its own promises (`tl.assume`) may be a trap to every compiler.
        is_known = grid.working or grid.focus.is_over_limit
        return Ground.STUB if is_known else Ground.STUB_BY_ALL
    if grid.working:
        if _is_pointed(grid):
            return Ground.POINTED
        # A source that one Triton refuses may use what that one does not know, or no longer does.
        return Ground.DIALECT if kind is VerdictKind.REJECTED else Ground.ANOTHER_TRITON
    if kind in LIMITS_OF_OURS:
        return Ground.OUT_OF_BOUNDS
    if kind is not VerdictKind.REJECTED and grid.newest_refuses:
        return Ground.REJECTED
    if len(grid.compilers_with(kind)) < 2:
        return Ground.ONE_TRITON
    if kind is VerdictKind.OUT_OF_RESOURCES:
        return Ground.LIMIT
    # A newer Triton that fails later has taken the source for good; an older one may have failed
    # for what a newer one says.
    if kind is VerdictKind.REJECTED and (grid.newest_refuses or not grid.fails_otherwise):
        return Ground.REJECTED
    return Ground.NO_TRITON


def _is_pointed(grid: Grid) -> bool:
    """Whether one Triton fails when it is pointed at a ptxas, and not with the one it bundles."""
    fails = {triton for line in grid.failing if line.made_for for triton in line.compilers}
    return any(fails.intersection(line.compilers) for line in grid.working)


def _in_ptxas(grid: Grid) -> Ground:
    kind = grid.focus.kind
    if grid.settings or any(trial.changed for trial in grid.varying(Varied.FLAGS)):
        return Ground.SETTINGS
    if grid.is_fragile:
        return Ground.FRAGILE
    if grid.follows:
        seen = max(len(one.ptxas(VerdictAnswer.SAME)) for one, _, _ in grid.follows)
        return Ground.FOLLOWS_PTX if seen > 1 else Ground.ONE_PTXAS
    if grid.working:
        return Ground.NO_COMMON_PTXAS
    if kind in LIMITS_OF_OURS:
        return Ground.OUT_OF_BOUNDS
    if kind is VerdictKind.OUT_OF_RESOURCES and grid.is_raw:
        return Ground.LIMIT
    if len(grid.ptxas_with(VerdictAnswer.SAME)) < 2:
        return Ground.ONE_PTXAS
    if grid.is_raw:
        return Ground.RAW_PTX
    if len(grid.compilers_with(kind)) < 2:
        return Ground.ONE_TRITON
    if kind is VerdictKind.OUT_OF_RESOURCES:
        return Ground.LIMIT
    has_numbers = grid.focus.condition is not None or kind is VerdictKind.SICK
    return Ground.NO_BETTER if has_numbers else Ground.EVERY_TOOLCHAIN
