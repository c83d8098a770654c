"""Basic blocks of a listing, in an order in which threads that part meet again as early as can be.

Blocks are numbered in a weak topological order: every loop is contiguous and stands before what
follows it. If the block of the smallest number always runs first, threads that left a loop or took
the shorter arm wait for the others at the first common block. Sources: F. Bourdoncle, "Efficient
chaotic iteration strategies with widenings" (1993); G. Diamos et al., "SIMD re-convergence at
thread frontiers" (2011).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpu_emulator.ptx.program.lines import EntryListing, PtxLine
from gpu_emulator.refusal import NotExecutable

_LEAVES = ("ret", "exit")


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
        """The blocks that may come next."""
        return [*self.targets, *([] if self.next is None else [self.next])]


def read_flow(listing: EntryListing, is_wait: Callable[[str], bool]) -> list[Block]:
    """The reachable blocks; 0 is the entry. A line whose opcode `is_wait` begins a block."""
    blocks, first_lines = _cut(listing, is_wait)
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


def _cut(listing: EntryListing, is_wait: Callable[[str], bool]) -> tuple[list[Block], list[int]]:
    targets = {listing.labels[name] for name in _mentioned(listing) if name in listing.labels}
    blocks, first_lines = [Block()], [0]

    def begin(at: int) -> None:
        if at != first_lines[-1]:
            blocks.append(Block())
            first_lines.append(at)

    for at, line in enumerate(listing.lines):
        base = line.opcode.split(".", 1)[0]
        if at in targets or is_wait(line.opcode):
            begin(at)
        if base in ("bra", "brx", *_LEAVES):
            blocks[-1].branch = line
            begin(at + 1)
        else:
            blocks[-1].lines.append(line)
            if is_wait(line.opcode):
                begin(at + 1)
    begin(len(listing.lines))
    return blocks, first_lines


def _mentioned(listing: EntryListing) -> Iterable[str]:
    for line in listing.lines:
        base = line.opcode.split(".", 1)[0]
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
        base = line.opcode.split(".", 1)[0] if line else ""
        if line and base == "bra":
            block.targets = [find(line.operands[0])]
        elif line and base == "brx":
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
