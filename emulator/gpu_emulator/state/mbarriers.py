"""mbarrier objects: 64 bits of shared memory each. PTX ISA, "mbarrier".

Their bits are opaque to programs; here: pending arrivals (0 - 19), expected arrivals (20 - 39),
bytes that are still to come (40 - 61, signed), and the parity of the phase (62).
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.state.memory import Memory, Trouble
from gpu_emulator.types import Array

MOST_ARRIVALS = (1 << 20) - 1
_FIELD = 20
_TX_BITS = 22
_TX_SHIFT = 40
_PHASE_SHIFT = 62


def initialised(count: Array) -> Array:
    """Objects that expect so many arrivals."""
    if ((count < 1) | (count > MOST_ARRIVALS)).any():
        raise Trouble("memory_fault", "mbarrier.init with a count that is not in 1 to 2^20 - 1")
    wide = count.astype(np.uint64)
    both: Array = wide | (wide << np.uint64(_FIELD))
    return both


def parity(states: Array) -> Array:
    """The parity of the phase that objects are in."""
    phase: Array = (states >> np.uint64(_PHASE_SHIFT)) & np.uint64(1)
    return phase


def still_to_come(states: Array) -> list[str]:
    """What the phase of each object lacks."""
    pending, _, tx, _ = _parts(states)
    return [
        f"{arrivals} arrivals and {size} bytes are still to come"
        for arrivals, size in zip(pending.tolist(), tx.tolist(), strict=True)
    ]


def arrive(
    memory: Memory, index: Array, arrivals: Array, expected: Array, done: Array,
    drops: Array | None = None,
) -> Array:  # fmt: skip
    """Change the objects at offsets, one after the other; their states before are the result.

    Args:
        memory: shared memory.
        index: offsets into its data, (n,), one an operation.
        arrivals: how many arrive with each.
        expected: bytes that each adds to those to come.
        done: bytes that each takes from those to come.
        drops: how many arrivals fewer each leaves for the phases to come.
    """
    if drops is not None:
        _drop(memory.views[8], index, drops)
    view = memory.views[8]
    places, which, counts = np.unique(index >> 3, return_inverse=True, return_counts=True)
    before: Array = view[index >> 3]
    if (counts == 1).all() or _is_simple(view, places, which, arrivals, expected, done):
        _change(view, places, which, arrivals, expected, done)
        return before
    for number in range(len(index)):
        before[number] = view[index[number] >> 3]
        one = slice(number, number + 1)
        _change(
            view, index[one] >> 3, np.zeros(1, np.int64), arrivals[one], expected[one], done[one]
        )
    return before


def _drop(view: Array, index: Array, drops: Array) -> None:
    """Fewer arrivals are expected from the next phase on."""
    places, which = np.unique(index >> 3, return_inverse=True)
    _, wanted, _, _ = _parts(view[places])
    left = wanted - _sums(len(places), which, drops)
    if (left < 0).any():
        raise Trouble("memory_fault", "more threads drop out of an mbarrier than it expects")
    field = np.uint64(MOST_ARRIVALS << _FIELD)
    view[places] = (view[places] & ~field) | (left.astype(np.uint64) << np.uint64(_FIELD))


def _sums(count: int, which: Array, values: Array) -> Array:
    return np.bincount(which.reshape(-1), weights=values, minlength=count).astype(np.int64)


def _is_simple(
    view: Array, places: Array, which: Array, arrivals: Array, expected: Array, done: Array
) -> bool:
    """Whether no object completes a phase before the last of its operations."""
    pending, _, _, _ = _parts(view[places])
    total = _sums(len(places), which, arrivals)
    # All at once or one by one: the same, while arrivals are left or bytes are only added.
    return bool(((total <= pending) & (total > 0)).all() and not done.any() and len(expected))


def _parts(states: Array) -> tuple[Array, Array, Array, Array]:
    mask = np.uint64(MOST_ARRIVALS)
    pending = (states & mask).astype(np.int64)
    wanted = ((states >> np.uint64(_FIELD)) & mask).astype(np.int64)
    tx = ((states >> np.uint64(_TX_SHIFT)) & np.uint64((1 << _TX_BITS) - 1)).astype(np.int64)
    tx = np.where(tx >= 1 << (_TX_BITS - 1), tx - (1 << _TX_BITS), tx)
    return pending, wanted, tx, parity(states)


def _change(
    view: Array, places: Array, which: Array, arrivals: Array, expected: Array, done: Array
) -> None:
    pending, wanted, tx, phase = _parts(view[places])
    if ((wanted == 0) & (pending == 0)).any():
        raise Trouble("memory_fault", "an mbarrier is used that was never initialised")
    count = len(places)
    pending = pending - _sums(count, which, arrivals)
    tx = tx + _sums(count, which, expected) - _sums(count, which, done)
    if (pending < 0).any():
        raise Trouble("memory_fault", "more threads arrive at an mbarrier than it expects")
    if (np.abs(tx) >= 1 << (_TX_BITS - 1)).any():
        raise Trouble("memory_fault", "the byte count of an mbarrier overflows")
    full = (pending == 0) & (tx == 0)
    pending = np.where(full, wanted, pending)
    phase = phase ^ full.astype(np.uint64)
    states = pending.astype(np.uint64) | (wanted.astype(np.uint64) << np.uint64(_FIELD))
    states |= (tx & ((1 << _TX_BITS) - 1)).astype(np.uint64) << np.uint64(_TX_SHIFT)
    view[places] = states | (phase << np.uint64(_PHASE_SHIFT))
