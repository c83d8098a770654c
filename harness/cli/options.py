"""Options that mean the same in every command: what they hold, complete, and exclude."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from harness.cli.amounts import FiniteRange, Words, once
from harness.io.packages.versions import LATEST
from harness.io.processes.machine import (
    CONFINE,
    MODES,
    PASS_ENV,
    confinement_words,
    is_variable,
    passed_names,
)
from harness.values.errors import TriageError, UsageError
from harness.values.toolchain import BUNDLED, INSTALLED, PTXAS, TRITON

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completing(words_for: Callable[[str], Iterable[str]], *, else_file: bool = False) -> Completer:
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


def _targets(begun: str) -> Iterable[str]:
    """The GPUs that are known, as ptxas spells them."""
    from harness.cells.selection import SUFFIX_SINCE  # noqa: PLC0415 - as above
    from harness.values.limits import KNOWN_CAPABILITIES  # noqa: PLC0415

    return [
        f"{'sm_' if begun.startswith('s') else ''}{capability}{suffix}"
        for capability in KNOWN_CAPABILITIES
        for suffix, since in (("", 0), *SUFFIX_SINCE.items())
        if capability >= since
    ]


def _versions(kind: str, *words: str) -> Completer:
    """The versions of a tool that are installed, and `words` that stand for some."""

    def versions(_begun: str) -> Iterable[str]:
        from harness.io.toolchains.installed import installed_versions  # noqa: PLC0415 - as above

        # A folder that cannot be read leaves the words.
        with contextlib.suppress(TriageError, OSError):
            return [*map(str, installed_versions(kind)), *words]
        return words

    return _completing(versions)


F = TypeVar("F", bound=Callable[..., Any])

# Where the argument of a command is kept until `--kernel` is read.
_GIVEN = f"{__name__}.given"


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


def _refusing(refusal: Callable[[list[str]], str | None]) -> Callable[[F], F]:
    """A check before the command: `refusal` says of the options that were given what is wrong."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def checked(*values: Any, **options: Any) -> Any:  # noqa: ANN401 - click's
            context = click.get_current_context()
            given = [
                name
                for option in context.command.params
                if context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
                for name in option.opts
            ]
            if said := refusal(given):
                raise UsageError(said)
            return function(*values, **options)

        return cast("F", checked)

    return add


def exclusive(*names: str) -> Callable[[F], F]:
    """One of these options at most."""

    def refusal(given: list[str]) -> str | None:
        found = [name for name in names if name in given]
        return f"{' and '.join(found)}: which one is meant?" if len(found) > 1 else None

    return _refusing(refusal)


def apart(from_: Sequence[str], *names: str, because: str) -> Callable[[F], F]:
    """None of these options beside any of `from_`, which the first of them stands for."""

    def refusal(given: list[str]) -> str | None:
        found = [name for name in names if name in given] if set(from_) & set(given) else []
        return f"{found[0]} does not apply to {from_[0]}: {because}" if found else None

    return _refusing(refusal)


def goes_with(needed: str, *names: str) -> Callable[[F], F]:
    """These options only beside `needed`."""

    def refusal(given: list[str]) -> str | None:
        found = [name for name in names if name in given and needed not in given]
        return f"{found[0]} goes with {needed}" if found else None

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


toolchain_options = together(
    click.option(
        "--triton",
        multiple=True,
        metavar="X",
        help="Triton version, specifier ('>=3.6'), `latest`, or `installed`. Repeatable. "
        "Default: the repro's, else installed.",
        shell_complete=_versions(TRITON, LATEST, INSTALLED),
    ),
    click.option(
        "--compiler",
        multiple=True,
        metavar="KIND==X",
        help="Any compiler's version; `triton==3.6.0` is `--triton 3.6.0`. Repeatable.",
    ),
    click.option(
        "--ptxas",
        multiple=True,
        metavar="X",
        help="ptxas version, specifier ('>=13.1,<13.4'), `latest`, or `bundled` (the one that "
        "this Triton picks; the default). Repeatable.",
        shell_complete=_versions(PTXAS, LATEST, BUNDLED),
    ),
    click.option(
        "--assembler",
        multiple=True,
        metavar="KIND==X",
        help="Any assembler's version; `ptxas==13.1.115` is `--ptxas 13.1.115`. Repeatable.",
    ),
)
"""Which compilers and assemblers."""


def _kernel(
    context: click.Context, option: click.Parameter, values: tuple[str, ...], *, is_required: bool
) -> str | None:
    """The kernel that `--kernel` or the argument names."""
    named, given = once(context, option, values), context.meta.get(_GIVEN)
    if named and given:
        raise UsageError(f"{given} and --kernel {named}: which one is meant?")
    if is_required and not (named or given or context.resilient_parsing):
        raise UsageError(
            f"name a kernel: `{context.command_path} FILE.py`, or --kernel NAME (`triage kernels` "
            "lists them)"
        )
    return named or given


def selection_options(function: F, *, kernel_required: bool = True) -> F:
    """What to compile with what; the kernel is named by the argument or by `--kernel`."""
    return together(
        click.argument(
            "given",
            type=Words(names_files=True),
            required=False,
            metavar="[KERNEL]",
            expose_value=False,
            is_eager=True,
            callback=lambda context, _, value: context.meta.__setitem__(_GIVEN, value),
            shell_complete=_completing(_kernels, else_file=True),
        ),
        click.option(
            "--kernel",
            type=Words(names_files=True),
            multiple=True,
            callback=partial(_kernel, is_required=kernel_required),
            metavar="KERNEL",
            help="A repro's name or a pattern of names (see `triage kernels`), FILE.py, "
            "FILE.py::NAME, or FILE.ptx; as the argument.",
            shell_complete=_completing(_kernels, else_file=True),
        ),
        click.option(
            "--sm",
            multiple=True,
            metavar="SM",
            help="GPU target: 90a, sm_100a, 100f ... Repeatable. Default: the repro's.",
            shell_complete=_completing(_targets),
        ),
        toolchain_options,
        click.option("--launch", metavar="NAME", help="Launch function, or a pattern of them."),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="NAME=VALUE",
            help="Override a parameter of the launch function. Repeatable.",
        ),
        click.option(
            "--config",
            metavar="FILTER",
            help='Only configs that match: "num_warps=4|8,maxnreg=none"; "*=none": and have no '
            "other value.",
        ),
        click.option(
            "--freeze-ptx",
            is_flag=True,
            help="Give every ptxas the PTX generated for the bundled one, byte for byte.",
        ),
    )(function)


def _pass_on(context: click.Context, parameter: click.Parameter, names: Sequence[str]) -> None:  # noqa: ARG001
    for name in names:
        if not is_variable(name):
            raise click.BadParameter(f"{name!r} is not the name of a variable")
    os.environ[PASS_ENV] = ",".join(sorted({*passed_names(), *names}))


def _say_confinement(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:  # noqa: ARG001, FBT001
    if wanted:
        click.echo(f"launch code: {confinement_words()[1]}", err=True)


_confinement_options = together(
    # Kept in the environment, for what this process starts too.
    click.option(
        "--confine",
        cls=SilentOption,
        type=click.Choice(MODES),
        envvar=CONFINE,
        default=MODES[0],
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=lambda _, __, mode: os.environ.__setitem__(CONFINE, mode),
        help="Keep launch code from your files, environment and network: as far as this "
        "machine is able to, or not at all, or refuse to run it.",
    ),
    click.option(
        "--pass-env",
        multiple=True,
        metavar="NAME",
        expose_value=False,
        callback=_pass_on,
        help="An environment variable that launch code gets too. Repeatable.",
    ),
    click.option(
        "-v",
        "--verbose",
        cls=SilentOption,
        is_flag=True,
        expose_value=False,
        callback=_say_confinement,
        help="Say first how launch code is confined here.",
    ),
)


def scheduler_option(words: str) -> Callable[[F], F]:
    """Other machines; `words` are what they are to do, as the help says it."""
    option = click.option(
        "--scheduler",
        cls=SilentOption,
        metavar="ADDRESS",
        help=f"{words} by the workers of a Dask scheduler (tcp://HOST:PORT), or by N workers in "
        "processes of this machine (local:N).",
    )
    each = "each worker is one compiler at a time"
    return lambda function: option(apart(["--scheduler"], "--jobs", because=each)(function))


execution_options = together(
    click.option(
        "--jobs",
        cls=SilentOption,
        type=click.IntRange(1, 512),
        help="Compilers at once. Default: all cores.",
    ),
    click.option(
        "--timeout",
        cls=SilentOption,
        type=FiniteRange(1, 86400),
        default=300.0,
        show_default=True,
        help="Seconds for one compiler run.",
    ),
    click.option(
        "--memory",
        cls=SilentOption,
        type=FiniteRange(0.1, 4096),
        help="GiB for one compiler run, and for launch code. Default: 80 % of the machine, "
        "shared out.",
    ),
    click.option(
        "--no-cache", cls=SilentOption, is_flag=True, help="Compile again what is stored."
    ),
    _confinement_options,
)
"""How to work."""
