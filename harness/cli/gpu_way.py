"""Options on what executes: the emulator, this machine's GPU, or one that is elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec
from msgspec.structs import replace

from harness.cli.amounts import FilePath
from harness.cli.options import F, as_value, exclusive, together
from harness.values.errors import UsageError
from harness.values.toolchain import GPU, SASS, takes_cubins

if TYPE_CHECKING:
    from harness.run.gpu.packing import GpuWay


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something is executed, and `on` what; `runner` is a command that reaches a GPU."""

    run: bool
    on: str | None
    runner: str | None

    @property
    def of_cubins(self) -> bool:
        """Whether cubins are executed, and not PTX."""
        return takes_cubins(self.on)


def execution_of(
    run: str, cubins: str, *, takes: Sequence[str], formal: bool = True
) -> Callable[[F], F]:
    """`--run` and what goes with it, as `execution`; `run` and `cubins` are what the help says.

    `takes` are the names that the command's `--on` takes: what is not named there is refused. With
    `formal` there is `--formal`, which becomes part of the command's `words`.
    """

    def add(function: F) -> F:
        @functools.wraps(function)
        def executed(
            *,
            run: bool,
            on: str | None,
            runner: str | None,
            formal: bool = False,
            **others: Any,  # noqa: ANN401 - click's
        ) -> Any:  # noqa: ANN401 - as above
            if runner is not None and on not in (None, GPU):
                raise UsageError(f"--runner is for a GPU: leave out --on {on}")
            if runner is not None:
                on = GPU
            if formal and takes_cubins(on):
                raise UsageError(
                    f"--formal is about races, which the emulator sees: leave --on {on} out"
                )
            if formal:
                others["words"] = replace(others["words"], formal=True)
            is_run = run or formal or on is not None
            execution = Execution(run=is_run, on=on, runner=runner)
            return function(execution=execution, **others)

        return together(*options)(cast("F", executed))

    options = [
        click.option("--run", is_flag=True, help=run),
        click.option(
            "--on", type=click.Choice(list(takes)), help=f"With --run: what executes it. {cubins}"
        ),
        click.option(
            "--runner",
            metavar="CMD",
            help="With --on gpu: a command that takes `PACK --out RESULTS` to a GPU.",
        ),
    ]
    if formal:
        words = (
            "With --run: a race counts too that breaks only the letter of the memory model, or "
            "changes rounding alone."
        )
        options.append(click.option("--formal", is_flag=True, help=words))
    return add


class GpuOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a GPU is reached: this machine's, by a command, by a file, or by what a file gave."""

    on: str | None
    runner: str | None
    pack: Path | None
    results: tuple[Path, ...]

    @property
    def is_named(self) -> bool:
        """Whether one of the options is given."""
        return bool(self.on or self.runner or self.pack or self.results)

    def way(self) -> GpuWay:
        """What the options mean.

        Raises:
            UsageError: what is for a GPU is named beside another executor.
            InfrastructureError: this machine has no GPU, and none of the others is named.
        """
        from harness.run.gpu.packing import GpuWay  # noqa: PLC0415 - numpy: 0.1 s
        from harness.run.gpu.sass_emulator import destination_of  # noqa: PLC0415 - as above

        if self.on == SASS and (self.runner or self.pack or self.results):
            raise UsageError("--runner, --pack and --import are for a GPU: leave out --on sass")
        if self.pack:
            return GpuWay(pack=self.pack)
        if self.results:
            return GpuWay(results=self.results)
        return GpuWay(place=destination_of(self.on, self.runner))


def elsewhere(*, many: bool) -> list[Callable[[F], F]]:
    """The options that reach a GPU which is elsewhere; with results of `many` packs, or of one."""
    return [
        click.option(
            "--runner",
            metavar="CMD",
            help="A command that takes `PACK --out RESULTS` to a GPU (ssh, srun, kubectl).",
        ),
        click.option(
            "--pack",
            type=FilePath(dir_okay=False),
            help="Write a program for a machine with a GPU; `python3 FILE --out RESULTS` there.",
        ),
        click.option(
            "--import",
            "results",
            type=FilePath(read=True),
            multiple=many,
            metavar="RESULTS",
            help="What such programs gave there. Repeatable."
            if many
            else "What such a program gave there.",
        ),
        exclusive("--runner", "--pack", "--import"),
    ]


def gpu_options(words: str, *, takes: Sequence[str] = (GPU,)) -> Callable[[F], F]:
    """How a GPU is reached, as `gpu`: a `GpuOptions`; `words` say what `--on` does.

    `takes` are the names that it takes.
    """
    return as_value(
        "gpu",
        GpuOptions,
        click.option("--on", type=click.Choice(list(takes)), help=words),
        *elsewhere(many=True),
    )
