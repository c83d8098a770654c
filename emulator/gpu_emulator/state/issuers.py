"""Instructions that few threads issue: who does, and whose operands are equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpu_emulator.state.frame import Frame
from gpu_emulator.types import Array


def issuers(frame: Frame) -> Iterator[tuple[int, Array]]:
    """Column by column, the threads that are active: the column and the rows of their CTAs."""
    active = frame.active()
    for column in np.nonzero(active.any(axis=0))[0].tolist():
        yield column, np.nonzero(active[:, column])[0]


def alike(
    frame: Frame, column: int, rows: Array, values: Sequence[Array]
) -> Iterator[tuple[Array, list[int]]]:
    """Rows whose thread in a column has the same values, and these as numbers."""
    taken = [
        np.broadcast_to(each, frame.shape)[rows, column].astype(np.uint64, copy=False)
        for each in values
    ]
    if not taken:
        yield rows, []
        return
    table = np.stack(taken, axis=1)
    if (table == table[0]).all():
        yield rows, [int(each) for each in table[0]]
        return
    kinds, which = np.unique(table, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        yield rows[which.reshape(-1) == number], [int(each) for each in kind]
