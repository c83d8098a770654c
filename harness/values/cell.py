"""Cells: one kernel, launch, config, target and toolchain, with a stable readable id."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

import msgspec

from harness.values.kernel import Config
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, EXECUTORS, PTX, PTXAS

# Launches as cells and results name them: `NAME:OVERRIDES#NUMBER`.

# A `#` that no number follows belongs to the name or to the overrides.
_PARTS = re.compile(r"([^:]*?)(?::(.*?))?(?:#([0-9]{1,9}))?", re.DOTALL)
# A value may hold commas: what follows the next one is `name=`.
INPUTS = "inputs="
"""With what follows, what a file of PTX is launched with has a name in the label of its launch."""

_NEXT_OVERRIDE = re.compile(r",(?=\w+=)")


class LaunchLabel(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a kernel: `default:chunk_size=32,headdim=64#2`.

    `name` is that of the function, `overrides` are its changed parameters (`chunk_size=32`), and
    `number` counts the calls of one kernel that differ in more than their config, from 1.
    """

    name: str
    overrides: tuple[str, ...] = ()
    number: int = 1

    def __str__(self) -> str:
        return f"{self.call}#{self.number}" if self.number > 1 else self.call

    @property
    def call(self) -> str:
        """The label of the call, which may launch the kernel several times."""
        return ":".join([self.name, *([",".join(self.overrides)] if self.overrides else [])])

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, text: str) -> LaunchLabel:
        """What a stored result's label says; any text is some label."""
        name, overrides, number = _PARTS.fullmatch(text).groups()  # type: ignore[union-attr]
        words = _NEXT_OVERRIDE.split(overrides) if overrides else ()
        return cls(name=name, overrides=tuple(words), number=int(number or 1))


class CellId(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinates of a cell; `str()` is the key by which it is stored and named everywhere.

    `KERNEL/LAUNCH/CONFIG@TARGET/triton-X/ptxas-Y`. `launch` holds the overrides too
    (`default:chunk_size=32`), `compiler` kind and version (`triton-3.6.0`; `ptx-1a2b3c4d` for raw
    PTX, with a hash of the text: two files of one name are two programs),
    `ptxas` the origin where it matters (`12.9.86-bundled`), and `-frozen` where the PTX is the one
    generated for the bundled ptxas. Another `assembler` than ptxas is named by its kind in ptxas'
    place: alone where nothing assembles (`none`; `ptxas` is empty). The emulator stands there too,
    where the PTX is executed:
    `KERNEL/LAUNCH/CONFIG@TARGET/triton-X/emulator`. Where the cubin is launched, `on` is `gpu`, and
    the last part is `gpu:ptxas-Y`; where its SASS is emulated, it is `sass:ptxas-Y`.
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

    @property
    def names(self) -> dict[str, Any]:
        """What names it in every row: `CellNames` of `values/row.py`, but for `triton`."""
        parts = {"cell": str(self), "short": self.short, "kernel": self.kernel}
        config, target = self.config.as_dict(), str(self.target)
        return {**parts, "launch": self.launch, "config": config, "target": target}


def executed_by(cell: str) -> str | None:
    """What executed a cell, as `--on` names it, by its id; None for one that was compiled."""
    tool = cell.rpartition("/")[2]
    if tool.startswith(EMULATOR):
        return EMULATOR
    on, colon, _ = tool.partition(":")
    return on if colon and on in EXECUTORS else None


def place_of(cell: CellId | str, *, across_targets: bool = False) -> str:
    """Kernel, launch with its `--set`, config and target, as a cell's id begins with them.

    `across_targets`: without the target. Two cells whose places are equal are one point of one
    kernel, whatever compiles it: nothing else says so, and a config alone never does, since other
    launches of the kernel have it too.

        >>> place_of("k.py::k/main#4/num_warps=2@sm_90a/triton-3.9.0/ptxas-12.9.86-bundled")
        'k.py::k/main#4/num_warps=2@sm_90a'
    """
    place = str(cell).rsplit("/", 2)[0]
    return place.rpartition("@")[0] if across_targets else place


def same_place(first: CellId | str, second: CellId | str, *, across_targets: bool = False) -> bool:
    """Whether two cells, or their ids, stand for the same place: see `place_of`."""
    return place_of(first, across_targets=across_targets) == place_of(
        second, across_targets=across_targets
    )


def program_label(sha256: str) -> str:
    """What stands in a compiler's place for raw PTX: two files of one name are two programs."""
    return f"{PTX}-{sha256[:8]}"


def program_of(cell: str) -> str | None:
    """The program of a cell of raw PTX, as its id has it; None for any other, and in old ids."""
    label = cell.rsplit("/", 2)[-2] if cell.count("/") >= 2 else ""
    kind, _, digits = label.partition("-")
    return digits or None if kind == PTX else None


def file_label(path: str, text: bytes) -> str:
    """A file that a kernel is named by: hashes of its absolute path and of its text."""
    name = path.encode(errors="surrogateescape")
    return ":".join(hashlib.sha256(part).hexdigest()[:16] for part in (name, text))


def are_of_one_file(first: str | None, second: str | None) -> bool:
    """Whether two results of one cell are of one kernel: its file may be edited, or moved.

    Where it was edited and moved, or two folders have a file of one name, they are of two.
    """
    if first is None or second is None:
        return True
    return any(part == own for part, own in zip(first.split(":"), second.split(":"), strict=True))
