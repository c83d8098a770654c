"""From the listing of an entry to a program that is ready to run.

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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

import numpy as np

from gpu_emulator.ptx.instructions.catalogue import CHAPTERS
from gpu_emulator.ptx.program.binder import CLOCKS, Binder, PtxSlots, find_row, in_order
from gpu_emulator.ptx.program.listing import SIZES, EntryListing, PtxLine, read_listing
from gpu_emulator.ptx.text.registers import dominators
from gpu_emulator.state.lanes import EVERYONE
from gpu_emulator.steps import (
    CANONICAL,
    SHARED_BASE,
    Program,
    Reader,
    Region,
    Registers,
    Run,
    Section,
    SectionEntry,
    Step,
    entry_of,
    laid_out,
)
from gpu_emulator.values import NotExecutable

_LEAVES = ("ret", "exit")
_BRANCHES = ("bra", "brx", *_LEAVES)


@dataclass(slots=True)
class Block:
    """Lines without a way in or out between them.

    `next` is the block that follows where no branch is taken, None after `exit`. `branch` is the
    line that may leave it, the last one, not among `lines`; `targets` its blocks. Of each line
    there are the step, and the slots that it touches and reads; of the branch what it reads.
    """

    lines: list[PtxLine] = field(default_factory=list)
    branch: PtxLine | None = None
    targets: list[int] = field(default_factory=list)
    next: int | None = None
    steps: list[Step] = field(default_factory=list)
    touched: list[set[int]] = field(default_factory=list)
    reads: list[set[int]] = field(default_factory=list)
    meeting: Reader | None = None
    predicate: int | None = None
    table: Reader | None = None
    branch_touches: set[int] = field(default_factory=set)

    @property
    def successors(self) -> list[int]:
        return [*self.targets, *([] if self.next is None else [self.next])]


def read_flow(listing: EntryListing, is_wait: Callable[[str], bool]) -> list[Block]:
    """The reachable blocks; 0 is the entry. A line whose opcode `is_wait` begins a block."""
    branches = (line for line in listing.lines if line.opcode.startswith(("bra", "brx")))
    labels = (label for line in branches for label in _destinations(line, listing))
    targets = {listing.labels[label] for label in labels if label in listing.labels}
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
    reached = [blocks[old] for old in order]
    for block in reached:
        block.targets = [number[target] for target in block.targets]
        block.next = None if block.next is None else number[block.next]
    return reached


def _destinations(line: PtxLine, listing: EntryListing) -> Sequence[str]:
    """The labels that a branch leads to; none for `ret` and what is no branch."""
    if line.base not in ("bra", "brx"):
        return ()
    if len(line.operands) < (1 if line.base == "bra" else 2):
        raise line.refuse("does not say where to go")
    if line.base == "bra":
        return line.operands[:1]
    if line.operands[1] not in listing.tables:
        raise NotExecutable(f"the branch targets {line.operands[1]} are not declared")
    return listing.tables[line.operands[1]]


def _link(blocks: list[Block], first_lines: list[int], listing: EntryListing) -> None:
    starts = {line: number for number, line in enumerate(first_lines)}
    for number, block in enumerate(blocks):
        line = block.branch
        for label in _destinations(line, listing) if line else ():
            if label not in listing.labels:
                raise NotExecutable(f"branches to {label}, which the function does not define")
            block.targets.append(starts[listing.labels[label]])
        goes_on = line is None or bool(line.guard)
        block.next = number + 1 if goes_on and number + 1 < len(blocks) else None


def _weak_topological_order(blocks: list[Block]) -> list[int]:
    """The reachable blocks, each loop contiguous and before what follows it."""
    order = []
    # Components come in reverse topological order: the last is on top of the pile.
    pile = _components(blocks, set(range(len(blocks))), [0])
    while pile:
        component, head = pile.pop()
        order.append(head)
        # Of a loop its head comes first, then the others without the ways back to the head.
        if len(component) > 1:
            pile += _components(blocks, component - {head}, blocks[head].successors)
    return order


def _components(
    blocks: list[Block], nodes: set[int], roots: Sequence[int]
) -> list[tuple[set[int], int]]:
    """Strongly connected components of `nodes` reachable from `roots` (Tarjan, iterative).

    In reverse topological order, each with the node that was reached first.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    placed: set[int] = set()
    components: list[tuple[set[int], int]] = []
    work: list[tuple[int, Iterator[int]]] = []

    def enter(node: int) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        work.append((node, iter(blocks[node].successors)))

    for root in roots:
        if root in nodes and root not in index:
            enter(root)
        while work:
            node, successors = work[-1]
            for to in successors:
                if to in nodes and to not in index:
                    enter(to)
                    break
                if to in nodes and to not in placed:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component: set[int] = set()
                    while node not in component:
                        component.add(stack.pop())
                    placed |= component
                    components.append((component, node))
    return components


def meeting_points(successors: Sequence[Sequence[int]]) -> list[int | None]:
    """For each block the first one that all ways from it lead through; None: only the end."""
    outside = len(successors)
    before: list[list[int]] = [[] for _ in range(outside + 1)]
    for block, following in enumerate(successors):
        for successor in following or [outside]:
            before[successor].append(block)
    nearest = dominators(before, outside)
    points = [nearest.get(block, outside) for block in range(outside)]
    return [None if point == outside else point for point in points]


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
    base, *words = [word.split("::")[0] for word in opcode.split(".")]
    among = set(words)
    if base in _NOT_PLAIN:
        return False
    if base in ("bar", "barrier"):
        return "warp" in among or (words[0] in ("sync", "cta") and operands == 1)
    plain = {
        "ld": not _STRONG & among, "st": not _STRONG & among,
        "fence": "proxy" in among or "mbarrier_init" in among,
        "cp": not {"bulk", "reduce", "mbarrier"} & among,
        "mbarrier": words[:1] and words[0] in _PLAIN_MBARRIER and "cluster" not in among,
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
    slots = PtxSlots(listing)
    for block in blocks:
        _bind(slots, block)
    if slots.accumulators or slots.late:
        for block in blocks:
            _settle(slots, block)
    frees, live = _local_slots(slots, blocks)
    points = meeting_points([block.successors for block in blocks])
    sections = tuple(
        _section(slots, block, free, number, point)
        for number, (block, free, point) in enumerate(zip(blocks, frees, points, strict=True))
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
    match = find_row(name)
    return match is not None and (match[0].waits or match[0].meets)


def _placed(listing: EntryListing, space: str, start: int) -> tuple[list[Region], int]:
    own = [v for v in listing.variables if v.space == space and not v.is_extern]
    return laid_out(((v.name, v.size, v.align) for v in own), start)


def _bind(slots: PtxSlots, block: Block) -> None:
    for line in block.lines:
        match = find_row(line.opcode)
        assert match is not None
        row, parts = match
        binder = Binder(slots, line, parts)
        try:
            step = binder.guarded(row.make(binder))
        except (NotExecutable, MemoryError):
            raise
        except Exception as error:
            raise binder.refuse(f"cannot be decoded: {error!r}") from error
        if row.meets:
            block.meeting = binder.meeting or (lambda _: EVERYONE)
        block.steps.append(step)
        block.reads.append(binder.touched)
        block.touched.append(binder.touched.union(step.writes))
    branch = block.branch
    if branch and branch.guard:
        block.predicate = slots.register(branch.guard)
        block.branch_touches.add(block.predicate)
    if branch and branch.base == "brx":
        binder = Binder(slots, branch, {})
        block.table = binder.read(0, "u32")
        block.branch_touches |= binder.touched


def _settle(slots: PtxSlots, block: Block) -> None:
    """Complete what is to write registers before another instruction touches them.

    The manual asks for the wait first; but compilers read accumulators of `wgmma` and results of
    `tcgen05.ld` before it, and the assembler then orders them by the registers.
    """

    def settle(kinds: Sequence[str], touched: set[int]) -> Run:
        def run(registers: Registers) -> None:
            frame = registers[0]
            for kind in kinds:
                groups = frame.batch.asynchrony.groups(frame, kind)
                early = frame.too_early(touched)
                if groups.is_pending or early:
                    groups.wait(-1)
                if early and frame.batch.watch is not None:
                    frame.batch.watch.too_early(early, frame.place)

        return run

    late = (("wgmma", slots.accumulators), ("tcgen05.ld", slots.late))
    for step, touched, line in zip(block.steps, block.touched, block.lines, strict=True):
        kinds = [k for k, some in late if touched & some and not line.opcode.startswith(k)]
        step.prelude = settle(kinds, touched) if kinds else None


def _local_slots(
    slots: PtxSlots, blocks: Sequence[Block]
) -> tuple[list[dict[int, list[int]]], int]:
    """For each block the slots to free behind each step, and how many arrays live at most.

    A register that one block alone touches, and first writes whole, is free after its last use.
    """
    owners: dict[int, int] = {}
    shared_by_blocks: set[int] = slots.accumulators | slots.late
    for number, block in enumerate(blocks):
        for slot in set().union(*block.touched, block.branch_touches):
            if owners.setdefault(slot, number) != number:
                shared_by_blocks.add(slot)
    frees: list[dict[int, list[int]]] = []
    most = 0
    for block in blocks:
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        carried: set[int] = set(block.branch_touches)
        for number, (step, touched) in enumerate(zip(block.steps, block.touched, strict=True)):
            for slot in touched:
                if slot not in first:
                    first[slot] = number
                    if slot not in step.writes or step.reads_old:
                        carried.add(slot)
                last[slot] = number
        elsewhere = shared_by_blocks | carried
        local = [s for s in last if s not in elsewhere and slots.is_register(s)]
        free: dict[int, list[int]] = {}
        for slot in local:
            free.setdefault(last[slot], []).append(slot)
        frees.append(free)
        alive = peak = 0
        starts = Counter(first[slot] for slot in local)
        for number in range(len(block.steps)):
            alive += starts[number]
            peak = max(peak, alive)
            alive -= len(free.get(number, ()))
        most = max(most, peak)
    freed = sum(len(dead) for free in frees for dead in free.values())
    return frees, sum(map(slots.is_register, owners)) - freed + most


def _section(
    slots: PtxSlots, block: Block, free: dict[int, list[int]], number: int, meets_at: int | None
) -> Section:
    branch = block.branch
    entries: list[SectionEntry] = []
    dead: list[int] = []
    steps = zip(block.steps, block.lines, block.reads, strict=True)
    for at, (step, line, reads) in enumerate(steps):
        if step.prelude is not None:
            entries.append(entry_of(Step(step.prelude), line.place, ()))
        entries.append(entry_of(step, line.place, reads))
        dead += free.get(at, [])
        if len(dead) >= _FREE_EVERY:
            entries.append(entry_of(Step(_freeing(slots, dead)), line.place, ()))
            dead = []
    return Section.of(
        entries, count=len(block.lines) + (branch is not None), targets=tuple(block.targets),
        following=block.next, predicate=block.predicate,
        is_negated=bool(branch and branch.is_negated), table=block.table,
        leaves=bool(branch and branch.base in _LEAVES), meeting=block.meeting, number=number,
        meets_at=meets_at, branch=branch.place if branch else None,
        # Instructions that all threads of a warp execute together (PTX ISA: `.aligned`, `bar`).
        aligned=next(
            (
                line.place for line in block.lines
                if ".aligned" in line.opcode
                or line.opcode.startswith(("bar.sync", "bar.red", "bar.cta"))
            ),
            None,
        ),
    )  # fmt: skip


def _freeing(slots: PtxSlots, dead: Sequence[int]) -> Run:
    pairs = [(slot, np.zeros((1, 1), dtype=CANONICAL[slots.bits[slot]])) for slot in dead]

    def free(registers: Registers) -> None:
        for slot, nothing in pairs:
            registers[slot] = nothing

    return free
