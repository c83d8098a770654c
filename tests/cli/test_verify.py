"""`triage verify` around its compilers: ptxas that do what a test writes down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_toolchains import FakeCache

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 p)
{
  ret;
}
"""
ISSUE = f"""\
# Internal compiler error on sm_80

TEXT

```ptx
{PTX}```
"""


@pytest.fixture
def place(tmp_path: Path) -> FakeCache:
    cache = FakeCache(tmp_path)
    cache.ptxas("13.0.1")
    cache.ptxas("13.1.1", "ice('C9999')")
    cache.ptxas("13.2.1", "die(11)")
    return cache


def verify(place: FakeCache, text: str, code: int) -> dict[str, Any]:
    (place.folder / "issue.md").write_text(ISSUE.replace("TEXT", text))
    done = place.triage("verify", "issue.md", "--json")
    assert done.returncode == code, done.stderr + done.stdout
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def results(place: FakeCache, text: str, code: int) -> list[str]:
    # The first claim is the title's, whose failure the issue's version shows.
    return [claim["result"] for claim in verify(place, text, code)["claims"][1:]]


def test_claims_that_hold(place: FakeCache) -> None:
    text = "ptxas 13.1.1 crashes with C9999, 13.0.1 works; a regression since 13.1.1."
    assert results(place, text, 0) == ["holds", "holds", "holds"]


@pytest.mark.parametrize(
    "text",
    [
        "ptxas 13.1.1 crashes, 13.2.1 works.",
        "ptxas 13.1.1 crashes, 13.0.1 crashes too.",
        "ptxas 13.1.1 crashes, and ptxas 13.2.1 crashes with C9999.",
        "ptxas 13.1.1 crashes. It is a regression since 13.0.1.",
    ],
)
def test_one_claim_that_does_not_hold(place: FakeCache, text: str) -> None:
    found = verify(place, text, 1)["claims"]
    [false] = [claim for claim in found if claim["result"] == "does not hold"]
    assert false["commands"][0].startswith("triage compile --kernel verified/issue/program-1.ptx")


def test_the_program_is_left_where_the_commands_name_it(place: FakeCache) -> None:
    verify(place, "ptxas 13.1.1 crashes.", 0)
    assert (place.folder / "verified/issue/program-1.ptx").read_text() == PTX


def test_what_is_printed_names_claim_reason_and_command(place: FakeCache) -> None:
    (place.folder / "issue.md").write_text(ISSUE.replace("TEXT", "ptxas 13.1.1 works."))
    done = place.triage("verify", "issue.md")
    assert done.returncode == 1, done.stderr
    assert "issue.md: 1 code block: 1 x a program" in done.stdout
    assert "line 3: ptxas 13.1.1 works." in done.stdout
    assert "does not hold (works): ptxas 13.1.1 sm_80: ptxas_ice" in done.stdout
    assert "triage compile --kernel verified/issue/program-1.ptx" in done.stdout


def test_nothing_to_check(place: FakeCache) -> None:
    path = place.folder / "issue.md"
    path.write_text("# Hello\n\nNice project.\n")
    done = place.triage("verify", "issue.md")
    assert (done.returncode, done.stdout) == (3, "")
    assert "it claims nothing that is understood" in done.stderr
    path.write_text("# It crashes\n\nOn 13.1.1, I mean.\n")
    done = place.triage("verify", "issue.md")
    assert done.returncode == 4, done.stderr
    assert "it has no program" in done.stdout
