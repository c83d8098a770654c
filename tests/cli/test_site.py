"""`triage site`, as a user runs it: pages are parsed, links followed, and names stay words."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote

import pytest
from conftest import HERE
from nights import night, row

if TYPE_CHECKING:
    from conftest import Triage

HOSTILE = """<img src=x onerror="document.title='taken'">'&</script><script>alert(1)</script>"""
LOADING = {"img", "iframe", "object", "embed", "audio", "video", "source"}


class PageParser(HTMLParser):
    """What a page holds: tags, attributes, links, anchors, scripts, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.squares: list[tuple[str, str]] = []
        self.scripts: list[str] = []
        self.words = ""
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes += found
        self.ids += [str(found["id"])] if "id" in found else []
        if "action" in found or (tag == "a" and "href" in found):
            self.links.append(str(found.get("action") or found.get("href")))
        if tag == "a" and str(found.get("class", "")).startswith("q "):
            self.squares.append((str(found["class"])[2:], str(found["title"])))
        self._inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["script"]:
            self.scripts[-1] += data
        elif self._inside[-1:] != ["style"]:
            self.words += data


def write(triage: Triage, *more: str) -> dict[str, PageParser]:
    done = triage("site", "--out", "pages", *more)
    assert done.returncode == 0, done.stderr
    return read(triage.folder / "pages")


def read(folder: Path) -> dict[str, PageParser]:
    pages = {path.name: PageParser(path.read_text()) for path in folder.glob("*.html")}
    names = ("index", "matrix", "bugs", "toolchains", "hunts", "search")
    assert {f"{name}.html" for name in names} <= set(pages)
    links = [(name, link) for name, page in pages.items() for link in page.links]
    assert len(links) >= 5 * len(pages)
    for name, link in links:
        file, _, anchor = unquote(link).partition("#")
        target = pages.get(file or name)
        assert target is not None, f"{name} leads to {link}"
        assert not anchor or anchor in target.ids, f"{name} leads to {link}"
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), name
        assert page.tags.count("h1") == 1, name
    return pages


@pytest.fixture
def home(triage: Triage) -> Path:
    home = Path(triage.env["TRIAGE_HOME"])
    versions = ("12.9.86", "13.0.88", "13.1.80", "13.3.33")
    # 13.1.80 never gave an answer: a hole in the life of the bug.
    hole = row("unsupported", kernel=HOSTILE, ptxas="13.1.80")
    known = [row(kernel=HOSTILE, ptxas=each) for each in versions if each != hole.ptxas]
    night(home, [*(row(kernel="a", ptxas=each) for each in versions), *known, hole])
    night(
        home,
        [
            # A reason that is the name of a verdict.
            *(row(kernel="a", ptxas=each, reason="ok") for each in versions),
            row(kernel=HOSTILE, ptxas="12.9.86", n_regs=40),
            row("ptxas_ice", "s1", kernel=HOSTILE, ptxas="13.0.88", reason=HOSTILE, code="C7907"),
            hole,
            row(kernel=HOSTILE, ptxas="13.3.33", n_regs=80, spill_stores=8, spill_loads=16),
        ],
    )
    return home


def test_pages_of_a_store_with_a_hostile_name(triage: Triage, home: Path) -> None:
    pages = write(triage)
    scripts = [(name, page.scripts) for name, page in pages.items() if page.scripts]
    tables, search = (
        (HERE.parent / "templates" / "site" / f"{name}.js").read_text()
        for name in ("page", "search")
    )
    for name, texts in scripts:  # no cell has artifacts here
        assert texts == ([tables, search] if name == "search.html" else [tables]), name
    assert len(scripts) == len(pages)
    for name, page in pages.items():
        assert not LOADING & set(page.tags), name
        assert [each for each in page.attributes if each.startswith("on")] == [], name
    assert sum(HOSTILE in page.words for page in pages.values()) >= 6
    assert {tone for tone, _ in pages["matrix.html"].squares} == {"good", "bad", "faint"}
    assert {words for _, words in pages["matrix.html"].squares} == {
        "1 ok",
        "1 ptxas_ice",
        "1 unsupported",
    }
    bug = pages["bug-1.html"].words
    life = "".join(bug[bug.index("ptxas") : bug.index("Blame")].split())
    places = [life.index(each) for each in ("12.9.86", "13.0.88", "13.1.80", "13.3.33")]
    assert places == sorted(places)
    assert "lastgood" in life[places[0] : places[1]]
    assert "firstbad" in life[places[1] : places[2]]
    assert "firstfixed" in life[places[3] :]
    tonight = pages["index.html"].words
    assert "regressed" in tonight
    assert "triage show" in tonight
    assert "UTC" in tonight
    assert "The last nights" in tonight
    compared = {link for link in pages["index.html"].links if link.startswith("pair-")}
    assert compared
    assert any(link.startswith("pair-") for link in pages["bug-1.html"].links)
    assert "Bug 1" in tonight


def test_what_the_source_no_longer_has_is_on_no_page(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    replaced = [row(warps=warps) for warps in (4, 8)] + [row(launch="main#2"), row(launch="main")]
    other = row(kernel="other")
    night(home, [*replaced, other])
    night(home, [row(warps=32)], command="triage pr --base main")
    failing = [row("out_of_resources", "s1", warps=warps, stage="launch") for warps in (16, 64)]
    night(home, [*failing, row(launch="main")])
    # Part of a night, and what is compiled by hand, says nothing of the rest.
    night(home, [failing[0]], command="triage matrix run --config num_warps=16")
    pages = write(triage)
    squares = {words for _, words in pages["matrix.html"].squares}
    assert squares == {"2 out_of_resources, 1 ok", "1 ok"}
    tonight = " ".join(pages["index.html"].words.split())
    assert "4 cells, by the last result of each" in tonight


def test_a_night_that_did_not_finish_does_not_bring_back_what_is_gone(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    night(home, [row("out_of_resources", "s1", warps=32, stage="launch")])
    night(home, [row(warps=4)])
    night(home, [row(warps=4)], finish=False)
    first = " ".join(write(triage)["index.html"].words.split())
    assert "Nothing is broken: 1 of 1 cells work, in 1 kernel." in first


def test_nights_that_have_no_page_are_not_led_to(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    for _ in range(12):
        night(home, [row()])
    night(home, [row("out_of_resources", "s1", stage="launch")])
    pages = write(triage)
    runs = [name for name in pages if name.startswith("run-")]
    assert len(runs) == 10
    assert "scan_fwd is broken on sm_100a since run 13." in pages["index.html"].words
    # What a person decided to leave is not broken.
    assert triage("bugs", "set", "1", "wontfix").returncode == 0
    first = write(triage)["index.html"].words
    assert "Nothing is broken: 0 of 1 cells work, in 1 kernel; known failures: 1." in first


def test_a_list_of_configs_none_of_which_works_is_worse_tonight(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    night(home, [row(warps=warps) for warps in (4, 8)])
    night(home, [row("out_of_resources", "s1", warps=warps, stage="launch") for warps in (16, 64)])
    tonight = " ".join(write(triage)["index.html"].words.split())
    assert "2 worse" in tonight
    assert "0 of 2 configs work, before 2 of 2" in tonight
    assert "0 not known now" in tonight
    assert tonight.index("regressed") < tonight.index("removed")
    (home / "watched.txt").unlink(missing_ok=True)
    watched = triage("watch")
    assert "regressed, 2 cells: " in watched.stdout
    assert "0 of 2 configs work, before 2 of 2" in watched.stdout
    assert triage("diff").returncode == 1


def test_a_site_is_replaced_and_nothing_else(triage: Triage, home: Path) -> None:
    write(triage)
    (triage.folder / "pages" / "left-over.html").write_text("old")
    done = triage("site", "--out", "pages", "--json")
    report = json.loads(done.stdout)
    files = list((triage.folder / "pages").glob("*.html"))
    assert not (triage.folder / "pages" / "left-over.html").exists()
    assert report["pages"] == len(files)
    assert report["bytes"] == sum(path.stat().st_size for path in files)
    assert report["cells"] == 8
    mine = triage.folder / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    refused = triage("site", "--out", "mine")
    assert refused.returncode == 2
    assert "mine" in refused.stderr
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
    assert not list(triage.folder.glob(".draft-*"))


def test_an_empty_store_makes_a_site(triage: Triage) -> None:
    assert "no results yet" in write(triage)["index.html"].words
    assert not Path(triage.env["TRIAGE_HOME"]).exists()


def test_one_failing_cell_makes_a_site(triage: Triage) -> None:
    failing = row("ptxas_ice", "s1", code="C7907")
    night(Path(triage.env["TRIAGE_HOME"]), [failing])
    pages = write(triage)
    (cell,) = [name for name in pages if name.startswith("cell-")]
    assert failing.short in pages[cell].words
    assert "bug-1.html" in pages[cell].links
    assert cell in pages["bug-1.html"].links
    pages = write(triage, "--cell-pages", "0")
    assert not [name for name in pages if name.startswith("cell-")]
    assert any(link.startswith("rows-") for link in pages["bug-1.html"].links)


def test_a_launch_with_the_name_of_a_verdict_makes_a_site(triage: Triage) -> None:
    failing = row("ptxas_ice", "s1", launch="ptxas_ice", code="C7907")
    night(Path(triage.env["TRIAGE_HOME"]), [failing])
    assert ("bad", "1 ptxas_ice") in write(triage)["matrix.html"].squares


def test_a_store_that_is_kept_makes_a_site(triage: Triage) -> None:
    home = Path(triage.env["TRIAGE_HOME"])
    home.mkdir()
    with sqlite3.connect(home / "triage.db") as db:
        db.executescript((HERE / "data" / "stores" / "small.sql").read_text())
    pages = write(triage)
    bugs = json.loads(triage("bugs", "--json").stdout)
    assert len([name for name in pages if name.startswith("bug-")]) == len(bugs["bugs"])
    assert "raw PTX" in pages["toolchains.html"].words


def test_pages_are_served_on_this_machine_until_it_is_stopped(triage: Triage) -> None:
    night(Path(triage.env["TRIAGE_HOME"]), [row()])
    words = [sys.executable, "-m", "harness", "site", "--serve"]
    with subprocess.Popen(
        words, cwd=triage.folder, env=triage.env, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            lines = [server.stdout.readline(), server.stdout.readline()]
            url = lines[1].split()[0]
            assert url.startswith("http://127.0.0.1:"), lines
            with urllib.request.urlopen(url) as page:
                assert page.read() == (triage.folder / "site" / "index.html").read_bytes()
            # A stranger's name that leads here is refused.
            asked = urllib.request.Request(url, headers={"Host": "example.com:80"})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(asked)
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_pages_that_are_served_are_opened_where_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from harness.cli import site

    class Server:
        server_port = 8000

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

        def serve_forever(self) -> None:
            raise KeyboardInterrupt

    opened: list[str] = []
    monkeypatch.setattr(site, "ThreadingHTTPServer", lambda *_: Server())
    monkeypatch.setattr("webbrowser.open", opened.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    site.serve(tmp_path, 0)
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    site.serve(tmp_path, 0)
    assert opened == ["http://127.0.0.1:8000/"]


def test_serving_is_refused_where_it_cannot_be(triage: Triage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = triage("site", "--serve", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "in use" in done.stderr
    assert triage("site", "--serve", "--json").returncode == 2
    assert triage("site", "--port", "80").returncode == 2
