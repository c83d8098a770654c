"""Options: the sections of a help, one name for each meaning, and the names that were."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import pytest
from bad_input_options import commands
from conftest import Triage
from printed_commands import parse

from harness.cli.options import FormerOption, Verb

MANY = 10
FORMER = [
    ("compile k --save there", "save", "--out"),
    ("run k.ptx --budget 500", "budget", "--max-instructions"),
    ("run k.ptx --limit 2.5", "limit", "--gpu-timeout"),
    ("run k.ptx --dump there", "dump", "--out"),
    ("bisect k --budget 7", "options", "--max-tries"),
    ("blame k --budget=7", "budget", "--max-tries"),
    ("minimize k.ptx --budget 1500", "max_tries", "--max-tries"),
    ("minimize k.ptx --budget 10m", "max_time", "--max-time"),
    ("minimize k.ptx --budget 5 --budget 10m", "max_time", "--max-time"),
    ("workaround k --budget 90s", "budget", "--max-time"),
]


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


def test_no_help_shows_a_former_name() -> None:
    former = [option for _, command in verbs() for option in options_of(command)
              if isinstance(option, FormerOption)]  # fmt: skip
    assert len(former) == len({words.partition("--budget")[0] for words, *_ in FORMER})
    assert all(option.hidden for option in former)


def given(words: str) -> tuple[dict[str, Any], set[str]]:
    context = parse(f"triage {words}")
    names = context.command.params
    named = {
        option.opts[0]
        for option in names
        if context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
    }
    return context.params, named


@pytest.mark.parametrize(("words", "name", "now"), FORMER, ids=lambda value: str(value))
def test_a_former_name_means_what_its_new_name_means(
    capsys: pytest.CaptureFixture[str], words: str, name: str, now: str
) -> None:
    old = re.findall(r"--(?:save|budget|limit|dump)", words)[-1]
    before, named = given(words)
    said = capsys.readouterr().err
    assert f"triage: {old} is called {now} now; the old name goes on working" in said
    assert now in named
    after, _ = given(re.sub(rf"{old}(?!.*{old})", now, words))
    assert after == before
    if "--budget 5 " not in words:
        assert capsys.readouterr().err == ""
    assert name == "options" or name in after


def test_both_names_at_once_are_refused(triage: Triage) -> None:
    done = triage("blame", "k", "--budget", "5", "--max-tries", "7")
    assert done.returncode == 2
    assert "--budget and --max-tries: which one is meant?" in done.stderr


def test_the_note_on_a_former_name_is_one_line_on_stderr(triage: Triage) -> None:
    done = triage("compile", "nosuch_kernel", "--save", "there", "--json")
    assert "triage: --save is called --out now" in done.stderr
    assert "called" not in done.stdout
