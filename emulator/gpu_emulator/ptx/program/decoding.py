"""A program ready to run: blocks of closures, slots of registers, variables in their spaces.

Basic blocks of a listing, in an order in which threads that part meet again as early as can be.
Blocks are numbered in a weak topological order: every loop is contiguous and stands before what
follows it. If the block of the smallest number always runs first, threads that left a loop or took
the shorter arm wait for the others at the first common block. Sources: F. Bourdoncle, "Efficient
chaotic iteration strategies with widenings" (1993); G. Diamos et al., "SIMD re-convergence at
thread frontiers" (2011).

Where threads that part at a branch meet again for certain: immediate post-dominators. What single
instructions say about how a whole program may run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

import numpy as np

from gpu_emulator.ptx.instructions.catalogue import CHAPTERS
from gpu_emulator.ptx.program.binder import CLOCKS, Binder, Slots, find_row, in_order
from gpu_emulator.ptx.program.listing import SIZES, EntryListing, PtxLine, Variable, read_listing
from gpu_emulator.ptx.text.registers import dominators
from gpu_emulator.steps import (
    CANONICAL,
    MASK,
    SHARED_BASE,
    Array,
    NotExecutable,
    Reader,
    Region,
    Registers,
    Run,
    Section,
    Step,
    laid_out,
    merge,
)
from gpu_emulator.values import MOST_THREADS, Place

_LEAVES = ("ret", "exit")
_BRANCHES = ("bra", "brx", *_LEAVES)


@dataclass(slots=True)
class Block:
    """Lines without a way in or out between them.

    `next` is the block that follows where no branch is taken, None after `exit`. `branch` is the
    line that may leave it, the last one, not among `lines`; `targets` its blocks.
    """

    lines: list[PtxLine] = field(default_factory=list)
    branch: PtxLine | None = None
    targets: list[int] = field(default_factory=list)
    next: int | None = None

    @property
    def successors(self) -> list[int]:
        return [*self.targets, *([] if self.next is None else [self.next])]


def read_flow(listing: EntryListing, is_wait: Callable[[str], bool]) -> list[Block]:
    """The reachable blocks; 0 is the entry. A line whose opcode `is_wait` begins a block."""
    targets = {listing.labels[name] for name in _mentioned(listing) if name in listing.labels}
    blocks, first_lines = [Block()], [0]

    def begin(at: int) -> None:
        if at != first_lines[-1]:
            blocks.append(Block())
            first_lines.append(at)

    for at, line in enumerate(listing.lines):
        waits = is_wait(line.opcode)
        if waits or at in targets:
            begin(at)
        if line.opcode.startswith(_BRANCHES) and line.base in _BRANCHES:
            blocks[-1].branch = line
            begin(at + 1)
        else:
            blocks[-1].lines.append(line)
            if waits:
                begin(at + 1)
    begin(len(listing.lines))
    _link(blocks, first_lines, listing)
    order = _weak_topological_order(blocks)
    number = {old: new for new, old in enumerate(order)}
    result = []
    for old in order:
        one = blocks[old]
        one.targets = [number[each] for each in one.targets]
        one.next = None if one.next is None else number[one.next]
        result.append(one)
    return result


def _mentioned(listing: EntryListing) -> Iterable[str]:
    for line in listing.lines:
        if not line.opcode.startswith(("bra", "brx")):
            continue
        base = line.base
        if len(line.operands) < {"bra": 1, "brx": 2}.get(base, 0):
            where = f"PTX line {line.place.ptx_line}: {line.place.instruction}"
            raise NotExecutable(f"{where} does not say where to go")
        if base == "bra":
            yield line.operands[0]
        elif base == "brx":
            yield from listing.tables.get(line.operands[1], ())


def _link(blocks: list[Block], first_lines: list[int], listing: EntryListing) -> None:
    starts = {line: number for number, line in enumerate(first_lines)}

    def find(label: str) -> int:
        if label not in listing.labels:
            raise NotExecutable(f"branches to {label}, which the function does not define")
        return starts[listing.labels[label]]

    for number, block in enumerate(blocks):
        line = block.branch
        if line and line.base == "bra":
            block.targets = [find(line.operands[0])]
        elif line and line.base == "brx":
            if line.operands[1] not in listing.tables:
                raise NotExecutable(f"the branch targets {line.operands[1]} are not declared")
            block.targets = [find(label) for label in listing.tables[line.operands[1]]]
        is_last = number + 1 == len(blocks)
        goes_on = line is None or bool(line.guard)
        block.next = number + 1 if goes_on and not is_last else None


def _weak_topological_order(blocks: list[Block]) -> list[int]:
    """The reachable blocks, each loop contiguous and before what follows it."""
    order: list[int] = []
    # A pile of (nodes to put in order, node to begin with); nested loops go on top.
    pile: list[tuple[set[int], int]] = [(set(range(len(blocks))), 0)]
    while pile:
        nodes, entry = pile.pop()
        if len(nodes) == 1:
            order.append(entry)
            continue
        components = _components(blocks, nodes, entry)
        for component, head in components:
            # Components come in reverse topological order: the last is put on top of the pile.
            pile.append(({head}, head) if len(component) == 1 else (component, head))
        if len(components) == 1 and len(components[0][0]) > 1:
            # One loop: its head first, then the rest without the ways back to the head.
            pile.pop()
            component, head = components[0]
            order.append(head)
            rest = component - {head}
            for part, first in _all_components(blocks, rest, head):
                pile.append(({first}, first) if len(part) == 1 else (part, first))
    return order


def _all_components(blocks: list[Block], nodes: set[int], head: int) -> list[tuple[set[int], int]]:
    """The components of what a loop's head leads to, without the head; reverse topological."""
    found: list[tuple[set[int], int]] = []
    seen: set[int] = set()
    for first in blocks[head].successors:
        if first in nodes and first not in seen:
            for component, start in _components(blocks, nodes - seen, first):
                seen |= component
                found.append((component, start))
    return found


def _components(blocks: list[Block], nodes: set[int], entry: int) -> list[tuple[set[int], int]]:
    """Strongly connected components of `nodes` reachable from `entry` (Tarjan, iterative).

    In reverse topological order, each with the node that was reached first.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[tuple[set[int], int]] = []
    work: list[tuple[int, int]] = [(entry, 0)]
    while work:
        node, position = work.pop()
        if position == 0:
            index[node] = low[node] = len(index)
            stack.append(node)
            on_stack.add(node)
        following = [each for each in blocks[node].successors if each in nodes]
        if position:
            low[node] = min(low[node], low[following[position - 1]])
        for at in range(position, len(following)):
            to = following[at]
            if to not in index:
                work += [(node, at + 1), (to, 0)]
                break
            if to in on_stack:
                low[node] = min(low[node], index[to])
        else:
            if low[node] == index[node]:
                component: set[int] = set()
                while node not in component:
                    one = stack.pop()
                    on_stack.discard(one)
                    component.add(one)
                found.append((component, node))
    return found


def meeting_points(successors: Sequence[Sequence[int]]) -> list[int | None]:
    """For each block the first one that all ways from it lead through; None: only the end."""
    end = len(successors)
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for block, following in enumerate(successors):
        for each in following or [end]:
            before[each].append(block)
    found = dominators(before, end)
    points = [found.get(block, end) for block in range(end)]
    return [None if point == end else point for point in points]


_WIDEST = 16
_ENGINES = ("cp", "mbarrier", "tcgen05", "multimem", "tensormap")
# What may make the order of warps matter though every access is ordered.
_STRONG = frozenset(("volatile", "mmio", "relaxed", "acquire", "release", "async"))
_NOT_PLAIN = frozenset(("atom", "red", "multimem", "tensormap", "activemask", "membar", "mapa"))
_PLAIN_MBARRIER = ("init", "inval", "arrive", "try_wait")


def is_plain(line: PtxLine) -> bool:
    """Whether the order of warps cannot matter for it where every access is ordered."""
    if not CLOCKS.isdisjoint(line.operands):
        return False
    return _is_plain(line.opcode, len(line.operands))


@cache
def _is_plain(opcode: str, operands: int) -> bool:
    base, *rest = [word.split("::")[0] for word in opcode.split(".")]
    among = set(rest)
    if base in _NOT_PLAIN:
        return False
    if base in ("bar", "barrier"):
        return "warp" in among or (rest[0] in ("sync", "cta") and operands == 1)
    plain = {
        "ld": not _STRONG & among, "st": not _STRONG & among,
        "fence": "proxy" in among or "mbarrier_init" in among,
        "cp": not {"bulk", "reduce", "mbarrier"} & among,
        "mbarrier": rest[:1] and rest[0] in _PLAIN_MBARRIER and "cluster" not in among,
        "tcgen05": "cta_group::2" not in opcode and "multicast" not in among,
    }  # fmt: skip
    return bool(plain.get(base, True))


def grain(blocks: Sequence[Block], besides: str) -> int:
    """The smallest access to what may not be in that space; no access is cut by its multiples."""
    kinds = {
        (
            line.opcode,
            line.operands[2] if line.opcode.startswith(("cp.async.ca", "cp.async.cg")) else "",
        )
        for block in blocks
        for line in block.lines
    }
    return min((_size(opcode, third, besides) for opcode, third in kinds), default=_WIDEST)


def _size(opcode: str, third: str, besides: str) -> int:
    """How many bytes a thread accesses at once, at most `_WIDEST`; `third` is an operand."""
    words = [word.split("::")[0] for word in opcode.split(".")]
    if words[0] in ("ld", "st", "atom", "red"):
        if {besides, "param"} & set(words):
            return _WIDEST
        many = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
        return min(_WIDEST, many * SIZES.get(words[-1], 4))
    if words[:2] == ["cp", "async"] and words[2] in ("ca", "cg"):
        return {"4": 4, "8": 8}.get(third, _WIDEST)
    if words[0] in ("ldmatrix", "stmatrix", "wgmma", "fence"):
        return _WIDEST
    return 4 if words[0] in _ENGINES or {"shared", "global"} & set(words) else _WIDEST


_FREE_EVERY = 8
# So many values for registers that nothing wrote; the next register begins so many further on.
_GARBAGE, _APART = 1 << 16, 1031
_EVERYONE = np.full((1, 1), 0xFFFF_FFFF, dtype=np.uint32)


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

    @property
    def dynamic_start(self) -> int:
        """Where the array of shared memory begins whose size the launch gives."""
        align = 1 if self.dynamic is None else max(self.dynamic.align, 16)
        return -(-self.shared_end // align) * align

    def initial(self, garbage: int, first: int, lanes: int) -> list[Array]:
        """Every slot: constants, and something arbitrary in registers that nothing wrote.

        With an even number of garbage all registers of a width are equal, in all threads; with an
        odd one each register has a value of its own in each thread, from the thread `first` on. So
        a result that depends on two of them shows too: whether they are equal, or their difference.
        """
        random = np.random.default_rng(garbage)
        fill: dict[int, Array] = _garbage(garbage) if garbage % 2 else {}
        for bits in (1, 8, 16, 32, 64) if not fill else ():
            value = random.integers(0, 1 << bits, (1, 1), dtype=np.uint64)
            fill[bits] = value.astype(CANONICAL[bits])
        fill.setdefault(128, np.full((1, 1), complex(float(random.random()), 0.0)))
        registers = []
        for slot in range(self.slots.count):
            value = fill[self.slots.bits.get(slot, 32)]
            if garbage % 2:
                at = (slot * _APART + first) % _GARBAGE
                value = value[None, at : at + lanes]
            registers.append(self.slots.constants.get(slot, value))
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
    assert CHAPTERS
    # The collector of cycles would go through what is made here again and again, and find nothing.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _decode(read_listing(ptx, entry))
    finally:
        if is_collecting:
            gc.enable()


def _decode(listing: EntryListing) -> Program:
    listing.lines = [
        line if (usual := in_order(line.opcode)) == line.opcode else replace(line, opcode=usual)
        for line in listing.lines
    ]
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


@cache
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
            meeting = binder.meeting or (lambda _: _EVERYONE)
        steps.append(step)
        reads.append(frozenset(binder.touched.union(step.writes if step.reads_old else ())))
        binder.touched.update(step.writes)
        touched.append(binder.touched)
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
    slots: Slots,
    block: Block,
    draft: _Draft,
    free: dict[int, list[int]],
    number: int,
    meets_at: int | None,
) -> Section:
    # For all threads, for some, the place, slots that are read, slots that are written.
    entries: list[tuple[Run, Run, Place, frozenset[int], tuple[int, ...]]] = []
    dead: list[int] = []
    for at, (step, line) in enumerate(zip(draft.steps, block.lines, strict=True)):
        if step.prelude is not None:
            entries.append((step.prelude, step.prelude, line.place, frozenset(), ()))
        part = _merging(step) if step.is_pure else step.run
        entries.append((step.run, part, line.place, draft.reads[at], step.writes))
        dead += free.get(at, [])
        if len(dead) >= _FREE_EVERY:
            release = _freeing(slots, dead)
            entries.append((release, release, line.place, frozenset(), ()))
            dead = []
    whole, parts, places, reads, writes = zip(*entries, strict=True) if entries else [()] * 5
    branch = block.branch
    return Section(
        whole=whole, part=parts, places=places, reads=reads, writes=writes,
        count=len(block.lines) + (branch is not None),
        targets=tuple(block.targets), following=block.next, predicate=draft.predicate,
        is_negated=bool(branch and branch.is_negated), table=draft.table,
        leaves=bool(branch and branch.base in _LEAVES),
        meeting=draft.meeting, number=number, meets_at=meets_at,
        branch=branch.place if branch else None,
        # Instructions that all threads of a warp execute together (PTX ISA: `.aligned`, `bar`).
        aligned=next(
            (
                each.place for each in block.lines
                if ".aligned" in each.opcode
                or each.opcode.startswith(("bar.sync", "bar.red", "bar.cta"))
            ),
            None,
        ),
    )  # fmt: skip


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
