"""Every option of every command, with values of the wrong kind, read off the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from bad_input_cases import Case

from harness.cli.amounts import FilePath, FiniteRange, Words
from harness.cli.main import cli

__all__ = ["option_cases"]

_WHOLE = ("", "nan", "1e3", "²", "1\n2", "\x1b[31m7", "9" * 5000)
_NUMBER = ("", "nan", "inf", "-inf", "-1", "1e999", "1,5", "²", "\x1b[31m7")
_CHOICE = ("", "nosuch", "\x1b]0;owned\x07", "\u202e")
_WORDS = ("", " ", "caf\udce9")
_PATHS = ("", "\t")
# Those that a function of ours reads.
_READ_BY_US = {
    "--trim": ("", "nan", "-1", "9" * 500, "1e9GB", "10 parsecs", "\x1b[31m"),
    "--max-time": ("", "nan", "0", "-5m", "9" * 500, "10 parsecs", "\x1b[31m", "٣m"),
}
_KINDS: tuple[tuple[type[click.ParamType[Any]], tuple[str, ...]], ...] = (
    (click.IntRange, _WHOLE),
    (FiniteRange, _NUMBER),
    (click.Choice, _CHOICE),
    (Words, _WORDS),
    (FilePath, _PATHS),
)
# What is wrong with a text, in the words of its complaint.
_SAID = {"": "empty", " ": "empty", "\t": "empty", "caf\udce9": "UTF-8"}
_GOOD_ARGUMENTS = {"number": "1", "state": "expected"}
# What has to be there before a value is looked at by the command itself.
_BEFORE = {"workaround": ("--kernel", "none.ptx")}


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The words that name each command, and the command."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from commands(found, (*path, name))


def values_of(option: click.Parameter) -> tuple[str, ...]:
    """What this option or argument must refuse."""
    for name in option.opts:
        if name in _READ_BY_US and not isinstance(option.type, click.IntRange):
            return _READ_BY_US[name]
    if isinstance(option.type, Words) and option.type.names_files:
        return _WORDS[:2]
    for kind, values in _KINDS:
        if isinstance(option.type, kind):
            return values
    return ()


def option_cases() -> Iterator[Case]:
    """One case for each option or argument and value; and unknown, valueless, flag-like ones."""
    for path, command in commands():
        where = " ".join(path) or "triage"
        for index, word in enumerate(("--nosuch", "--\x1b[31m", "-\u202e", "--nosuch=\udce9")):
            yield Case(id=f"{where} unknown {index}", words=(*path, word), code=2)
        for option in command.params:
            if isinstance(option, click.Option) and option.opts[-1] not in ("--help", "--version"):
                yield from _of_option(path, where, option)
            elif isinstance(option, click.Argument):
                yield from _of_argument(path, where, command, option)


def _of_option(path: tuple[str, ...], where: str, option: click.Option) -> Iterator[Case]:
    name = option.opts[0]
    if option.is_flag:
        # click reads what follows a short flag as more short options.
        said = name if name.startswith("--") else "-="
        yield Case(id=f"{where} {name}=1", words=(*path, f"{name}=1"), code=2, says=said)
        return
    yield Case(id=f"{where} {name} alone", words=(*path, name), code=2, says=name)
    before = _BEFORE.get(where, ()) if name == "--max-time" else ()
    for index, value in enumerate(values_of(option)):
        given = (f"{name}={value}",) if name.startswith("--") else (name, value)
        words = (*path, *before, *given)
        yield Case(id=f"{where} {name} {index}", words=words, code=2, says=_said(option, value))


def _said(option: click.Parameter, value: str) -> str:
    return _SAID.get(value, "") if isinstance(option.type, Words | FilePath) else ""


def _of_argument(
    path: tuple[str, ...], where: str, command: click.Command, argument: click.Argument
) -> Iterator[Case]:
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    before = [_GOOD_ARGUMENTS[each.name or ""] for each in arguments[: arguments.index(argument)]]
    for index, value in enumerate(values_of(argument)):
        yield Case(
            id=f"{where} {argument.name} {index}",
            words=(*path, *before, "--", value),
            code=2,
            says=_said(argument, value),
        )
