"""Options are declared once, as fields of a class: what follows from one, what is refused."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

import harness
from harness.cli.options import (
    Options,
    apart,
    argument,
    exclusive,
    goes_with,
    group,
    option,
    part,
    silent,
    verb,
)
from harness.values.errors import UsageError

CLI = Path(harness.__file__).parent / "cli"
heard: list[_Options] = []


def _sum(*, first: int, second: int = 7) -> int:
    return first + second


class _Inner(Options, rules=[goes_with("--depth", "--tall")]):
    depth: int | None = option(type=int)
    tall: bool = option()


class _Options(
    Options, rules=[exclusive("--red", "--blue"), apart(["--red"], "--depth", because="no")]
):
    file: str = argument()
    others: tuple[str, ...] = argument()
    red: bool = option(help="Red.")
    blue: bool = option()
    max_time: int = silent(default=3, type=int, reads=lambda seconds: seconds * 10)
    names: Sequence[str] = option("--name")
    total: int = group(_sum, first=option(default=1), second=option(type=int))
    inner: _Inner = part(_Inner, depth={"help": "How deep."})


@verb()
def command(options: _Options) -> int:
    """Do it."""
    heard.append(options)
    return len(options.others)


def read(*words: str) -> _Options:
    CliRunner().invoke(command, words, catch_exceptions=False)
    return heard.pop()


def test_what_follows_from_a_field_is_not_said_again() -> None:
    options = read("f", "--blue", "--name", "a", "--name", "b", "--max-time", "4", "--depth", "2")
    assert (options.file, options.others) == ("f", ())
    assert (options.red, options.blue) == (False, True)
    assert options.names == ("a", "b")
    assert options.max_time == 40
    assert options.inner == _Inner(depth=2, tall=False)


def test_what_is_not_given_leaves_the_default_of_what_reads_it() -> None:
    assert read("f").total == 8
    assert read("f", "--second", "2").total == 3
    assert read("f").inner.depth is None


def test_a_default_and_what_a_part_says_are_shown() -> None:
    shown = CliRunner().invoke(command, ["--help-all"]).stdout
    assert "[default: 3]" in shown
    assert "How deep." in shown


def test_the_name_and_the_end_of_the_help_are_those_of_the_module() -> None:
    assert command.name == "test_declared_options"
    assert command.epilog == "\b\n"


def test_what_a_command_returns_is_its_exit_code() -> None:
    assert CliRunner().invoke(command, ["f"]).exit_code == 0
    assert CliRunner().invoke(command, ["f", "g", "h"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--red", "--blue"), "--red and --blue: which one is meant?"),
        (("--red", "--depth", "1"), "--depth does not apply to --red: no"),
        (("--tall",), "--tall goes with --depth"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        read("f", *words)


def test_no_command_declares_its_options_in_another_way() -> None:
    """`click.option` is called where `option` is made, and for the version of the program."""
    found = {
        path.name
        for path in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("click.option", "click.argument", "click.command")
    }
    assert found == {"main.py"}
