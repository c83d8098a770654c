"""MLIR's dump of a module before every pass: which pass did it.

Reads the lines that `MLIR_ENABLE_DUMP` makes Triton print; nothing is kept of them.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_HEADER = re.compile(r"// -----// IR Dump Before (\S+)(?: \(([\w.-]{1,200})\))?")
_TRAP = re.compile(r"^\s*(?:%\S+ = )?\"?(?:[a-z]\w*\.)*trap\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTrail:
    """`last` is the pass that was entered last: where a compiler died, the one it died in.

    `trapping` is the pass whose output is the first to hold a trap; None where there is none, or
    where the kernel came with one.
    """

    last: str | None
    trapping: str | None


def follow_passes(lines: Iterable[str]) -> PassTrail:
    """Follow the passes through a dump."""
    before: str | None = None
    current: str | None = None
    trapping: str | None = None
    has_trap = False
    for line in lines:
        header = _HEADER.match(line)
        if header:
            before, current = current, header[2] or header[1].rstrip(":")
        elif not has_trap and _TRAP.match(line):
            # What is printed before `current` is what the pass before it made.
            trapping, has_trap = before, True
    return PassTrail(last=current, trapping=trapping)
