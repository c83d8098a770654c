"""The `triage` command: finds its subcommands lazily, turns our errors into exit codes."""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from collections.abc import Sequence
from keyword import iskeyword
from pathlib import Path
from typing import NoReturn

import click

import harness
from harness.cli import streams
from harness.cli.amounts import Words
from harness.cli.progress.steps import beating
from harness.values.errors import OutputError, ProgramError
from harness.values.target import EXAMPLES
from harness.values.toolchain import name_kinds_with

# Each command, and what `triage --help` says of it: to load none keeps that instant.
_TABLE = """\
First:
compile Compile every config of a kernel and report the result of each.
run Execute what was compiled, without a GPU, and say what came out.
bisect Find the version in which a failure began, and ended.
workaround Find what can be done today, and prove it.

Whose fault:
blame Determine who is responsible: ptxas, Triton, the kernel, a combination.
log Read a log: what failed, and the command to go on with.
minimize Reduce a failure to the smallest input that shows it.
report Write an issue that upstream can act on, and check it.
verify Try what an issue claims, and say of each claim whether it holds.

In CI:
pr Compare the machine code of a pull request with its base.
matrix Run a whole matrix, and say what changed.
diff Say what changed between two runs.
watch Send what a night changed, one message each.
site Write what is stored as static pages, to look at.

More:
show Print an artifact of a cell: IR, PTX, SASS, logs.
history One row for each version: verdict, registers, spills.
rank Order the configs of a kernel by time, or by spills and occupancy.
bugs Failures by signature: versions, states, and who knows of them.
package Find the kernels of a package that a target leaves without configs.
binaries List the kernels of finished binaries, and what changed in them.
pins Say which Triton and ptxas a pinned torch brings, and what is known of them.
hunt Look for unknown bugs of a compiler, unattended.
export Write results as JSON lines, CSV, SQLite, ...

Setup:
doctor Check this machine, and say what to do about what does not work.
toolchain List, install, verify, remove Tritons and ptxas.
cache Show and trim what is stored.
kernels List the kernels that have a repro.
import Write repros from a Triton cache or dump folder.
"""
_GROUPS = {
    title: dict(line.split(maxsplit=1) for line in lines)
    for title, *lines in (part.splitlines() for part in _TABLE.split("\n\n"))
}
_COMMANDS = {name: words for group in _GROUPS.values() for name, words in group.items()}

_WORDS = Words()

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_EPILOG = f"""\b
Example:
  triage compile my_kernel.py --sm H100
  triage compile --help  # the options that people use; --help-all has every one

GPUs, as --sm takes them: {EXAMPLES}.

\b
Exit codes: 0 as expected, 1 a failure was found, 2 wrong usage, 3 nothing selected,
4 incomplete (this machine or a toolchain could not tell)."""


class _LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        # Its module has its name; a word that Python keeps for itself ends in `_` there.
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = importlib.import_module(f"harness.cli.{name}").command
        importlib.import_module("harness.cells.spelling").silence_with(_silent_options)
        _adapt(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            word, words = error.command_name, None
            if Path(word.partition("::")[0]).exists():
                words = f"There is no command {word!r}: give `triage compile {word}`."
            near = [] if words else list(_COMMANDS)
            raise click.NoSuchCommand(word, words, near, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, _COMMANDS))
        for title, commands in _GROUPS.items():
            with formatter.section(title.rstrip(":")):
                formatter.write_dl([(f"{name:{width}}", words) for name, words in commands.items()])


def _adapt(command: click.Command) -> None:
    """Every command has our settings, and every text that has no type of its own is `Words`."""
    command.context_settings = _CONTEXT
    for parameter in command.params:
        if parameter.type is click.STRING:
            parameter.type = _WORDS
    for below in getattr(command, "commands", {}).values():
        _adapt(below)


@click.command(cls=_LazyGroup, context_settings=_CONTEXT, epilog=_EPILOG)
@click.version_option(harness.__version__, prog_name="triage")
def cli() -> None:
    """What each compiler did to a GPU kernel: Triton x ptxas x SM, without a GPU."""


def _silent_options(words: Sequence[str]) -> dict[str, bool]:
    """The options of a command that choose no cells, and whether a value follows each."""
    from harness.cli.options import SilentOption  # noqa: PLC0415 - no help needs it

    command: click.Command = cli
    for word in words[1:]:
        within = (
            command.get_command(click.Context(command), word)
            if isinstance(command, click.Group)
            else None
        )
        if within is None:
            break
        command = within
    return {
        name: not option.is_flag
        for option in command.params
        if isinstance(option, SilentOption)
        for name in option.opts
    }


def main() -> NoReturn:
    """Run the command line; our errors become one line and their exit code."""
    # Most of what a command makes lives to its end; to look for garbage after each 700 objects
    # takes a tenth of an unchanged night.
    gc.set_threshold(100_000)
    streams.take_over()
    # For rows of a compiler that the command itself has no need of.
    name_kinds_with(lambda: importlib.import_module("harness.frontends.registry").front_ends())
    try:
        code = _run()
        streams.finish()
    except OutputError as error:
        code = _tell(error)
    sys.exit(code)


def _run() -> int:
    try:
        with beating(" ".join([*sys.argv[1:2], "is at work"])):
            code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except OutputError:
        raise
    except (click.Abort, click.ClickException, ProgramError, OSError, MemoryError) as error:
        return _tell(error)
    except Exception:  # noqa: BLE001 - Python would exit with 1, which says "a failure was found"
        traceback.print_exc()
        return _tell(None)
    return code if isinstance(code, int) else 0


def _tell(error: BaseException | None) -> int:
    # What it needs is loaded when something went wrong, and not before.
    return int(importlib.import_module("harness.cli.output").tell(error, cli))
