"""The first command of README.md prints what README.md says that it prints."""

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


def test_the_first_command_and_its_output(triage: Triage) -> None:
    text = (HERE.parent / "README.md").read_text()
    block = r"^```sh\n(triage compile [^\n]*)\n```.*?^```text\n(.*?)^```"
    found = re.search(block, text, re.DOTALL | re.MULTILINE)
    assert found
    command, shown = found.groups()
    done = triage(*shlex.split(command)[1:])
    assert done.returncode == 1, done.stderr
    printed = {tuple(columns(line)) for line in done.stdout.splitlines()}
    # Of the table, README.md has some of the rows.
    lines = [line for line in shown.splitlines() if line.strip() not in ("", "...")]
    assert len(lines) > 10
    assert [line for line in lines if tuple(columns(line)) not in printed] == []
