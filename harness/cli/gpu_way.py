"""Options by which a GPU is reached: this machine's, one by a command, or one by a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.cli.amounts import FilePath
from harness.cli.options import exclusive, together
from harness.values.errors import UsageError

if TYPE_CHECKING:
    from harness.run.gpu.timed_launches import GpuWay


F = TypeVar("F", bound=Callable[..., Any])


formal_option = click.option(
    "--formal",
    is_flag=True,
    help="With --run: a race that breaks only the letter of the memory model counts too.",
)


gpu_way_options = together(
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
        multiple=True,
        metavar="RESULTS",
        help="What such programs gave there. Repeatable.",
    ),
    exclusive("--runner", "--pack", "--import"),
)
"""How a GPU that is elsewhere is reached."""


def executed_on(words: str) -> Callable[[F], F]:
    """`--on` and `--runner` of a verb that has `--run`; `words` say what happens on a GPU."""
    return together(
        click.option(
            "--on",
            type=click.Choice(["emulator", "gpu"]),
            help=f"With --run: what executes it. {words}",
        ),
        click.option(
            "--runner",
            metavar="CMD",
            help="With --on gpu: a command that takes `PACK --out RESULTS` to a GPU.",
        ),
    )


def is_on_gpu(options: Mapping[str, Any]) -> bool:
    """Whether `--on` or `--runner` name a GPU.

    Raises:
        UsageError: they contradict each other.
    """
    if options["runner"] is None:
        return bool(options["on"] == "gpu")
    if options["on"] == "emulator":
        raise UsageError("--runner reaches a GPU, and --on emulator: which one is meant?")
    return True


def is_executed(options: Mapping[str, Any]) -> bool:
    """Whether something is executed: `--run`, or an option that implies it.

    Raises:
        UsageError: options contradict each other.
    """
    if options["formal"] and is_on_gpu(options):
        raise UsageError("--formal is about races, which the emulator sees: leave --on gpu out")
    named = options["on"] is not None or options["runner"] is not None
    return bool(options["run"] or options["formal"] or named)


def gpu_way(options: Mapping[str, Any]) -> GpuWay | None:
    """What the options mean; None where no GPU is named.

    Raises:
        InfrastructureError: this machine has no GPU, and none of the others is named.
    """
    if options["on"] != "gpu" and not any(options[name] for name in ("runner", "pack", "results")):
        return None
    from harness.run.gpu.packing import place_of  # noqa: PLC0415 - numpy: 0.1 s
    from harness.run.gpu.timed_launches import GpuWay  # noqa: PLC0415 - as above

    if options["pack"]:
        return GpuWay(pack=options["pack"])
    if options["results"]:
        return GpuWay(results=options["results"])
    return GpuWay(place=place_of(options["runner"]))
