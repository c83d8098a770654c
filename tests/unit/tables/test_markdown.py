"""What people wrote, within a cell of a Markdown table."""

from __future__ import annotations

import re

import pytest

from harness.tables.file_templates import foreign_cell

# As GitHub reads text: a user or a team, an issue here, an issue elsewhere.
LINKED = re.compile(r"(?<!\w)@[A-Za-z0-9]|(?<!\w)#[0-9]|[\w.-]+/[\w.-]+#[0-9]")


@pytest.mark.parametrize(
    "name", ["@user #1.py", "(@org/team)", "octocat/hello#12.py::k", "fix #7", "\\@user", "a/@b"]
)
def test_no_name_mentions_a_person_or_links_an_issue(name: str) -> None:
    assert LINKED.search(name)
    assert not LINKED.search(foreign_cell(name))


@pytest.mark.parametrize("name", ["kernel@0.5", "main#2", "num_warps=4@sm_90a", "a # b"])
def test_what_mentions_nobody_stays_as_it_is(name: str) -> None:
    assert foreign_cell(name) == name
