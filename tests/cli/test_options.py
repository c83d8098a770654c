"""Options: the sections of a help, and all that is seen in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from bad_input_options import commands

from harness.cli.options import Verb

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
    formatter = context.make_formatter()
    command.format_options(context, formatter)
    text = formatter.getvalue()
    listed = re.findall(r"^  (-[^ ,/]+)", text, re.MULTILINE)
    assert sorted(listed) == sorted([*(option.opts[0] for option in seen), "-h"])
    if isinstance(command, Verb):
        titles = re.findall(r"^(\w[^:\n]*):$", text, re.MULTILINE)
        assert titles[0] == "What is selected"
        assert titles[-1] == "Surroundings"
