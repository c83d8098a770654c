"""What a file of PTX is launched with, as options say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.cli.amounts import FilePath, Words
from harness.io.files.regular_files import read_regular
from harness.values.errors import UsageError
from harness.values.kernel import PtxInputs, Repro

if TYPE_CHECKING:
    from harness.run.raw_ptx import RawInputs


F = TypeVar("F", bound=Callable[..., Any])

_LARGEST_LAUNCH = 1 << 28

PTX_INPUTS = {
    "buffers": "--buffer",
    "scalars": "--scalar",
    "expected": "--expect",
    "grid": "--grid",
    "block": "--block",
    "shared": "--shared",
    "inputs": "--inputs",
}
"""The options by their names."""


def ptx_options(function: F) -> F:
    """The options that say what a file of PTX is launched with."""
    options = (
        click.option(
            "--buffer",
            "buffers",
            type=Words(names_files=True),
            multiple=True,
            metavar="NAME=DTYPE[N][:FILL]",
            help="PTX: a buffer, zeros unless filled with a value, `random` or FILE.npy. "
            "Repeatable.",
        ),
        click.option(
            "--scalar",
            "scalars",
            type=Words(),
            multiple=True,
            metavar="NAME=VALUE",
            help="PTX: a number, 0x... for its bits, or `null`. Repeatable.",
        ),
        click.option(
            "--expect",
            "expected",
            type=Words(names_files=True),
            multiple=True,
            metavar="NAME=FILE.npy",
            help="PTX: what a buffer must hold after the run. Repeatable.",
        ),
        click.option("--grid", type=Words(), metavar="X[,Y[,Z]]", help="PTX: blocks of the grid."),
        click.option("--block", type=Words(), metavar="X[,Y[,Z]]", help="PTX: threads of a block."),
        click.option(
            "--shared", type=click.IntRange(0, 1 << 20), help="PTX: bytes of dynamic shared memory."
        ),
        click.option(
            "--inputs",
            type=FilePath(read=True),
            metavar="FILE.json",
            help="PTX: all of this, as `triage minimize --run` writes it.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def refuse_ptx_options(options: Mapping[str, Any], instead: str = "a file of PTX") -> None:
    """What a launch of PTX takes is not for what is asked here.

    Raises:
        UsageError: such an option was given.
    """
    for name, word in PTX_INPUTS.items():
        if options[name]:
            raise UsageError(f"{word} is for {instead}")


def named_inputs(options: Mapping[str, Any], folder: Path) -> RawInputs:
    """What the options say; files that they name are in `folder`.

    Raises:
        UsageError: one of them cannot be read.
    """
    from harness.run.raw_ptx import RawInputs, read_buffer, read_sizes  # noqa: PLC0415 - numpy: 0.1 s

    if options["inputs"]:
        return _launched(options)
    return RawInputs(
        buffers=tuple(map(read_buffer, options["buffers"])),
        scalars=tuple(_named("--scalar", text, "n=32") for text in options["scalars"]),
        expected=tuple(_named("--expect", text, "out=out.npy") for text in options["expected"]),
        grid=read_sizes("--grid", options["grid"]) if options["grid"] else None,
        block=read_sizes("--block", options["block"]) if options["block"] else None,
        shared=options["shared"],
        folder=folder,
    )


def inputs_of_repro(options: Mapping[str, Any], repro: Repro) -> RawInputs:
    """What a repro of PTX says, and the options where they say it.

    Raises:
        UsageError: it cannot be read.
    """
    folder = repro.folder if repro.inputs else Path()
    return named_inputs(_with_inputs(options, repro.inputs or PtxInputs()), folder)


def _with_inputs(options: Mapping[str, Any], inputs: PtxInputs) -> dict[str, Any]:
    def together(own: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
        # The user's comes last, and counts.
        return tuple({each.partition("=")[0]: each for each in (*own, *given)}.values())

    return {
        **options,
        "buffers": together(inputs.buffers, options["buffers"]),
        "scalars": together(inputs.scalars, options["scalars"]),
        "expected": together(inputs.expect, options["expected"]),
        "grid": options["grid"] or inputs.grid,
        "block": options["block"] or inputs.block,
        "shared": inputs.shared if options["shared"] is None else options["shared"],
    }


def _launched(options: Mapping[str, Any]) -> RawInputs:
    from harness.run.raw_ptx import RawInputs, read_launch  # noqa: PLC0415 - numpy: 0.1 s

    path: Path = options["inputs"]
    besides = [word for name, word in PTX_INPUTS.items() if name != "inputs" and options[name]]
    if besides:
        raise UsageError(f"--inputs and {besides[0]}: which one is meant?")
    launch = read_launch(read_regular(path, _LARGEST_LAUNCH), str(path))
    return RawInputs(launch=launch, folder=path.parent)


def _named(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"{option} {text}: write NAME=VALUE, for example {example}")
    return name, value
