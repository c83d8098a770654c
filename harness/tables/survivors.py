"""What is left for an autotuner to choose from: configs grouped by their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar

import msgspec

from harness.values.kernel import Scalar
from harness.values.row import Facts, Row
from harness.values.toolchain import assembler_name, compiler_name
from harness.values.verdict import Stage, VerdictKind

T = TypeVar("T")
Settings: TypeAlias = Mapping[str, Scalar]


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """Configs with one verdict and signature.

    `where` is what their configs have in common and no other has (`num_warps=4|8`, or a launch or
    target of several), None where nothing tells them apart. `at_fault` names the stage, and the
    culprit where the verdict tells.
    """

    verdict: VerdictKind
    rows: tuple[Row, ...]
    reason: str
    where: str | None
    at_fault: str | None


class Survivors(msgspec.Struct, frozen=True, kw_only=True):
    """The fates of one launch on one target and toolchain, the largest first, and a headline."""

    headline: str
    fates: tuple[Fate, ...]


def group_rows(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by kernel, launch, target and toolchain, in order of first appearance."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        toolchain = (row.compiler, row.compiler_version, row.ptxas, row.ptxas_origin, row.frozen)
        groups.setdefault((row.kernel, row.launch, row.target, *toolchain), []).append(row)
    return list(groups.values())


def survivors(rows: Sequence[Row], untried: int = 0) -> Survivors:
    """Group the rows of one launch, target and toolchain, `untried` configs of which have none."""
    groups: dict[tuple[VerdictKind, str | None], list[Row]] = {}
    for row in rows:
        # Survivors differ in numbers, failures in kind.
        sick = row.verdict is VerdictKind.SICK
        groups.setdefault((row.verdict, None if sick else row.signature), []).append(row)
    fates = []
    for (verdict, _), group in groups.items():
        cells = {row.cell for row in group}
        others = [_settings(row) for row in rows if row.cell not in cells]
        fates.append(
            Fate(
                verdict=verdict,
                rows=tuple(group),
                reason=common_reason(group),
                where=common_ground([_settings(row) for row in group], others),
                at_fault=_at_fault(verdict, group[0]),
            )
        )
    # What does not work first: it is what the user came for.
    fates.sort(key=lambda fate: (fate.verdict.compiles, -len(fate.rows)))
    return Survivors(headline=_headline(rows, untried), fates=tuple(fates))


def _settings(row: Row) -> Settings:
    return {**row.config, "launch": row.launch, "target": row.target}


# Whom a verdict blames; the others name only the stage, which need not be the culprit.
_BLAMES_COMPILER = (
    VerdictKind.TRAP_STUB,
    VerdictKind.PASS_FAILURE,
    VerdictKind.COMPILER_CRASH,
    VerdictKind.PTXAS_ICE,
)


def _at_fault(verdict: VerdictKind, row: Row) -> str | None:
    if row.stage is None or verdict.compiles:
        return None
    where = f"stage {row.stage}"
    raised = verdict is VerdictKind.PASS_FAILURE and row.exit_code is row.signal is None
    at_assembler = row.stage == Stage.CUBIN.value and not raised
    title = assembler_name(row.assembler) if at_assembler else compiler_name(row.compiler)
    if row.stage == "launch":
        return f"the config; {title} would say so at launch only" if row.compiler else where
    if verdict is VerdictKind.REJECTED:
        return f"at fault: the kernel, {where}"
    # What a raw PTX went through before is not known.
    if verdict in _BLAMES_COMPILER and (row.compiler or at_assembler):
        return f"at fault: {title}, {where}"
    return where


_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def common_reason(rows: Sequence[Facts]) -> str:
    """One reason for all: numbers in which they differ become spans."""
    reasons = list(dict.fromkeys(row.reason for row in rows))
    skeletons = {_NUMBER.sub("#", reason) for reason in reasons}
    if len(skeletons) > 1:
        # Sick in more than one way: what all have is said, `triage show` has the rest.
        parts = [_by_skeleton(reason) for reason in reasons]
        first, *others = parts
        # What one says twice and another once cannot be matched.
        shared = [
            skeleton
            for skeleton, same_parts in first.items()
            if all(len(by_skeleton.get(skeleton, ())) == len(same_parts) for by_skeleton in others)
        ]
        if not shared:
            return f"{reasons[0]} (others: {reasons[1]})"
        reasons = [
            "; ".join(part for skeleton in shared for part in by_skeleton[skeleton])
            for by_skeleton in parts
        ]
    numbers = list(zip(*(_NUMBER.findall(reason) for reason in reasons), strict=True))
    spans = iter([_span(by_skeleton) for by_skeleton in numbers])
    return _NUMBER.sub(lambda _: next(spans), reasons[0])


def _by_skeleton(reason: str) -> dict[str, list[str]]:
    """The parts of a reason, in order, by what they say without their numbers."""
    parts: dict[str, list[str]] = {}
    for part in reason.split("; "):
        parts.setdefault(_NUMBER.sub("#", part), []).append(part)
    return parts


def _span(words: Sequence[str]) -> str:
    ordered = sorted(set(words), key=lambda word: float(word.replace(",", "")))
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def common_ground(inner: Sequence[Settings], others: Sequence[Settings]) -> str | None:
    """The parameter, or the pair of parameters, that tells the `inner` configs from all others."""
    fields = common_fields(inner, others)
    if fields is None:
        return None
    return ", ".join(f"{name}={_any_of(set(values))}" for name, values in fields.items())


def common_fields(
    inner: Sequence[Settings], others: Sequence[Settings]
) -> dict[str, list[Scalar | None]] | None:
    """As `common_ground`, but the values of each parameter, in order; None is what is not set."""
    names = list(dict.fromkeys(name for config in (*inner, *others) for name in config))
    if not others:
        return None
    for name in names:
        inside = {config.get(name) for config in inner}
        if inside.isdisjoint(config.get(name) for config in others):
            return {name: _ordered(inside)}
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            pairs = {(config.get(first), config.get(second)) for config in inner}
            whole = {(a, b) for a, _ in pairs for _, b in pairs}
            if pairs == whole and whole.isdisjoint(
                (config.get(first), config.get(second)) for config in others
            ):
                return {
                    first: _ordered({a for a, _ in pairs}),
                    second: _ordered({b for _, b in pairs}),
                }
    return None


def _ordered(values: AbstractSet[Scalar | None]) -> list[Scalar | None]:
    return sorted(values, key=lambda value: _natural("none" if value is None else str(value)))


def alike(
    items: Iterable[T], key: Callable[[T], object], config: Callable[[T], Settings]
) -> list[tuple[dict[str, str], T]]:
    """Items of one key as few lines: the values of their configs, and the first item.

    Each line means every combination of its values.

        >>> alike([1, 2], lambda stages: None, lambda stages: {"warps": 4, "stages": stages})
        [({'warps': '4', 'stages': '1|2'}, 1)]
    """
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [(line, some[0]) for some in groups.values() for line in _folded(map(config, some))]


def _folded(settings: Iterable[Settings]) -> list[dict[str, str]]:
    configs = list(settings)
    names = list(dict.fromkeys(name for config in configs for name in config))
    lines = [tuple(frozenset([config.get(name)]) for name in names) for config in configs]
    for at in range(len(names)):
        merged: dict[tuple[frozenset[Scalar | None], ...], frozenset[Scalar | None]] = {}
        for line in lines:
            rest = (*line[:at], *line[at + 1 :])
            merged[rest] = merged.get(rest, frozenset()) | line[at]
        lines = [(*rest[:at], values, *rest[at:]) for rest, values in merged.items()]
    return [dict(zip(names, map(_any_of, line), strict=True)) for line in lines]


def _any_of(values: AbstractSet[object]) -> str:
    return "|".join(
        sorted(("none" if value is None else str(value) for value in values), key=_natural)
    )


def _natural(word: str) -> tuple[int, int, str]:
    return (0, int(word), "") if word.isdigit() else (1, 0, word)


def _headline(rows: Sequence[Row], untried: int) -> str:
    total = len(rows)
    healthy = [row for row in rows if row.verdict.is_healthy]
    sick = [row for row in rows if row.verdict is VerdictKind.SICK]
    failed = sum(row.verdict.fails for row in rows)
    unknown = total - len(healthy) - len(sick) - failed
    compiles = len(healthy) + len(sick)
    are_runs = all(row.verdict.is_of_run for row in rows)
    does = "run{} with nothing wrong" if are_runs else "compile{}"
    parts = [f"{compiles} {does.format('s' if compiles == 1 else '')}"]
    if sick:
        parts[0] += ", all sick" if not healthy else f" ({len(sick)} of them sick)"
    if failed:
        parts.append(f"{failed} {'does' if failed == 1 else 'do'} not work")
    if unknown:
        parts.append(f"{unknown} could not be determined")
    if untried:
        parts.append(f"{untried} {'was' if untried == 1 else 'were'} not tried")
    every = f"{total} of {total + untried}" if untried else f"{total}"
    return f"{every} config{'s' if total + untried != 1 else ''}: " + "; ".join(parts) + "."
