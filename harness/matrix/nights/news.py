"""What of a night is worth a message: one for each change that matters, none where nothing does.

What got worse matters, and what was fixed; a missing result says nothing, and what stayed the same
is not news.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from harness.cells.spelling import show_command
from harness.matrix.bugs.words import bug_title
from harness.matrix.diff.groups import group_changes
from harness.store.sqlite.records import RunRecord
from harness.values.bug import Bug, HumanState
from harness.values.change import ChangeKind, Changes
from harness.values.verdict import VerdictKind

_NEW_BUG = "new bug"
_DIGITS = 16
_LONGEST_TITLE = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One message; `cells` is how many it is of, `bug` the number of one that is new with it.

    `key` is the same for the same news of the same run, and different otherwise.
    """

    kind: str
    what: str
    where: str
    cells: int
    command: str
    run: int
    older: int | None
    key: str
    bug: int | None = None
    since: str | None = None
    issue: str | None = None

    @property
    def text(self) -> str:
        """All of it in a few lines, for people."""
        cells = f"{self.cells:,} cell" + ("s" if self.cells > 1 else "")
        more = [f"since {self.since}"] if self.since else []
        more += [f"bug {self.bug}"] if self.bug and self.kind != _NEW_BUG else []
        more += [self.issue] if self.issue else []
        words = f" ({', '.join(more)})" if more else ""
        return f"{self.kind}, {cells}: {self.what}{words}\n{self.where}\n{self.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An issue for a new bug, in Markdown, that is not filed."""

    bug: int
    title: str
    body: str


def news_of(
    run: RunRecord, older: RunRecord | None, changes: Changes | None, bugs: Sequence[Bug]
) -> list[News]:
    """The messages of a run, the gravest first.

    Args:
        run: the night.
        older: what it is compared with; None for the first of its kind.
        changes: what changed, None where there is nothing to compare with.
        bugs: all that are known; those that this run is the first to show are new.
    """
    new = [bug for bug in bugs if bug.first_seen == run.id]
    found: list[News] = []
    shown: set[int] = set()
    for group in group_changes(changes.changes) if changes else ():
        if not (group.kind.is_bad or group.kind in (ChangeKind.FIXED, ChangeKind.METRIC_BETTER)):
            continue
        failures = {
            (each.newer.signature, each.newer.kernel)
            for each in group.changes
            if each.newer and not VerdictKind(each.newer.verdict).compiles
        }
        bug = next(
            (bug for bug in new if (bug.example.signature, bug.example.kernel) in failures), None
        )
        shown |= {bug.record.number} if bug else set()
        found.append(
            News(
                kind=group.kind.value,
                what=group.what,
                where=group.where,
                cells=len(group.changes),
                command=group.command,
                run=run.id,
                older=older.id if older else None,
                key=_key(run, group.kind.value, group.what, group.where, group.since),
                bug=bug.record.number if bug else None,
                since=group.since,
                issue=group.issue,
            )
        )
    return found + [_new_bug(run, older, bug) for bug in new if bug.record.number not in shown]


def _new_bug(run: RunRecord, older: RunRecord | None, bug: Bug) -> News:
    number = bug.record.number
    return News(
        kind=_NEW_BUG,
        what=bug_title(bug),
        where=", ".join((*bug.kernels, *bug.targets)),
        cells=bug.cells_now,
        command=f"triage bugs show {number}",
        run=run.id,
        older=older.id if older else None,
        key=_key(run, _NEW_BUG, bug.record.key),
        bug=number,
    )


def _key(run: RunRecord, *words: str | None) -> str:
    text = "\0".join((run.uid, *(word or "" for word in words)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def drafts_of(run: RunRecord, bugs: Sequence[Bug]) -> list[Draft]:
    """An issue for each bug that this run is the first to show, and is untriaged."""
    return [
        draft_of(bug)
        for bug in bugs
        if bug.first_seen == run.id and bug.record.state is HumanState.UNTRIAGED
    ]


def draft_of(bug: Bug) -> Draft:
    """What results say of one bug, for the tracker of those who look after the matrix."""
    ranges = [f"- {each.tool}: {each.words}" for each in bug.ranges]
    example = bug.example
    # Indented, words of compilers and names of kernels are neither markup nor mentions of people.
    quoted = [
        *(f"{name}: {count:,} cells" for name, count in bug.kernels.items()),
        example.cell,
        *example.reason.splitlines(),
    ]
    lines = [
        f"Signature `{example.signature}`, seen on {', '.join(bug.targets)}.",
        f"{bug.cells_now:,} of {bug.cells:,} cells that ever showed it have it now.",
        "",
        *ranges,
        "",
        "Kernels, one of the cells, and what it says:",
        "",
        *(f"    {line}" for line in quoted),
        "",
        "```sh",
        f"triage bugs show {bug.record.number}",
        show_command(example.short, "log"),
        "```",
        "",
    ]
    return Draft(
        bug=bug.record.number, title=bug_title(bug)[:_LONGEST_TITLE], body="\n".join(lines)
    )
