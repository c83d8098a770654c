"""Bugs from results: failures with one signature are one bug, with its state.

A bug lives at *places* (kernel, launch, config, target). At each, what counts is the newest
version of the tool at fault that gave an answer: the *head* of its line. A bug that is in ptxas
13.1 and not in 13.3 is fixed, however often 13.1 is run again; one that 13.4 has again has
regressed. A version that gives no answer moves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import NamedTuple, TypeAlias

from packaging.version import Version

from harness.bugs.histories import HistoryPlace
from harness.judging.answers import COULD_NOT_TELL, works
from harness.packages.versions import version_order
from harness.values.bug import AffectedRange, BugFacts, MachineState, Seen, Sighting
from harness.values.toolchain import BUNDLED, EMULATOR, TRITON, assembler_name, compiler_name
from harness.values.verdict import Stage, VerdictKind

__all__ = ["CLEAN_NIGHTS", "Chronicle", "Lifecycle", "Story", "lifecycle", "related"]

CLEAN_NIGHTS = 3
"""Whole nights in a row without a bug after which it counts as fixed."""

_ALIKE = 0.75
_UNTOLD = frozenset(kind.value for kind in COULD_NOT_TELL)
_FIXED = (MachineState.FIXED_CANDIDATE, MachineState.FIXED_VERIFIED)
_WRONG = VerdictKind.WRONG_RESULT.value
_PTXAS, _TRITON = "ptxas", "Triton"
_Line: TypeAlias = tuple[str, ...]


# --- the life of one bug ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """What the nights say: see `MachineState`, and `Bug` for the rest."""

    machine: MachineState
    first_seen: int
    last_seen: int
    compiled: int
    clean_nights: int


def lifecycle(
    nights: Iterable[tuple[int, Sequence[Sighting]]], *, clean_nights: int = CLEAN_NIGHTS
) -> Lifecycle | None:
    """Follow one bug from night to night, oldest first; None if no night has seen it."""
    life = _Life(wanted=clean_nights)
    for run, sightings in nights:
        life.add(run, sightings)
    if life.state is None:
        return None
    return Lifecycle(
        machine=life.state,
        first_seen=life.seen_in[0],
        last_seen=life.seen_in[-1],
        compiled=max(life.compiled.values(), default=0),
        clean_nights=life.clean,
    )


@dataclass(slots=True)
class _Life:
    wanted: int
    state: MachineState | None = None
    clean: int = 0
    was_fixed: bool = False
    seen_in: list[int] = field(default_factory=list)
    compiled: Counter[tuple[object, ...]] = field(default_factory=Counter)
    heads: dict[_Line, tuple[tuple[int, Version, str], Seen]] = field(default_factory=dict)

    def add(self, run: int, sightings: Sequence[Sighting]) -> None:
        reproduced = self._is_reproduced()
        tried = self._advance(sightings)
        here = [each for each in sightings if each.seen in (Seen.HERE, Seen.FLAKY)]
        if here:
            self.seen_in.append(run)
            for each in here:
                self.compiled[each.line, each.version] += each.compiled
        if not self.seen_in or not (tried or here):
            return
        standing = {seen for _, seen in self.heads.values()}
        if Seen.HERE in standing:
            self._broken(MachineState.REGRESSED if self.was_fixed else self._age(reproduced))
        elif Seen.FLAKY in standing:
            self._broken(MachineState.FLAKY)
        elif Seen.OTHER in standing:
            self._broken(MachineState.MUTATED)
        elif Seen.UNTOLD in standing:
            self.state = MachineState.UNTESTABLE
        else:
            self._found_clean(whole=tried == self.heads.keys())

    def _advance(self, sightings: Sequence[Sighting]) -> set[_Line]:
        """Move the heads; return the lines whose head this night has tried."""
        tried = set()
        for each in sorted(sightings, key=lambda each: version_order(each.version)):
            place = version_order(each.version)
            head = self.heads.get(each.line)
            newer = head is None or place > head[0]
            if newer and each.seen is Seen.UNTOLD:
                continue
            if head is None or place >= head[0]:
                self.heads[each.line] = place, each.seen
                tried.add(each.line)
        return tried

    def _broken(self, state: MachineState) -> None:
        self.state, self.clean = state, 0

    def _found_clean(self, *, whole: bool) -> None:
        if whole:
            self.clean += 1
            self.was_fixed = True
            verified = self.clean >= self.wanted
            self.state = _FIXED[verified]
        elif self.state not in _FIXED:
            self.state = MachineState.ABSENT

    def _is_reproduced(self) -> bool:
        return max(self.compiled.values(), default=0) > 1

    def _age(self, reproduced: bool) -> MachineState:  # noqa: FBT001 - what was so before
        if not reproduced and self._is_reproduced():
            return MachineState.CONFIRMED
        return MachineState.NEW if len(self.seen_in) == 1 else MachineState.PRESENT


# --- all bugs from all results ----------------------------------------------------------------


class _Result(NamedTuple):
    """One result, as little of it as bugs need; a hundred thousand are held at a time."""

    run: int
    triton: str | None
    ptxas: str | None
    bundled: bool
    frozen: bool
    works: bool
    is_conclusive: bool
    is_compared: bool
    bug: int | None
    flaky: bool
    compiled: int
    flags: str

    def seen(self, bug: int, *, compares: bool) -> Seen:
        """`compares`: the bug is a wrong result, which only a comparison shows, or rules out."""
        if self.flaky:
            return Seen.FLAKY
        if self.bug == bug:
            return Seen.HERE
        if self.works and compares and not self.is_compared:
            return Seen.UNTOLD
        if self.works:
            return Seen.CLEAN
        return Seen.OTHER if self.is_conclusive else Seen.UNTOLD

    def on(self, tool: str, place: str) -> tuple[_Line, str] | None:
        """The line that differs in this tool's version only, and that version."""
        frozen = "frozen" if self.frozen else ""
        if tool == _PTXAS:
            # A Triton bundles one ptxas: on this axis that cell has no neighbours.
            line = (place, self.triton or "", frozen, self.flags)
            # Nor has what the emulator executes, unless nothing else distinguishes them.
            is_apart = self.bundled or (self.ptxas == EMULATOR and self.triton)
            return None if is_apart or self.ptxas is None else (line, self.ptxas)
        if self.triton is None:
            return None
        tool = BUNDLED if self.bundled else self.ptxas or ""
        return (place, tool, frozen, self.flags), self.triton


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that the results say of one bug; see `Bug`."""

    life: Lifecycle
    cells: int
    cells_now: int
    kernels: Mapping[str, int]
    targets: tuple[str, ...]
    ranges: tuple[AffectedRange, ...]
    example: BugFacts
    history: Mapping[HistoryPlace, bool]


@dataclass(slots=True)
class Chronicle:
    """Takes in every result of every run, oldest run first, and tells the story of each bug."""

    _results: dict[str, list[_Result]] = field(default_factory=lambda: defaultdict(list))
    _places: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    _cells: dict[int, dict[str, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    _last: dict[str, int | None] = field(default_factory=dict)
    _examples: dict[int, BugFacts] = field(default_factory=dict)
    _assemblers: dict[int, str] = field(default_factory=dict)
    _words: dict[str, str] = field(default_factory=dict)
    _runs: dict[int, int] = field(default_factory=dict)

    def add(self, run: int, facts: BugFacts, bug: int | None) -> None:
        """One result; `bug` is the number of the bug with its signature, None where it has none."""
        self._runs.setdefault(run, len(self._runs))
        once = self._words.setdefault
        place = facts.place
        place = once(place, place)
        flags = facts.flags
        result = _Result(
            run=run,
            triton=facts.compiler_version and once(facts.compiler_version, facts.compiler_version),
            ptxas=facts.ptxas and once(facts.ptxas, facts.ptxas),
            bundled=facts.ptxas_origin == BUNDLED,
            frozen=facts.frozen,
            works=works(VerdictKind(facts.verdict), facts.stage),
            is_conclusive=facts.verdict not in _UNTOLD,
            is_compared=facts.verdict != VerdictKind.RAN.value,
            bug=bug,
            flaky=facts.is_flaky,
            compiled=0 if facts.cached else facts.attempts,
            # A cell of which the flags of ptxas were changed has the change in its name.
            flags=once(flags, flags),
        )
        self._results[place].append(result)
        if bug is not None:
            self._places[bug][place] = None
            self._cells[bug][facts.cell] = facts.kernel, facts.target
            self._examples[bug] = facts
            if facts.ptxas:
                self._assemblers[bug] = facts.assembler
            self._last[facts.cell] = bug
        elif (last := self._last.get(facts.cell)) is not None and self._tells(result, last):
            self._last[facts.cell] = None

    def stories(self, *, clean_nights: int = CLEAN_NIGHTS) -> dict[int, Story]:
        """The story of each bug that any result has, by number."""
        return {bug: self._story(bug, clean_nights) for bug in self._places}

    def _story(self, bug: int, clean_nights: int) -> Story:
        example = self._examples[bug]
        life = lifecycle(self._nights(bug, _tool_at_fault(example)), clean_nights=clean_nights)
        assert life is not None, "a bug has a result that has it"
        cells = self._cells[bug]
        ranges = (self._range(bug, tool) for tool in (_TRITON, _PTXAS))
        names = {
            _TRITON: compiler_name(example.compiler or TRITON),
            _PTXAS: assembler_name(self._assemblers.get(bug, example.assembler)),
        }
        return Story(
            life=life,
            cells=len(cells),
            cells_now=sum(self._last.get(cell) == bug for cell in cells),
            kernels=dict(sorted(Counter(kernel for kernel, _ in cells.values()).items())),
            targets=tuple(sorted({target for _, target in cells.values()})),
            ranges=tuple(replace(each, tool=names[each.tool]) for each in ranges if each),
            example=example,
            history=self._history(bug, _tool_at_fault(example)),
        )

    def _tells(self, result: _Result, bug: int) -> bool:
        return result.is_conclusive and self._seen(result, bug) is not Seen.UNTOLD

    def _seen(self, result: _Result, bug: int) -> Seen:
        return result.seen(bug, compares=self._examples[bug].verdict == _WRONG)

    def _history(self, bug: int, tool: str) -> dict[HistoryPlace, bool]:
        """Where the bug was looked for, and whether it was there, at the places that ever had it.

        One config that fails answers for a kernel; that it works is said by all that ever failed.
        For ptxas, what another Triton generated is another program, and no answer.
        """
        found: dict[HistoryPlace, bool] = {}
        for place in self._places[bug]:
            results = self._results[place]
            had = {result.triton for result in results if result.bug == bug}
            for result in results:
                seen = self._seen(result, bug)
                version = result.ptxas if tool == _PTXAS else result.triton
                is_one = tool != _PTXAS or result.triton in had
                if version and is_one and seen in (Seen.HERE, Seen.CLEAN):
                    at = HistoryPlace(tool, version, result.flags, place.rpartition("@")[2])
                    found[at] = found.get(at, False) or seen is Seen.HERE
        return found

    def _nights(self, bug: int, tool: str) -> list[tuple[int, list[Sighting]]]:
        """What each run says of the bug, on the lines that ever had it."""
        nights: dict[int, list[Sighting]] = {}
        for place in self._places[bug]:
            for line, results in self._lines(bug, tool, place).items():
                for version, result in results:
                    nights.setdefault(result.run, []).append(
                        Sighting(
                            line=line,
                            version=version,
                            seen=self._seen(result, bug),
                            compiled=result.compiled,
                        )
                    )
        return sorted(nights.items(), key=lambda night: self._runs[night[0]])

    def _lines(self, bug: int, tool: str, place: str) -> dict[_Line, list[tuple[str, _Result]]]:
        """The lines of one place that ever had the bug."""
        lines: dict[_Line, list[tuple[str, _Result]]] = {}
        had = set()
        for result in self._results[place]:
            # Without neighbours on this axis, a cell is compared with those on the other one.
            found = result.on(tool, place) or result.on(_TRITON, place) or result.on(_PTXAS, place)
            assert found is not None
            lines.setdefault(found[0], []).append((found[1], result))
            if result.bug == bug:
                had.add(found[0])
        return {line: results for line, results in lines.items() if line in had}

    def _range(self, bug: int, tool: str) -> AffectedRange | None:
        """Which versions of the tool have it; the last answer counts for those without it."""
        bad: set[str] = set()
        by_version: dict[str, set[Seen]] = defaultdict(set)
        for place in self._places[bug]:
            lines: dict[_Line, dict[str, Seen]] = defaultdict(dict)
            had = set()
            for result in self._results[place]:
                found = result.on(tool, place)
                if found is None:
                    continue
                line, version = found
                if version == EMULATOR:
                    continue
                if result.bug == bug:
                    had.add(line)
                    bad.add(version)
                elif self._seen(result, bug) is not Seen.UNTOLD or version not in lines[line]:
                    lines[line][version] = self._seen(result, bug)
            for line in had:
                for version, seen in lines[line].items():
                    by_version[version].add(seen)
        return _affected(tool, bad, by_version) if bad else None


def _tool_at_fault(facts: BugFacts) -> str:
    """Whose versions to follow: what only ptxas saw may be its doing."""
    return _PTXAS if facts.stage == Stage.CUBIN.value or facts.compiler is None else _TRITON


def _affected(tool: str, bad: set[str], by_version: Mapping[str, set[Seen]]) -> AffectedRange:
    ends = sorted(bad, key=version_order)
    first, last = ends[0], ends[-1]
    clean = (v for v, seen in by_version.items() if Seen.CLEAN in seen and v not in bad)
    good = sorted(clean, key=version_order)
    before = [version for version in good if version_order(version) < version_order(first)]
    after = [version for version in good if version_order(version) > version_order(last)]
    low = version_order(before[-1] if before else first)
    high = version_order(after[0] if after else last)
    holes = [v for v, seen in by_version.items() if seen == {Seen.UNTOLD} and v not in bad]
    return AffectedRange(
        tool=tool,
        last_good=before[-1] if before else None,
        first_bad=first,
        last_bad=last,
        first_fixed=after[0] if after else None,
        clean_between=tuple(
            v for v in good if version_order(first) < version_order(v) < version_order(last)
        ),
        untestable=tuple(
            sorted((v for v in holes if low < version_order(v) < high), key=version_order)
        ),
    )


def related(bugs: Mapping[int, tuple[tuple[str | None, ...], str]]) -> dict[int, tuple[int, ...]]:
    """For each bug those that look alike: number -> (what must be equal, template).

    For people to look at: only equal signatures are merged.
    """
    groups: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for number, (kind, _) in bugs.items():
        groups[kind].append(number)
    found: dict[int, list[int]] = {number: [] for number in bugs}
    for members in groups.values():
        for index, one in enumerate(members):
            # Its second text is what a matcher prepares for.
            matcher = SequenceMatcher(b=bugs[one][1], autojunk=False)
            for other in members[index + 1 :]:
                matcher.set_seq1(bugs[other][1])
                if matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE:
                    found[one].append(other)
                    found[other].append(one)
    return {number: tuple(sorted(others)) for number, others in found.items()}
