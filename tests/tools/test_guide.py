"""A command of the guide whose output is shown (```console) prints that output."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

DOCS = HERE.parent / "docs"
# What asks many versions of a compiler, or executes a kernel.
LONG = {"bisect", "blame", "minimize", "pr", "report", "run", "workaround"}


def examples() -> list[tuple[str, str, str]]:
    """The page, the command and the output of each."""
    block = re.compile(r"^```console\n\$ (triage [^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [
        (path.name, *found)
        for path in (HERE.parent / "README.md", *sorted(DOCS.glob("*.md")))
        for found in block.findall(path.read_text())
    ]


def normal(text: str) -> str:
    """Without what differs from run to run: times, hashes, widths, and where lines are broken."""
    text = re.sub(r"(?m)^( *[0-9a-f]{8} .*) [\d.]+ *$", r"\1", text)  # the seconds of a cell
    text = re.sub("─+", "─", text)
    text = re.sub(r"\b\d+(\.\d+)? s\b", "N s", text)
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{8}\b", "HASH", text)
    return " ".join(text.split())


def is_printed(shown: str, printed: str) -> bool:
    """Whether that is what was printed, in this order; `...` is anything."""
    parts = [re.escape(normal(part)) for part in shown.split("...")]
    return bool(re.fullmatch(".*".join(parts), normal(printed)))


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(
            command,
            shown,
            id=f"{page}-{command}",
            marks=[pytest.mark.long] if command.split()[1] in LONG else [],
        )
        for page, command, shown in examples()
    ],
)
def test_a_command_prints_what_its_page_shows(
    command: str, shown: str, triage: Triage, tmp_path: Path
) -> None:
    shutil.copytree(DOCS / "examples", tmp_path, dirs_exist_ok=True)
    done = triage(*shlex.split(command)[1:])
    assert is_printed(shown, done.stdout), done.stdout + done.stderr


def test_other_numbers_are_another_output() -> None:
    shown = "2 configs: 2 compile.\n...\n  94aa0b12 is ok, 0.5 s\n"
    assert is_printed(shown, "2 configs: 2 compile.\na b\n  1aaa0b12 is ok, 12 s\n")
    assert not is_printed(shown, "2 configs: 1 compile.\na b\n  1aaa0b12 is ok, 12 s\n")
    assert not is_printed(shown, "2 configs: 2 compile.\na b\n  1aaa0b12 is sick, 12 s\n")
