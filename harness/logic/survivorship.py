"""What is left for an autotuner to choose from: configs grouped by what became of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.values.row import Row
from harness.values.verdict import VerdictKind

__all__ = ["Fate", "Survivors", "common_ground", "survivors"]

# Who made the stage at which something went wrong.
_AT_FAULT = {
    "capture": "launch code",
    "ttir": "Triton",
    "ttgir": "Triton",
    "llir": "Triton",
    "ptx": "Triton/LLVM",
    "cubin": "ptxas",
    "launch": "the launch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Configs with one verdict and signature.

    `where` is what their configs have in common and no other has (`num_warps=4|8`), None where
    nothing tells them apart. `at_fault` names the stage in words.
    """

    verdict: VerdictKind
    rows: tuple[Row, ...]
    reason: str
    where: str | None
    at_fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """The fates of one launch on one target and toolchain, the largest first, and a headline."""

    headline: str
    fates: tuple[Fate, ...]


def survivors(rows: Sequence[Row]) -> Survivors:
    """Group the rows of one launch, target and toolchain."""
    groups: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        # Survivors differ in numbers, failures in kind.
        sick = row.verdict == VerdictKind.SICK.value
        groups.setdefault((row.verdict, None if sick else row.signature), []).append(row)
    fates = [_fate(found, rows) for found in groups.values()]
    # What does not work first: it is what the user came for.
    fates.sort(key=lambda fate: (fate.verdict.compiles, -len(fate.rows)))
    return Survivors(headline=_headline(rows), fates=tuple(fates))


def _fate(found: Sequence[Row], rows: Sequence[Row]) -> Fate:
    verdict = VerdictKind(found[0].verdict)
    stage = found[0].stage
    fault = _AT_FAULT.get(stage) if stage and not verdict.compiles else None
    return Fate(
        verdict=verdict,
        rows=tuple(found),
        reason=_common_reason(found),
        where=common_ground(found, rows),
        at_fault=f"{fault}, stage {stage}" if fault else None,
    )


def _common_reason(rows: Sequence[Row]) -> str:
    reasons = {row.reason for row in rows}
    if len(reasons) == 1:
        return rows[0].reason
    if all(row.spill_stores for row in rows):
        return (
            f"spills {_span(rows, lambda row: row.spill_stores)} B stores and "
            f"{_span(rows, lambda row: row.spill_loads)} B loads a thread, "
            f"at {_span(rows, lambda row: row.n_regs)} registers"
        )
    return f"{rows[0].reason} (and likewise)"


def _span(rows: Sequence[Row], number: Callable[[Row], int | None]) -> str:
    values = [value for value in map(number, rows) if value is not None]
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def common_ground(found: Sequence[Row], rows: Sequence[Row]) -> str | None:
    """The parameter, or the pair of parameters, that tells `found` from all other rows."""
    chosen = {row.cell for row in found}
    others = [row for row in rows if row.cell not in chosen]
    names = list(dict.fromkeys(name for row in rows for name in row.config))
    if not others:
        return None
    for name in names:
        inside = {row.config.get(name) for row in found}
        if inside.isdisjoint(row.config.get(name) for row in others):
            return _spell(name, inside)
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            pairs = {(row.config.get(first), row.config.get(second)) for row in found}
            whole = {(a, b) for a, _ in pairs for _, b in pairs}
            if pairs == whole and whole.isdisjoint(
                (row.config.get(first), row.config.get(second)) for row in others
            ):
                left = _spell(first, {a for a, _ in pairs})
                return f"{left}, {_spell(second, {b for _, b in pairs})}"
    return None


def _spell(name: str, values: set[object]) -> str:
    words = sorted(("none" if value is None else str(value) for value in values), key=_natural)
    return f"{name}={'|'.join(words)}"


def _natural(word: str) -> tuple[int, int, str]:
    return (0, int(word), "") if word.isdigit() else (1, 0, word)


def _headline(rows: Sequence[Row]) -> str:
    total = len(rows)
    healthy = [row for row in rows if row.verdict == VerdictKind.OK.value]
    sick = [row for row in rows if row.verdict == VerdictKind.SICK.value]
    unknown = [row for row in rows if VerdictKind(row.verdict).tells_nothing]
    failed = total - len(healthy) - len(sick) - len(unknown)
    compiles = len(healthy) + len(sick)
    parts = [f"{compiles} {'compiles' if compiles == 1 else 'compile'}"]
    if sick:
        parts[0] += ", all sick" if not healthy else f" ({len(sick)} of them sick)"
    if failed:
        parts.append(f"{failed} {'does' if failed == 1 else 'do'} not work")
    if unknown:
        parts.append(f"{len(unknown)} could not be told")
    return f"{total} config{'s' if total != 1 else ''}: " + "; ".join(parts) + "."
