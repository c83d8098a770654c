"""From click's options to a run: what every command that compiles does alike."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import click

from harness.cells.compile import CompileOptions
from harness.cells.selection import SelectionOptions
from harness.cli.output import command_line

__all__ = ["compile_options", "run_to_the_end", "selection_words", "spelled"]

T = TypeVar("T")


def selection_words(options: Mapping[str, Any]) -> SelectionOptions:
    """The values of `selection_options`."""
    return SelectionOptions(
        kernel=options["kernel"],
        sm=options["sm"],
        triton=options["triton"],
        compiler=options["compiler"],
        ptxas=options["ptxas"],
        assembler=options["assembler"],
        launch=options["launch"],
        set=options["overrides"],
        config=options["config"],
        freeze_ptx=options["freeze_ptx"],
        formal=options.get("formal", False),
    )


def spelled(words: SelectionOptions) -> list[str]:
    """The options that select the cells, as they are written on a command line."""
    found = ["--kernel", words.kernel]
    for name, values in (
        ("--sm", words.sm),
        ("--triton", words.triton),
        ("--compiler", words.compiler),
        ("--ptxas", words.ptxas),
        ("--assembler", words.assembler),
        ("--set", words.set),
    ):
        for value in values:
            found += [name, value]
    found += ["--launch", words.launch] if words.launch else []
    found += ["--config", words.config] if words.config else []
    found += ["--freeze-ptx"] if words.freeze_ptx else []
    return found + (["--formal"] if words.formal else [])


def compile_options(options: Mapping[str, Any]) -> CompileOptions:
    """The values of `execution_options`."""
    memory = options["memory"]
    return CompileOptions(
        jobs=options["jobs"] or 0,
        timeout=options["timeout"],
        memory=int(memory * 2**30) if memory else 0,
        use_cache=not options["no_cache"],
        command=command_line(),
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
