"""Options that mean the same in every command, their sections, and which exclude each other.

A group of options reaches a command as one value, which `as_value` makes of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from harness.cli.amounts import Words, once
from harness.values.errors import TriageError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

_SECTIONS = {
    "What is selected": "base head kernel sm triton compiler ptxas assembler launch set config "
    "freeze-ptx package-version matrix only shard night bug again",
    "What is asked": "signature while script axis bad good sweep for measured minimized change "
    "level defined",
    "What is executed": "run formal on runner O schedules races trace beside repeat",
    "Inputs of a file of PTX": "buffer scalar expect grid block shared inputs",
    "On a GPU": "pack import inspect measure sanitize",
    "Limits": "max-time max-tries max-instructions programs most quick gpu-timeout timeout memory "
    "jobs",
    "Output": "out force patch format markdown list all cell-pages dry-run replay draft-duplicates "
    "strict-fixed fail-on json",
    "Surroundings": "resume seed scheduler no-cache confine pass-env verbose help",
}
"""The sections of a help, and which options are in each: a name means one thing everywhere."""


class Verb(click.Command):
    """A command whose help has sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by their sections; one that has none is of the surroundings."""
        section_of = {name: title for title, names in _SECTIONS.items() for name in names.split()}
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record and isinstance(option, click.Option):
                name = option.opts[0].lstrip("-")
                sections[section_of.get(name, "Surroundings")].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class SilentOption(click.Option):
    """An option on how to work, or what to print: it chooses no cells.

    Runs whose commands differ in nothing else are runs of the same kind (`triage diff`).
    """


EXECUTES = ("--run", "--formal", "--on", "--runner")
"""`--run`, and the options that imply it."""


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """These options, in the order in which the help shows them."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def as_value(
    name: str, read: Callable[..., object], *options: Callable[[F], F]
) -> Callable[[F], F]:
    """These options, which reach the command as one argument: what `read` makes of their values."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def bundled(*values: Any, **others: Any) -> Any:  # noqa: ANN401 - click's
            own = {word: others.pop(word) for word in names}
            return function(*values, **others, **{name: read(**own)})

        inner: list[click.Parameter] = bundled.__dict__.setdefault("__click_params__", [])
        count = len(inner)
        whole = together(*options)(cast("F", bundled))
        names = [option.name or "" for option in inner[count:] if option.expose_value]
        return whole

    return add


def _refusing(refusal: Callable[[list[str]], str | None]) -> Callable[[F], F]:
    """A check before the command: `refusal` says of the options that were given what is wrong."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def checked(*values: Any, **options: Any) -> Any:  # noqa: ANN401 - click's
            context = click.get_current_context()
            names = [
                name
                for option in context.command.params
                if context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
                for name in option.opts
            ]
            if complaint := refusal(names):
                raise UsageError(complaint)
            return function(*values, **options)

        return cast("F", checked)

    return add


def exclusive(*names: str) -> Callable[[F], F]:
    """One of these options at most."""

    def refusal(words: list[str]) -> str | None:
        rivals = [name for name in names if name in words]
        return f"{' and '.join(rivals)}: which one is meant?" if len(rivals) > 1 else None

    return _refusing(refusal)


def apart(from_: Sequence[str], *names: str, because: str) -> Callable[[F], F]:
    """None of these options beside any of `from_`, which the first of them stands for."""

    def refusal(words: list[str]) -> str | None:
        strangers = [name for name in names if name in words]
        if strangers and set(from_) & set(words):
            return f"{strangers[0]} does not apply to {from_[0]}: {because}"
        return None

    return _refusing(refusal)


def goes_with(needed: str, *names: str) -> Callable[[F], F]:
    """These options only beside `needed`."""

    def refusal(words: list[str]) -> str | None:
        orphans = [name for name in names if name in words and needed not in words]
        return f"{orphans[0]} goes with {needed}" if orphans else None

    return _refusing(refusal)


# Where the argument of a command is kept until `--kernel` is read.
_GIVEN = f"{__name__}.given"


Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completing(words_for: Callable[[str], Iterable[str]], *, else_file: bool = False) -> Completer:
    """What a shell offers: the words that begin so; else, with `else_file`, files of the folder."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        words: list[str] = []
        with contextlib.suppress(TriageError, OSError):
            words = [word for word in dict.fromkeys(words_for(begun)) if word.startswith(begun)]
        files = [CompletionItem(begun, type="file")] if else_file and not words else []
        return [*map(CompletionItem, words), *files]

    return complete


def _kernels(_begun: str) -> Iterable[str]:
    from harness.cells.repros.find import list_repros  # noqa: PLC0415 - only a shell wants it

    return [repro.name for repro in list_repros()[0]]


def _kernel(
    context: click.Context, option: click.Parameter, values: tuple[str, ...], *, is_required: bool
) -> str | None:
    """The kernel that `--kernel` or the argument names."""
    named, argument = once(context, option, values), context.meta.get(_GIVEN)
    if named and argument:
        raise UsageError(f"{argument} and --kernel {named}: which one is meant?")
    if is_required and not (named or argument or context.resilient_parsing):
        raise UsageError(
            f"name a kernel: `{context.command_path} FILE.py`, or --kernel NAME (`triage kernels` "
            "lists them)"
        )
    return named or argument


def kernel_options(words: str, *, is_required: bool = True) -> Callable[[F], F]:
    """The kernel, by the argument or by `--kernel`, of which the help says `words`."""
    completes = completing(_kernels, else_file=True)
    return together(
        click.argument(
            "given",
            type=Words(names_files=True),
            required=False,
            metavar="[KERNEL]",
            expose_value=False,
            is_eager=True,
            callback=lambda context, _, value: context.meta.__setitem__(_GIVEN, value),
            shell_complete=completes,
        ),
        click.option(
            "--kernel",
            type=Words(names_files=True),
            multiple=True,
            callback=partial(_kernel, is_required=is_required),
            metavar="KERNEL",
            help=words,
            shell_complete=completes,
        ),
    )


json_option = click.option(
    "--json", "as_json", cls=SilentOption, is_flag=True, help="One JSON document on stdout."
)

while_option = click.option(
    "--while",
    "condition",
    metavar="CONDITION",
    help='Follow this in the place of a failure: "n_regs<=32 and spill_stores>4096".',
)

holds_option = click.option(
    "--while",
    "condition",
    metavar="CONDITION",
    help='Show where this holds: "n_regs<=32 and spill_stores>4096".',
)


def package_version_option(words: str) -> Callable[[F], F]:
    """The releases of a package; `words` are what the help says of them."""
    return click.option("--package-version", metavar="SPEC", help=words)
