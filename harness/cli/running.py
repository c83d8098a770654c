"""From click's options to a run: what every command that compiles takes, and does alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from harness.cells.matrix_rules import select_stored
from harness.cells.places import CompileOptions
from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FiniteRange, Gibibytes
from harness.cli.options import Completer, apart, completing, group, kernel_option, option, silent
from harness.cli.output import command_line, print_remarks
from harness.cli.progress.steps import preparing
from harness.frontends.plan import Selection
from harness.io.packages.versions import LATEST
from harness.io.processes.cluster import MachinesGoneError, local_workers, open_machines
from harness.io.processes.hub import Hub
from harness.io.processes.machine import (
    CONFINE,
    MODES,
    PASS_ENV,
    confinement_words,
    is_confined,
    is_variable,
    passed_names,
)
from harness.values.errors import InfrastructureError, TriageError, UsageError
from harness.values.toolchain import BUNDLED, INSTALLED, PTXAS, TRITON

T = TypeVar("T")


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

    return completing(versions)


TOOLCHAINS: dict[str, Any] = {
    "triton": option(
        often=True,
        metavar="X",
        help="Triton version, specifier ('>=3.6'), `latest`, or `installed`; any distribution's: "
        "NAME==VERSION. Repeatable. Default: the repro's, else installed.",
        shell_complete=_versions(TRITON, LATEST, INSTALLED),
    ),
    "compiler": option(
        metavar="KIND==X",
        help="Any compiler's version; `triton==3.6.0` is `--triton 3.6.0`. Repeatable.",
    ),
    "ptxas": option(
        often=True,
        metavar="X",
        help="ptxas version, specifier ('>=13.1,<13.4'), `latest`, or `bundled` (the one that "
        "this Triton picks; the default). Repeatable.",
        shell_complete=_versions(PTXAS, LATEST, BUNDLED),
    ),
    "assembler": option(
        metavar="KIND==X",
        help="Any assembler's version; `ptxas==13.1.115` is `--ptxas 13.1.115`. Repeatable.",
    ),
}
"""Which compilers and assemblers: parts of a group that is a `SelectionOptions`."""


def sm_option(more: str = "", **how: Any) -> Any:
    """`--sm`, with `more` words in the help."""
    words = f"GPU: H100, 90a, sm_100a, 100f ... Repeatable.{more}"
    return option(often=True, metavar="SM", help=words, shell_complete=completing(_targets), **how)


_launch_option = option(
    metavar="NAME",
    help="Launch function, or a pattern of them; main#2: its second launch of a kernel.",
)
_config_option = option(
    often=True,
    metavar="FILTER",
    help='Only configs that match: "num_warps=4|8,maxnreg=none"; "*=none": and have no other '
    "value.",
)


def read_selection(**words: Any) -> SelectionOptions:
    """The values of `selection_options`, or of those of them that a command has."""
    return SelectionOptions(surroundings=surroundings(), **words)


def surroundings() -> tuple[str, ...]:
    """The options that decide what launch code sees, where they are not the defaults."""
    passed = [word for name in sorted(passed_names()) for word in ("--pass-env", name)]
    return (*passed, *([] if is_confined() else ["--confine", "off"]))


def selection_options(*, kernel_required: bool = True) -> Any:
    """What to compile with what: a `SelectionOptions`.

    The kernel is named by the argument or by `--kernel`, and is "" where it may be left out.
    """
    return group(
        read_selection,
        of=SelectionOptions,
        kernel=kernel_option(
            "A repro's name or a pattern of names (see `triage kernels`), FILE.py, FILE.py::NAME, "
            "or FILE.ptx; as the argument.",
            is_required=kernel_required,
        ),
        sm=sm_option(" Default: the repro's, else this machine's GPU."),
        **TOOLCHAINS,
        launch=_launch_option,
        set=option(
            metavar="NAME=VALUE", help="Override a parameter of the launch function. Repeatable."
        ),
        config=_config_option,
        freeze_ptx=option(
            help="Give every ptxas the PTX generated for the bundled one, byte for byte."
        ),
    )


def _tool_option(title: str, example: str) -> Any:
    words = f"Only this version of {title}, or specifier ('{example}'). Repeatable."
    return option(often=True, metavar="X", help=words)


def _kind_option(name: str, example: str) -> Any:
    words = f"Only this {name}, or versions of it: '{example}'. Repeatable."
    return option(metavar="KIND==X", help=words)


_ONLY: dict[str, Any] = {
    "sm": sm_option(),
    "triton": _tool_option("Triton", ">=3.6"),
    "compiler": _kind_option("compiler", "nvcc>=13"),
    "ptxas": _tool_option("ptxas", ">=13.1,<13.4"),
    "assembler": _kind_option("assembler", "tileiras"),
    "launch": _launch_option,
    "set": option(metavar="NAME=VALUE", help="Only launches with this override. Repeatable."),
    "config": _config_option,
}
only_options = partial(group, select_stored, **_ONLY)
"""Which cells of those that are there, by the words of `selection_options`: selectors."""
stored_options = partial(
    group,
    select_stored,
    kernel=option(metavar="KERNEL", help="Only this kernel, or a pattern of names."),
    **_ONLY,
)
"""As `only_options`, of any kernel."""


def _pass_on(names: Sequence[str]) -> None:
    for name in names:
        if not is_variable(name):
            raise click.BadParameter(f"{name!r} is not the name of a variable")
    os.environ[PASS_ENV] = ",".join(sorted({*passed_names(), *names}))


_CONFINEMENT: dict[str, Any] = {
    # Kept in the environment, for what this process starts too.
    "confine": silent(
        type=click.Choice(MODES),
        envvar=CONFINE,
        default=MODES[0],
        expose_value=False,
        is_eager=True,
        reads=lambda mode: os.environ.__setitem__(CONFINE, mode),
        help="Keep launch code from your files, environment and network: as far as this "
        "machine is able to, or not at all, or refuse to run it.",
    ),
    "pass_env": option(
        multiple=True,
        metavar="NAME",
        expose_value=False,
        reads=_pass_on,
        help="An environment variable that launch code gets too. Repeatable.",
    ),
    "verbose": silent(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        reads=lambda _: click.echo(f"launch code: {confinement_words()[1]}", err=True),
        help="Say first how launch code is confined here.",
    ),
}


def scheduler_option(words: str) -> Any:
    """Other machines; `words` are what they are to do, as the help says it."""

    def read(scheduler: str | None = None) -> str | None:
        if scheduler is not None:
            local_workers(scheduler)  # refuses what is none
        return scheduler

    return group(
        read,
        apart(["--scheduler"], "--jobs", because="each worker is one compiler at a time"),
        scheduler=silent(
            metavar="ADDRESS",
            help=f"{words} by the workers of a Dask scheduler (tcp://HOST:PORT), or by N workers "
            "in processes of this machine (local:N).",
        ),
    )


jobs_option = partial(
    silent, type=click.IntRange(1, 512), help="Compilers at once. Default: all cores."
)
no_cache_option = partial(silent, help="Compile again what is stored.")


def _compile_options(
    *, timeout: float, jobs: int = 0, memory: float = 0, no_cache: bool = False
) -> CompileOptions:
    return CompileOptions(
        jobs=jobs,
        timeout=timeout,
        memory=int(memory * 2**30),
        use_cache=not no_cache,
        command=command_line(),
        warn=print_remarks,
    )


tool_options = partial(
    group,
    _compile_options,
    jobs=jobs_option(),
    timeout=silent(type=FiniteRange(1, 86400), default=300.0, help="Seconds for one compiler run."),
    memory=silent(
        type=Gibibytes(0.1, 4096),
        help="GiB for one compiler run, and for launch code: 6, or with a unit, 6GB. Default: half "
        "of the machine, shared out.",
    ),
)
"""How to work, where no launch code is run: a `CompileOptions`."""
execution_options = partial(tool_options, no_cache=no_cache_option(), **_CONFINEMENT)
"""How to work: a `CompileOptions`."""


def run_to_the_end(job: Coroutine[None, None, T]) -> T:
    """Run to the end; Ctrl-C ends the children first, and keeps what was finished."""
    signals: list[int] = []

    async def stoppable() -> T:
        task = asyncio.ensure_future(job)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            signals.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await task

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError as error:
        if not signals:
            raise RuntimeError("the work was cancelled, and no signal asked for it") from error
        raise click.Abort from None


def select_named(words: SelectionOptions) -> tuple[Selection, ...]:
    """What is selected of each kernel that `--kernel` means; it says which GPU is the default.

    Raises:
        UsageError, InfrastructureError: as `select_all`.
    """
    from harness.cells.selection import select_all  # noqa: PLC0415 - as above

    with preparing():
        selections = select_all(words)
    _tell_gpu(words, selections)
    return selections


def _tell_gpu(words: SelectionOptions, selections: Sequence[Selection]) -> None:
    for selection in selections:
        if not (words.sm or selection.repro.targets):
            print_remarks(*selection.notes[:1])


def select_single(words: SelectionOptions, follows: str, *options: str) -> Selection:
    """What is selected, where `options` say what there may be one of.

    Raises:
        UsageError: one of them means several; `follows` says what needs one.
    """
    from harness.cells.selection import select  # noqa: PLC0415 - as above

    with preparing():
        selection = select(words)
    _tell_gpu(words, [selection])
    values = {
        "--sm": selection.targets,
        "--launch": selection.launches,
        "--triton": selection.compilers,
        "--ptxas": selection.ptxas,
    }
    for name in options:
        if len(values[name]) != 1:
            raise UsageError(f"{name}: {len(values[name])} are meant; {follows}")
    return selection


@contextlib.asynccontextmanager
async def hubs_of(
    where: str | None, how: CompileOptions, tell: Callable[[str], None]
) -> AsyncIterator[tuple[CompileOptions, Callable[[], Hub]]]:
    """Hubs whose tools run on the machines of a scheduler, and how to work with them.

    Raises:
        UsageError, InfrastructureError: as `open_machines`; or the machines are gone.
    """
    if where is None:
        yield how, Hub
        return
    from harness.matrix.elsewhere import ToolsElsewhere, at_once  # noqa: PLC0415
    from harness.matrix.workers import run_tool_task  # noqa: PLC0415 - only where it is wanted

    async with open_machines(where, run_tool_task) as machines:
        mine = at_once(machines, how)
        try:
            yield mine, lambda: ToolsElsewhere(machines, mine, tell)
        except MachinesGoneError as error:
            raise InfrastructureError(str(error)) from error
