"""Options that mean the same in every command, and which of them exclude each other.

A group of options reaches a command as one value, which `as_value` makes of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from harness.values.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


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
