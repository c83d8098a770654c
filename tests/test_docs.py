"""What is documented exists, and what exists is documented."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from harness.cli.main import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/run.md"]


def commands(group: click.Group, prefix: str = "triage") -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((f"{prefix} {name}", command))
        if isinstance(command, click.Group):
            found += commands(command, f"{prefix} {name}")
    return found


COMMANDS = dict(commands(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_readme_and_has_help(name: str) -> None:
    assert name in README
    assert COMMANDS[name].help


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.count(" ") == 1])
def test_every_verb_shows_an_example(name: str) -> None:
    assert "Example:" in (COMMANDS[name].epilog or "")


def test_commands_that_are_shown_exist_with_their_options() -> None:
    text = "\n".join([README, *(path.read_text() for path in (ROOT / "docs").glob("*.md"))])
    text = text.replace("\\\n", " ")
    shown = re.findall(r"^(?:\$ )?(triage [^\n#]*)", text, flags=re.MULTILINE)
    assert shown
    for line in shown:
        words = line.split()
        name = next((" ".join(words[:n]) for n in (3, 2) if " ".join(words[:n]) in COMMANDS), None)
        assert name, f"README shows {line!r}"
        known = {option for parameter in COMMANDS[name].params for option in parameter.opts} | {
            "--help",
            "-h",
        }
        used = {word.split("=")[0] for word in words if word.startswith("--")}
        assert used <= known, f"README shows {line!r}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_documents_name_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # code has no links
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", prose):
        assert (ROOT / document).parent.joinpath(target).exists(), f"{document} links to {target}"
    for name in re.findall(
        r"`((?:harness|tests|benchmarks|repros|templates|\.ci)/[\w./-]*)`", text
    ):
        assert "NAME" in name or (ROOT / name).exists(), f"{document} names {name}"


def test_readme_lists_every_verdict() -> None:
    from harness.values.verdict import VerdictKind

    for kind in VerdictKind:
        assert f"`{kind.value}`" in README
