"""`tcgen05.alloc`, `ld`, `st` and `wait`: tensor memory and registers.

PTX ISA, "TensorCore 5th Generation Family Instructions". Loads and stores are complete at
`tcgen05.wait`. Which lane and column each register is, is in `gpu_emulator.engines`.
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.engines.tensor_memory import (
    COLUMNS,
    ROWS,
    address_parts,
    load,
    may_access,
    store,
    warp_cells,
)
from gpu_emulator.ptx.instructions.matrix import held, whole_warps
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.accesses import scatter
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.issuers import alike
from gpu_emulator.state.memory import Trouble
from gpu_emulator.state.tensor_memories import TensorMemories
from gpu_emulator.steps import MASK, WARP, Registers, Step
from gpu_emulator.types import Array
from gpu_emulator.values import Place

_TITLE = "TensorCore 5th Generation Family Instructions"
_GROUP = "{group:cta_group::1|cta_group::2}"


def note_cells(
    frame: Frame, warp: int, rows: Array, lanes: Array, columns: Array, place: Place,
    *, writes: bool,
) -> None:  # fmt: skip
    """Tell the checks of cells of CTAs in rows (n, 1) that a task of a warp accesses."""
    batch = frame.batch
    if batch.watch is None and not batch.tensor_memories.is_tracked:
        return
    spots = (rows * ROWS + lanes.reshape(1, -1)) * COLUMNS + columns.reshape(1, -1)
    spots = spots.reshape(-1)
    if batch.watch is not None:
        batch.watch.tensor(warp, spots, place, writes=writes)
    if writes:
        batch.tensor_memories.mark(spots)
    else:
        batch.note_unwritten_cells(spots, place)


def memories_of(frame: Frame) -> TensorMemories:
    """Tensor memory of the CTAs of a frame."""
    found: TensorMemories = frame.batch.tensor_memories
    return found


@opcode(
    f"tcgen05.alloc.{_GROUP}.sync.aligned?{{space:shared::cta}}.b32",
    section=f"{_TITLE}: tcgen05.alloc", waits=True,
)  # fmt: skip
def _allocate(line: Binder) -> Step:
    address, count, place = line.address(0), line.read(1, "u32"), line.line.place
    space = "shared" if line.parts["space"] else "generic"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        at, amount = frame.full(address(registers)), frame.full(count(registers))
        lead = frame.active() & (frame.threads % WARP == 0)
        todo = [(int(row), int(column)) for row, column in zip(*np.nonzero(lead), strict=True)]

        def attempt() -> Array:
            granted = np.zeros(frame.shape, dtype=np.bool_)
            for row, column in list(todo):
                if _grant(frame, row, column, int(amount[row, column]), at, space, place):
                    todo.remove((row, column))
            for row, column in zip(*np.nonzero(lead), strict=True):
                if (row, column) not in todo:
                    granted[row, column : column + WARP] = True
            return granted

        done = attempt()
        waiting = frame.active() & ~done
        if waiting.any():
            frame.hold(waiting, attempt, lambda: "free columns of tensor memory")

    return Step(run, (), is_pure=False)


def _grant(
    frame: Frame, row: int, column: int, amount: int, at: Array, space: str, place: Place
) -> bool:  # fmt: skip
    try:
        first = memories_of(frame).allocators[row].allocate(amount)
    except ValueError as error:
        raise Trouble("memory_fault", str(error)) from None
    if first is None:
        return False
    registers = frame.registers
    outer = registers[MASK]
    one = np.zeros(frame.shape, dtype=np.bool_)
    one[row, column] = True
    registers[MASK] = one
    scatter(registers, space, at, np.full((1, 1), first, dtype=np.uint32), 4, place)
    registers[MASK] = outer
    return True


@opcode(f"tcgen05.dealloc.{_GROUP}.sync.aligned.b32", section=f"{_TITLE}: tcgen05.dealloc")
def _free(line: Binder) -> Step:
    address, count = line.read(0, "b32"), line.read(1, "u32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        lead = frame.active() & (frame.threads % WARP == 0)
        at, amount = frame.full(address(registers)), frame.full(count(registers))
        for row, column in zip(*np.nonzero(lead), strict=True):
            allocator = memories_of(frame).allocators[row]
            _, first = address_parts(int(at[row, column]))
            try:
                allocator.free(first, int(amount[row, column]))
            except ValueError as error:
                raise Trouble("memory_fault", str(error)) from None

    return Step(run, (), is_pure=False)


@opcode(
    f"tcgen05.relinquish_alloc_permit.{_GROUP}.sync.aligned",
    section=f"{_TITLE}: tcgen05.relinquish_alloc_permit",
)  # fmt: skip
def _relinquish(line: Binder) -> Step:
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        for row in np.nonzero(frame.active().any(axis=1))[0].tolist():
            memories_of(frame).allocators[row].relinquish()

    return Step(run, (), is_pure=False)


_COUNTS = "x1|x2|x4|x8|x16|x32|x64|x128"
_SHAPES = "32x32b|16x64b|16x128b|16x256b"


@opcode(
    f"tcgen05.ld.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:pack::16b}}.b32",
    f"tcgen05.ld.sync.aligned.{{shape:16x32bx2}}.{{count:{_COUNTS}}}?{{pack:pack::16b}}.b32",
    section=f"{_TITLE}: tcgen05.ld",
)  # fmt: skip
def _load(line: Binder) -> Step:
    slots = [line.target(each, "b32")[0] for each in line.parts_of(0)]
    # They are written at the wait, in another place.
    line.slots.late.update(slots)
    address = line.bracketed(1)
    move = _Move(line, len(slots), line.constant(2) or 0)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        where = address(registers)

        def effect(_: Array | None) -> None:
            values = np.zeros((frame.ctas, frame.lanes // WARP, WARP, len(slots)), dtype=np.uint32)
            for rows, warp, lane, column in move.warps(frame, where):
                words = memories_of(frame).words[rows]
                move.note(frame, rows, warp, lane, column, line.line.place, writes=False)
                values[rows, warp] = load(words, move.cells, lane, column)
            flat = values.reshape(*frame.shape, len(slots))
            for number, slot in enumerate(slots):
                frame.write(slot, np.ascontiguousarray(flat[..., number]))

        frame.loaded_late(slots, line.line.place)
        frame.batch.asynchrony.groups(frame, "tcgen05.ld").issue(effect, line.line.place)

    return Step(run, tuple(slots), is_pure=False, reads_old=True)


@opcode(
    f"tcgen05.st.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:unpack::16b}}.b32",
    f"tcgen05.st.sync.aligned.{{shape:16x32bx2}}.{{count:{_COUNTS}}}?{{pack:unpack::16b}}.b32",
    section=f"{_TITLE}: tcgen05.st",
)  # fmt: skip
def _store(line: Binder) -> Step:
    is_split = line.parts["shape"] == "16x32bx2"
    readers = [line.source(each, "b32") for each in line.parts_of(2 if is_split else 1)]
    address = line.bracketed(0)
    move = _Move(line, len(readers), (line.constant(1) or 0) if is_split else 0)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        where = address(registers)
        values = held(frame, [each(registers) for each in readers])

        def effect(_: Array | None) -> None:
            for rows, warp, lane, column in move.warps(frame, where):
                words = memories_of(frame).words
                part = words[rows]
                move.note(frame, rows, warp, lane, column, line.line.place, writes=True)
                store(part, move.cells, lane, column, values[rows, warp])
                words[rows] = part

        frame.batch.asynchrony.groups(frame, "tcgen05.st").issue(effect, line.line.place)

    return Step(run, (), is_pure=False)


class _Move:
    """Which cells a load or store moves, for the warps that do."""

    def __init__(self, line: Binder, registers: int, split: int) -> None:
        parts = line.parts
        self.cells = warp_cells(
            parts["shape"], int(parts["count"][1:]), split=split, packed=bool(parts["pack"])
        )
        if self.cells.lane.shape[1] != registers:
            raise line.refuse(f"has {registers} registers, not {self.cells.lane.shape[1]}")
        self._rows = int(self.cells.lane.max()) + 1

    def note(
        self, frame: Frame, rows: Array, warp: int, lane: int, column: int, place: Place,
        *, writes: bool,
    ) -> None:  # fmt: skip
        """Tell the checks which cells of CTAs in rows are accessed."""
        columns = column + self.cells.column
        if self.cells.packed:
            columns = np.stack([columns, columns + 1])
        lanes = np.broadcast_to(lane + self.cells.lane, columns.shape)
        number = frame.first // WARP + warp
        note_cells(frame, number, rows[:, None], lanes, columns, place, writes=writes)

    def warps(self, frame: Frame, address: Array) -> list[tuple[Array, int, int, int]]:
        """Rows of CTAs, the warp of the frame, and lane and column of its address."""
        active = frame.active()
        found = []
        for warp in range(frame.lanes // WARP):
            rows = np.nonzero(active[:, warp * WARP])[0]
            if not len(rows):
                continue
            for same, (where,) in alike(frame, warp * WARP, rows, [address]):
                lane, column = address_parts(where)
                number = frame.first // WARP + warp
                if not may_access(lane, number, self._rows):
                    raise Trouble(
                        "memory_fault",
                        f"warp {number} accesses lane {lane} of tensor memory, not one of its own",
                    )
                if column + int(self.cells.column.max()) >= COLUMNS:
                    raise Trouble("memory_fault", f"column {column} of tensor memory and more")
                found.append((same, warp, lane, column))
        return found


@opcode(
    "tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned",
    section=f"{_TITLE}: tcgen05.wait",
)  # fmt: skip
def _wait(line: Binder) -> Step:
    kind = "tcgen05.ld" if "::ld" in line.line.opcode else "tcgen05.st"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, kind).wait(-1)
        if kind == "tcgen05.ld":
            frame.waited_for_loads()

    return Step(run, (), is_pure=False)
