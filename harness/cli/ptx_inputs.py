"""What a file of PTX or CUDA C++ is launched with, as options say it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from harness.cli.amounts import FilePath, Words
from harness.cli.options import Options, exclusive, option
from harness.values.errors import UsageError
from harness.values.kernel import PtxInputs, Repro

if TYPE_CHECKING:
    from harness.run.raw import RawInputs


_SAID_IN_A_FILE = ("--buffer", "--scalar", "--expect", "--grid", "--block", "--shared")


class PtxOptions(Options, rules=[exclusive("--inputs", name) for name in _SAID_IN_A_FILE]):
    """What the options say of the launch of a file of PTX."""

    buffer: tuple[str, ...] = option(
        type=Words(names_files=True),
        metavar="NAME=DTYPE[N][:FILL]",
        help="PTX: a buffer, zeros unless filled with a value, `random` or FILE.npy. Repeatable.",
    )
    scalar: tuple[str, ...] = option(
        metavar="NAME=VALUE", help="PTX: a number, 0x... for its bits, or `null`. Repeatable."
    )
    expect: tuple[str, ...] = option(
        type=Words(names_files=True),
        metavar="NAME=FILE.npy",
        help="PTX: what a buffer must hold after the run; `emulated`: cubins must leave what the "
        "emulated PTX leaves, though none does. Repeatable.",
    )
    grid: str | None = option(metavar="X[,Y[,Z]]", help="PTX: blocks of the grid.")
    block: str | None = option(metavar="X[,Y[,Z]]", help="PTX: threads of a block.")
    shared: int | None = option(
        type=click.IntRange(0, 1 << 20), help="PTX: bytes of dynamic shared memory."
    )
    inputs: Path | None = option(
        type=FilePath(read=True),
        metavar="FILE.json",
        help="PTX: all of this, as `triage minimize --run` writes it.",
    )

    def refuse(self, instead: str = "a file of PTX") -> None:
        """What a launch of PTX takes is not for what is asked here.

        Raises:
            UsageError: such an option was given.
        """
        for name, value in vars(self).items():
            if value:
                raise UsageError(f"--{name} is for {instead}")

    def said(self, repro: Repro | None = None) -> PtxInputs:
        """What a repro of PTX says of its launch, and the options where they say it."""
        if self.inputs:
            return PtxInputs(launch=str(self.inputs))

        def together(own: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
            # The user's comes last, and counts.
            return tuple({text.partition("=")[0]: text for text in (*own, *texts)}.values())

        own = (repro and repro.inputs) or PtxInputs()
        return structs.replace(
            own,
            buffers=together(own.buffers, self.buffer),
            scalars=together(own.scalars, self.scalar),
            expect=together(own.expect, self.expect),
            grid=self.grid or own.grid,
            block=self.block or own.block,
            shared=own.shared if self.shared is None else self.shared,
        )

    def named(self, repro: Repro | None = None) -> RawInputs:
        """The same, read.

        Raises:
            UsageError: one of them cannot be read.
        """
        from harness.run.raw import read_inputs  # noqa: PLC0415 - numpy: 0.1 s

        return read_inputs(self.said(repro))
