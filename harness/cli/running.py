"""From click's options to a run: what every command that compiles does alike."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import click

from harness.cells.places import CompileOptions
from harness.cells.spelling import SelectionOptions
from harness.cli.output import command_line, print_remarks
from harness.io.processes.cluster import MachinesGoneError, local_workers, open_machines
from harness.io.processes.hub import Hub
from harness.io.processes.machine import is_confined, passed_names
from harness.values.errors import InfrastructureError, UsageError

T = TypeVar("T")


def selection_words(options: Mapping[str, Any]) -> SelectionOptions:
    """The values of `selection_options`, or of those of them that a command has."""
    names = ("sm", "triton", "compiler", "ptxas", "assembler", "launch", "freeze_ptx", "formal")
    return SelectionOptions(
        kernel=options["kernel"],
        set=options.get("overrides", ()),
        config=options.get("config") or "",
        surroundings=surroundings(),
        **{name: options[name] for name in names if name in options},
    )


def surroundings() -> tuple[str, ...]:
    """The options that decide what launch code sees, where they are not the defaults."""
    passed = [word for name in sorted(passed_names()) for word in ("--pass-env", name)]
    return (*passed, *([] if is_confined() else ["--confine", "off"]))


def compile_options(options: Mapping[str, Any]) -> CompileOptions:
    """The values of `execution_options`."""
    memory = options["memory"]
    return CompileOptions(
        jobs=options["jobs"] or 0,
        timeout=options["timeout"],
        memory=int(memory * 2**30) if memory else 0,
        use_cache=not options["no_cache"],
        command=command_line(),
        warn=lambda words: print_remarks([words]),
    )


def run_to_the_end(job: Coroutine[None, None, T]) -> T:
    """Run to the end; Ctrl-C ends the children first, and keeps what was finished."""

    async def stoppable() -> T:
        task = asyncio.ensure_future(job)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        raise click.Abort from None


def check_scheduler(options: Mapping[str, Any], here: Mapping[str, bool] | None = None) -> bool:
    """Whether other machines are named; what is done `here`, by its option, needs none.

    Raises:
        UsageError: they are named by nothing, or beside an option that does not go with them.
    """
    where = options["scheduler"]
    if where is None:
        return False
    local_workers(where)
    for option, is_wanted in (here or {}).items():
        if is_wanted:
            raise UsageError(f"{option} executes on this machine: leave out --scheduler")
    return True


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
    from harness.matrix.nights.elsewhere import ToolsElsewhere, at_once  # noqa: PLC0415
    from harness.matrix.nights.workers import run_tool_task  # noqa: PLC0415 - only where it is wanted

    async with open_machines(where, run_tool_task) as machines:
        mine = at_once(machines, how)
        try:
            yield mine, lambda: ToolsElsewhere(machines, mine, tell)
        except MachinesGoneError as error:
            raise InfrastructureError(str(error)) from error
