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
    Step,
    laid_out,
    merging,
)
from gpu_emulator.values import NotExecutable, Place

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
        where = f"PTX line {line.place.ptx_line}: {line.place.instruction}"
        raise NotExecutable(f"{where} does not say where to go")
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
    drafts = [_draft(slots, block) for block in blocks]
    if slots.accumulators or slots.late:
        drafts = [_settling(slots, draft) for draft in drafts]
    frees, live = _local_slots(slots, drafts)
    points = meeting_points([block.successors for block in blocks])
    sections = tuple(
        _section(slots, draft, free, number, point)
        for number, (draft, free, point) in enumerate(zip(drafts, frees, points, strict=True))
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


@dataclass(frozen=True, slots=True)
class _Draft:
    """A block's steps, the slots that each touches and reads, and what its branch reads."""

    block: Block
    steps: list[Step]
    touched: list[set[int]]
    reads: list[frozenset[int]]
    meeting: Reader | None
    predicate: int | None
    table: Reader | None
    branch_touches: set[int]


def _draft(slots: PtxSlots, block: Block) -> _Draft:
    steps, touched, reads, meeting = [], [], [], None
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
            meeting = binder.meeting or (lambda _: EVERYONE)
        steps.append(step)
        reads.append(frozenset(binder.touched.union(step.writes if step.reads_old else ())))
        binder.touched.update(step.writes)
        touched.append(binder.touched)
    branch, branch_touches = block.branch, set[int]()
    predicate, table = None, None
    if branch and branch.guard:
        predicate = slots.register(branch.guard)
        branch_touches.add(predicate)
    if branch and branch.base == "brx":
        binder = Binder(slots, branch, {})
        table = binder.read(0, "u32")
        branch_touches |= binder.touched
    return _Draft(block, steps, touched, reads, meeting, predicate, table, branch_touches)


def _settling(slots: PtxSlots, draft: _Draft) -> _Draft:
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
    steps = []
    for step, touched, line in zip(draft.steps, draft.touched, draft.block.lines, strict=True):
        kinds = [k for k, some in late if touched & some and not line.opcode.startswith(k)]
        steps.append(replace(step, prelude=settle(kinds, touched)) if kinds else step)
    return replace(draft, steps=steps)


def _local_slots(
    slots: PtxSlots, drafts: Sequence[_Draft]
) -> tuple[list[dict[int, list[int]]], int]:
    """For each block the slots to free behind each step, and how many arrays live at most.

    A register that one block alone touches, and first writes whole, is free after its last use.
    """
    owners: dict[int, int] = {}
    shared_by_blocks: set[int] = slots.accumulators | slots.late
    for number, draft in enumerate(drafts):
        for slot in set().union(*draft.touched, draft.branch_touches):
            if owners.setdefault(slot, number) != number:
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
        elsewhere = shared_by_blocks | carried
        local = [s for s in last if s not in elsewhere and slots.is_register(s)]
        free: dict[int, list[int]] = {}
        for slot in local:
            free.setdefault(last[slot], []).append(slot)
        frees.append(free)
        alive = peak = 0
        starts = Counter(first[slot] for slot in local)
        for number in range(len(draft.steps)):
            alive += starts[number]
            peak = max(peak, alive)
            alive -= len(free.get(number, ()))
        most = max(most, peak)
    freed = sum(len(dead) for free in frees for dead in free.values())
    return frees, sum(map(slots.is_register, owners)) - freed + most


def _section(
    slots: PtxSlots, draft: _Draft, free: dict[int, list[int]], number: int, meets_at: int | None
) -> Section:
    block, branch = draft.block, draft.block.branch
    # For all threads, for some, the place, slots that are read, slots that are written.
    entries: list[tuple[Run, Run, Place, frozenset[int], tuple[int, ...]]] = []
    dead: list[int] = []
    for at, (step, line) in enumerate(zip(draft.steps, block.lines, strict=True)):
        if step.prelude is not None:
            entries.append((step.prelude, step.prelude, line.place, frozenset(), ()))
        part = merging(step) if step.is_pure else step.run
        entries.append((step.run, part, line.place, draft.reads[at], step.writes))
        dead += free.get(at, [])
        if len(dead) >= _FREE_EVERY:
            release = _freeing(slots, dead)
            entries.append((release, release, line.place, frozenset(), ()))
            dead = []
    whole, parts, places, reads, writes = zip(*entries, strict=True) if entries else [()] * 5
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
