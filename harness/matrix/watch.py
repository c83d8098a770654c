"""`triage watch`: what a night changed, sent where people read it, once each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.bugs.bug_words import bug_title
from harness.bugs.list import list_bugs, set_state
from harness.cells.spelling import show_command
from harness.diff.between_runs import last_night
from harness.diff.diff_words import group_changes
from harness.io.files.reading import read_regular
from harness.store.schema import RunRecord
from harness.store.store import Store
from harness.tables.summary import plural
from harness.values.bug import Bug, HumanState
from harness.values.change import ChangeKind, Changes
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError

# What of a night is worth a message: one for each change that matters, none where nothing does.
# What got worse matters, and what was fixed; a missing result says nothing, and what stayed the
# same is not news.

_NEW_BUG = "new bug"
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
    news: list[News] = []
    shown: set[int | None] = set()
    for group in group_changes(changes.changes) if changes else ():
        if not (group.kind.is_bad or group.kind in (ChangeKind.FIXED, ChangeKind.METRIC_BETTER)):
            continue
        failures = {
            (change.newer.signature, change.newer.kernel)
            for change in group.changes
            if change.newer and not change.newer.verdict.compiles
        }
        mine = (bug for bug in new if (bug.example.signature, bug.example.kernel) in failures)
        number = next((bug.record.number for bug in mine), None)
        shown.add(number)
        news.append(
            News(
                kind=group.kind.value,
                what=group.what,
                where=group.where,
                cells=len(group.changes),
                command=group.command,
                run=run.id,
                older=older.id if older else None,
                key=_key(run, group.kind.value, group.what, group.where, group.since),
                bug=number,
                since=group.since,
                issue=group.issue,
            )
        )
    return news + [
        News(
            kind=_NEW_BUG,
            what=bug_title(bug),
            where=", ".join((*bug.kernels, *bug.targets)),
            cells=bug.cells_now,
            command=f"triage bugs show {bug.record.number}",
            run=run.id,
            older=older.id if older else None,
            key=_key(run, _NEW_BUG, bug.record.key),
            bug=bug.record.number,
        )
        for bug in new
        if bug.record.number not in shown
    ]


def _key(run: RunRecord, *words: str | None) -> str:
    text = "\0".join((run.uid, *(word or "" for word in words)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def draft_of(bug: Bug) -> Draft:
    """What results say of one bug, for the tracker of those who look after the matrix."""
    ranges = [f"- {affected.tool}: {affected.words}" for affected in bug.ranges]
    example = bug.example
    # Indented, words of compilers and names of kernels are neither markup nor mentions of people.
    quoted = [
        *(f"{name}: {plural(count, 'cell')}" for name, count in bug.kernels.items()),
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


_SENT = "watched.txt"
"""In the results folder: one line for each message that was taken by its receiver."""

_PARTS = ("kind", "cells", "what", "where", "since", "issue", "bug", "command", "run", "older")
_LARGEST_SENT = 1 << 28
_SECONDS = 30.0
_API = "GITHUB_API_URL"
_GITHUB = "https://api.github.com"
_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")


def watch(store: Store) -> tuple[RunRecord, RunRecord | None, list[News], list[Draft]]:
    """What is worth a message of the last night that came to its end, and drafts of issues.

    The night and the run that it is compared with come first.

    Raises:
        EmptySelectionError: no run has finished.
        StorageError: the results cannot be read.
    """
    run, older, changes = last_night(store)
    if run is None:
        raise EmptySelectionError("no run has finished: there is no night to report")
    bugs = list_bugs(store)
    new = [bug for bug in bugs if bug.first_seen == run.id]
    drafts = [draft_of(bug) for bug in new if bug.record.state is HumanState.UNTRIAGED]
    return run, older, news_of(run, older, changes, bugs), drafts


def send(news: Sequence[News], url: str, home: Path) -> int:
    """Post each message that was not sent there before; how many were.

    A message is JSON: `text` and `content` for people (chats show one of them), and its parts.
    What was sent is noted after each, so that a call that fails is repeated without doubles.

    Raises:
        UsageError: that is not a URL.
        InfrastructureError: the receiver cannot be reached, or does not take it.
    """
    _check(url, "--webhook")
    file = home / _SENT
    # Of the address only a hash is kept: who knows it may write there.
    receiver = hashlib.sha256(url.encode()).hexdigest()[:16]
    history = read_regular(file, _LARGEST_SENT) if file.exists() else b""
    sent = set(history.decode(errors="replace").splitlines())
    count = 0
    for message in news:
        note = f"{receiver} {message.key}"
        if note in sent:
            continue
        body = {
            "text": message.text,
            "content": message.text,
            "schema": 1,
            **{name: getattr(message, name) for name in _PARTS},
        }
        _post(url, body, {})
        with file.open("a") as notes:
            notes.write(f"{note}\n")
        count += 1
    return count


def _check(url: str, word: str) -> None:
    """Refuse what is not an address, before anything is sent; it may be secret: do not print it."""
    try:
        url.encode()
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets, or a port that is none
        is_address = False
    if not is_address:
        raise UsageError(f"{word}: not a URL; write https://HOST[:PORT]/...")


def file_issues(store: Store, drafts: Sequence[Draft], repository: str) -> dict[int, str]:
    """File each draft as an issue of a GitHub repository; its address by the bug's number.

    The bug is then `reported`, and no draft of it is made again.

    Raises:
        UsageError: there is no token in GH_TOKEN or GITHUB_TOKEN.
        InfrastructureError: GitHub cannot be reached, or refuses.
        StorageError: the state of a bug cannot be kept.
    """
    token = next(filter(None, map(os.environ.get, _TOKENS)), None)
    if token is None:
        raise UsageError(f"--file needs a token that may write issues in {' or '.join(_TOKENS)}")
    base = os.environ.get(_API, _GITHUB).rstrip("/")
    _check(base, _API)
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    filed: dict[int, str] = {}
    for draft in drafts:
        body = {"title": draft.title, "body": draft.body}
        answer = _post(f"{base}/repos/{repository}/issues", body, headers)
        url = answer.get("html_url") if isinstance(answer, dict) else None
        if not isinstance(url, str):
            raise InfrastructureError(f"{base} took bug {draft.bug} and gave no address of it")
        set_state(store, draft.bug, HumanState.REPORTED, url)
        filed[draft.bug] = url
    return filed


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Post JSON; what is said of a failure names the host and no more of the address."""
    import requests  # noqa: PLC0415 - takes 0.2 s

    host = urlsplit(url).hostname
    try:
        response = requests.post(
            url, json=body, headers=headers, timeout=_SECONDS, allow_redirects=False
        )
    except (requests.exceptions.InvalidURL, UnicodeError):
        raise UsageError(f"{host!r} is not the name of a host") from None
    except (requests.RequestException, ValueError) as error:
        raise InfrastructureError(f"{host} cannot be reached: {type(error).__name__}") from None
    if not response.ok or response.is_redirect:
        raise InfrastructureError(f"{host} does not take it: HTTP {response.status_code}")
    try:
        return response.json()
    except ValueError:
        return None
