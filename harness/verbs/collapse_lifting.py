"""What lifts a register collapse: ptxas' own options, tried on the same PTX."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from harness.effects.ptxas_help import options_of
from harness.effects.workbench import Workbench
from harness.logic.collapse import collapse_of, collapse_words, is_lifted
from harness.logic.ptx import blank_opaque
from harness.logic.ptxas_options import PtxasOption
from harness.values.row import Row
from harness.verbs.cells import PlannedCell, evaluate

__all__ = ["lift_collapse"]

_ASKED = (".minnctapersm", ".maxnreg")


async def lift_collapse(bench: Workbench, cell: PlannedCell, row: Row) -> tuple[str, ...]:
    """What lifts the collapse that a cell's row shows, in words; nothing where it shows none.

    Raises:
        InfrastructureError: ptxas does not run.
        StorageError: results cannot be read or written.
    """
    collapse = collapse_of(row)
    if collapse is None or row.ptx_sha256 is None:
        return ()
    code = blank_opaque(bench.store.artifacts.get(row.ptx_sha256).decode(errors="replace"))
    if any(directive in code for directive in _ASKED):
        return ()
    options = _one_of_each_kind(await asyncio.to_thread(options_of, cell.ptxas))
    done = await asyncio.gather(
        *(evaluate(bench, replace(cell, change=option.change)) for option in options)
    )
    same = [
        (option, each.row)
        for option, each in zip(options, done, strict=True)
        if each.row.ptx_sha256 == row.ptx_sha256
    ]
    lifts = [(option.words, after) for option, after in same if is_lifted(row, after)]
    return collapse_words(collapse, row, lifts, [option.words for option, _ in same])


def _one_of_each_kind(options: Sequence[PtxasOption]) -> list[PtxasOption]:
    """The first of those that differ in their value alone."""
    return list({option.needs[0][0]: option for option in reversed(options)}.values())[::-1]
