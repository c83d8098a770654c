"""Tensor memory while a launch runs: what warps move, and what single threads issue.

PTX ISA, "TensorCore 5th Generation Family Instructions". Products and copies are issued by one
thread and run in order behind it; a commit has an mbarrier say when. The arithmetic and the layouts
are in `gpu_emulator.engines`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gpu_emulator.engines import tcgen05
from gpu_emulator.engines.matrices import MatrixDescriptor, tcgen05_descriptor
from gpu_emulator.engines.tcgen05 import COLUMNS, ROWS, address_parts
from gpu_emulator.state.barriers import signal
from gpu_emulator.state.frame import TENSOR_MEMORY, Frame, Trouble, as_trouble, by_operands, issuers
from gpu_emulator.state.lanes import side_by_side, whole_warps
from gpu_emulator.state.warpgroups import note_matrix
from gpu_emulator.steps import WARP, Array, Registers

STORES = "tcgen05.st"
"""The kind of groups of stores."""
_QUEUE = "tcgen05"


@dataclass(frozen=True, slots=True)
class Group:
    """CTAs, (n, 1) or pairs (n, 2), for which a warp issues an operation."""

    frame: Frame
    members: Array
    warp: int

    def note(self, cells: Sequence[Array], *, writes: bool) -> None:
        """Tell the checks of cells: their CTA of the group, lane and column."""
        batch = self.frame.batch
        if batch.watch is None and not batch.tensor_memories.is_tracked:
            return
        cta, lanes, columns = np.broadcast_arrays(*cells)
        for member in range(self.members.shape[1]):
            own = cta == member
            spots = (self.members[:, [member]] * ROWS + lanes[own]) * COLUMNS + columns[own]
            spots = spots.reshape(-1)
            if batch.watch is not None:
                rows = spots // (ROWS * COLUMNS)
                batch.watch.engine(
                    TENSOR_MEMORY, self.warp, rows, spots, 1, self.frame.place, writes=writes
                )
            if writes:
                batch.tensor_memories.mark(spots)
            else:
                batch.note_unwritten_cells(spots, self.frame.place)

    def watch(
        self, descriptor: MatrixDescriptor, instruction: tcgen05.MatrixInstruction, operand: str
    ) -> None:
        """Tell the checks that a product reads A or B in shared memory."""
        name, rows = (
            (instruction.a_type, instruction.m)
            if operand == "a"
            else (instruction.b_type, instruction.n)
        )
        note_matrix(
            self.frame, self.members, np.array([self.warp]), descriptor, name,
            rows // self.members.shape[1],
            mn_major=instruction.a_mn_major if operand == "a" else instruction.b_mn_major,
        )  # fmt: skip


class Move:
    """Which cells a load or a store moves. `cells` are as `tcgen05.warp_cells` has them.

    `lanes`: those of a warp that take part.
    """

    def __init__(self, cells: tcgen05.Cells, lanes: slice = slice(None)) -> None:
        self._cells = replace(cells, lane=cells.lane[lanes], column=cells.column[lanes])
        self._lanes = lanes
        self._rows = int(cells.lane.max()) + 1

    def loaded(self, frame: Frame, address: Array) -> Array:
        """What the active warps load: (CTAs, warps, 32, registers)."""
        count = self._cells.lane.shape[1]
        values = np.zeros((frame.ctas, frame.lanes // WARP, WARP, count), dtype=np.uint32)
        for rows, warp, lane, column in self._warps(frame, address):
            words = frame.batch.tensor_memories.words[rows]
            self._note(Group(frame, rows[:, None], warp), lane, column, writes=False)
            values[rows, warp - frame.first // WARP, self._lanes] = tcgen05.load(
                words, self._cells, lane, column
            )
        return values

    def store(self, frame: Frame, address: Array, values: Array) -> None:
        """The active warps store what `loaded` would give."""
        for rows, warp, lane, column in self._warps(frame, address):
            words = frame.batch.tensor_memories.words
            part = words[rows]
            self._note(Group(frame, rows[:, None], warp), lane, column, writes=True)
            own = values[rows, warp - frame.first // WARP, self._lanes]
            tcgen05.store(part, self._cells, lane, column, own)
            words[rows] = part

    def _note(self, group: Group, lane: int, column: int, *, writes: bool) -> None:
        columns = column + self._cells.column
        if self._cells.packed:
            columns = np.stack([columns, columns + 1])
        group.note((np.zeros(1, np.int64), lane + self._cells.lane, columns), writes=writes)

    def _warps(self, frame: Frame, address: Array) -> list[tuple[Array, int, int, int]]:
        """Rows of CTAs, the number of the warp, and lane and column of its address."""
        active = frame.active()
        moves = []
        for first in range(0, frame.lanes, WARP):
            rows = np.nonzero(active[:, first])[0]
            if not len(rows):
                continue
            for same, (where,) in by_operands(frame, first, rows, [address]):
                lane, column = address_parts(where)
                number = (frame.first + first) // WARP
                if not tcgen05.may_access(lane, number, self._rows):
                    raise Trouble(
                        f"warp {number} accesses lane {lane} of tensor memory, not one of its own"
                    )
                if column + int(self._cells.column.max()) >= COLUMNS:
                    raise Trouble(f"column {column} of tensor memory and more")
                moves.append((same, number, lane, column))
        return moves


def issue(
    registers: Registers,
    ctas: int,
    values: Sequence[Array],
    operation: Callable[[Group, Sequence[int]], None],
) -> None:
    """Each active thread issues an operation of its CTA, or of its pair, with its values."""
    frame: Frame = registers[0]
    unsigned = [v if v.dtype.kind == "b" else v.view(f"u{v.dtype.itemsize}") for v in values]
    for column, rows in issuers(frame):
        for same, numbers in by_operands(frame, column, rows, unsigned):
            lead = same if ctas == 1 else same // 2 * 2
            members = lead[:, None] + np.arange(ctas)
            group = Group(frame, members, (frame.first + column) // WARP)
            flight = partial(_perform, operation, group, tuple(numbers))
            frame.batch.asynchrony.launch(frame, flight, queue=_QUEUE)


def _perform(
    operation: Callable[[Group, Sequence[int]], None],
    group: Group,
    numbers: Sequence[int],
    _: object,
) -> None:
    with as_trouble("tensor memory: "):
        operation(group, numbers)


def begin_store(registers: Registers, move: Move, address: Array, values: list[Array]) -> None:
    """Whole warps store registers to tensor memory."""
    frame: Frame = registers[0]
    whole_warps(registers)
    words = side_by_side(frame, values)
    groups = frame.batch.asynchrony.groups(frame, STORES)
    groups.issue(lambda _: move.store(frame, address, words))


def allocate(frame: Frame, row: int, columns: int) -> int | None:
    """The first of so many columns of the CTA of a row; None: they are not free."""
    with as_trouble():
        return frame.batch.tensor_memories.allocators[row].allocate(columns)


def free(frame: Frame, row: int, first: int, columns: int) -> None:
    with as_trouble():
        frame.batch.tensor_memories.allocators[row].free(first, columns)


def relinquish(registers: Registers) -> None:
    """The CTAs of active threads allocate no more."""
    frame: Frame = registers[0]
    for row in np.nonzero(frame.active().any(axis=1))[0].tolist():
        frame.batch.tensor_memories.allocators[row].relinquish()


def multiply(
    group: Group,
    addresses: tuple[int, int, int],
    instruction: tcgen05.MatrixInstruction,
    *,
    in_tensor: bool,
    ws: bool,
    accumulate: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    """The product at addresses: of D, of A or its descriptor, the descriptor of B."""
    memory, members = group.frame.batch.memories["shared"], group.members
    shared = memory.data.reshape(-1, memory.stride)[members]
    words = group.frame.batch.tensor_memories.words
    tensor = words[members]
    d, a, b = addresses
    if in_tensor:
        lane, column = address_parts(a)
        left = tcgen05.operand_from_tensor_memory(tensor, lane, column, instruction, ws=ws)
        cells = tcgen05.operand_cells(lane, column, instruction, ctas=members.shape[1], ws=ws)
        group.note(cells, writes=False)
    else:
        left = tcgen05.operand_from_shared(shared, tcgen05_descriptor(a), instruction, "a")
        group.watch(tcgen05_descriptor(a), instruction, "a")
    right = tcgen05.operand_from_shared(shared, tcgen05_descriptor(b), instruction, "b")
    group.watch(tcgen05_descriptor(b), instruction, "b")
    lane, column = address_parts(d)
    cells, result = tcgen05.multiply(
        tensor, left, right, instruction, lane, column, ws=ws, accumulate=accumulate, **options
    )
    if accumulate:
        group.note(cells, writes=False)
    group.note(cells, writes=True)
    tensor[:, *cells] = result
    words[members] = tensor


def copy(shape: str, group: Group, values: Sequence[int]) -> None:
    """Rows of shared memory, by their descriptor, to an address, in each CTA of a group."""
    memory = group.frame.batch.memories["shared"]
    words = group.frame.batch.tensor_memories.words
    lane, column = address_parts(values[0])
    for own in group.members.T:
        shared = memory.data.reshape(-1, memory.stride)[own]
        lanes, data = tcgen05.copy(shared, tcgen05_descriptor(values[1]), shape)
        part = words[own]
        columns = (column + np.arange(data.shape[-1]))[None, :]
        for rows in lanes:
            there = (lane + rows)[:, None]
            cells = (np.zeros(1, np.int64), there, columns)
            replace(group, members=own[:, None]).note(cells, writes=True)
            part[:, there, columns] = data
        words[own] = part


def shift(group: Group, values: Sequence[int]) -> None:
    """Rows from an address on move down by one, in each CTA of a group."""
    words = group.frame.batch.tensor_memories.words
    lane, column = address_parts(values[0])
    for own in group.members.T:
        part = words[own]
        tcgen05.shift_down(part, lane, column)
        words[own] = part


def commit(registers: Registers, space: str, address: Array, ranks: Array | None) -> None:
    """One arrives at an mbarrier behind all that was issued, or at that of each rank in a mask."""
    frame: Frame = registers[0]

    def effect(_: Array | None) -> None:
        if ranks is None:
            signal(registers, space, address, 1, 0, 0)
            return
        for rank in range(frame.batch.launch.cluster_size):
            chosen = frame.active() & ((ranks >> rank & 1) == 1)
            if chosen.any():
                with frame.only(chosen):
                    signal(registers, "shared", frame.batch.at_rank(address, rank), 1, 0, 0)

    frame.batch.asynchrony.launch(frame, effect, queue=_QUEUE)
