"""What is said when a command cannot do what it was asked: one line, and its exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from harness.cli.output import print_json, print_note
from harness.values.errors import InfrastructureError, OutputError, TriageError
from harness.values.shown import shown, shown_in_a_line


def tell(error: BaseException | None, cli: click.Command) -> int:
    """Say on stderr what went wrong, and on stdout too where JSON is asked for; the exit code.

    None stands for what is a mistake of triage itself, whose traceback is printed already; `cli`
    is the whole command line.
    """
    if isinstance(error, click.Abort):
        print_note("interrupted; what was finished is stored")
        return 128 + signal.SIGINT
    if isinstance(error, click.ClickException):
        code, said = error.exit_code, _usage(error)
    else:
        code, said = _ours(error)
        print_note(said)
    if not isinstance(error, OutputError) and _wants_json(cli, sys.argv[1:]):
        try:
            print_json({"schema": 1, "error": said, "exit_code": code})
            sys.stdout.flush()
        except OutputError as lost:
            print_note(str(lost))
    return code


def _usage(error: click.ClickException) -> str:
    """As click shows it: how the command is used, and what is wrong."""
    said = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(shown(said), err=True)
        return said
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context:
        click.echo(shown(context.get_usage()), err=True)
        click.echo(f"Try '{shown(context.command_path)} --help' for help.\n", err=True)
    click.echo(f"Error: {shown_in_a_line(said)}", err=True)
    return said


def _ours(error: BaseException | None) -> tuple[int, str]:
    incomplete = InfrastructureError.exit_code
    if isinstance(error, TriageError):
        return error.exit_code, str(error)
    if isinstance(error, MemoryError):
        return incomplete, "there is not enough memory for triage itself; raise its limit"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return incomplete, f"{where}{error.strerror or error}"
    return incomplete, "the traceback above is a mistake of triage; please report it"


def _wants_json(command: click.Command, words: Sequence[str]) -> bool:
    """Whether `--json` is among the words as an option, and not as the value of another one."""
    rest = list(words)
    while isinstance(command, click.Group):
        context = click.Context(command)
        names = command.list_commands(context)
        at = next((index for index, word in enumerate(rest) if word in names), None)
        found = None if at is None else command.get_command(context, rest[at])
        if at is None or found is None:
            break
        command, rest = found, rest[at + 1 :]
    # Whatever is wrong with the other words.
    how: dict[str, Any] = {"resilient_parsing": True, "ignore_unknown_options": True}
    read = command.make_context(command.name, rest, allow_extra_args=True, **how)
    return bool(read.params.get("as_json"))
