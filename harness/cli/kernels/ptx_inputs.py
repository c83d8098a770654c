"""What a file of PTX is launched with, as options say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.amounts import FilePath, Words
from harness.cli.options import together
from harness.io.files.reading import read_regular
from harness.values.errors import UsageError
from harness.values.kernel import PtxInputs, Repro

if TYPE_CHECKING:
    from harness.run.raw_ptx import RawInputs


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


ptx_options = together(
    click.option(
        "--buffer",
        "buffers",
        type=Words(names_files=True),
        multiple=True,
        metavar="NAME=DTYPE[N][:FILL]",
        help="PTX: a buffer, zeros unless filled with a value, `random` or FILE.npy. Repeatable.",
    ),
    click.option(
        "--scalar",
        "scalars",
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
    click.option("--grid", metavar="X[,Y[,Z]]", help="PTX: blocks of the grid."),
    click.option("--block", metavar="X[,Y[,Z]]", help="PTX: threads of a block."),
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
"""The options that say what a file of PTX is launched with."""


def refuse_ptx_options(options: Mapping[str, Any], instead: str = "a file of PTX") -> None:
    """What a launch of PTX takes is not for what is asked here.

    Raises:
        UsageError: such an option was given.
    """
    for name, word in PTX_INPUTS.items():
        if options[name]:
            raise UsageError(f"{word} is for {instead}")


def named_inputs(options: Mapping[str, Any], repro: Repro | None = None) -> RawInputs:
    """What a repro of PTX says of its launch, and the options where they say it.

    Raises:
        UsageError: one of them cannot be read.
    """
    from harness.run.raw_ptx import RawInputs, read_inputs, read_launch  # noqa: PLC0415 - numpy: 0.1 s

    path: Path | None = options["inputs"]
    if path:
        besides = [word for name, word in PTX_INPUTS.items() if name != "inputs" and options[name]]
        if besides:
            raise UsageError(f"--inputs and {besides[0]}: which one is meant?")
        launch = read_launch(read_regular(path, _LARGEST_LAUNCH), str(path))
        return RawInputs(launch=launch, folder=path.parent)

    def together(own: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
        # The user's comes last, and counts.
        return tuple({each.partition("=")[0]: each for each in (*own, *given)}.values())

    own = (repro and repro.inputs) or PtxInputs()
    inputs = PtxInputs(
        buffers=together(own.buffers, options["buffers"]),
        scalars=together(own.scalars, options["scalars"]),
        expect=together(own.expect, options["expected"]),
        grid=options["grid"] or own.grid,
        block=options["block"] or own.block,
        shared=own.shared if options["shared"] is None else options["shared"],
    )
    return read_inputs(inputs, repro.folder if repro and repro.inputs else Path())
