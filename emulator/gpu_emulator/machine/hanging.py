"""Why nothing goes on: who waits for what, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpu_emulator.ptx.program.decoding import Section
from gpu_emulator.state.batch import Batch
from gpu_emulator.state.frame import Frame, Hold
from gpu_emulator.steps import WARP
from gpu_emulator.types import Array
from gpu_emulator.values import Fault, Place

_MOST = 4


def hang(sections: Sequence[Section], batch: Batch) -> Fault:
    """The fault of a batch in which no thread can go on; the place is that of the first words."""
    found = [one for frame in batch.frames for one in _waiting(sections, batch, frame)]
    words = list(dict.fromkeys(said for said, _ in found))
    more = [f"and {len(words) - _MOST} more"] if len(words) > _MOST else []
    return Fault(
        kind="hang",
        what="; ".join([*words[:_MOST], *more]),
        place=next((place for _, place in found if place), None),
    )


def _waiting(
    sections: Sequence[Section], batch: Batch, frame: Frame
) -> Iterator[tuple[str, Place | None]]:
    waiting = np.zeros(frame.shape, np.bool_)
    for one in frame.holds:
        waiting |= one.mask
        yield _held(batch, frame, one), one.place
    yield from _parted(sections, batch, frame, ~waiting & frame.alive())


def _held(batch: Batch, frame: Frame, one: Hold) -> str:
    """The first CTA with such threads speaks for all."""
    row = int(np.nonzero(one.mask.any(axis=1))[0][0])
    warps = sorted({(int(c) + frame.first) // WARP for c in np.nonzero(one.mask[row])[0]})
    verb = "waits" if len(warps) == 1 else "wait"
    return f"{_warps(warps)} of {_cta(batch, row)} {verb} for {one.why()}{_at(one.place)}"


def _parted(
    sections: Sequence[Section], batch: Batch, frame: Frame, mask: Array
) -> Iterator[tuple[str, Place | None]]:
    """Lanes that wait at a `.sync` instruction for lanes that never come to it."""
    for row, warp in np.argwhere(mask.reshape(frame.ctas, -1, WARP).any(axis=2)).tolist():
        lanes = np.broadcast_to(np.asarray(frame.at), frame.shape)[row, warp * WARP :][:WARP]
        own = mask[row, warp * WARP :][:WARP]
        words, first = [], None
        for block in np.unique(lanes[own]).tolist():
            place = next(iter(sections[block].places), None)
            first = first or place
            words.append(f"{_ranges(np.nonzero(own & (lanes == block))[0].tolist())}{_at(place)}")
        number = warp + frame.first // WARP
        what = f"{' and '.join(words)} of warp {number} of {_cta(batch, row)}"
        if len(words) > 1:
            yield f"lanes {what} wait for each other: a .sync names lanes that are elsewhere", first
        else:
            yield f"lanes {what} wait for lanes that are in its mask and never come", first
        return


def _cta(batch: Batch, row: int) -> str:
    x, y, z = batch.coordinates[row].tolist()
    return f"CTA ({x}, {y}, {z})"


def _warps(warps: Sequence[int]) -> str:
    return f"{'warp' if len(warps) == 1 else 'warps'} {_ranges(warps)}"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-15, 20`."""
    parts: list[list[int]] = []
    for each in numbers:
        if parts and each == parts[-1][1] + 1:
            parts[-1][1] = each
        else:
            parts.append([each, each])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _at(place: Place | None) -> str:
    return f" at PTX line {place.ptx_line} ({place.instruction.split()[0]})" if place else ""
