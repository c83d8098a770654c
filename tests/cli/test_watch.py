"""`triage watch`, as a user runs it: a receiver on this machine, and nothing twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from nights import night, row

if TYPE_CHECKING:
    from conftest import Triage

SECRET = "s3cr3t-path"


@dataclass
class Receiver:
    """What was posted; `refuses` answers with that status from the `after`-th post on."""

    url: str = ""
    posts: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    refuses: int = 0
    after: int = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.posts]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            refused = bool(found.refuses) and len(found.posts) >= found.after
            if not refused:
                found.posts.append((self.path, dict(self.headers), body))
            self.send_response(found.refuses if refused else 201)
            if refused:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            address = f"https://github.com/o/r/issues/{len(found.posts)}"
            self.wfile.write(json.dumps({"html_url": address}).encode())

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/{SECRET}"
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def changed(triage: Triage) -> Triage:
    """A night after which one kernel fails on two configs, and another works again."""
    home = Path(triage.env["TRIAGE_HOME"])
    still = [row(kernel="still", warps=warps) for warps in (2, 4)]
    broken = [row(kernel="broken", warps=warps) for warps in (2, 4)]
    night(home, [*still, *broken, row("trap_stub", "old", kernel="mended", stage="llir")])
    broken = [
        row("ptxas_ice", "s1", kernel="broken", warps=warps, reason="@everyone dies *here*")
        for warps in (2, 4)
    ]
    night(home, [*still, *broken, row(kernel="mended")])
    return triage


def watch(triage: Triage, *words: str, code: int = 0) -> dict[str, Any]:
    done = triage("watch", "--json", *words)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_message_for_each_change_that_matters_and_none_twice(
    changed: Triage, receiver: Receiver
) -> None:
    assert watch(changed, "--webhook", receiver.url)["sent"] == 2
    bad, good = receiver.bodies
    assert (bad["kind"], bad["cells"], bad["bug"]) == ("regressed", 2, 2)
    assert (good["kind"], good["cells"], good["bug"]) == ("fixed", 1, None)
    assert "broken" in bad["where"]
    assert bad["text"] == bad["content"]
    assert "triage show" in bad["command"]
    # Again, and by the variable.
    changed.env["TRIAGE_WEBHOOK"] = receiver.url
    assert watch(changed)["sent"] == 0
    assert len(receiver.posts) == 2
    # Who else wants them gets them; the address is nowhere in the folder.
    assert watch(changed, "--webhook", f"{receiver.url}/2")["sent"] == 2
    kept = (Path(changed.env["TRIAGE_HOME"]) / "watched.txt").read_text()
    assert SECRET not in kept


def test_nothing_is_said_where_nothing_changed(triage: Triage, receiver: Receiver) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    for _ in range(2):
        night(home, [row(), row("ptxas_ice", "s1", warps=8)])
    assert watch(triage, "--webhook", receiver.url) == {
        "schema": 1,
        "run": 2,
        "older": 1,
        "news": [],
        "sent": 0,
        "drafts": [],
        "filed": {},
    }
    assert receiver.posts == []


def test_a_hole_is_no_news_and_a_new_bug_is(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    night(home, [row(), row(warps=8)])
    night(home, [row("unsupported"), row(warps=8), row("ptxas_ice", "s9", kernel="another")])
    (news,) = watch(triage)["news"]
    assert (news["kind"], news["bug"], news["command"]) == ("new bug", 1, "triage bugs show 1")


def test_what_was_not_taken_is_sent_again_and_the_rest_is_not(
    changed: Triage, receiver: Receiver
) -> None:
    receiver.refuses, receiver.after = 503, 1
    done = changed("watch", "--webhook", receiver.url)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "HTTP 503" in done.stderr
    assert SECRET not in done.stderr + done.stdout
    receiver.refuses = 0
    assert watch(changed, "--webhook", receiver.url)["sent"] == 1
    assert [body["kind"] for body in receiver.bodies] == ["regressed", "fixed"]
    # A receiver that leads elsewhere has not taken it.
    receiver.refuses, receiver.after = 302, 0
    assert changed("watch", "--webhook", f"{receiver.url}/2").returncode == 4


def test_no_receiver_is_one_line_without_its_address(changed: Triage) -> None:
    done = changed("watch", "--webhook", f"http://127.0.0.1:9/{SECRET}")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert SECRET not in done.stderr
    for wrong in ("ftp://a/b", "hooks", "http://"):
        assert changed("watch", "--webhook", wrong).returncode == 2


def test_issues_are_drafted_and_filed_only_when_it_is_said(
    changed: Triage, receiver: Receiver
) -> None:
    changed.env["GITHUB_API_URL"] = receiver.url
    changed.env.pop("GITHUB_TOKEN", None)
    (draft,) = watch(changed, "--github", "o/r")["drafts"]
    assert receiver.posts == []
    assert "    @everyone dies *here*\n" in draft["body"]
    assert "triage bugs show 2" in draft["body"]
    refused = changed("watch", "--github", "o/r", "--file")
    assert (refused.returncode, "GITHUB_TOKEN" in refused.stderr) == (2, True)
    changed.env["GH_TOKEN"] = "t0k3n"
    url = "https://github.com/o/r/issues/1"
    assert watch(changed, "--github", "o/r", "--file")["filed"] == {"2": url}
    ((path, headers, body),) = receiver.posts
    assert path == f"/{SECRET}/repos/o/r/issues"
    assert headers["Authorization"] == "Bearer t0k3n"
    assert body == {"title": draft["title"], "body": draft["body"]}
    # The bug is known to have been reported, and nobody is told again.
    assert watch(changed, "--github", "o/r", "--file")["drafts"] == []
    assert url in changed("bugs", "show", "2").stdout
    assert len(receiver.posts) == 1


def test_without_a_receiver_it_is_printed(changed: Triage) -> None:
    done = changed("watch")
    assert done.returncode == 0
    assert done.stdout.startswith("regressed, 2 cells: ok -> ptxas_ice")
    assert "2 messages" in done.stderr
    for words in (("--file",), ("--github", "nobody"), ("--github", "a/b/c")):
        assert changed("watch", *words).returncode == 2


def test_no_night_is_an_empty_selection(triage: Triage) -> None:
    assert triage("watch").returncode == 3
