"""Cells: one kernel, launch, config, target and toolchain, with a stable readable id."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from harness.values.kernel import Config
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, PTX, PTXAS


@dataclass(frozen=True, slots=True, kw_only=True)
class CellId:
    """The coordinates of a cell; `str()` is the key by which it is stored and named everywhere.

    `KERNEL/LAUNCH/CONFIG@TARGET/triton-X/ptxas-Y`. `launch` holds the overrides too
    (`default:chunk_size=32`), `compiler` kind and version (`triton-3.6.0`; `ptx-1a2b3c4d` for raw
    PTX, with a hash of the text: two files of one name are two programs),
    `ptxas` the origin where it matters (`12.9.86-bundled`), and `-frozen` where the PTX is the one
    generated for the bundled ptxas. Another `assembler` than ptxas is named by its kind in ptxas'
    place: alone where nothing assembles (`none`; `ptxas` is empty). The emulator stands there too,
    where the PTX is executed:
    `KERNEL/LAUNCH/CONFIG@TARGET/triton-X/emulator`. Where the cubin is launched, `on` is `gpu`, and
    the last part is `gpu:ptxas-Y`.
    """

    kernel: str
    launch: str
    config: Config
    target: Target
    compiler: str
    ptxas: str
    on: str = ""
    assembler: str = PTXAS

    def __str__(self) -> str:
        tool = f"{self.assembler}-{self.ptxas}" if self.ptxas else self.assembler
        tool = EMULATOR if self.ptxas == EMULATOR else tool
        tool = f"{self.on}:{tool}" if self.on else tool
        return (
            f"{self.kernel}/{self.launch}/{self.config.label}@{self.target}/{self.compiler}/{tool}"
        )

    @property
    def short(self) -> str:
        """Eight hex digits that name the cell on the command line."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:8]


def program_label(sha256: str) -> str:
    """What stands in a compiler's place for raw PTX: two files of one name are two programs."""
    return f"{PTX}-{sha256[:8]}"


def program_of(cell: str) -> str | None:
    """The program of a cell of raw PTX, as its id has it; None for any other, and in old ids."""
    label = cell.rsplit("/", 2)[-2] if cell.count("/") >= 2 else ""
    kind, _, digits = label.partition("-")
    return digits or None if kind == PTX else None
