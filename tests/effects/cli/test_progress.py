"""What takes long says on stderr what it is doing; stdout has results only."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from acted_line import BAD, Line

from harness.cli import bugs, diff, doctor, export, history, import_, matrix, site, toolchain
from harness.cli.progress import steps

pytest_plugins = ("acted_fixtures",)

ONE = ("--kernel", "kernel.acted", "--sm", "80", "--compiler", "acted==1.1", "--ptxas", BAD)


SOON = steps.PLAIN_SECONDS


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PLAIN_SECONDS", 0.05)


def slowly(work: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **words: Any) -> Any:
        time.sleep(0.3)
        return work(*args, **words)

    return run


def lines_of(said: str) -> list[str]:
    return [line for line in said.splitlines() if re.fullmatch(r"triage: .*; \d+ s", line)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compile",), "0 of 2 cells done; lowering 1 of 2"),
        (("bisect", "--axis", "compiler", "--repeat", "1"), "1 tried; "),
        (("blame",), " tried; "),
        (("minimize", "--max-tries", "3"), "instructions"),
        (("workaround", "--max-time", "5s"), "compiling what you have"),
        (("rank",), "kernel.acted: 2 configs on sm_80"),
        (("report", "--quick", "--for", "nvidia", "--out", "r"), "every config"),
    ],
    ids=lambda words: words[0],
)
def test_a_search_says_where_it_is(line: Line, words: tuple[str, ...], says: str) -> None:
    line.stage.acted.act = lambda *_: f"{BAD}=ice *=ok"
    line.stage.acted.lowering = lambda: time.sleep(0.3)
    line(words[0], *ONE, *words[1:])
    assert any(says in each for each in line.err.splitlines()), line.err
    assert not lines_of(line.out)


@pytest.mark.parametrize(
    ("words", "place", "work", "says"),
    [
        (("site", "--json"), site, "write_site", "writing pages"),
        (("history", "--kernel", "*", "--json"), history, "read_history", "history is at work"),
        (("export", "--out", "x.csv", "--format", "csv"), export, "export_file", "writing 1 runs"),
        (("diff", "--json"), diff, "read_results", "diff is at work"),
        (("bugs", "--json"), bugs, "read_results", "bugs is at work"),
        (("matrix", "merge", "other", "--json"), matrix, "merge_stores", "merging 1 folders"),
        (("import", "other", "--json"), import_, "read_leftovers", "import is at work"),
        (("doctor", "--json"), doctor, "examine", "looking at this machine"),
        (("toolchain", "verify", f"ptxas-{BAD}"), toolchain, "verify", "verifying ptxas-"),
        (
            ("toolchain", "install", f"ptxas-{BAD}"),
            toolchain,
            "_install_named",
            "preparing toolchains",
        ),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_what_reads_and_writes_says_that_it_is_at_work(
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    place: Any,
    work: str,
    says: str,
) -> None:
    line("compile", *ONE)
    monkeypatch.setattr(place, work, slowly(getattr(place, work)))
    line(*words)
    assert any(says in each for each in lines_of(line.err)), line.err
    assert not lines_of(line.out)
    if "--json" in words:
        json.loads(line.out)


def test_no_line_is_said_twice(line: Line) -> None:
    line.stage.acted.act = lambda *_: f"{BAD}=ice *=ok"
    line.stage.acted.lowering = lambda: time.sleep(0.3)
    for words in (("compile",), ("workaround", "--max-time", "5s"), ("rank", "--no-cache")):
        line(words[0], *ONE, *words[1:])
        said = [re.sub(r"; \d+ s$", "", each) for each in line.err.splitlines()]
        said = [each.removeprefix("triage: ") for each in said]
        assert said
        assert not [each for each, after in itertools.pairwise(said) if each == after], line.err


def test_a_step_is_said_within_five_seconds() -> None:
    assert SOON <= 5


def test_what_is_quick_says_nothing(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PLAIN_SECONDS", 15.0)
    assert line("compile", *ONE) == 0
    assert not lines_of(line.err)
