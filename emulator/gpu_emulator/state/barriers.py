"""The sixteen named barriers of each CTA, and the barrier of each cluster.

PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier, barrier.cluster".
A warp that arrives counts as 32 threads.

mbarrier objects: 64 bits of shared memory each. PTX ISA, "mbarrier". Their bits are opaque to PTX.
Code that ptxas makes for sm_90a of `mbarrier.init`, `.pending_count` and `.test_wait` has the
negatives of expected (1 - 20) and pending arrivals (43 - 62), and the parity of the phase (63);
between them are the bytes that are still to come (21 - 42, signed), in an order of our own.

Operations under way: they take effect between their issue and the wait that orders them. Groups
(`cp.async`, bulk stores, `wgmma`) are waited for by the thread that issued them. Flights (bulk
loads, `tcgen05`) signal an mbarrier: completed late, they are so when nothing else can go on, the
oldest first, so that whatever does not wait for them runs before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpu_emulator.state.frame import Frame, Memory, Touch, Trouble, locate
from gpu_emulator.state.happens_before import HappensBefore, Task
from gpu_emulator.steps import MASK, WARP, Array, Registers
from gpu_emulator.values import Place

_COUNT = 16


class Barriers:
    """Arrivals and completed phases by CTA and barrier."""

    def __init__(self, ctas: int, threads: int, cluster_size: int) -> None:
        self.frames: Sequence[Frame] = ()
        self.watch: HappensBefore | None = None
        self._threads = threads
        self._cluster_size = cluster_size
        self.arrived = np.zeros((ctas, _COUNT), dtype=np.int64)
        self.expected = np.zeros((ctas, _COUNT), dtype=np.int64)
        self.phase = np.zeros((ctas, _COUNT), dtype=np.int64)
        self.votes = np.zeros((ctas, _COUNT, 2), dtype=np.int64)
        self.results = np.zeros((ctas, _COUNT, 2), dtype=np.int64)
        self.cluster_arrived = np.zeros(ctas, dtype=np.int64)
        self.cluster_phase = np.zeros(ctas, dtype=np.int64)

    def is_trivial(self, frame: Frame, count: Array | None) -> bool:
        """Whether all threads of the CTAs arrive at once, so that nothing is to be waited for."""
        everyone = frame.registers[MASK] is None and frame.lanes == self._threads
        everyone = everyone and not self.arrived.any()
        return everyone and (count is None or bool((count == frame.lanes).all()))

    def arrive(
        self, frame: Frame, number: Array, count: Array | None, vote: Array | None = None
    ) -> list[tuple[int, Array, Array]]:
        """Let the active threads arrive: (barrier, mask of threads, phase that they arrive in)."""
        active = frame.active()
        numbers = np.broadcast_to(number, frame.shape)
        result = []
        for name in np.unique(numbers[active]).tolist():
            if not 0 <= name < _COUNT:
                raise Trouble(f"there is no barrier {name}")
            here = active & (numbers == name)
            warps = _threads_of_warps(frame, here)
            rows = warps > 0
            if count is None:
                expected = np.full(frame.ctas, -1)
            else:
                expected = np.where(here, np.broadcast_to(count, frame.shape), 0).max(axis=1)
            own = expected[rows]
            if (own == 0).any() or (own % WARP * (own > 0)).any():
                raise Trouble(f"barrier {name} waits for a count that is no multiple of 32", "hang")
            if vote is not None:
                votes = (here & np.broadcast_to(vote, frame.shape)).sum(axis=1)
                self.votes[:, name, 0] += votes
                self.votes[:, name, 1] += here.sum(axis=1)
            phase = self.phase[:, name].copy()
            self.arrived[:, name] += warps
            self.expected[rows, name] = own
            result.append((name, here, phase))
            if self.watch is not None:
                self.watch.arrive(frame, here, name)
            self._complete(name)
        return result

    def _complete(self, number: int) -> None:
        expected = self.expected[:, number]
        if (expected < 0).any():
            alive = sum(_threads_of_warps(frame, frame.alive()) for frame in self.frames)
            expected = np.where(expected < 0, alive, expected)
        full = (self.arrived[:, number] >= expected) & (self.arrived[:, number] > 0)
        if full.any():
            self.phase[full, number] += 1
            if self.watch is not None:
                self.watch.complete(number, np.nonzero(full)[0])
            self.arrived[full, number] = 0
            self.results[full, number] = self.votes[full, number]
            self.votes[full, number] = 0

    def release(self) -> bool:
        """Complete what waits only for warps that have left since; whether anything was."""
        before = int(self.phase.sum())
        for number in range(_COUNT):
            if self.arrived[:, number].any():
                self._complete(number)
        return int(self.phase.sum()) > before

    def complete_cluster(self) -> bool:
        """Complete the phase of each cluster all of whose threads arrived; whether any was."""
        size = self._cluster_size
        alive = np.sum([frame.alive().sum(axis=1) for frame in self.frames], axis=0)
        arrived = self.cluster_arrived.reshape(-1, size).sum(axis=1)
        full = (arrived >= alive.reshape(-1, size).sum(axis=1)) & (arrived > 0)
        rows = np.repeat(full, size)
        self.cluster_arrived[rows] = 0
        self.cluster_phase[rows] += 1
        if self.watch is not None and full.any():
            self.watch.cluster(size)
        return bool(full.any())


def arrive_at_barrier(
    registers: Registers,
    number: Array,
    count: Array | None,
    *,
    is_sync: bool,
    vote: Array | None = None,
    give: Callable[[Array, Array], None] | None = None,
) -> None:
    """The active threads arrive at a barrier, and wait there if `is_sync`.

    `give` is called for those that go on, with the number of threads that voted yes and of all that
    arrived, (CTAs, 1) each.
    """
    frame: Frame = registers[0]
    barriers, watch = frame.batch.barriers, frame.batch.watch
    if is_sync and vote is None and barriers.is_trivial(frame, count):
        if watch is not None:
            watch.meet()
        return

    def after(name: int) -> None:
        results = barriers.results[:, name, :, None]
        if give is not None:
            give(results[:, 0], results[:, 1])

    for name, here, phase in barriers.arrive(frame, number, count, vote):
        if is_sync:
            _hold_at(frame, name, here, phase, give and partial(after, name))


def vote_of_barrier(how: str, votes: Array, voters: Array) -> Array:
    """What `bar.red` gives: how many voted yes (`popc`), or whether any (`or`) or all did."""
    return {"popc": votes.astype(np.uint32), "or": votes > 0, "and": votes == voters}[how]


def _hold_at(
    frame: Frame, name: int, here: Array, phase: Array, then: Callable[[], None] | None
) -> None:
    """Threads that have arrived at a barrier wait for its phase to end; `then` runs for them."""
    barriers, watch = frame.batch.barriers, frame.batch.watch

    def onwards() -> None:
        watch.leave(frame, frame.active(), name)
        if then is not None:
            then()

    def why() -> str:
        row = int(np.nonzero(here)[0][0])
        expected = int(barriers.expected[row, name])
        of = f" of {expected}" if expected > 0 else ""
        return f"barrier {name}, where {int(barriers.arrived[row, name])} threads have arrived{of}"

    def over() -> Array:
        return (barriers.phase[:, name] != phase)[:, None]

    frame.hold(here, over, why, then if watch is None else onwards)


def _threads_of_warps(frame: Frame, mask: Array) -> Array:
    """For each CTA the threads of warps that have some of a mask."""
    return frame.by_warp(mask).any(axis=2).sum(axis=1) * WARP


MOST_ARRIVALS = (1 << 20) - 1
_EXPECTED = 1
_TX_BITS = 22
_TX_SHIFT = 21
_PENDING = 43
_PHASE_SHIFT = 63


def arrive_in_cluster(registers: Registers) -> Array:
    """The active threads arrive at the barrier of their cluster; in which phase, (CTAs, 1)."""
    frame: Frame = registers[0]
    barriers = frame.batch.barriers
    phase: Array = barriers.cluster_phase[:, None].astype(np.uint64)
    barriers.cluster_arrived += frame.active().sum(axis=1)
    barriers.complete_cluster()
    return phase


def wait_in_cluster(registers: Registers, arrived_in: Array) -> None:
    """The active threads wait until the phase that they arrived in is complete."""
    frame: Frame = registers[0]

    def over() -> Array:
        phase: Array = frame.batch.barriers.cluster_phase[:, None].astype(np.uint64)
        return phase > arrived_in

    frame.hold(frame.active(), over, lambda: "the barrier of its cluster")


def thread_fence(registers: Registers) -> None:
    """Memory here is coherent at once; the race check takes releases and acquires from it."""
    frame: Frame = registers[0]
    if frame.batch.watch is not None:
        frame.batch.watch.thread_fence(frame, frame.active())


def proxy_fence(registers: Registers) -> None:
    """Memory here has no proxies; the race check does."""
    frame: Frame = registers[0]
    if frame.batch.watch is not None:
        frame.batch.watch.fence(frame, frame.active())


def initialised(count: Array) -> Array:
    """The state of an mbarrier that expects so many arrivals."""
    if ((count < 1) | (count > MOST_ARRIVALS)).any():
        raise Trouble("mbarrier.init with a count that is not in 1 to 2^20 - 1")
    negative = np.uint64(1 << 20) - count.astype(np.uint64)
    return negative << np.uint64(_EXPECTED) | negative << np.uint64(_PENDING)


def begin_phases(registers: Registers, space: str, address: Array, states: Array) -> None:
    """Write the states of objects, one for each active thread."""
    frame: Frame = registers[0]
    memory, index, mask = objects_at(registers, space, address)
    if frame.batch.watch is not None:
        frame.batch.watch.write(Touch(frame, memory, index, 8, mask), None)
    memory.store(index[mask], frame.full(states)[mask], 8)


def parity(states: Array) -> Array:
    return (states >> np.uint64(_PHASE_SHIFT)) & np.uint64(1)


def arrive(
    memory: Memory,
    index: Array,
    arrivals: Array,
    expected: Array,
    completed: Array,
    drops: Array | None = None,
) -> Array:
    """Change the objects at offsets, one after the other; their states before are the result.

    `memory`: shared memory. `index`: offsets into its data, (n,), one an operation. `arrivals`: how
    many arrive with each. `expected`: bytes that each adds to those to come. `completed`: bytes
    that each takes from them. `drops`: how many arrivals fewer each leaves for the phases to come.
    """
    if drops is not None:
        _drop(memory.views[8], index, drops)
    view = memory.views[8]
    places, owners, counts = np.unique(index >> 3, return_inverse=True, return_counts=True)
    before: Array = view[index >> 3]
    is_simple = (counts == 1).all()
    if not is_simple:
        # All at once or one by one is the same, while arrivals are left and bytes are only added.
        pending, _, _, _ = _parts(view[places])
        total = _sums(len(places), owners, arrivals)
        is_simple = ((total <= pending) & (total > 0)).all() and not completed.any()
    if is_simple:
        _change(view, places, owners, arrivals, expected, completed)
        fewer = _earlier(owners.reshape(-1), arrivals).astype(np.uint64)
        return before + (fewer << np.uint64(_PENDING))
    first = np.zeros(1, np.int64)
    for number in range(len(index)):
        at = slice(number, number + 1)
        before[at] = view[index[at] >> 3]
        _change(view, index[at] >> 3, first, arrivals[at], expected[at], completed[at])
    return before


def _drop(view: Array, index: Array, drops: Array) -> None:
    places, owners = np.unique(index >> 3, return_inverse=True)
    _, expected, _, _ = _parts(view[places])
    expected -= _sums(len(places), owners, drops)
    if (expected < 0).any():
        raise Trouble("more threads drop out of an mbarrier than it expects")
    field = np.uint64(MOST_ARRIVALS << _EXPECTED)
    view[places] = (view[places] & ~field) | _negative(expected, _EXPECTED)


def _negative(count: Array, shift: int) -> Array:
    return (-count & MOST_ARRIVALS).astype(np.uint64) << np.uint64(shift)


def _sums(count: int, owners: Array, values: Array) -> Array:
    return np.bincount(owners.reshape(-1), weights=values, minlength=count).astype(np.int64)


def _earlier(owners: Array, values: Array) -> Array:
    """Of each operation the sum of the values of those before it with the same owner."""
    order = np.argsort(owners, kind="stable")
    before = np.cumsum(values[order]) - values[order]
    result = np.empty_like(before)
    result[order] = before - before[np.searchsorted(owners[order], owners[order])]
    return result


def pending_arrivals(states: Array) -> Array:
    """How many arrivals are still to come."""
    return _count_in(states, _PENDING)


def _count_in(states: Array, shift: int) -> Array:
    return (-(states >> np.uint64(shift)).astype(np.int64)) & MOST_ARRIVALS


def _parts(states: Array) -> tuple[Array, Array, Array, Array]:
    pending, expected = pending_arrivals(states), _count_in(states, _EXPECTED)
    tx = ((states >> np.uint64(_TX_SHIFT)) & np.uint64((1 << _TX_BITS) - 1)).astype(np.int64)
    tx = np.where(tx >= 1 << (_TX_BITS - 1), tx - (1 << _TX_BITS), tx)
    return pending, expected, tx, parity(states)


def _change(
    view: Array, places: Array, owners: Array, arrivals: Array, added: Array, completed: Array
) -> None:
    pending, expected, tx, phase = _parts(view[places])
    if ((expected == 0) & (pending == 0)).any():
        raise Trouble("an mbarrier is used that is not initialised, or is invalidated already")
    count = len(places)
    pending = pending - _sums(count, owners, arrivals)
    tx = tx + _sums(count, owners, added) - _sums(count, owners, completed)
    if (pending < 0).any():
        raise Trouble("more threads arrive at an mbarrier than it expects")
    if (np.abs(tx) >= 1 << (_TX_BITS - 1)).any():
        raise Trouble("the byte count of an mbarrier overflows")
    full = (pending == 0) & (tx == 0)
    pending = np.where(full, expected, pending)
    phase = phase ^ full.astype(np.uint64)
    states = _negative(pending, _PENDING) | _negative(expected, _EXPECTED)
    states = states | (tx & ((1 << _TX_BITS) - 1)).astype(np.uint64) << np.uint64(_TX_SHIFT)
    view[places] = states | (phase << np.uint64(_PHASE_SHIFT))


def objects_at(registers: Registers, space: str, address: Array) -> tuple[Memory, Array, Array]:
    """Shared memory, offsets of the objects for every thread, and which threads are active."""
    frame: Frame = registers[0]
    places = locate(frame, space, address, 8, "an mbarrier operation", registers[MASK])
    if [memory.name for memory, _, _ in places] != ["shared"]:
        raise Trouble("an mbarrier lies outside of shared memory")
    [(memory, index, active)] = places
    mask = frame.active() if active is None else np.broadcast_to(active, frame.shape)
    return memory, np.broadcast_to(index, frame.shape), mask


def signal(
    registers: Registers,
    space: str,
    address: Array,
    arrivals: Array | int,
    expected: Array | int,
    completed: Array | int,
    drops: Array | int | None = None,
) -> Array:
    """Let each active thread change its object; states before, for every thread."""
    frame: Frame = registers[0]
    memory, index, mask = objects_at(registers, space, address)
    chosen = index[mask]
    amounts = [
        np.broadcast_to(np.asarray(amount, dtype=np.int64), frame.shape)[mask]
        for amount in (arrivals, expected, completed, *(() if drops is None else (drops,)))
    ]
    states = np.zeros(frame.shape, dtype=np.uint64)
    states[mask] = arrive(memory, chosen, *amounts)
    watch = frame.batch.watch
    if watch is not None:
        if np.any(arrivals) or np.any(completed):
            watch.signal(frame, index, mask)
        _tell_of_phases(watch, memory, chosen, states[mask])
    return states


def _tell_of_phases(watch: HappensBefore, memory: Memory, index: Array, before: Array) -> None:
    over = parity(memory.load(index, 8)) != parity(before)
    if over.any():
        watch.phase_complete(index[over])


def complete_bytes(frame: Frame, rows: Array, index: Array, count: int, column: int) -> None:
    """Take bytes from what objects at offsets wait for; the thread in a column asked for them."""
    memory: Memory = frame.batch.memories["shared"]
    zero = np.zeros(len(index), dtype=np.int64)
    before = arrive(memory, index, zero, zero, np.full(len(index), count))
    watch = frame.batch.watch
    if watch is not None:
        watch.signal_by_task((frame.first + column) // WARP, rows, index)
        _tell_of_phases(watch, memory, index, before)


def await_phase(
    registers: Registers, space: str, address: Array, phase: Array, slot: int, *, is_test: bool
) -> None:
    """The active threads wait until the phase of this parity is over; a predicate says that it is.

    Who only tests is let go, with the answer no, where nothing else can go on.
    """
    frame: Frame = registers[0]
    memory, index, mask = objects_at(registers, space, address)
    if frame.batch.watch is not None:
        frame.batch.watch.read(Touch(frame, memory, index, 8, mask))
    view, places = memory.views[8], index >> 3

    def over() -> Array:
        return parity(view[places]) != phase

    complete = over()
    frame.write(slot, complete)
    waiting = mask & ~complete
    if frame.batch.watch is not None and (mask & complete).any():
        frame.batch.watch.waited(frame, index, mask & complete)
    if not waiting.any():
        return
    batch, spot = frame.batch, index[waiting][:1]
    patience = batch.patience
    batch.is_tested |= is_test

    def may_go() -> Array:
        complete = over()
        return np.ones_like(complete) if is_test and batch.patience != patience else complete

    def after() -> None:
        complete = over()
        frame.write(slot, complete)
        if batch.watch is not None:
            batch.watch.waited(frame, index, frame.active() & complete)

    def why() -> str:
        where = int(spot[0]) % max(memory.stride, 1)
        pending, _, tx, _ = _parts(memory.load(spot, 8))
        missing = f"{pending[0]} arrivals and {tx[0]} bytes are still to come"
        return f"the mbarrier at shared address {hex(where)}, to which {missing}"

    frame.hold(waiting, may_go, why, after)


def arrive_behind_copies(
    registers: Registers, space: str, address: Array, arrivals: int, completed: int
) -> None:
    """Signal objects when all `cp.async` that the threads issued before are complete."""
    frame: Frame = registers[0]
    asynchrony = frame.batch.asynchrony
    groups = asynchrony.groups(frame, COPIES)

    def effect(_: Array | None) -> None:
        groups.wait(-1)
        signal(registers, space, address, arrivals, 0, completed)

    asynchrony.launch(frame, effect, queue=COPIES)


def commit_groups(registers: Registers, *kinds: str) -> None:
    """End the current group of operations of each kind."""
    for kind in kinds:
        registers[0].batch.asynchrony.groups(registers[0], kind).commit()


def await_groups(registers: Registers, pending: int, *kinds: str) -> None:
    """Wait until at most so many groups of each kind are under way; -1: for everything."""
    for kind in kinds:
        registers[0].batch.asynchrony.groups(registers[0], kind).wait(pending)


COPIES = "cp.async"
"""The kind of groups of `cp.async`."""
# Does an operation for a mask of threads (None: all of the frame).
Effect = Callable[[Array | None], None]


@dataclass(slots=True)
class _Operation:
    """An effect to come, the threads it is for, and what it waits behind: a group, or a queue."""

    frame: Frame
    effect: Effect
    mask: Array | None
    place: Place
    task: Task | None
    group: Array | None = None
    queue: str = ""


class Groups:
    """What the threads of a frame issued, by group, in order."""

    def __init__(self, frame: Frame, asynchrony: Asynchrony, kind: str) -> None:
        self._frame = frame
        self._kind = kind
        self._asynchrony = asynchrony
        self._committed: Array = np.zeros((1, 1), dtype=np.int64)
        # Groups before this one have been waited for.
        self._limit: Array = np.zeros((1, 1), dtype=np.int64)
        self._entries: list[_Operation] = []

    @property
    def is_pending(self) -> bool:
        return bool(self._entries)

    def issue(self, effect: Effect) -> None:
        """Do it now or later, for the active threads."""
        mask = self._frame.registers[MASK]
        watch = self._asynchrony.watch
        task = None if watch is None else watch.begin(self._frame, self._kind)
        entry = _Operation(self._frame, effect, mask, self._frame.place, task, self._committed)
        if self._asynchrony.is_now():
            self._asynchrony.perform(entry, mask)
        else:
            self._entries.append(entry)

    def commit(self) -> None:
        mask = self._frame.registers[MASK]
        if self._asynchrony.watch is not None:
            self._asynchrony.watch.commit(self._frame, self._kind)
        more = self._committed + 1
        self._committed = more if mask is None else np.where(mask, more, self._committed)

    def wait(self, pending: int) -> None:
        """Complete all groups of the active threads but so many of the newest; -1: everything."""
        mask = self._frame.registers[MASK]
        limit = self._committed - pending
        more = np.maximum(self._limit, limit)
        self._limit = more if mask is None else np.where(mask, more, self._limit)
        self._complete(limit, pending)

    def catch_up(self, other: Groups) -> None:
        """Complete those groups of the active threads that were waited for as those of another."""
        self._complete(other._limit, 0)

    def _complete(self, limit: Array, pending: int) -> None:
        mask = self._frame.registers[MASK]
        entries = []
        for entry in self._entries:
            is_new = pending >= 0 and entry.group is not None
            ready = entry.group < limit if is_new else np.ones((1, 1), np.bool_)
            if ready.all() and mask is None:
                self._asynchrony.perform(entry, entry.mask)
                continue
            due = ready if mask is None else ready & mask
            due = due if entry.mask is None else due & entry.mask
            if due.any():
                self._asynchrony.perform(entry, due)
                entry.mask = ~due if entry.mask is None else entry.mask & ~due
                if not np.broadcast_to(entry.mask, self._frame.shape).any():
                    continue
            entries.append(entry)
        self._entries = entries
        if self._asynchrony.watch is not None:
            self._asynchrony.watch.wait(self._frame, self._kind, pending)

    def finish(self) -> None:
        """Complete everything, of all threads."""
        for entry in self._entries:
            self._asynchrony.perform(entry, entry.mask)
        self._entries = []


class Asynchrony:
    """All that is under way in a batch."""

    def __init__(self, completion: str, random: np.random.Generator) -> None:
        self._completion = completion
        self._random = random
        self._groups: dict[tuple[int, str], Groups] = {}
        self._flights: list[_Operation] = []
        self.watch: HappensBefore | None = None

    def perform(self, operation: _Operation, mask: Array | None) -> None:
        """Do it for a mask of threads, as the agent that it is for the race check."""
        frame, registers = operation.frame, operation.frame.registers
        outer, outer_task = registers[MASK], None if self.watch is None else self.watch.task
        registers[MASK] = mask
        outer_place, frame.place = frame.place, operation.place
        if self.watch is not None:
            self.watch.task = operation.task
        try:
            operation.effect(mask)
        except Trouble as trouble:
            # Found where it takes effect, but it is about the line that issued it.
            trouble.place = trouble.place or operation.place
            raise
        registers[MASK], frame.place = outer, outer_place
        if self.watch is not None:
            self.watch.task = outer_task

    def is_now(self) -> bool:
        """Whether an operation that is issued takes effect at once."""
        if self._completion == "random":
            return bool(self._random.integers(2))
        return self._completion == "early"

    def groups(self, frame: Frame, kind: str) -> Groups:
        key = (frame.first, kind)
        if key not in self._groups:
            self._groups[key] = Groups(frame, self, kind)
        return self._groups[key]

    def launch(self, frame: Frame, effect: Effect, *, queue: str = "", slot: int = 0) -> None:
        """An operation that signals by itself; in a queue, not before those that came before it.

        `slot` tells apart what no queue keeps in order: the offset of the mbarrier.
        """
        mask = frame.registers[MASK]
        is_first = not queue or all(flight.queue != queue for flight in self._flights)
        task = None if self.watch is None else self.watch.begin(frame, queue, slot)
        flight = _Operation(frame, effect, mask, frame.place, task, queue=queue)
        if is_first and self.is_now():
            self.perform(flight, mask)
        else:
            self._flights.append(flight)

    def complete_some(self) -> bool:
        if not self._flights:
            return False
        flight = self._flights.pop(0)
        self.perform(flight, flight.mask)
        return True

    def finish(self) -> None:
        while self.complete_some():
            pass
        for groups in self._groups.values():
            groups.finish()
