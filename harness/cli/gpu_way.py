"""Options on what executes: the emulator, this machine's GPU, or one that is elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from harness.cells.spelling import SelectionOptions
from harness.cli.amounts import FilePath
from harness.cli.options import Options, exclusive, option, part
from harness.values.errors import UsageError
from harness.values.toolchain import EMULATOR, GPU, SASS, takes_cubins

if TYPE_CHECKING:
    from harness.run.gpu.packing import GpuWay


EXECUTOR = click.Choice([EMULATOR, SASS, GPU])
RUNNER = "With --on gpu: a command that takes `PACK --out RESULTS` to a GPU."


class Execution(Options):
    """Whether something is executed, and on what.

    Where races are followed, those that break only the letter of the memory model may count.
    """

    is_asked: bool = option("--run", often=True)
    named: str | None = option("--on", type=EXECUTOR)
    runner: str | None = option(metavar="CMD", help=RUNNER)
    formal: bool = option(
        help="With --run: a race counts too that breaks only the letter of the memory model, or "
        "changes rounding alone."
    )

    def __post_init__(self) -> None:
        if self.of_cubins and self.formal:
            raise UsageError(
                f"--formal is about races, which the emulator sees: leave --on {self.on} out"
            )

    @property
    def run(self) -> bool:
        """Whether it is."""
        return bool(self.is_asked or self.formal or self.on)

    @property
    def on(self) -> str | None:
        """What executes it, where that is named."""
        return executor_of(self.named, self.runner)

    @property
    def of_cubins(self) -> bool:
        """Whether cubins are executed, and not PTX."""
        return takes_cubins(self.on)

    def formally(self, words: SelectionOptions) -> SelectionOptions:
        """What is selected, with the `--formal` that is given here."""
        return replace(words, formal=self.formal)


def execution_option(run: str, cubins: str, *, takes_formal: bool = True) -> Any:
    """`--run` and what goes with it, with what the help says of `run` and of `cubins`."""
    words = f"With --run: what executes it. {cubins}"
    formal: dict[str, Any] | None = {} if takes_formal else None
    return part(Execution, is_asked={"help": run}, named={"help": words}, formal=formal)


def executor_of(on: str | None, runner: str | None) -> str | None:
    """What executes: what is named, or the GPU that a command reaches.

    Raises:
        UsageError: both are given, and do not fit.
    """
    if runner is not None and on not in (None, GPU):
        raise UsageError(f"--runner is for a GPU: leave out --on {on}")
    return on if runner is None else GPU


ONE_WAY = exclusive("--runner", "--pack", "--import")
"""Of the three options that reach a GPU which is elsewhere."""
runner_option = partial(
    option,
    metavar="CMD",
    help="A command that takes `PACK --out RESULTS` to a GPU (ssh, srun, kubectl).",
)
pack_option = partial(
    option,
    type=FilePath(dir_okay=False),
    help="Write a program for a machine with a GPU; `python3 FILE --out RESULTS` there.",
)
import_option = partial(option, "--import", type=FilePath(read=True), metavar="RESULTS")


class GpuOptions(Options, rules=[ONE_WAY]):
    """How a GPU is reached: this machine's, by a command, by a file, or by what a file gave."""

    on: str | None = option()
    runner: str | None = runner_option()
    pack: Path | None = pack_option()
    results: tuple[Path, ...] = import_option(help="What such programs gave there. Repeatable.")

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


def gpu_option(words: str, *takes: str) -> Any:
    """How a GPU is reached: `words` say what `--on` does with what it `takes`."""
    return part(GpuOptions, on={"type": click.Choice(takes), "help": words})
