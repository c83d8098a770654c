"""A register collapse: ptxas keeps every block resident and spills for it. Pure.

Without `.minnctapersm` ptxas chooses an occupancy by the size of a block (`.reqntid`, `.maxntid`).
Under pressure it may choose the highest one: so few registers that all blocks of an SM can be
resident at once, which the PTX does not ask for, while a block alone could have many more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.judging.ptxas.occupancy import theoretical_occupancy
from harness.values.limits import limits_of
from harness.values.row import Row
from harness.values.target import Target
from harness.values.thresholds import DEFAULT_THRESHOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse:
    """Registers of a thread as they are, what a block alone could have, and the blocks that fit.

    `blocks` of `threads` threads are resident at once, as far as registers decide.
    """

    registers: int
    most: int
    blocks: int
    threads: int


def collapse_of(row: Row) -> Collapse | None:
    """The collapse that a row shows; None where it shows none, or the figures are not known.

    It spills enough to be sick, its registers are the most with which all blocks of an SM are
    resident, and a block alone could have more. A config that limits its registers asked for it.
    """
    limits = limits_of(Target.parse(row.target).capability)
    spills = (row.spill_stores or 0) + (row.spill_loads or 0)
    if limits is None or not row.n_regs or not row.threads:
        return None
    if spills < DEFAULT_THRESHOLDS.spill_bytes or isinstance(row.config.get("maxnreg"), int):
        return None
    unit = limits.register_allocation_unit // limits.warp_size

    def blocks(registers: int) -> int:
        return theoretical_occupancy(
            limits, n_regs=registers, shared=0, threads_per_block=row.threads or 1
        ).blocks_per_sm

    most = limits.registers_of_thread(row.threads)
    is_free = blocks(row.n_regs) == blocks(1)
    is_most = row.n_regs + unit > most or blocks(row.n_regs + unit) < blocks(1)
    if not (is_free and is_most and most >= row.n_regs + unit):
        return None
    return Collapse(registers=row.n_regs, most=most, blocks=blocks(row.n_regs), threads=row.threads)


def is_lifted(before: Row, after: Row) -> bool:
    """Whether the second row has no collapse, and at most half of the first one's spills."""
    if after.spill_stores is None or collapse_of(after) is not None:
        return False
    return 2 * after.spill_stores <= (before.spill_stores or 0)


def collapse_words(
    collapse: Collapse, row: Row, lifts: Sequence[tuple[str, Row]], tried: Sequence[str]
) -> tuple[str, ...]:
    """What happened, and which options of ptxas lift it, best known first; `lifts` had its PTX."""
    what = (
        f"ptxas {row.ptxas} gives {collapse.registers} registers where a block of "
        f"{collapse.threads} threads could have {collapse.most}: the most with which all "
        f"{collapse.blocks} blocks of an SM are resident. The PTX does not ask for that: it has "
        "neither .minnctapersm nor .maxnreg."
    )
    lines = [what]
    for index, (option, after) in enumerate(lifts):
        begin = "It lifts likewise" if index else "The collapse lifts"
        lines.append(
            f"{begin} with ptxas {option}: {row.n_regs} -> {after.n_regs} registers, "
            f"{row.spill_stores:,} -> {after.spill_stores:,} B of spill stores "
            "(same PTX, byte for byte)."
        )
    if not lifts and tried:
        lines.append(f"It does not lift with ptxas {', '.join(tried)}.")
    return tuple(lines)
