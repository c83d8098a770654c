"""The nightly diff: what changed for each cell since an older run, and nothing else.

Two runs of one matrix are compared by cell id. Rules:

- What could not be determined (`answers.COULD_NOT_TELL`; no failure is followed here) is neither
  good nor bad: it is never a regression when it begins, and never a fix when it ends.
- A cell that could not be determined in the older run, or was not in it, is compared with the last
  result that decided something before that run, if that shows a change; else it is `new`.
- A cell of a toolchain version that no earlier run had is compared with the nearest older version
  of the same tool, of the same night where there is one: kernel, launch, config and target being
  equal, what differs is the version's doing, and is said as `since`. A version that was only added
  later (its neighbour on the other side does the same) is not news: `new`.
- A failure that ends in a kernel that is sick is not a fix but another trouble: `mutated`. One that
  ends in a run that nothing was compared with says nothing of a wrong result.
- A cell that the older run has and the newer one lacks is `missing`: a hole. One that the matrix
  excludes by now is `excluded`, with its reason, and one that the source does not launch any more
  is `removed`: nothing was lost. Where a launch has other configs, all of them are judged as one
  set: `harness.diff.sets`.
- Two files of one name in two folders are two kernels: one is `missing`, the other `new`.
- A known failure that happens is quiet; one that stops happening is a fix; one that fails in
  another way is a regression. One that had not happened in the older run either is a `Surprise`.

Pure.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import structs

from harness.cells.matrix_rules import Expectations, happened
from harness.diff.sets import ConfigSets, does_work
from harness.io.packages.versions import parse_version
from harness.judging.answers import COULD_NOT_TELL, VerdictAnswer, answer_of
from harness.values.cell import are_of_one_file
from harness.values.change import (
    METRICS,
    Change,
    ChangeKind,
    Changes,
    MetricStep,
    Severity,
    Surprise,
    severity_of,
)
from harness.values.matrix import Expectation
from harness.values.row import Facts
from harness.values.timing import Faster, compare_times
from harness.values.toolchain import BUNDLED
from harness.values.verdict import VerdictKind

# Steps of registers, spills and occupancy between two runs of a cell.


def metric_steps(older: Facts, newer: Facts, *, health: bool = True) -> tuple[MetricStep, ...]:
    """What differs in the numbers of a cell that compiles in both runs, the gravest first.

    Numbers that are not known on both sides tell nothing. With the same machine code, and the same
    memory asked for at launch, there is no step. Without `health` it is left out that the
    cell is sick now, or no longer.
    """
    program = attrgetter("cubin_sha256", "shared", "tmem_size")
    if older.cubin_sha256 and program(older) == program(newer):
        # What the same code takes on another day says nothing of the code.
        return ()
    steps = []
    if health and older.verdict != newer.verdict:
        steps.append(
            MetricStep(
                metric="verdict",
                older=older.verdict,
                newer=newer.verdict,
                severity=Severity.HEALTH,
                worse=newer.verdict is VerdictKind.SICK,
            )
        )
    for metric in METRICS:
        before, after = getattr(older, metric), getattr(newer, metric)
        if before is not None and after is not None and before != after:
            rises = after > before
            steps.append(
                MetricStep(
                    metric=metric,
                    older=before,
                    newer=after,
                    severity=severity_of(metric, before, after),
                    worse=rises is (metric != "occupancy"),
                )
            )
    if older.time_ms and newer.time_ms:
        faster = compare_times(older.time_ms, newer.time_ms)
        # A noisy metric: only intervals that are apart are a step, whatever their medians are.
        if faster is not Faster.AMBIGUOUS:
            steps.append(
                MetricStep(
                    metric="time_ms",
                    older=older.time_ms.median,
                    newer=newer.time_ms.median,
                    severity=Severity.TIME,
                    worse=faster is Faster.FIRST,
                )
            )
    return tuple(sorted(steps, key=lambda step: -step.severity))


def direction(steps: tuple[MetricStep, ...]) -> bool | None:
    """Whether the gravest step is one for the worse; None where all are informational."""
    if not steps or steps[0].severity is Severity.INFORMATIONAL:
        return None
    return steps[0].worse


Earlier = Callable[[Sequence[str]], Mapping[str, Facts]]
"""From cell ids to the last result of each that decided something, before the older run."""

UNTOLD = {
    kind: ChangeKind.INFRA if kind is VerdictKind.INFRA else ChangeKind.UNTESTABLE
    for kind in COULD_NOT_TELL
}
"""Verdicts that tell nothing of the kernel, and what a cell is when it comes to one."""
PLAIN = frozenset(
    kind for kind in VerdictKind if not kind.is_failure and kind is not VerdictKind.SICK
)
"""Verdicts that have no bug, and alone decide what a cell is that did not change."""


def unchanged(verdict: VerdictKind) -> ChangeKind:
    """What a cell is whose row is the same in both runs; the verdict is one of `PLAIN`."""
    return ChangeKind.SAME_UNTOLD if verdict in UNTOLD else ChangeKind.SAME_OK


_REPEATED = (
    "cell",
    "kernel",
    "launch",
    "target",
    "triton",
    "ptxas",
    "ptxas_origin",
    "reason",
    "signature",
    "occupancy_limiter",
    "cubin_sha256",
    "compiler_version",
    "ptx_body_sha256",
)
F = TypeVar("F", bound=Facts)


def compare(
    older: Iterable[Facts],
    newer: Iterable[Facts],
    *,
    runs: tuple[int | None, int],
    expectations: Sequence[Expectation] = (),
    excluded: Callable[[Facts], str | None] = lambda facts: None,  # noqa: ARG005
    removed: Callable[[Facts], bool] = lambda facts: False,  # noqa: ARG005
    earlier: Earlier = lambda cells: {},  # noqa: ARG005
    is_whole: bool = True,
) -> Changes:
    """Compare two runs, each in the order of its cell ids; both are read once, as streams.

    Launches all of whose cells are the same, and `PLAIN`, may be left out, but where an expectation
    may mean one. `excluded` says why the matrix leaves a cell out by now, `removed` whether it is
    known that the source does not launch it any more. Runs that are not `is_whole` lack cells for
    other reasons: where one of them has other configs, it may lack the rest.

    Toolchains come last in a cell's id, so that the versions to compare lie beside each other, and
    no more than one config's cells are held at a time.
    """
    comparison = _Comparison(
        expectations=Expectations(expectations), excluded=excluded, removed=removed, earlier=earlier
    )
    for before, after in _side_by_side(older, newer):
        if before and after and not are_of_one_file(before[0].file, after[0].file):
            comparison.add(before, ())
            comparison.add((), after)
        else:
            comparison.add(before, after)
    changes = comparison.sets.judged(comparison.changes, is_whole=is_whole)
    counts = comparison.counts + Counter(change.kind for change in changes)
    return Changes(
        older=runs[0],
        newer=runs[1],
        counts={kind: counts[kind] for kind in ChangeKind},
        changes=tuple(changes),
        sets=comparison.sets.listed(),
        informational=tuple(comparison.informational),
        surprises=tuple(comparison.surprises.values()),
    )


def _side_by_side(
    older: Iterable[Facts], newer: Iterable[Facts]
) -> Iterator[tuple[list[Facts], list[Facts]]]:

    def place(entry: tuple[int, Facts]) -> str:
        # Cells come in the order of their ids, in which `/` ends a place.
        return entry[1].place + "/"

    runs = [zip(repeat(side), run, strict=False) for side, run in enumerate((older, newer))]
    for _, group in groupby(heapq.merge(*runs, key=place), key=place):
        sides: tuple[list[Facts], list[Facts]] = [], []
        for side, facts in group:
            sides[side].append(facts)
        yield sides


@dataclass(slots=True, kw_only=True)
class _Comparison:
    expectations: Expectations
    excluded: Callable[[Facts], str | None]
    removed: Callable[[Facts], bool]
    earlier: Earlier
    sets: ConfigSets = field(default_factory=lambda: ConfigSets(change_of))
    counts: Counter[ChangeKind] = field(default_factory=Counter)
    changes: list[Change] = field(default_factory=list)
    informational: list[Change] = field(default_factory=list)
    surprises: dict[tuple[int, str], Surprise] = field(default_factory=dict)
    words: dict[str, Any] = field(default_factory=dict)

    def add(self, older: Sequence[Facts], newer: Sequence[Facts]) -> None:
        self.sets.add(older, newer)
        before = {facts.cell: facts for facts in older}
        after = {facts.cell: facts for facts in newer}
        changes = []
        for cell, facts in after.items():
            change = self._judge(before.get(cell), facts)
            if change.kind.is_quiet and not change.steps:
                self.counts[change.kind] += 1
            else:
                changes.append(change)
        for cell in [cell for cell in before if cell not in after]:
            why = self.excluded(before[cell])
            kind = ChangeKind.MISSING if why is None else ChangeKind.EXCLUDED
            if why is None and self.removed(before[cell]):
                kind = ChangeKind.REMOVED
            changes.append(Change(kind=kind, older=before[cell], newer=None, why=why))
        unknown = [change.facts.cell for change in changes if _asks_history(change)]
        past = self.earlier(unknown) if unknown else {}
        for plain in changes:
            change = _with_history(plain, past, before, after)
            if change.kind.is_quiet:
                self.counts[change.kind] += 1
            if change.steps or not change.kind.is_quiet:
                # Of a hundred thousand that are kept, equal words are one object.
                sides = {"older": change.older, "newer": change.newer}
                slim = {name: side and shared(side, self.words) for name, side in sides.items()}
                kept = self.informational if change.kind.is_quiet else self.changes
                kept.append(structs.replace(change, **slim))

    def _judge(self, older: Facts | None, newer: Facts) -> Change:
        expectation = self.expectations.of(newer)
        if expectation is None:
            return change_of(older, newer)
        if happened(newer, expectation):
            change = _as_expected(older, newer)
        else:
            change = _against(expectation, older, newer)
            if change.kind in (ChangeKind.SAME_OK, ChangeKind.SAME_FAIL):
                key = id(expectation), newer.verdict
                surprise = self.surprises.get(key) or Surprise(
                    verdict=newer.verdict,
                    expected=expectation.verdict,
                    issue=expectation.issue,
                    line=expectation.line,
                    cells=0,
                    example=newer.short,
                )
                self.surprises[key] = structs.replace(surprise, cells=surprise.cells + 1)
        return structs.replace(change, expectation=expectation)


def shared(facts: F, once: dict[str, Any]) -> F:
    """The same, with each word that many cells repeat as one object: the one that `once` has."""
    named = {name: getattr(facts, name, None) for name in _REPEATED}
    words: dict[str, Any] = {
        name: once.setdefault(word, word) for name, word in named.items() if word
    }
    return structs.replace(facts, config=once.setdefault(repr(facts.config), facts.config), **words)


def _is_told(facts: Facts | None) -> bool:
    return facts is not None and facts.verdict not in UNTOLD


def change_of(older: Facts | None, newer: Facts) -> Change:
    """What `newer` is against `older`, of one cell or of two that differ in one thing."""
    if older is None:
        return Change(kind=ChangeKind.NEW, older=None, newer=newer)
    if not _is_told(newer):
        kind = UNTOLD[newer.verdict] if _is_told(older) else ChangeKind.SAME_UNTOLD
    elif not _is_told(older):
        kind = ChangeKind.NEW
    elif does_work(older) and does_work(newer):
        return _measured(older, newer)
    elif older.outcome == newer.outcome:
        kind = _unless_flaky(ChangeKind.SAME_FAIL, older, newer)
    elif does_work(newer):
        answer = answer_of(
            newer.verdict,
            stage=newer.stage,
            signature=newer.signature,
            followed=older.signature,
            followed_kind=older.verdict,
        )
        ended = ChangeKind.MUTATED if newer.verdict is VerdictKind.SICK else ChangeKind.FIXED
        is_told = answer is VerdictAnswer.OK
        kind = _unless_flaky(ended if is_told else ChangeKind.UNTESTABLE, older, newer)
    else:
        changed = ChangeKind.REGRESSED if does_work(older) else ChangeKind.MUTATED
        kind = _unless_flaky(changed, older, newer)
    return Change(kind=kind, older=older, newer=newer)


def _measured(older: Facts, newer: Facts, *, health: bool = True) -> Change:
    steps = metric_steps(older, newer, health=health)
    worse = direction(steps)
    kind = ChangeKind.SAME_OK
    if worse is not None:
        kind = ChangeKind.METRIC_WORSE if worse else ChangeKind.METRIC_BETTER
    return Change(kind=_unless_flaky(kind, older, newer), older=older, newer=newer, steps=steps)


def _unless_flaky(kind: ChangeKind, older: Facts, newer: Facts) -> ChangeKind:
    """Where the runs of one cell disagree among themselves, a change between nights proves less."""
    began = newer.is_flaky and not older.is_flaky
    differs = not kind.is_quiet and (newer.is_flaky or older.is_flaky)
    return ChangeKind.FLAKY if began or differs else kind


def _as_expected(older: Facts | None, newer: Facts) -> Change:
    """A known failure that happens: quiet, unless it is that of a kernel whose numbers moved."""
    if older and does_work(older) and does_work(newer):
        change = _measured(older, newer, health=False)
        if not change.kind.is_quiet:
            return change
    began = newer.is_flaky and not (older and older.is_flaky)
    return Change(kind=ChangeKind.FLAKY if began else ChangeKind.EXPECTED, older=older, newer=newer)


def _against(expectation: Expectation, older: Facts | None, newer: Facts) -> Change:
    plain = change_of(older, newer)
    if not _is_told(newer):
        return plain
    if older and older.outcome == newer.outcome:
        return plain
    is_sick = newer.verdict is VerdictKind.SICK
    passes = newer.verdict is VerdictKind.OK or (
        does_work(newer) and not is_sick and not expectation.verdict.compiles
    )
    if passes and older and does_work(older) and not happened(older, expectation):
        return plain
    if is_sick and not expectation.verdict.compiles:
        return structs.replace(plain, kind=ChangeKind.MUTATED)
    return structs.replace(plain, kind=ChangeKind.FIXED if passes else ChangeKind.REGRESSED)


_NEWS = (
    ChangeKind.REGRESSED,
    ChangeKind.MUTATED,
    ChangeKind.FIXED,
    ChangeKind.METRIC_WORSE,
    ChangeKind.METRIC_BETTER,
)


def _asks_history(change: Change) -> bool:
    return change.kind is ChangeKind.NEW and _is_told(change.newer)


def _with_history(
    change: Change,
    past: Mapping[str, Facts],
    before: Mapping[str, Facts],
    after: Mapping[str, Facts],
) -> Change:
    """The change against what else is known of the cell, where that is news."""
    newer = change.newer
    if newer is None or not _asks_history(change):
        return change
    if newer.cell in past and are_of_one_file(past[newer.cell].file, newer.file):
        changed = change_of(past[newer.cell], newer)
        return changed if changed.kind in _NEWS else change
    neighbour = _older_version(newer, before, after)
    if neighbour is None:
        return change
    older, since, next_outcome = neighbour
    changed = change_of(older, newer)
    if changed.kind.is_quiet:
        return structs.replace(changed, kind=ChangeKind.NEW, steps=(), since=since)
    if changed.kind not in _NEWS or next_outcome == newer.outcome:
        return change
    return structs.replace(changed, since=since)


def _older_version(
    newer: Facts, before: Mapping[str, Facts], after: Mapping[str, Facts]
) -> tuple[Facts, str, tuple[str, str | None] | None] | None:
    """The neighbour on the axis of the tool whose version is new, ptxas first.

    With the words of `Change.since`, and the outcome of the nearest newer version, if it is known.

    Only cells that the older run had are compared with: else a kernel's first night would tell
    all that ever changed. Where Triton is new too, its cells on other ptxas are new themselves,
    and the newest of them stands for this Triton.
    """
    if not before:
        return None
    current = [after[cell] if _is_told(after.get(cell)) else before[cell] for cell in before]
    beside = [facts for facts in after.values() if facts.cell not in before]
    axes = (
        (_same_triton, "ptxas", "ptxas", current),
        (_same_ptxas, "compiler_version", "Triton", current),
        (_same_triton, "ptxas", "ptxas", beside),
    )
    for is_on_axis, name, tool, cells in axes:
        place = parse_version(getattr(newer, name))
        line = [
            (version, facts)
            for facts in cells
            if _is_told(facts) and is_on_axis(facts, newer)
            if (version := parse_version(getattr(facts, name)))
        ]
        below = [at for at in line if place and at[0] < place]
        if place and below:
            version, facts = max(below, key=lambda at: at[0])
            above = [at for at in line if at[0] > place]
            following = min(above, key=lambda at: at[0])[1].outcome if above else None
            since = f"{tool} {place} after {version}"
            return facts, since, following
    return None


def _is_bundled(facts: Facts) -> bool:
    return facts.ptxas_origin == BUNDLED


def _same_triton(one: Facts, other: Facts) -> bool:
    # A Triton bundles one ptxas for a target: on this axis it has no neighbours.
    bundled = _is_bundled(one) or _is_bundled(other)
    # Of raw PTX the id has a hash of the program in the compiler's place.
    compilers = {facts.cell.rsplit("/", 2)[-2] for facts in (one, other)}
    return not bundled and len(compilers) == 1 and one.frozen == other.frozen


def _same_ptxas(one: Facts, other: Facts) -> bool:
    if (_is_bundled(one), one.frozen) != (_is_bundled(other), other.frozen):
        return False
    return _is_bundled(one) or one.ptxas == other.ptxas
