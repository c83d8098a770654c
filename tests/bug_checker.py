"""What `triage bugs` says of a bug, computed from rows once more, by somebody simple-minded.

Each sentence is read back and each claim in it is looked for among the rows: no bisection, no
segments; of `harness` only what it says, and which bug a failure belongs to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec
from packaging.version import Version

from harness.bugs.bug_words import bug_said
from harness.bugs.list import list_bugs
from harness.frontends.registry import known_versions
from harness.site.overview import mark_said
from harness.store.bug_identity import bug_key
from harness.store.bugs import read_numbers, read_signatures
from harness.store.store import Store
from harness.tables.said import Block, SaidFacts, SaidLine
from harness.values.bug import Bug
from harness.values.row import BugFacts
from harness.values.toolchain import assembler_name, compiler_name

BAD, GOOD, OTHER, HOLE = "bad", "good", "other", "hole"
_HOLES = {"unsupported", "infra", "not_run", "timeout", "out_of_memory"}
_LIMITS = {"timeout", "out_of_memory", "infra", "not_run"}
_WELL = {"ok", "right", "as_interpreted", "consistent", "ran", "sick"}
_BEFORE_PTXAS = {"capture", "ttir", "ttgir", "llir", "ptx"}
_NEXT = r"(?= Untestable| Not tried| It failed| \d+ |$)"
_FIRST_SEEN = (
    r"First seen: (.+?)\. No older one that was tried works: (\S+) ends with: (.*?)\."
    r"(?= (?:First fixed|Still present|Gone from))"
)
_NEWEST_TESTABLE = (
    r"Still present in (\S+), the newest testable ?(?:\S+)?; (\S+) ends with: (.*?)\." + _NEXT
)
_WORKS_AGAIN = r"Gone from (.+?) on, which ends with: (.*?); works again from (.+?) on\." + _NEXT
_GONE = r"Gone from (.+?) on, which ends with: ((?:(?!; works again from).)*?)\." + _NEXT
_AGAIN = r"It failed, worked, and failed again: without it between: (.+?)\.(?= |$)"


@dataclass(frozen=True)
class Result:
    """One result, oldest run first; `bug` is the number of its bug."""

    night: float | None
    facts: BugFacts
    bug: int | None


def answer(result: Result, bug: int, kind: str) -> str:
    """What one result says of a bug of this kind."""
    facts = result.facts
    if result.bug == bug or facts.is_flaky:
        return BAD
    if facts.verdict in _HOLES or (facts.verdict == "ran" and kind == "wrong_result"):
        return HOLE
    is_gone = facts.verdict == "sick" and facts.stage in _BEFORE_PTXAS
    return GOOD if facts.verdict in _WELL and not is_gone else OTHER


def line_of(facts: BugFacts, tool: str) -> tuple[object, str] | None:
    """All but the version of one tool, and that version; None where it has no such version."""
    place, _, assembler = facts.cell.rsplit("/", 2)
    flags = assembler.partition(",")[2]
    beside = (place, flags, facts.frozen)
    if tool == "ptxas":
        is_emulated = facts.ptxas == "emulator"
        if facts.ptxas is None or facts.ptxas_origin == "bundled" or is_emulated:
            return None
        return (*beside, facts.compiler_version or facts.ptx_body_sha256), facts.ptxas
    if facts.compiler_version is None:
        return None
    assembled = "bundled" if facts.ptxas_origin == "bundled" else facts.ptxas
    return (*beside, assembled), facts.compiler_version


def file_of(file: str | None, labels: Collection[str]) -> str | None:
    """One name for all files that lie at one place, or have one text, whatever lies between."""
    parts, size = set((file or "").split(":")), 0
    while len(parts) > size:
        size = len(parts)
        parts |= {
            part for label in labels if parts & {*label.split(":")} for part in label.split(":")
        }
    return min((label for label in labels if parts & {*label.split(":")}), default=None)


def lines_of(results: Iterable[Result], bug: int, tool: str) -> list[dict[str, Result]]:
    """The last result that says anything, by version, on each line that counts."""
    results = list(results)
    kind = next(each.facts.verdict for each in results if each.bug == bug)
    on: dict[object, list[tuple[str, Result]]] = defaultdict(list)
    labels = {(each.facts.kernel, each.facts.file) for each in results if each.facts.file}
    for each in results:
        if at := line_of(each.facts, tool):
            line = at[0], file_of(each.facts.file, {f for k, f in labels if k == each.facts.kernel})
            on[line].append((at[1], each))
    had = {line: found for line, found in on.items() if any(r.bug == bug for _, r in found)}
    asked = {
        line: found
        for line, found in had.items()
        if any(not r.facts.flags and r.facts.probe_of is None for _, r in found)
    }
    lines = []
    for found in (asked or had).values():
        last: dict[str, Result] = {}
        for version, each in found:
            if version not in last or answer(each, bug, kind) != HOLE:
                last[version] = each
        lines.append(last)
    return lines


def check_store(store: Store) -> list[Bug]:
    """Every sentence that `triage bugs` says of a store, against its rows; returns the bugs."""
    bugs = list_bugs(store)
    numbers, signatures = store.database.run(read_numbers), store.database.run(read_signatures)
    results = []
    for run in sorted(store.runs(limit=10_000), key=lambda each: (each.started, each.id)):
        night = run.started if run.command.startswith("triage matrix run") else None
        for stored in store.run_bodies(run.id):
            facts = msgspec.json.decode(stored.row, type=BugFacts)
            is_bug = facts.verdict not in _WELL | {"unsupported", "infra", "not_run"}
            key = bug_key(facts, signatures.get(facts.signature or "")) if is_bug else None
            results.append(Result(night, facts, numbers.get(key or "")))
    for bug in bugs:
        kinds = {bug.example.compiler, bug.example.assembler} - {None}
        for found in bug.ranges:
            known = next((known_versions(str(k)) for k in kinds if _names(str(k), found.tool)), ())
            check_range(found.words, found.tool, known, results, bug.record.number)
        shown = " ".join(block_text(each) for each in bug_said(bug))
        assert all(found.words in shown for found in bug.ranges)
        for found in bug.ranges:
            ends = {mark.version: mark_said(mark, found)[3] for mark in found.marks}
            assert "first bad" in ends[found.first_bad]
    return bugs


def _names(kind: str, tool: str) -> bool:
    return tool in (compiler_name(kind), assembler_name(kind))


def block_text(block: Block) -> str:
    """All words of what a command says."""
    if isinstance(block, SaidFacts):
        return " ".join(f"{name} {line.text}" for name, line in block.facts)
    return block.text if isinstance(block, SaidLine) else ""


def check_range(
    words: str, tool: str, known: Collection[str], results: Iterable[Result], bug: int
) -> None:
    """Every claim of a sentence about the versions of a tool, against the rows."""
    results = list(results)
    example = next(each.facts for each in results if each.bug == bug)
    axis = "ptxas" if tool == assembler_name(example.assembler) else "compiler"
    lines = lines_of(results, bug, axis)
    kind = next(each.facts.verdict for each in results if each.bug == bug)
    said = [{v: answer(r, bug, kind) for v, r in line.items()} for line in lines]
    tried = sorted({v for line in said for v in line}, key=Version)
    every = sorted({*tried, *known}, key=Version)
    claims = _Claims(said, lines, tried, every, bool(known))
    text = words.replace(f"{tool} ", "")
    if match := re.fullmatch(
        r"Seen with (.+?)(?: to (.+?))?; by its last result, no cell has it any more\.", text
    ):
        assert all(claims.of(version) != BAD for version in tried)
        return
    left = text
    for pattern, check in claims.patterns():
        if match := re.match(pattern, left):
            check(*match.groups())
            left = left[match.end() :].lstrip()
    assert not left, f"nobody checks {left!r} of {words!r}"


@dataclass
class _Claims:
    said: list[dict[str, str]]
    lines: list[dict[str, Result]]
    tried: list[str]
    every: list[str]
    has_all: bool

    def of(self, version: str) -> str:
        """What a version says: any cell that has it decides, then any that works, ..."""
        there = [line[version] for line in self.said if version in line]
        for word in (BAD, GOOD, OTHER, HOLE):
            if word in there:
                return HOLE if word == GOOD and self._is_doubtful(version) else word
        return "untried"

    def _is_doubtful(self, version: str) -> bool:
        """Cells that have it before and after were not tried, and none that was has it so."""

        def around(line: Mapping[str, str]) -> bool:
            bad = [Version(each) for each, word in line.items() if word == BAD]
            return any(each < Version(version) for each in bad) and any(
                each > Version(version) for each in bad
            )

        is_shown = any(line.get(version) == GOOD and around(line) for line in self.said)
        is_open = any(version not in line and around(line) for line in self.said)
        return is_open and not is_shown

    def all_bad(self) -> list[str]:
        return [version for version in self.tried if self.of(version) == BAD]

    def between(self, low: str, high: str) -> list[str]:
        return [v for v in self.every if Version(low) < Version(v) < Version(high)]

    def change(self, before: str, after: str, listed: str) -> None:
        """`listed` are all versions at which it can have happened, between two that tell."""
        inside = self.between(before, after)
        assert not [v for v in inside if self.of(v) in (BAD, GOOD)]
        names = [*inside, after]
        if len(names) == 1:
            assert listed == after
        elif len(names) > 12:
            expected = f"any of {names[0]}, ..., {names[-1]} ({len(names)} versions)"
            assert listed == expected
        else:
            assert listed == "any of " + ", ".join(names)
        self.holes += [v for v in inside if self.of(v) in (HOLE, OTHER)]
        self.open += [v for v in inside if self.of(v) == "untried"]

    def patterns(self) -> list[tuple[str, Callable[..., None]]]:
        self.holes: list[str] = []
        self.open: list[str] = []
        self.stretch: tuple[str | None, str | None] = (None, None)
        return [
            (r"First bad: (.+?)\. Last good: (\S+)\.(?= |$)", self.first_bad),
            (r"Present in the oldest there is, (\S+)\.(?= |$)", self.oldest),
            (r"Present in the oldest that was tried, (\S+)\.(?= |$)", self.oldest_tried),
            (r"Present in the oldest testable ?(?:\S+)?, (\S+)\.(?= |$)", self.oldest_testable),
            (_FIRST_SEEN, self.first_seen),
            (r"First fixed: (.+?)\.(?= |$)", self.first_fixed),
            (r"Still present in the newest there is, (\S+)\.(?= |$)", self.newest),
            (r"Still present in the newest that was tried, (\S+)\.(?= |$)", self.newest_tried),
            (_NEWEST_TESTABLE, self.newest_testable),
            (_WORKS_AGAIN, self.works_again),
            (_GONE, self.gone),
            (r"Untestable between: (.+?)\.(?= |$)", self.untestable),
            (r"Not tried between: (.+?)\.(?= |$)", self.not_tried),
            (_AGAIN, self.again),
            (r"(\d+) of (\d+) cells that had it were tried from there on\.", self.reach),
            (r"(\d+) versions? (?:was|were) not tried\.", self.left),
        ]  # fmt: skip

    # --- where it begins

    def first_bad(self, listed: str, good: str) -> None:
        assert self.of(good) == GOOD
        later = [v for v in self.every if Version(v) > Version(good) and self.of(v) == BAD]
        self.change(good, later[0], listed)
        self.stretch = later[0], None

    def oldest(self, version: str) -> None:
        assert self.has_all
        assert self.every[0] == version
        assert self.of(version) == BAD

    def oldest_tried(self, version: str) -> None:
        assert self.tried[0] == version
        assert self.of(version) == BAD
        assert not self.has_all or self.every[0] != version

    def oldest_testable(self, version: str) -> None:
        assert self.all_bad()[0] == version
        older = self.tried[: self.tried.index(version)]
        assert older
        assert not [v for v in older if self.of(v) in (BAD, GOOD)]

    def first_seen(self, listed: str, older: str, reason: str) -> None:
        bad = self.all_bad()[0]
        below = self.tried[: self.tried.index(bad)]
        assert below[-1] == older
        assert not [v for v in below if self.of(v) in (BAD, GOOD)]
        self._ends_with(older, reason)
        assert listed.rsplit(maxsplit=1)[-1].strip(")") in (bad, "versions")

    def _ends_with(self, version: str, reason: str) -> None:
        there = [line[version].facts for line in self.lines if version in line]
        assert reason in {each.reason.rstrip(".") for each in there} or "not tried" in reason

    # --- where it ends

    def first_fixed(self, listed: str) -> None:
        works = [v for v in self.tried if self.of(v) == GOOD]
        newest = self.all_bad()[-1]
        fixed = next(v for v in works if Version(v) > Version(newest))
        self.change(newest, fixed, listed)
        self.fixed = fixed

    def newest(self, version: str) -> None:
        assert self.has_all
        assert self.every[-1] == version
        assert self.of(version) == BAD

    def newest_tried(self, version: str) -> None:
        assert self.tried[-1] == version
        assert self.of(version) == BAD
        assert not self.has_all or self.every[-1] != version

    def newest_testable(self, version: str, newer: str, reason: str) -> None:
        assert self.all_bad()[-1] == version
        above = self.tried[self.tried.index(version) + 1 :]
        assert above[0] == newer
        assert not [v for v in above if self.of(v) in (BAD, GOOD)]
        self._ends_with(newer, reason)

    def gone(self, listed: str, reason: str) -> None:
        newest = self.all_bad()[-1]
        above = self.tried[self.tried.index(newest) + 1 :]
        assert above
        assert not [v for v in above if self.of(v) in (BAD, GOOD)]
        self._ends_with(above[0], reason)
        assert listed.endswith((above[0], "versions)"))

    def works_again(self, listed: str, reason: str, fixed: str) -> None:
        """It turns into another failure, and that one ends."""
        newest = self.all_bad()[-1]
        above = self.tried[self.tried.index(newest) + 1 :]
        works = next(v for v in above if self.of(v) == GOOD)
        others = [v for v in above[: above.index(works)] if self.of(v) == OTHER]
        self.change(newest, others[0], listed)
        self.change(others[-1], works, fixed)
        self._ends_with(others[0], reason)
        self.fixed = works

    # --- what lies between

    def _list(self, listed: str, expected: list[str]) -> None:
        expected = sorted(set(expected), key=Version)
        if len(expected) > 12:
            names = f"{expected[0]}, ..., {expected[-1]} ({len(expected)} versions)"
            assert listed == names
        else:
            assert listed == (", ".join(expected) or "none")

    def untestable(self, listed: str) -> None:
        self._list(listed, self.holes)

    def not_tried(self, listed: str) -> None:
        self._list(listed, self.open)
        self.open = []

    def again(self, listed: str) -> None:
        bad = self.all_bad()
        works = [v for v in self.between(bad[0], bad[-1]) if self.of(v) == GOOD]
        assert works
        self._list(listed, works)

    def reach(self, there: str, every: str) -> None:
        since = Version(self.fixed)
        count = sum(any(Version(v) >= since for v in line) for line in self.said)
        assert (int(there), int(every)) == (count, len(self.said))
        assert count < len(self.said)

    def left(self, count: str) -> None:
        assert int(count) == len(self.every) - len(self.tried) > 0
