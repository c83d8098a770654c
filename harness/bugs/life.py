"""Bugs from results: failures with one signature are one bug, with its state.

A bug lives at *places* (kernel, launch, config, target). At each, what counts is the newest
version of the tool at fault that gave an answer: the *head* of its line. A bug that is in ptxas
13.1 and not in 13.3 is fixed, however often 13.1 is run again; one that 13.4 has again has
regressed. A version that gives no answer moves nothing. Other flags of ptxas, and what a command
tries on targets that were not named, are variants: no newer version, and no cell that has to be
well again, unless nothing else ever had the bug.

A version has the bug where a line has it there; it is without it where one works there that has it
elsewhere, and none has it. Where other lines have it both before and after, and were not tried
there, it is not known. Two bugs that say the same are compared by their histories, where both have
an answer: agreement is evidence where the bug came or went, and no proof.

Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache
from itertools import groupby
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace
from packaging.version import Version

from harness.bisect.search import Boundary, Finding, Probe, bounds_said, conclude, listed
from harness.io.packages.versions import version_order
from harness.judging.answers import LIMITS_OF_OURS, VerdictAnswer, answer_of
from harness.judging.conditions import Condition, spell
from harness.judging.followed import FollowedFailure, measured, toolchain_of
from harness.judging.signature import template
from harness.values.bug import (
    AffectedRange,
    Bug,
    BugRecord,
    Likeness,
    MachineState,
    Occasion,
    Seen,
    Sighting,
    VersionMark,
)
from harness.values.cell import place_of
from harness.values.row import BugFacts, Row
from harness.values.toolchain import BUNDLED, EMULATOR, TRITON, assembler_name, compiler_name
from harness.values.verdict import Stage, VerdictKind

CLEAN_NIGHTS = 3
"""Whole nights in a row without a bug after which it counts as fixed."""

_BETWEEN_NIGHTS = 12 * 3600.0
"""Seconds from the start of one night to that of the next that counts."""

_FIXED = (MachineState.FIXED_CANDIDATE, MachineState.FIXED_VERIFIED)
_PTXAS, _TRITON = "ptxas", "Triton"
_Line: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class Lifecycle:
    """Follows one bug from run to run, oldest first; no state until a run has seen it.

    After `wanted` clean nights it is fixed. `seen_in` are the runs that have seen it; the newest
    version of each line and what that says are its `heads`. See `MachineState`, and `Bug`.
    """

    wanted: int = CLEAN_NIGHTS
    machine: MachineState | None = None
    clean_nights: int = 0
    last_clean: float | None = None
    gone: set[_Line] = field(default_factory=set)
    seen_in: list[int] = field(default_factory=list)
    compiled: Counter[tuple[object, ...]] = field(default_factory=Counter)
    heads: dict[_Line, tuple[tuple[int, Version, str], Seen]] = field(default_factory=dict)

    def add(self, run: Occasion, sightings: Sequence[Sighting]) -> None:
        """Take in what the results of the next run say."""
        reproduced = self._is_reproduced()
        newer_lines = self._advance([sighting for sighting in sightings if sighting.counts])
        here = [sighting for sighting in sightings if sighting.seen in (Seen.HERE, Seen.FLAKY)]
        if here:
            self.seen_in.append(run.number)
            for bad in here:
                self.compiled[bad.line, bad.version] += bad.compiled
        if not self.seen_in or not (newer_lines or any(bad.counts for bad in here)):
            return
        standing = {line: seen for line, (_, seen) in self.heads.items()}
        fresh = {line: seen for line, seen in standing.items() if not self._is_passed(line)}
        if Seen.HERE in fresh.values():
            is_back = any(standing[line] is Seen.HERE for line in self.gone & fresh.keys())
            self._broken(MachineState.REGRESSED if is_back else self._age(reproduced))
        elif Seen.FLAKY in fresh.values():
            self._broken(MachineState.FLAKY)
        elif Seen.OTHER in standing.values():
            self._broken(MachineState.MUTATED)
        elif Seen.UNTOLD in standing.values():
            self.machine = MachineState.UNTESTABLE
        elif fresh.keys() != self.heads.keys():
            self._broken(MachineState.ABSENT)
        else:
            if newer_lines == self.heads.keys() and run.is_night:
                if self.last_clean is None or run.started - self.last_clean >= _BETWEEN_NIGHTS:
                    self.clean_nights, self.last_clean = self.clean_nights + 1, run.started
                self.gone |= self.heads.keys()
                self.machine = _FIXED[self.clean_nights >= self.wanted]
            elif self.machine not in _FIXED:
                self.machine = MachineState.ABSENT

    def _advance(self, sightings: Sequence[Sighting]) -> set[_Line]:
        """Move the heads; return the lines whose head this run has tried."""
        lines = set()
        for sighting in sorted(sightings, key=lambda sighting: version_order(sighting.version)):
            place = version_order(sighting.version)
            head = self.heads.get(sighting.line)
            newer = head is None or place > head[0]
            if newer and sighting.seen is Seen.UNTOLD:
                continue
            if head is None or place >= head[0]:
                self.heads[sighting.line] = place, sighting.seen
                lines.add(sighting.line)
        return lines

    def _is_passed(self, line: _Line) -> bool:
        place, seen = self.heads[line]
        return seen in (Seen.HERE, Seen.FLAKY) and any(
            state is Seen.CLEAN and other[0] == line[0] and newer > place
            for other, (newer, state) in self.heads.items()
        )

    def _broken(self, state: MachineState) -> None:
        self.machine, self.clean_nights, self.last_clean = state, 0, None

    def _is_reproduced(self) -> bool:
        return max(self.compiled.values(), default=0) > 1

    def _age(self, reproduced: bool) -> MachineState:  # noqa: FBT001 - what was so before
        if not reproduced and self._is_reproduced():
            return MachineState.CONFIRMED
        return MachineState.NEW if len(self.seen_in) == 1 else MachineState.PRESENT


class _Result(NamedTuple):
    """One result, as little of it as bugs need; a hundred thousand are held at a time."""

    run: int
    triton: str | None
    ptxas: str | None
    bundled: bool
    frozen: bool
    verdict: VerdictKind
    stage: str | None
    reason: str
    bug: int | None
    flaky: bool
    compiled: int
    flags: str
    is_asked: bool
    program: str

    def on(self, tool: str, place: str) -> tuple[_Line, str] | None:
        """The line that differs in this tool's version only, and that version."""
        frozen = "frozen" if self.frozen else ""
        if tool == _PTXAS:
            # A Triton bundles one ptxas: on this axis that cell has no neighbours.
            line = (tool, place, self.triton or self.program, frozen, self.flags)
            # Nor has what the emulator executes, unless nothing else distinguishes them.
            is_apart = self.bundled or (self.ptxas == EMULATOR and self.triton)
            return None if is_apart or self.ptxas is None else (line, self.ptxas)
        if self.triton is None:
            return None
        beside = BUNDLED if self.bundled else self.ptxas or ""
        return (tool, place, beside, frozen, self.flags), self.triton


@dataclass(slots=True)
class BugHistory:
    """Takes in every result of every run, oldest run first, and tells what they say of each bug.

    `known` has the versions that exist of a kind of compiler or assembler, `gone` the cells of a
    kernel that its source no longer has. Such a cell says which versions have a bug, and nothing
    of today.
    """

    known: Callable[[str], Sequence[str]] = lambda _: ()
    gone: Callable[[str], Collection[str]] = lambda _: ()
    _results: dict[str, list[_Result]] = field(default_factory=lambda: defaultdict(list))
    _places: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    _cells: dict[int, dict[str, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    _last: dict[str, int | None] = field(default_factory=dict)
    _examples: dict[int, BugFacts] = field(default_factory=dict)
    _assemblers: dict[int, str] = field(default_factory=dict)
    _words: dict[str, str] = field(default_factory=dict)
    _files: dict[str, list[set[str]]] = field(default_factory=lambda: defaultdict(list))
    _runs: dict[int, Occasion] = field(default_factory=dict)

    def add(self, run: Occasion, facts: BugFacts, bug: int | None) -> None:
        """One result; `bug` is the number of the bug with its signature, None where it has none."""
        self._runs.setdefault(run.number, run)
        # Files of one name in two folders are two kernels, whose cells have one name.
        prefix = self._file_prefix(facts)
        place, cell = self._once(prefix + facts.place), prefix + facts.cell
        program = facts.ptx_body_sha256 if facts.compiler_version is None else None
        result = _Result(
            run=run.number,
            triton=facts.compiler_version and self._once(facts.compiler_version),
            ptxas=facts.ptxas and self._once(facts.ptxas),
            bundled=facts.ptxas_origin == BUNDLED,
            frozen=facts.frozen,
            verdict=facts.verdict,
            stage=facts.stage and self._once(facts.stage),
            reason=self._once(facts.reason),
            bug=bug,
            flaky=facts.is_flaky,
            compiled=0 if facts.cached else facts.attempts,
            # A cell of which the flags of ptxas were changed has the change in its name.
            flags=self._once(facts.flags),
            is_asked=not facts.flags and facts.probe_of is None,
            program=self._once(program or ""),
        )
        self._results[place].append(result)
        if bug is not None:
            self._places[bug][place] = None
            self._cells[bug][cell] = facts.kernel, facts.target
            known = self._examples.get(bug)
            if known is None or result.is_asked or known.flags or known.probe_of is not None:
                self._examples[bug] = facts
            if facts.ptxas:
                self._assemblers[bug] = facts.assembler
            self._last[cell] = bug
        elif (last := self._last.get(cell)) is not None:
            tells = self._seen(result, last) is not Seen.UNTOLD
            self._last[cell] = None if tells else last

    def _file_prefix(self, facts: BugFacts) -> str:
        """Empty for the first file of a kernel's name, and for all that are that one."""
        if facts.file is None:
            return ""
        files = self._files[facts.kernel]
        parts = set(facts.file.split(":"))
        number = next((n for n, names in enumerate(files) if names & parts), len(files))
        if number == len(files):
            files.append(set())
        files[number] |= parts
        return f"{number} " if number else ""

    def _once(self, word: str) -> str:
        return self._words.setdefault(word, word)

    def stories(self, *, clean_nights: int = CLEAN_NIGHTS) -> dict[int, Bug]:
        """Each bug that any result has, by number; of its record nothing else is known here."""
        return {bug: self._story(bug, clean_nights) for bug in self._places}

    def _story(self, bug: int, clean_nights: int) -> Bug:
        example, cells = self._examples[bug], self._cells[bug]
        current = {cell for cell, (kernel, _) in cells.items() if cell not in self.gone(kernel)}
        places = {place_of(cell) for cell in current}
        tools = (self._at_fault(bug), _TRITON, _PTXAS)
        sightings = self._sightings(
            bug,
            lambda result, place: next(filter(None, (result.on(t, place) for t in tools)), None),
        )
        is_gone = not any(seen.counts and seen.line[1] in places for _, seen in sightings)
        # What each run says of the bug, on the lines that ever had it.
        nights: dict[int, list[Sighting]] = {run: [] for run in self._runs}
        for run, seen in sightings:
            is_past = seen.counts and not is_gone and seen.line[1] not in places
            nights[run].append(replace(seen, counts=False) if is_past else seen)
        life = Lifecycle(wanted=clean_nights)
        for run, night in nights.items():
            if night:
                life.add(self._runs[run], night)
        assert life.machine is not None, "a bug has a result that has it"
        if is_gone and life.machine not in (*_FIXED, MachineState.ABSENT):
            life.machine = MachineState.GONE
        return Bug(
            record=BugRecord(number=bug, key=example.signature or ""),
            machine=life.machine,
            stage=example.stage,
            kind=example.verdict,
            code=example.code,
            failing_pass=None,
            title=template(example.reason),
            reason=example.reason,
            cells=len(cells),
            cells_now=sum(self._last.get(cell) == bug for cell in current),
            kernels=dict(sorted(Counter(kernel for kernel, _ in cells.values()).items())),
            targets=tuple(sorted({target for _, target in cells.values()})),
            first_seen=life.seen_in[0],
            last_seen=life.seen_in[-1],
            compiled=max(life.compiled.values(), default=0),
            clean_nights=life.clean_nights,
            ranges=tuple(self._ranges(bug, example)),
            example=example,
        )

    def _at_fault(self, bug: int) -> str:
        example = self._examples[bug]
        is_assembled = example.stage == Stage.CUBIN.value or example.compiler is None
        return _PTXAS if is_assembled else _TRITON

    def _ranges(self, bug: int, example: BugFacts) -> Iterator[AffectedRange]:
        compiler = example.compiler or TRITON
        assembler = self._assemblers.get(bug, example.assembler)
        tools = {_TRITON: (compiler, compiler_name(compiler))}
        if example.stage is None or Stage(example.stage) in _AT_OR_AFTER_PTXAS:
            tools[_PTXAS] = assembler, assembler_name(assembler)
        for tool, (kind, name) in tools.items():
            seen = self._sightings(bug, lambda result, place, tool=tool: result.on(tool, place))  # type: ignore[misc]
            along = [each for _, each in seen if each.counts and each.version != EMULATOR]
            if affected := affected_range(name, along, self.known(kind)):
                yield affected

    def _seen(self, result: _Result, bug: int) -> Seen:
        if result.flaky:
            return Seen.FLAKY
        if result.bug == bug:
            return Seen.HERE
        return seen_of(result.verdict, result.stage, self._examples[bug].verdict)

    def history(self, bug: int) -> dict[HistoryPlace, bool]:
        """Where the bug was looked for, and whether it was there, at the places that ever had it.

        One config that fails answers for a kernel; that it works is said by all that ever failed.
        For ptxas, what another Triton generated is another program, and no answer.
        """
        fails: dict[HistoryPlace, bool] = {}
        tool = self._at_fault(bug)
        for place in self._places[bug]:
            results = self._results[place]
            had = {result.triton for result in results if result.bug == bug}
            for result in results:
                seen = self._seen(result, bug)
                version = result.ptxas if tool == _PTXAS else result.triton
                is_one = tool != _PTXAS or result.triton in had
                if version and is_one and seen in (Seen.HERE, Seen.CLEAN):
                    at = HistoryPlace(tool, version, result.flags, place.rpartition("@")[2])
                    fails[at] = fails.get(at, False) or seen is Seen.HERE
        return fails

    def _sightings(self, bug: int, line_of: _LineOf) -> list[tuple[int, Sighting]]:
        """What the results on the lines that ever had the bug say of it, each with its run."""
        lines: dict[_Line, list[tuple[str, _Result]]] = defaultdict(list)
        had: dict[_Line, bool] = {}
        for place in self._places[bug]:
            asked_lines: set[_Line] = set()
            for result in self._results[place]:
                at = line_of(result, place)
                if at is None:
                    continue
                lines[at[0]].append((at[1], result))
                asked_lines |= {at[0]} if result.is_asked else set()
                if result.bug == bug:
                    had[at[0]] = False
            had.update(dict.fromkeys(asked_lines & had.keys(), True))
        is_any = any(had.values())
        return [
            (
                result.run,
                Sighting(
                    line=line,
                    version=version,
                    seen=self._seen(result, bug),
                    compiled=result.compiled,
                    counts=is_asked or not is_any,
                    verdict=result.verdict,
                    reason=result.reason,
                ),
            )
            for line, is_asked in had.items()
            for version, result in lines[line]
        ]


_LineOf: TypeAlias = Callable[[_Result, str], "tuple[_Line, str] | None"]
_AT_OR_AFTER_PTXAS = (Stage.CUBIN, Stage.LAUNCH, Stage.RUN)


_ANSWERS = {
    Seen.HERE: VerdictAnswer.SAME,
    Seen.FLAKY: VerdictAnswer.SAME,
    Seen.CLEAN: VerdictAnswer.OK,
    Seen.OTHER: VerdictAnswer.OTHER,
    Seen.UNTOLD: VerdictAnswer.UNTESTABLE,
}
_SEEN = {
    VerdictAnswer.OK: Seen.CLEAN,
    VerdictAnswer.OTHER: Seen.OTHER,
    VerdictAnswer.UNTESTABLE: Seen.UNTOLD,
    VerdictAnswer.INFRA: Seen.UNTOLD,
}
_ORDER = (Seen.HERE, Seen.FLAKY, Seen.CLEAN, Seen.OTHER, Seen.UNTOLD)
_NOT_EVERYWHERE = "works in some cells, and others that have it before and after were not tried"


@cache
def seen_of(verdict: VerdictKind, stage: str | None, followed: VerdictKind) -> Seen:
    """What a result that does not have the bug says of it; `followed` is the bug's verdict."""
    answer = answer_of(verdict, stage=stage, signature=None, followed=None, followed_kind=followed)
    return _SEEN[answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    versions: tuple[str, ...]
    finding: Finding
    has_all: bool
    shown: Mapping[str, Sighting]

    def reason_of(self, index: int) -> str:
        return self.shown[self.versions[index]].reason

    def is_clean_end(self, index: int) -> bool:
        kind = self.shown[self.versions[index]].verdict
        return kind not in LIMITS_OF_OURS and kind not in (VerdictKind.INFRA, VerdictKind.NOT_RUN)


def affected_range(
    tool: str, results: Iterable[Sighting], known: Collection[str]
) -> AffectedRange | None:
    """What the results on the lines that ever had a bug say, oldest first; None where none had it.

    `tool` is its name for people, `known` are the versions that exist, tried or not; none where
    that is not known.
    """
    last: dict[_Line, dict[str, Sighting]] = defaultdict(dict)
    ever: set[str] = set()
    for result in results:
        here = result.seen in (Seen.HERE, Seen.FLAKY)
        ever |= {result.version} if here else set()
        # The last result that tells anything counts.
        if result.seen is not Seen.UNTOLD or result.version not in last[result.line]:
            last[result.line][result.version] = result
    if not ever:
        return None
    versions_tried = {version for line in last.values() for version in line}
    versions = tuple(sorted({*versions_tried, *known}, key=version_order))
    shown = {version: _shown(version, list(last.values())) for version in versions_tried}
    probes = {
        index: Probe(outcome=_ANSWERS[shown[version].seen])
        for index, version in enumerate(versions)
        if version in shown
    }
    finding = conclude(len(versions), probes)
    bounds = _Bounds(versions=versions, finding=finding, has_all=bool(known), shown=shown)
    marks = tuple(
        VersionMark(
            version=version,
            seen=shown[version].seen,
            counts=Counter(line[version].seen for line in last.values() if version in line),
        )
        for version in versions
        if version in shown
    )
    return _range(tool, bounds, marks, sorted(ever, key=version_order), list(last.values()))


def _shown(version: str, lines: Sequence[Mapping[str, Sighting]]) -> Sighting:
    there = [line[version] for line in lines if version in line]
    best = min(there, key=lambda result: _ORDER.index(result.seen))
    if best.seen is not Seen.CLEAN or any(
        line[version].seen is Seen.CLEAN and _surrounds(line, version)
        for line in lines
        if version in line
    ):
        return best
    if any(version not in line and _surrounds(line, version) for line in lines):
        return replace(best, seen=Seen.UNTOLD, reason=_NOT_EVERYWHERE)
    return best


def _surrounds(line: Mapping[str, Sighting], version: str) -> bool:
    at = version_order(version)
    bad = [version_order(v) for v, result in line.items() if result.seen in (Seen.HERE, Seen.FLAKY)]
    return bool(bad) and min(bad) < at < max(bad)


def _range(
    tool: str,
    bounds: _Bounds,
    marks: tuple[VersionMark, ...],
    ever: Sequence[str],
    lines: Sequence[Mapping[str, Sighting]],
) -> AffectedRange:
    finding, versions = bounds.finding, bounds.versions
    if finding.newest_bad is None or finding.oldest_bad is None:
        span = ever[0] if len(ever) == 1 else f"{ever[0]} to {ever[-1]}"
        return AffectedRange(
            tool=tool,
            last_good=None,
            first_bad=ever[0],
            last_bad=ever[-1],
            first_fixed=None,
            words=f"Seen with {tool} {span}; by its last result, no cell has it any more.",
            short=f"{tool} {span}, no longer",
            marks=marks,
        )
    begun, fixed = finding.regression, finding.fix
    first, last = _ends(bounds)
    between = [bound for bound in (begun, fixed) if bound]
    low, high = finding.oldest_bad, finding.newest_bad
    clean = [
        index
        for index in range(low + 1, high)
        if versions[index] in bounds.shown and bounds.shown[versions[index]].seen is Seen.CLEAN
    ]
    return AffectedRange(
        tool=tool,
        last_good=versions[begun.before] if begun else None,
        first_bad=first,
        last_bad=last,
        first_fixed=versions[fixed.after] if fixed else None,
        first_bad_candidates=_candidates(bounds, begun),
        first_fixed_candidates=_candidates(bounds, fixed),
        clean_between=tuple(versions[index] for index in clean),
        untestable=tuple(versions[i] for i in sorted({i for b in between for i in b.holes})),
        not_tried=tuple(versions[i] for i in sorted({i for b in between for i in b.unprobed})),
        words=" ".join(_words(tool, bounds, lines, listed(bounds, clean))),
        short=_short(tool, bounds),
        marks=marks,
    )


def _candidates(bounds: _Bounds, boundary: Boundary | None) -> tuple[str, ...]:
    return tuple(bounds.versions[i] for i in boundary.candidates) if boundary else ()


def _words(
    tool: str, bounds: _Bounds, lines: Sequence[Mapping[str, Sighting]], between: str
) -> list[str]:
    finding, versions = bounds.finding, bounds.versions
    parts = bounds_said(bounds, tool)
    if finding.came_back:
        parts.append(f"It failed, worked, and failed again: without it between: {between}.")
    if finding.fix:
        since = version_order(versions[finding.fix.after])
        there = sum(any(version_order(v) >= since for v in line) for line in lines)
        if there < len(lines):
            parts.append(f"{there} of {len(lines)} cells that had it were tried from there on.")
    if finding.unprobed:
        count = len(finding.unprobed)
        parts.append(f"{count} version{'s were' if count > 1 else ' was'} not tried.")
    return parts


def _ends(bounds: _Bounds) -> tuple[str, str]:
    finding, versions = bounds.finding, bounds.versions
    assert finding.oldest_bad is not None
    assert finding.newest_bad is not None
    begun, fixed = finding.regression, finding.fix
    first = versions[begun.after if begun else finding.oldest_bad]
    return first, versions[fixed.before if fixed else finding.newest_bad]


def _short(tool: str, bounds: _Bounds) -> str:
    finding, versions = bounds.finding, bounds.versions
    begun, fixed = finding.regression, finding.fix
    first, last = _ends(bounds)
    if begun is None and fixed is None and first == last:
        return f"{tool} {first}"
    since = f"since {first}" if begun and begun.exact else f"from {first}"
    if fixed:
        until = f" until {last}" if fixed.exact else f" to {last}, not in {versions[fixed.after]}"
    elif finding.newest_bad == len(versions) - 1 and bounds.has_all:
        until = ", in the newest" if first == last else f" to the newest, {last}"
    else:
        until = "" if first == last else f", last seen in {last}"
    return f"{tool} {since}{until}"


_SHOWN = 3
_ALIKE = 0.75
_WORDS = {True: "fails", False: "works"}


class HistoryPlace(NamedTuple):
    """Where a bug was looked for."""

    tool: str
    version: str
    flags: str
    target: str

    @property
    def words(self) -> str:
        """As a user would name it."""
        flags = f" {self.flags}" if self.flags else ""
        return f"{self.tool} {self.version}{flags} for {self.target}"


def compare_histories(
    one: tuple[int, Mapping[HistoryPlace, bool]], other: tuple[int, Mapping[HistoryPlace, bool]]
) -> Likeness:
    """Compare two bugs (number, and whether each place has it); said of the second one."""
    (number, mine), (others_number, theirs) = one, other
    shared = sorted(
        mine.keys() & theirs.keys(),
        key=lambda place: (place.tool, place.target, place.flags, version_order(place.version)),
    )
    differ = [place for place in shared if mine[place] is not theirs[place]]
    if differ:
        places = ", ".join(
            f"{place.words} (bug {number} {_WORDS[mine[place]]}, "
            f"bug {others_number} {_WORDS[theirs[place]]})"
            for place in differ[:_SHOWN]
        )
        more = f" and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
        words = f"are different: histories differ in {places}{more}"
        return Likeness(number=others_number, agrees=False, words=words)
    failing = [place for place in shared if mine[place]]
    working = [place for place in shared if not mine[place]]
    if failing and working:
        words = (
            f"may be the same: histories agree (both fail with {_listed(failing)}; "
            f"both work with {_listed(working)})"
        )
        return Likeness(number=others_number, agrees=True, words=words)
    failures = f"both fail with {_listed(failing)}" if failing else "no version was tried with both"
    words = f"cannot be distinguished yet: {failures}; run `triage bisect` on each"
    return Likeness(number=others_number, agrees=None, words=words)


def _listed(places: Sequence[HistoryPlace]) -> str:
    words = [place.words for place in places]
    if len(words) <= _SHOWN:
        return ", ".join(words)
    return f"{words[0]}, ..., {words[-1]} ({len(words)} places)"


def related(bugs: Mapping[int, tuple[tuple[str | None, ...], str]]) -> dict[int, tuple[int, ...]]:
    """For each bug those that look alike: number -> (what must be equal, template).

    For people to look at: only equal signatures are merged.
    """
    groups: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for number, (kind, _) in bugs.items():
        groups[kind].append(number)
    relatives: dict[int, list[int]] = {number: [] for number in bugs}
    for members in groups.values():
        for index, bug in enumerate(members):
            # Its second text is what a matcher prepares for.
            matcher = SequenceMatcher(b=bugs[bug][1], autojunk=False)
            for relative in members[index + 1 :]:
                matcher.set_seq1(bugs[relative][1])
                if matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE:
                    relatives[bug].append(relative)
                    relatives[relative].append(bug)
    return {number: tuple(sorted(others)) for number, others in relatives.items()}


def stretches(rows: Iterable[Row], condition: Condition) -> list[list[Row]]:
    """Where the condition holds, without a gap; `rows` are ordered as `triage history` has them.

    Each is of one kernel, launch, target and config: its toolchains, one after the other.
    """
    followed = FollowedFailure(condition=condition)
    return [
        list(group)
        for (*_, outcome), group in groupby(
            rows,
            key=lambda row: (
                *(row.kernel, row.launch, row.target),
                row.config_label,
                followed.of(row),
            ),
        )
        if outcome is VerdictAnswer.SAME
    ]


def stretch_words(rows: Sequence[Row], condition: Condition) -> str:
    """From which toolchain to which the condition holds, with the numbers."""
    ends = dict.fromkeys((toolchain_of(rows[0]), toolchain_of(rows[-1])))
    numbers = measured(FollowedFailure(condition=condition).fields, rows)
    count = f" ({len(rows)} cells)" if len(rows) > 1 else ""
    words = f"{spell(condition)} holds with {' to '.join(ends)}{count}"
    return f"{words}: {numbers}" if numbers else words


def held_at(
    results: Iterable[tuple[Occasion, BugFacts, Row]],
    condition: Condition,
    known: Callable[[str], Sequence[str]],
) -> list[tuple[Bug, str]]:
    """Each kernel and target for which it ever held, by name: when and where, as of a bug.

    With the numbers of each cell's last row.

    `results` are the run, the facts and the row of each result, oldest run first; `known` as in
    `BugHistory`.
    """
    followed = FollowedFailure(condition=condition)
    history = BugHistory(known=known)
    numbers: dict[tuple[str, str], int] = {}
    rows: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for run, facts, row in results:
        number = None
        if followed.of(row) is VerdictAnswer.SAME:
            at = row.kernel, row.target
            number = numbers.setdefault(at, len(numbers))
            rows[at][row.cell] = row
        history.add(run, facts, number)
    stories = history.stories()
    return [
        (stories[number], measured(followed.fields, list(rows[at].values())))
        for at, number in sorted(numbers.items())
    ]
