"""`triage watch`: what a night changed, sent where people read it, once each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.io.files.regular_files import read_regular
from harness.matrix.bugs.list import list_bugs, set_state
from harness.matrix.diff.between_runs import last_night
from harness.matrix.nights.news import Draft, News, drafts_of, news_of
from harness.store.store import Store
from harness.values.bug import HumanState
from harness.values.errors import EmptySelectionError, InfrastructureError, UsageError

_SENT = "watched.txt"
"""In the results folder: one line for each message that was taken by its receiver."""

_LARGEST_SENT = 1 << 28
_SECONDS = 30.0
_API = "GITHUB_API_URL"
_GITHUB = "https://api.github.com"
_TOKENS = ("GH_TOKEN", "GITHUB_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class NightNews:
    """A night: its number, that of the run it is compared with, its news, drafts of issues."""

    run: int
    older: int | None
    news: tuple[News, ...]
    drafts: tuple[Draft, ...]


def watch(store: Store) -> NightNews:
    """What is worth a message of the last night that came to its end.

    Raises:
        EmptySelectionError: no run has finished.
        StorageError: the results cannot be read.
    """
    run, older, changes = last_night(store)
    if run is None:
        raise EmptySelectionError("no run has finished: there is no night to report")
    bugs = list_bugs(store)
    return NightNews(
        run=run.id,
        older=older.id if older else None,
        news=tuple(news_of(run, older, changes, bugs)),
        drafts=tuple(drafts_of(run, bugs)),
    )


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
    known = read_regular(file, _LARGEST_SENT) if file.exists() else b""
    sent = set(known.decode(errors="replace").splitlines())
    count = 0
    for each in news:
        note = f"{receiver} {each.key}"
        if note in sent:
            continue
        body = {
            "text": each.text,
            "content": each.text,
            "schema": 1,
            "kind": each.kind,
            "cells": each.cells,
            "what": each.what,
            "where": each.where,
            "since": each.since,
            "issue": each.issue,
            "bug": each.bug,
            "command": each.command,
            "run": each.run,
            "older": each.older,
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
    found: dict[int, str] = {}
    for draft in drafts:
        body = {"title": draft.title, "body": draft.body}
        answer = _post(f"{base}/repos/{repository}/issues", body, headers)
        url = answer.get("html_url") if isinstance(answer, dict) else None
        if not isinstance(url, str):
            raise InfrastructureError(f"{base} took bug {draft.bug} and gave no address of it")
        set_state(store, draft.bug, HumanState.REPORTED, url)
        found[draft.bug] = url
    return found


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Post JSON; what is said of a failure names the host and no more of the address."""
    import requests  # noqa: PLC0415 - takes 0.2 s

    host = urlsplit(url).hostname
    try:
        done = requests.post(
            url, json=body, headers=headers, timeout=_SECONDS, allow_redirects=False
        )
    except (requests.exceptions.InvalidURL, UnicodeError):
        raise UsageError(f"{host!r} is not the name of a host") from None
    except (requests.RequestException, ValueError) as error:
        raise InfrastructureError(f"{host} cannot be reached: {type(error).__name__}") from None
    if not done.ok or done.is_redirect:
        raise InfrastructureError(f"{host} does not take it: HTTP {done.status_code}")
    try:
        return done.json()
    except ValueError:
        return None
