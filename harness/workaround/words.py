"""Why a workaround works, in words made from the numbers of two rows. Pure."""

from __future__ import annotations

from collections.abc import Callable

from harness.values.limits import Limits
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.settings import SettingStep

# Less than this is not a reason for anything.
_NOTABLE = 0.1
_HALF = (0.4, 0.6)

_FIGURES: tuple[tuple[str, str, Callable[[Row], float | None]], ...] = (
    ("tensor memory", " columns", lambda row: row.tmem_size),
    ("shared memory", " B", lambda row: row.shared),
    ("registers", "", lambda row: row.n_regs),
    ("spill stores", " B", lambda row: row.spill_stores),
)
# Loads go with the stores, and the table has both.


def explain(before: Row, after: Row) -> str:
    """The figures that moved by a tenth or more, and the verdict."""
    parts = []
    if before.verdict != after.verdict:
        parts.append(f"{before.verdict} -> {after.verdict}")
    # The figures of a stub are those of an empty kernel, all but what it asked for.
    hollow = VerdictKind.TRAP_STUB.value in (before.verdict, after.verdict)
    for name, unit, read in _FIGURES:
        old, new = read(before), read(after)
        if old is None or new is None or (hollow and name != "tensor memory"):
            continue
        if _differs(old, new):
            parts.append(f"{name} {old:,.0f} -> {new:,.0f}{unit}{_halved(old, new)}")
    shares = (before.occupancy, after.occupancy)
    if None not in shares and not hollow and _differs(*map(float, shares)):  # type: ignore[arg-type]
        parts.append(f"occupancy {shares[0]:.1%} -> {shares[1]:.1%}")
    return "; ".join(parts) or "no figure that is known changes by a tenth"


def _differs(old: float, new: float) -> bool:
    return abs(new - old) > _NOTABLE * max(abs(old), abs(new))


def _halved(old: float, new: float) -> str:
    if not old or not new:
        return ""
    if _HALF[0] <= new / old <= _HALF[1]:
        return " (about half)"
    return f" ({old / new:.0f}x less)" if old / new >= 2 / _HALF[1] else ""


def explain_step(step: SettingStep, undone: Row, done: Row, limits: Limits | None) -> str:
    """What one step is for: the setting with all steps against the one without this."""
    words = f"{_shrinks(step)}{step.words}: {explain(undone, done)}"
    columns = limits.tensor_memory_columns if limits else 0
    if columns and (undone.tmem_size or 0) > columns >= (done.tmem_size or 0):
        words += f"; {done.target} has {columns} columns"
    if undone.code and VerdictKind(done.verdict).compiles:
        words += f"; without it ptxas {undone.ptxas} says {undone.code}"
    return words


def _shrinks(step: SettingStep) -> str:
    """A parameter of the launch or the kernel that becomes smaller makes its tile smaller."""
    both = (step.before, step.after)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in both):
        return ""
    smaller = int(step.after or 0) < int(step.before or 0)
    return "a smaller tile, " if step.sizes_a_tile and smaller else ""
