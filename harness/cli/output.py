"""Consoles and documents: results on stdout, everything else on stderr.

All that the commands print goes through here, where text from outside is made harmless.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich import filesize
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from harness.cli.streams import reader_is_gone
from harness.tables.said import Block, Tone, say
from harness.tables.terminal import for_terminal
from harness.values.errors import InfrastructureError, OutputError, ProgramError
from harness.values.shown import shown, shown_in_a_line

# Wide enough that no column of a table is cut where it is not read live.
_PIPE_WIDTH = 200
# JSON spells out the control characters below 0x20 by itself, and no others.
_HIDDEN_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class _Console(Console):
    """A console that shows the control characters of a text instead of sending them."""

    def render_str(self, text: str, **how: Any) -> Text:
        # Before a text is measured: columns stay straight.
        return super().render_str(shown(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        segments = super().render(renderable, options)
        # All else that is rendered is made of texts.
        if not isinstance(renderable, Text):
            return segments
        return (each if each.control else each._replace(text=shown(each.text)) for each in segments)


size_words = filesize.decimal
"""Bytes in the largest decimal unit, as `1.5 MB`."""


def results_console() -> Console:
    """The console for results; outside a terminal it is wide and plain. Honours NO_COLOR."""
    wide = int(os.environ.get("COLUMNS", _PIPE_WIDTH))
    return _Console(width=None if sys.stdout.isatty() else wide, **_plain_words())


def status_console() -> Console:
    """The console for progress and notes."""
    return _Console(stderr=True, **_plain_words())


def _plain_words() -> dict[str, Any]:
    """Nothing that we print is markup; and without colour (NO_COLOR) no bold either."""
    bare: dict[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return {"highlight": False, "emoji": False, "markup": False, **bare}


def print_said(blocks: Iterable[Block], *, whole_lines: bool = False) -> None:
    """What a command has to say, on stdout; with `whole_lines`, the terminal breaks long ones."""
    results_console().print(for_terminal(blocks), soft_wrap=whole_lines)


def said_text(blocks: Iterable[Block], width: int, *, in_colour: bool) -> str:
    """What a command has to say, as the text that a terminal of this width takes."""
    stream = io.StringIO()
    console = _Console(file=stream, width=width, force_terminal=in_colour, **_plain_words())
    console.print(for_terminal(blocks))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def print_remarks(*lines: str) -> None:
    """Lines on stderr that say who speaks, of any length; a command says each of them once."""
    context = click.get_current_context(silent=True)
    printed: set[str] = context.meta.setdefault(__name__, set()) if context else set()
    for line in lines:
        if line in printed:
            continue
        printed.add(line)
        status_console().print(f"triage: {line}", soft_wrap=True)


def print_json(document: object) -> None:
    """One JSON document on stdout, and nothing else."""
    click.echo(json_text(document))


def print_result(document: object, blocks: Iterable[Block], *, as_json: bool) -> None:
    """What a command found: one JSON document, or what it has to say."""
    if as_json:
        print_json(document)
    else:
        print_said(blocks)


def json_text(document: object) -> str:
    """A JSON document that does a terminal no harm."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return _HIDDEN_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_text(text: str) -> None:
    """A document on stdout: its lines as they are."""
    click.echo(shown(text), nl=False)


def print_line(text: str) -> None:
    """One line on stdout, of any length."""
    click.echo(shown_in_a_line(text))


def print_next(steps: Iterable[tuple[str, str]]) -> None:
    """The commands to go on with, each with what it tells; nothing where there is none."""
    lines = [f"  {command}  # {why}" for command, why in steps]
    if lines:
        print_said([say("Next:", Tone.HEAD)])
    for line in lines:
        print_line(line)


def print_note(text: str) -> None:
    """One line on stderr that says who speaks."""
    click.echo(f"triage: {shown_in_a_line(text)}", err=True)


def print_bytes(data: bytes) -> None:
    """A file on stdout: as it is, but on a terminal as text that does it no harm."""
    if sys.stdout.isatty():
        click.echo(shown(data.decode("utf-8", "backslashreplace")))
    elif not reader_is_gone():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def command_line(words: Iterable[str] | None = None) -> str:
    """The command that runs, as a shell takes it: what the store and the reports keep of it.

    `words` are its arguments, those of this process by default. A file name that is not UTF-8
    has its odd bytes spelled out.
    """
    line = shlex.join(["triage", *(sys.argv[1:] if words is None else words)])
    return line.encode("utf-8", "backslashreplace").decode()


# What is said when a command cannot do what it was asked: one line, and its exit code.


def tell(error: BaseException | None, cli: click.Command) -> int:
    """Say on stderr what went wrong, and on stdout too where JSON is asked for; the exit code.

    None stands for what is a mistake of triage itself, whose traceback is printed already; `cli`
    is the whole command line.
    """
    if isinstance(error, click.Abort):
        print_note("interrupted; what was finished is stored")
        return 128 + signal.SIGINT
    if isinstance(error, click.ClickException):
        code, complaint = error.exit_code, _usage(error)
    else:
        code, complaint = _ours(error)
        print_note(complaint)
        if advice := getattr(error, "advice", ""):
            click.echo(f"This may launch its kernel, with your sizes:\n\n{shown(advice)}", err=True)
    if not isinstance(error, OutputError) and _wants_json(cli, sys.argv[1:]):
        try:
            print_json({"schema": 1, "error": complaint, "exit_code": code})
            sys.stdout.flush()
        except OutputError as lost:
            print_note(str(lost))
    return code


def _usage(error: click.ClickException) -> str:
    """As click shows it: how the command is used, and what is wrong."""
    complaint = error.format_message()
    if complaint.startswith("Got unexpected extra argument"):
        extra = complaint.partition("(")[2].rstrip(")").split()
        if all(Path(word).is_file() for word in extra):
            complaint += ": quote a pattern of files, so that the shell leaves it as it is."
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(shown(complaint), err=True)
        return complaint
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context:
        click.echo(shown(context.get_usage()), err=True)
        click.echo(f"Try '{shown(context.command_path)} --help' for help.\n", err=True)
    click.echo(f"Error: {shown_in_a_line(complaint)}", err=True)
    return complaint


def _ours(error: BaseException | None) -> tuple[int, str]:
    incomplete = InfrastructureError.exit_code
    if isinstance(error, ProgramError):
        return error.exit_code, str(error)
    if isinstance(error, MemoryError):
        return incomplete, "there is not enough memory for triage itself; raise its limit"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return incomplete, f"{where}{error.strerror or error}"
    return incomplete, "the traceback above is a mistake of triage; please report it"


def _wants_json(command: click.Command, words: Sequence[str]) -> bool:
    """Whether `--json` is among the words as an option, and not as the value of another one."""
    remaining = list(words)
    while isinstance(command, click.Group):
        context = click.Context(command)
        names = command.list_commands(context)
        at = next((index for index, word in enumerate(remaining) if word in names), None)
        subcommand = None if at is None else command.get_command(context, remaining[at])
        if at is None or subcommand is None:
            break
        command, remaining = subcommand, remaining[at + 1 :]
    # Whatever is wrong with the other words.
    how: dict[str, Any] = {"resilient_parsing": True, "ignore_unknown_options": True}
    read = command.make_context(command.name, remaining, allow_extra_args=True, **how)
    return bool(read.params.get("as_json"))
