"""Options: the sections of a help, and all that is seen in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from bad_input_options import commands
from click.testing import CliRunner
from conftest import Triage

from harness.cli.main import cli
from harness.cli.options import HELP_ALL, Verb
from harness.values.target import EXAMPLES

MANY = 10


def verbs() -> Iterator[tuple[str, click.Command]]:
    for path, command in commands():
        if not isinstance(command, click.Group):
            yield " ".join(path), command


def options_of(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


@pytest.mark.parametrize(("name", "command"), list(verbs()), ids=lambda value: str(value)[:20])
def test_a_help_of_many_options_has_sections_and_all_that_is_seen(
    name: str, command: click.Command
) -> None:
    seen = [option for option in options_of(command) if not option.hidden]
    assert isinstance(command, Verb) or len(seen) <= MANY
    context = click.Context(command, info_name=name, help_option_names=["-h", "--help"])
    context.meta[HELP_ALL] = True
    formatter = context.make_formatter()
    command.format_options(context, formatter)
    text = formatter.getvalue()
    listed = re.findall(r"^  (-[^ ,/]+)", text, re.MULTILINE)
    assert sorted(listed) == sorted(
        [
            *(option.opts[0] for option in seen),
            "-h",
            *([HELP_ALL] if isinstance(command, Verb) else []),
        ]
    )
    if isinstance(command, Verb):
        titles = re.findall(r"^(\w[^:\n]*):$", text, re.MULTILINE)
        assert titles[0] == "What is selected"
        assert titles[-1] == "Surroundings"


@pytest.mark.parametrize(
    ("name", "command"),
    [(name, command) for name, command in verbs() if isinstance(command, Verb)],
    ids=lambda value: str(value)[:20],
)
def test_a_help_leads_with_what_people_use_and_the_rest_is_behind_help_all(
    name: str, command: click.Command
) -> None:
    def shown(word: str) -> str:
        return CliRunner().invoke(command, [word], prog_name=f"triage {name}").stdout

    short, full = shown("--help"), shown(HELP_ALL)
    listed = re.findall(r"^  (--[^ ,/]+)", short, re.MULTILINE)
    own = [option for option in listed if option != HELP_ALL]
    assert 2 <= len(own) <= 9
    assert HELP_ALL in listed
    assert set(own) < set(re.findall(r"^  (--[^ ,/]+)", full, re.MULTILINE))
    # A required option is never hidden.
    assert {option.opts[0] for option in options_of(command) if option.required} <= set(own)
    assert "Example:" in short


def test_the_first_help_has_groups_and_names_gpus(triage: Triage) -> None:
    text = triage("--help").stdout
    titles = re.findall(r"^(\w[^:\n]*):$", text, re.MULTILINE)
    assert titles == ["Options", "First", "Whose fault", "In CI", "More", "Setup"]
    listed = re.findall(r"^  (\w+)  ", text, re.MULTILINE)
    assert sorted(listed) == sorted(cli.list_commands(click.Context(cli)))
    assert listed[:4] == ["compile", "run", "bisect", "workaround"]
    assert EXAMPLES in " ".join(text.split())
