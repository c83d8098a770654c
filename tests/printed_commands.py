"""The `triage ...` commands in what commands print, and whether the command line takes them."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import click

from harness.cli.main import cli

__all__ = ["check_printed", "parse", "printed_commands"]

# As `harness/cli/main.py` has them; what follows `triage` in prose is another word.
_VERBS = "|".join(cli.list_commands(click.Context(cli)))
_COMMAND = re.compile(rf"([`']?)\btriage ({_VERBS})\b[^\n]*")
# Words that stand for what the reader puts there.
_PLACEHOLDER = re.compile(r"\b(FILE|KERNEL|CELL|NAME|N|K|X|VERSION)\b|\.\.\.|\[OPTIONS\]")


def printed_commands(text: str) -> list[str]:
    """Each command in a text, once: a JSON document, a page, Markdown, or lines."""
    return list(dict.fromkeys(each for piece in _pieces(text) for each in _commands(piece)))


def _pieces(text: str) -> Iterator[str]:
    try:
        document = json.loads(text)
    except ValueError:
        yield html.unescape(text) if text.lstrip().startswith("<") else text
        return
    todo = [document]
    while todo:
        match todo.pop():
            case str(found):
                yield found
            case dict(found):
                todo += found.values()
            case list(found):
                todo += found


def _commands(text: str) -> Iterator[str]:
    for found in _COMMAND.finditer(text):
        command = found[0]
        if found[1]:
            command = command[1:].partition(found[1])[0]
        command = re.split(r"  # | goes on$|</", command)[0].strip()
        if not _PLACEHOLDER.search(command) and _is_typed(command):
            yield command


def _is_typed(command: str) -> bool:
    """Whether it is a command and not prose, nor the name of one."""
    words = command.split()
    return len(words) == 3 or any(word.startswith("--") for word in words[2:])


def parse(command: str) -> click.Context:
    """What the command line reads in a command.

    Raises:
        click.UsageError: it does not take it.
    """
    words = shlex.split(command, comments=True)
    with patch.dict(os.environ):
        context = cli.make_context("triage", words[1:])
        while isinstance(context.command, click.Group) and context._protected_args:
            rest = [*context._protected_args, *context.args]
            name, found, rest = context.command.resolve_command(context, rest)
            assert found is not None
            context = found.make_context(name, rest, parent=context)
        return context


def check_printed(text: str, folder: Path) -> None:
    """Every command in a text is one that the command line takes in this folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        for command in printed_commands(text):
            try:
                parse(command)
            except click.exceptions.Exit:
                pass
            except click.ClickException as error:
                raise AssertionError(f"{command}\n{error.format_message()}") from error
    finally:
        os.chdir(before)
