"""Which of the settings that were tried are shown as workarounds, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from packaging.version import Version

from harness.judging.ptxas.options import lowers_optimisation
from harness.values.limits import Limits
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.merit import is_clearly_better, merit, spill_bytes_per_block
from harness.workaround.settings import Setting, SettingKind, SettingStep, UserSetting

# Why a workaround works, in words made from the numbers of two rows.

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
    both = (step.before, step.after)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in both):
        return ""
    smaller = int(step.after or 0) < int(step.before or 0)
    return "a smaller tile, " if step.sizes_a_tile and smaller else ""


Tried: TypeAlias = tuple[Setting, Row]
_Names: TypeAlias = frozenset[tuple[object, ...]]


def rank_key(origin: UserSetting, setting: Setting, row: Row) -> tuple[object, ...]:
    """First aid, then by what is known without running, then by the distance from today's setting.

    What turns optimisations off comes behind all else of its verdict: its figures do not tell what
    the code that is left costs. Of toolchains that do as well the newest comes first: it is what a
    user is on next. A total order: the cell's name decides at last.
    """
    tools = [Version(text) for text in (setting.triton, setting.ptxas) if text]
    spills = (row.spill_stores, row.spill_loads)
    standing, *figures = merit(row, origin.turns(setting))
    return (
        not is_first_aid(origin, setting, row),
        standing,
        lowers_optimisation(setting.flags),
        *figures,
        sum(step.kind.weight for step in origin.steps_to(setting)),
        *(float("inf") if count is None else float(count) for count in spills),
        [(-tool.major, -tool.minor) for tool in tools],
        # What need not be set is left unset.
        len(setting.config.items),
        len(setting.flags.added) if setting.flags else 0,
        row.cell,
    )


def is_first_aid(origin: UserSetting, setting: Setting, row: Row) -> bool:
    """Whether it needs no change of any source, and takes away half of the trouble or more.

    That is a better verdict, or the same with half of the spilled bytes.
    """
    steps = origin.steps_to(setting)
    if origin.row is None or not all(step.kind.is_environment for step in steps):
        return False
    now, then = merit(origin.row)[0], merit(row)[0]
    before, after = (spill_bytes_per_block(each) for each in (origin.row, row))
    is_halved = before is not None and after is not None and 2 * after <= before
    return then < now or (then == now and bool(before) and is_halved)


def is_gain(origin: UserSetting, better: Tried, than: Tried) -> bool:
    """Whether the first is better in something that counts."""
    left, right = (merit(row, origin.turns(setting)) for setting, row in (better, than))
    return is_clearly_better(left, right)


def best_of(origin: UserSetting, tried: Iterable[Tried]) -> Tried | None:
    """The best of those that compile, if any does."""
    alive = [pair for pair in tried if VerdictKind(pair[1].verdict).compiles]
    return min(alive, key=lambda pair: rank_key(origin, *pair), default=None)


def choose(
    origin: UserSetting, tried: Iterable[Tried], listed: Iterable[Tried], *, at_most: int = 8
) -> list[Tried]:
    """The settings worth showing, best first: what is better than the best that is `listed`.

    That one is shown too where it is not what the user has, and so is first aid. Of those that
    change the same things the best one; and nothing for which a nearer setting, that changes only a
    part of the same things, does as well.
    """
    pairs = sorted(tried, key=lambda pair: rank_key(origin, *pair))
    home = next(pair for pair in pairs if pair[0].key == origin.setting.key)
    survivor = best_of(origin, listed)
    best: dict[_Names, Tried] = {}
    for pair in pairs:
        is_better = survivor is None or is_gain(origin, pair, survivor)
        # Spills are not time, and a user may not have the tuner choose.
        is_better = is_better or is_first_aid(origin, *pair)
        is_survivor = survivor is not None and pair[0].key == survivor[0].key
        if not VerdictKind(pair[1].verdict).compiles or not (is_better or is_survivor):
            continue
        if is_gain(origin, pair, home):
            best.setdefault(_names(origin, pair[0]), pair)
    kept = {
        names: pair
        for names, pair in best.items()
        if not any(
            other < names and not is_gain(origin, pair, near) for other, near in best.items()
        )
    }
    # Small steps are kept even where the list is long: they are what is done first.
    small = [pair for names, pair in kept.items() if len(names) == 1][: at_most // 2]
    large = [pair for names, pair in kept.items() if len(names) > 1][: at_most - len(small)]
    return sorted([*small, *large], key=lambda pair: rank_key(origin, *pair))


def _names(origin: UserSetting, setting: Setting) -> _Names:
    """What is different: without the values, but for parameters of the launch.

    Of those a user may not be free to choose every one. Options that turn optimisations off are
    another thing than those that do not.
    """
    return frozenset(
        (step.kind, step.name, *_value(step, setting)) for step in origin.steps_to(setting)
    )


def _value(step: SettingStep, setting: Setting) -> tuple[object, ...]:
    if step.kind is SettingKind.FLAGS:
        return (lowers_optimisation(setting.flags),)
    return (step.after,) if step.kind is SettingKind.LAUNCH else ()
