"""What README.md and its story show is what the commands print."""

from __future__ import annotations

import re
import shlex

import pytest
from conftest import HERE, Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]


def columns(line: str) -> list[str]:
    """The words of a line; of a table's row, all but the seconds that it took."""
    words = line.split()
    is_row = bool(words) and re.fullmatch(r"[0-9a-f]{8}", words[0])
    return words[:-1] if is_row else words


def missing(shown: str, printed: str) -> list[str]:
    """What a page shows and the command does not print; a rule is as wide as the table."""
    table, _, prose = shown.partition("\n ...\n")
    lines = {tuple(columns(line)) for line in printed.splitlines()}
    absent = [
        line
        for line in table.splitlines()
        if set(line.split()[0] if line.strip() else "") - {"─"}
        and tuple(columns(line)) not in lines
    ]
    # A page breaks the lines of prose that no page is wide enough for.
    told = " ".join(prose.split())
    return absent if told and told in " ".join(printed.split()) else [*absent, prose]


def test_the_first_command_and_its_output(triage: Triage) -> None:
    text = (HERE.parent / "docs" / "story.md").read_text()
    block = r"^```sh\n(triage compile [^\n]*)\n```.*?^```text\n(.*?)^```"
    found = re.search(block, text, re.DOTALL | re.MULTILINE)
    assert found
    command, shown = found.groups()
    done = triage(*shlex.split(command)[1:])
    assert done.returncode == 1, done.stderr
    assert missing(shown, done.stdout) == []
    other = shown.replace(" sick ", " ok ").replace("27 configs", "28 configs")
    assert len(missing(other, done.stdout)) == 4


def test_the_example_of_each_language(triage: Triage) -> None:
    table = (HERE.parent / "README.md").read_text().partition("| language | example |")[2]
    lines = table.partition("\n\n")[0].splitlines()[2:]
    assert len(lines) == 6
    for line in lines:
        words = shlex.split(line.split("|")[2].strip(" `"))
        done = triage(*words[1:])
        assert done.returncode == 0, (line, done.stderr)
        assert "compile" in done.stdout
