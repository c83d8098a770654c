"""A program ready to run: blocks of closures, slots of registers, variables in their spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpu_emulator.ptx.program.binder import Binder, Slots
from gpu_emulator.ptx.program.flow import Block, read_flow
from gpu_emulator.ptx.program.lines import EntryListing, PtxLine
from gpu_emulator.ptx.program.listing import read_listing
from gpu_emulator.ptx.program.meeting import meeting_points
from gpu_emulator.ptx.program.table import find_row, in_order
from gpu_emulator.ptx.program.traits import grain, is_plain
from gpu_emulator.ptx.program.variables import Variable
from gpu_emulator.refusal import NotExecutable
from gpu_emulator.regions import SHARED_BASE, Region, laid_out
from gpu_emulator.steps import MASK, Reader, Registers, Run, Step, merge
from gpu_emulator.types import CANONICAL, Array
from gpu_emulator.values import MOST_THREADS, Place

_FREE_EVERY = 8
# So many values for registers that nothing wrote; the next register begins so many further on.
_GARBAGE, _APART = 1 << 16, 1031


@dataclass(frozen=True, slots=True)
class Section:
    """A basic block as closures: `whole` where all threads are active, `part` where some are.

    `predicate` is the slot that decides about the branch (None: always), `table` the reader of the
    index into `targets` (`brx.idx`). `following` is None behind `exit`. `meeting` reads the lanes
    that have to be here together. `meets_at` is the block, after block `number`, where threads that
    part at its `branch` meet for certain (None: only at the end). `aligned` is an instruction that
    wants the whole warp. `reads` and `writes` are the slots of each closure.
    """

    whole: tuple[Run, ...]
    part: tuple[Run, ...]
    places: tuple[Place, ...]
    reads: tuple[frozenset[int], ...]
    writes: tuple[tuple[int, ...], ...]
    count: int
    targets: tuple[int, ...]
    following: int | None
    predicate: int | None
    is_negated: bool
    table: Reader | None
    leaves: bool
    meeting: Reader | None
    number: int
    meets_at: int | None
    branch: Place | None
    aligned: Place | None


@dataclass(frozen=True, slots=True)
class Program:
    """An entry ready to run. `live` is how many arrays of registers it holds at most.

    `grain` is the size of the smallest access to shared memory, `global_grain` to global memory; at
    most 16 bytes. `is_plain`: warps wait at barriers of their whole CTA and at mbarriers alone, no
    access is atomic or stronger than others, and nothing tells the time.
    """

    listing: EntryListing
    slots: Slots
    sections: tuple[Section, ...]
    shared: tuple[Region, ...]
    shared_end: int
    dynamic: Variable | None
    local: tuple[Region, ...]
    local_end: int
    live: int
    grain: int
    global_grain: int
    is_plain: bool

    def initial(self, garbage: int, first: int, lanes: int) -> list[Array]:
        """Every slot: constants, and something arbitrary in registers that nothing wrote.

        With an even number of garbage all registers of a width are equal, in all threads; with an
        odd one each register has a value of its own in each thread, from the thread `first` on. So
        a result that depends on two of them shows too: whether they are equal, or their difference.
        """
        if garbage % 2:
            return self._uneven(garbage, first, lanes)
        random = np.random.default_rng(garbage)
        fill: dict[int, Array] = {}
        for bits in (1, 8, 16, 32, 64):
            value = random.integers(0, 1 << bits, (1, 1), dtype=np.uint64)
            fill[bits] = value.astype(CANONICAL[bits])
        fill[128] = np.full((1, 1), complex(float(random.random()), 0.0))
        registers: list[Array] = [fill[32]] * self.slots.count
        for slot, bits in self.slots.bits.items():
            registers[slot] = fill[bits]
        for slot, value in self.slots.constants.items():
            registers[slot] = value
        return registers

    def _uneven(self, garbage: int, first: int, lanes: int) -> list[Array]:
        fill, registers = _garbage(garbage), list[Array]()
        for slot in range(self.slots.count):
            at = (slot * _APART + first) % _GARBAGE
            registers.append(fill[self.slots.bits.get(slot, 32)][None, at : at + lanes])
        for slot, value in self.slots.constants.items():
            registers[slot] = value
        return registers


@lru_cache(maxsize=4)
def _garbage(seed: int) -> dict[int, Array]:
    """Arbitrary values of each width: of `_GARBAGE` registers, and more for the other threads."""
    raw = np.random.default_rng(seed).integers(0, 256, 16 * (_GARBAGE + MOST_THREADS), np.uint8)
    fill = {bits: raw.view(dtype) for bits, dtype in CANONICAL.items() if bits > 1}
    return fill | {1: raw % 2 == 1}


@lru_cache(maxsize=4)
def decode(ptx: str, entry: str | None) -> Program:
    """Make an entry ready; NotExecutable names every opcode that the table does not know.

    A program does not change while it runs: the schedules of one launch share it.
    """
    listing = read_listing(ptx, entry)
    listing.lines = [_in_order(line) for line in listing.lines]
    blocks = read_flow(listing, _is_wait)
    unknown = sorted(
        {line.opcode for block in blocks for line in block.lines if not find_row(line.opcode)}
    )
    if unknown:
        raise NotExecutable("unknown instructions: " + ", ".join(unknown), tuple(unknown))
    slots = Slots(listing)
    drafts = [_draft(slots, block) for block in blocks]
    if slots.accumulators or slots.late:
        pairs = zip(blocks, drafts, strict=True)
        drafts = [_settling(slots, block, draft) for block, draft in pairs]
    frees, live = _local_slots(slots, drafts)
    points = meeting_points([block.successors for block in blocks])
    sections = tuple(
        _section(slots, block, draft, free, number, point)
        for number, (block, draft, free, point) in enumerate(
            zip(blocks, drafts, frees, points, strict=True)
        )
    )
    dynamic = next((v for v in listing.variables if v.space == "shared" and v.is_extern), None)
    shared, shared_end = _placed(listing, "shared", SHARED_BASE)
    local, local_end = _placed(listing, "local", 0)
    return Program(
        listing, slots, sections, tuple(shared), shared_end, dynamic, tuple(local), local_end, live,
        grain(blocks, "global"), grain(blocks, "shared"),
        all(is_plain(line) for block in blocks for line in block.lines),
    )  # fmt: skip


def _in_order(line: PtxLine) -> PtxLine:
    opcode = in_order(line.opcode)
    return line if opcode == line.opcode else replace(line, opcode=opcode)


def _is_wait(name: str) -> bool:
    found = find_row(name)
    return found is not None and (found[0].waits or found[0].meets)


def _placed(listing: EntryListing, space: str, start: int) -> tuple[list[Region], int]:
    sizes = [
        (one.name, one.size, one.align)
        for one in listing.variables
        if one.space == space and not one.is_extern
    ]
    return laid_out(sizes, start)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A block's steps, the slots that each touches and reads, and what its branch reads."""

    steps: list[Step]
    touched: list[set[int]]
    reads: list[frozenset[int]]
    meeting: Reader | None
    predicate: int | None
    table: Reader | None
    branch_touches: set[int]


def _draft(slots: Slots, block: Block) -> _Draft:
    steps, touched, reads, meeting = [], [], [], None
    for line in block.lines:
        found = find_row(line.opcode)
        assert found is not None
        row, parts = found
        binder = Binder(slots, line, parts)
        try:
            step = binder.guarded(row.make(binder))
        except (NotExecutable, MemoryError):
            raise
        except Exception as error:
            raise binder.refuse(f"cannot be decoded: {error!r}") from error
        if row.meets:
            meeting = binder.meeting or _everyone
        steps.append(step)
        touched.append(binder.touched | set(step.writes))
        reads.append(frozenset(binder.touched | set(step.writes if step.reads_old else ())))
    predicate, table, branch_touches = _branch(slots, block.branch)
    return _Draft(steps, touched, reads, meeting, predicate, table, branch_touches)


def _settling(slots: Slots, block: Block, draft: _Draft) -> _Draft:
    """Complete what is to write registers before another instruction touches them.

    The manual asks for the wait first; but compilers read accumulators of `wgmma` and results of
    `tcgen05.ld` before it, and the assembler then orders them by the registers.
    """

    def settle(kinds: Sequence[str], touched: set[int], place: Place) -> Run:
        def run(registers: Registers) -> None:
            frame = registers[0]
            for kind in kinds:
                groups = frame.batch.asynchrony.groups(frame, kind)
                early = frame.too_early(touched)
                if groups.is_pending or early:
                    groups.wait(-1)
                if early and frame.batch.watch is not None:
                    frame.batch.watch.too_early(early, place)

        return run

    late = (("wgmma", slots.accumulators), ("tcgen05.ld", slots.late))
    steps = []
    for step, touched, line in zip(draft.steps, draft.touched, block.lines, strict=True):
        kinds = [k for k, some in late if touched & some and not line.opcode.startswith(k)]
        steps.append(replace(step, prelude=settle(kinds, touched, line.place)) if kinds else step)
    return replace(draft, steps=steps)


def _everyone(_: Registers) -> Array:
    return np.full((1, 1), 0xFFFF_FFFF, dtype=np.uint32)


def _branch(slots: Slots, line: PtxLine | None) -> tuple[int | None, Reader | None, set[int]]:
    if line is None:
        return None, None, set()
    touches: set[int] = set()
    predicate = slots.register(line.guard) if line.guard else None
    if predicate is not None:
        touches.add(predicate)
    table = None
    if line.opcode.startswith("brx"):
        binder = Binder(slots, line, {})
        table = binder.read(0, "u32")
        touches |= binder.touched
    return predicate, table, touches


def _local_slots(slots: Slots, drafts: Sequence[_Draft]) -> tuple[list[dict[int, list[int]]], int]:
    """For each block the slots to free behind each step, and how many arrays live at most.

    A register that one block alone touches, and first writes whole, is free after its last use.
    """
    seen: dict[int, int] = {}
    shared_by_blocks: set[int] = slots.accumulators | slots.late
    for number, draft in enumerate(drafts):
        for slot in set().union(*draft.touched, draft.branch_touches):
            if seen.setdefault(slot, number) != number:
                shared_by_blocks.add(slot)
    frees: list[dict[int, list[int]]] = []
    most = 0
    for draft in drafts:
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        carried: set[int] = set(draft.branch_touches)
        for number, (step, touched) in enumerate(zip(draft.steps, draft.touched, strict=True)):
            for slot in touched:
                if slot not in first:
                    first[slot] = number
                    if slot not in step.writes or step.reads_old:
                        carried.add(slot)
                last[slot] = number
        local = [
            s
            for s in last
            if s not in shared_by_blocks and s not in carried and slots.is_register(s)
        ]
        free: dict[int, list[int]] = {}
        for slot in local:
            free.setdefault(last[slot], []).append(slot)
        frees.append(free)
        alive = peak = 0
        starts: dict[int, int] = {}
        for slot in local:
            starts[first[slot]] = starts.get(first[slot], 0) + 1
        for number in range(len(draft.steps)):
            alive += starts.get(number, 0)
            peak = max(peak, alive)
            alive -= len(free.get(number, ()))
        most = max(most, peak)
    carried_over = sum(slots.is_register(slot) for slot in seen) - sum(
        len(each) for free in frees for each in free.values()
    )
    return frees, carried_over + most


def _section(
    slots: Slots, block: Block, draft: _Draft, free: dict[int, list[int]], number: int,
    meets_at: int | None,
) -> Section:  # fmt: skip
    whole: list[Run] = []
    part: list[Run] = []
    places: list[Place] = []
    reads: list[frozenset[int]] = []
    writes: list[tuple[int, ...]] = []
    dead: list[int] = []
    for at, (step, line) in enumerate(zip(draft.steps, block.lines, strict=True)):
        if step.prelude is not None:
            whole.append(step.prelude)
            part.append(step.prelude)
            places.append(line.place)
            reads.append(frozenset())
            writes.append(())
        whole.append(step.run)
        part.append(_merging(step) if step.is_pure else step.run)
        places.append(line.place)
        reads.append(draft.reads[at])
        writes.append(step.writes)
        dead += free.get(at, [])
        if len(dead) >= _FREE_EVERY:
            release = _freeing(slots, dead)
            whole.append(release)
            part.append(release)
            places.append(line.place)
            reads.append(frozenset())
            writes.append(())
            dead = []
    branch = block.branch
    return Section(
        whole=tuple(whole),
        part=tuple(part),
        places=tuple(places),
        reads=tuple(reads),
        writes=tuple(writes),
        count=len(block.lines) + (branch is not None),
        targets=tuple(block.targets),
        following=block.next,
        predicate=draft.predicate,
        is_negated=bool(branch and branch.is_negated),
        table=draft.table,
        leaves=bool(branch and branch.opcode.split(".", 1)[0] in ("ret", "exit")),
        meeting=draft.meeting,
        number=number,
        meets_at=meets_at,
        branch=branch.place if branch else None,
        aligned=next((each.place for each in block.lines if _is_aligned(each.opcode)), None),
    )


def _is_aligned(opcode: str) -> bool:
    """Whether all threads of the warp must execute it together (PTX ISA: `.aligned`, `bar`)."""
    return ".aligned" in opcode or opcode.startswith(("bar.sync", "bar.red", "bar.cta"))


def _merging(step: Step) -> Run:
    run, writes = step.run, step.writes

    def merging(registers: Registers) -> None:
        merge(run, writes, registers, registers[MASK])

    return merging


def _freeing(slots: Slots, dead: Sequence[int]) -> Run:
    pairs = [(slot, np.zeros((1, 1), dtype=CANONICAL[slots.bits[slot]])) for slot in dead]

    def free(registers: Registers) -> None:
        for slot, nothing in pairs:
            registers[slot] = nothing

    return free
