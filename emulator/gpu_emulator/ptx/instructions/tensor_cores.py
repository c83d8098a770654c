"""`tcgen05`. PTX ISA, "TensorCore 5th Generation Family Instructions".

Products and copies are issued by one thread and run in order behind it; `tcgen05.commit` has an
mbarrier say when. Loads and stores of tensor memory are complete at `tcgen05.wait`. The arithmetic
and the layouts are in `gpu_emulator.engines`.
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
from gpu_emulator.ptx.instructions.matrix import result_slots
from gpu_emulator.ptx.program.binder import Binder, opcode, without_effect
from gpu_emulator.state.barriers import signal
from gpu_emulator.state.frame import (
    TENSOR_MEMORY,
    Frame,
    Hold,
    MemoryOperand,
    Trouble,
    by_operands,
    issuers,
    scatter,
)
from gpu_emulator.state.lanes import side_by_side, whole_warps, write_all
from gpu_emulator.state.warpgroups import note_matrix
from gpu_emulator.steps import WARP, Array, Reader, Registers, Step
from gpu_emulator.values import Place

_GROUP = "{group:cta_group::1|cta_group::2}"


@dataclass(frozen=True, slots=True)
class _Group:
    """CTAs, (n, 1) or pairs (n, 2), for which a warp issues an operation."""

    frame: Frame
    members: Array
    warp: int
    place: Place

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
                    TENSOR_MEMORY, self.warp, rows, spots, 1, self.place, writes=writes
                )
            if writes:
                batch.tensor_memories.mark(spots)
            else:
                batch.note_unwritten_cells(spots, self.place)

    def watch(
        self, descriptor: MatrixDescriptor, instruction: tcgen05.MatrixInstruction, operand: str
    ) -> None:
        name, rows = (
            (instruction.a_type, instruction.m)
            if operand == "a"
            else (instruction.b_type, instruction.n)
        )
        note_matrix(
            self.frame, self.members, np.array([self.warp]), descriptor, name,
            rows // self.members.shape[1], self.place,
            mn_major=instruction.a_mn_major if operand == "a" else instruction.b_mn_major,
        )  # fmt: skip


@opcode(f"tcgen05.alloc.{_GROUP}.sync.aligned?{{space:shared::cta}}.b32", waits=True)
def _allocate(line: Binder) -> Step:
    address, count = line.address(0), line.read(1, "u32")
    operand = MemoryOperand("shared" if line.parts["space"] else "generic", 4, line.place)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        at, amount = frame.full(address(registers)), frame.full(count(registers))
        lead = frame.active() & (frame.threads % WARP == 0)
        granted = np.zeros(frame.shape, dtype=np.bool_)

        def attempt() -> Array:
            for row, column in np.argwhere(lead & ~granted).tolist():
                if _grant(frame, row, column, int(amount[row, column]), operand, at):
                    granted[row, column : column + WARP] = True
            return granted

        waiting = frame.active() & ~attempt()
        if waiting.any():
            frame.holds.append(Hold(waiting, attempt, lambda: "free columns of tensor memory"))

    return Step(run)


def _grant(
    frame: Frame, row: int, column: int, amount: int, operand: MemoryOperand, at: Array
) -> bool:
    try:
        first = frame.batch.tensor_memories.allocators[row].allocate(amount)
    except ValueError as error:
        raise Trouble(str(error)) from None
    if first is None:
        return False
    mask = np.zeros(frame.shape, dtype=np.bool_)
    mask[row, column] = True
    with frame.only(mask):
        scatter(frame.registers, operand, at, np.full((1, 1), first, dtype=np.uint32))
    return True


@opcode(f"tcgen05.dealloc.{_GROUP}.sync.aligned.b32")
def _free(line: Binder) -> Step:
    address, count = line.read(0, "b32"), line.read(1, "u32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        lead = frame.active() & (frame.threads % WARP == 0)
        at, amount = frame.full(address(registers)), frame.full(count(registers))
        for row, column in zip(*np.nonzero(lead), strict=True):
            allocator = frame.batch.tensor_memories.allocators[row]
            _, first = address_parts(int(at[row, column]))
            try:
                allocator.free(first, int(amount[row, column]))
            except ValueError as error:
                raise Trouble(str(error)) from None

    return Step(run)


@opcode(f"tcgen05.relinquish_alloc_permit.{_GROUP}.sync.aligned")
def _relinquish(line: Binder) -> Step:
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        for row in np.nonzero(frame.active().any(axis=1))[0].tolist():
            frame.batch.tensor_memories.allocators[row].relinquish()

    return Step(run)


_COUNTS = "x1|x2|x4|x8|x16|x32|x64|x128"
_SHAPES = "32x32b|16x64b|16x128b|16x256b|16x32bx2"


@opcode(f"tcgen05.ld.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:pack::16b}}.b32")
def _load(line: Binder) -> Step:
    slots = result_slots(line, "b32")
    # They are written at the wait, in another place.
    line.slots.late.update(slots)
    address, place = line.bracketed(1), line.place
    move = _Move(line, len(slots), line.constant(2) or 0)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        where = address(registers)

        def effect(_: Array | None) -> None:
            values = np.zeros((frame.ctas, frame.lanes // WARP, WARP, len(slots)), dtype=np.uint32)
            for rows, warp, lane, column in move.warps(frame, where):
                words = frame.batch.tensor_memories.words[rows]
                move.note(_Group(frame, rows[:, None], warp, place), lane, column, writes=False)
                values[rows, warp - frame.first // WARP] = tcgen05.load(
                    words, move.cells, lane, column
                )
            write_all(frame, slots, values)

        frame.loaded_late(slots, place)
        frame.batch.asynchrony.groups(frame, "tcgen05.ld").issue(effect, place)

    return Step(run, tuple(slots), reads_old=True)


@opcode(f"tcgen05.st.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:unpack::16b}}.b32")
def _store(line: Binder) -> Step:
    is_split = line.parts["shape"] == "16x32bx2"
    readers = line.sources(2 if is_split else 1, "b32")
    address, place = line.bracketed(0), line.place
    move = _Move(line, len(readers), (line.constant(1) or 0) if is_split else 0)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        where = address(registers)
        values = side_by_side(frame, [reader(registers) for reader in readers])

        def effect(_: Array | None) -> None:
            for rows, warp, lane, column in move.warps(frame, where):
                words = frame.batch.tensor_memories.words
                part = words[rows]
                move.note(_Group(frame, rows[:, None], warp, place), lane, column, writes=True)
                tcgen05.store(
                    part, move.cells, lane, column, values[rows, warp - frame.first // WARP]
                )
                words[rows] = part

        frame.batch.asynchrony.groups(frame, "tcgen05.st").issue(effect, place)

    return Step(run)


class _Move:
    """Which cells a load or store moves, for the warps that do."""

    def __init__(self, line: Binder, registers: int, split: int) -> None:
        parts = line.parts
        self.cells = tcgen05.warp_cells(
            parts["shape"], int(parts["count"][1:]), split=split, packed=bool(parts["pack"])
        )
        if self.cells.lane.shape[1] != registers:
            raise line.refuse(f"has {registers} registers, not {self.cells.lane.shape[1]}")
        self._rows = int(self.cells.lane.max()) + 1

    def note(self, group: _Group, lane: int, column: int, *, writes: bool) -> None:
        columns = column + self.cells.column
        if self.cells.packed:
            columns = np.stack([columns, columns + 1])
        group.note((np.zeros(1, np.int64), lane + self.cells.lane, columns), writes=writes)

    def warps(self, frame: Frame, address: Array) -> list[tuple[Array, int, int, int]]:
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
                if column + int(self.cells.column.max()) >= COLUMNS:
                    raise Trouble(f"column {column} of tensor memory and more")
                moves.append((same, number, lane, column))
        return moves


@opcode("tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned")
def _wait(line: Binder) -> Step:
    kind = "tcgen05.ld" if "::ld" in line.line.opcode else "tcgen05.st"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, kind).wait(-1)
        if kind == "tcgen05.ld":
            frame.waited_for_loads()

    return Step(run)


_QUEUE = "tcgen05"


without_effect("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")


@opcode(
    f"tcgen05.mma.{_GROUP}.{{kind:kind::f16|kind::tf32|kind::f8f6f4|kind::i8}}",
    "tcgen05.mma.ws.{group:cta_group::1}.{kind:kind::f16|kind::tf32|kind::f8f6f4|kind::i8}",
)  # fmt: skip
def _multiply(line: Binder) -> Step:
    """Operands: [D], A, descriptor of B, instruction, (lanes that are off), enable, (shift)."""
    in_tensor = line.operand(1).startswith("[")
    is_ws = ".ws." in line.line.opcode
    disabled: list[Reader] = []
    enable_at = 4
    if line.count > 4 and line.operand(4).startswith("{"):
        disabled = line.sources(4, "b32")
        enable_at = 5
    shift = line.constant(enable_at + 1) or 0
    if is_ws and line.count > enable_at + 1:
        raise line.refuse("has a zero-column mask, which is not known")
    readers: list[Reader] = [
        line.bracketed(0), line.bracketed(1) if in_tensor else line.read(1, "b64"),
        line.read(2, "b64"), line.read(3, "b32"), line.read(enable_at, "pred"), *disabled,
    ]  # fmt: skip
    kind = line.parts["kind"].removeprefix("kind::")

    def multiply(group: _Group, values: Sequence[int]) -> None:
        d, a, b, instruction, enable, *off = values
        _multiplied(
            group, (d, a, b), tcgen05.decode_instruction(kind, instruction), in_tensor=in_tensor,
            ws=is_ws, accumulate=bool(enable), scale_input=shift, disabled=off or None,
        )  # fmt: skip

    return _issued(line, readers, multiply)


@opcode(
    f"tcgen05.mma.{_GROUP}.{{kind:kind::mxf8f6f4}}.block_scale?{{vec:scale_vec::1X|block32}}",
    f"tcgen05.mma.{_GROUP}.{{kind:kind::mxf4}}.block_scale?{{vec:scale_vec::2X|block32}}",
    f"tcgen05.mma.{_GROUP}.{{kind:kind::mxf4nvf4}}.block_scale"
    ".{vec:scale_vec::2X|scale_vec::4X|block16|block32}",
)  # fmt: skip
def _multiply_scaled(line: Binder) -> Step:
    """Operands: [D], A, descriptor of B, instruction, [scales of A], [scales of B], enable."""
    in_tensor = line.operand(1).startswith("[")
    readers: list[Reader] = [
        line.bracketed(0), line.bracketed(1) if in_tensor else line.read(1, "b64"),
        line.read(2, "b64"), line.read(3, "b32"), line.read(6, "pred"), line.bracketed(4),
        line.bracketed(5),
    ]  # fmt: skip
    kind = line.parts["kind"].removeprefix("kind::")
    default = {"mxf8f6f4": 1, "mxf4": 2}.get(kind, 4)
    named = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4, "block16": 4}
    blocks = named.get(
        line.parts["vec"], 2 if kind == "mxf4nvf4" and line.parts["vec"] else default
    )

    def multiply(group: _Group, values: Sequence[int]) -> None:
        d, a, b, instruction, enable, scale_a, scale_b = values
        scales = tcgen05.Scales(
            a_column=address_parts(scale_a)[1], b_column=address_parts(scale_b)[1], blocks=blocks
        )
        _multiplied(
            group, (d, a, b), tcgen05.decode_instruction(kind, instruction), in_tensor=in_tensor,
            ws=False, accumulate=bool(enable), scales=scales,
        )  # fmt: skip

    return _issued(line, readers, multiply)


def _issued(
    line: Binder, readers: Sequence[Reader], operation: Callable[[_Group, Sequence[int]], None]
) -> Step:
    """A step that has each active thread issue an operation of its CTA, or of its pair."""
    ctas, place = int(line.parts["group"][-1]), line.place

    def effect(group: _Group, numbers: Sequence[int], _: object) -> None:
        try:
            operation(group, numbers)
        except (ValueError, IndexError) as error:
            # What the engines refuse is a fault of the program.
            raise Trouble(f"tensor memory: {error}") from None

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = [np.asarray(reader(registers)) for reader in readers]
        values = [v.view(f"u{v.dtype.itemsize}") if v.dtype.kind != "b" else v for v in values]
        for column, rows in issuers(frame):
            for same, numbers in by_operands(frame, column, rows, values):
                lead = same if ctas == 1 else same // 2 * 2
                members = lead[:, None] + np.arange(ctas)
                group = _Group(frame, members, (frame.first + column) // WARP, place)
                flight = partial(effect, group, tuple(numbers))
                frame.batch.asynchrony.launch(frame, flight, place, queue=_QUEUE)

    return Step(run)


def _multiplied(
    group: _Group,
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


@opcode(
    f"tcgen05.commit.{_GROUP}.mbarrier::arrive::one?{{space:shared::cluster}}"
    "?{multicast:multicast::cluster}.b64",
)  # fmt: skip
def _commit(line: Binder) -> Step:
    address, place = line.address(0), line.place
    space = "shared" if line.parts["space"] else "generic"
    targets = line.read(1, "u16") if line.parts["multicast"] else None

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at = address(registers)
        ranks = None if targets is None else targets(registers)

        def effect(_: Array | None) -> None:
            if ranks is None:
                # Without a space the address is generic; many programs give one of shared memory.
                is_shared = space == "shared" or int(at.max()) < frame.batch.windows["shared"]
                signal(registers, "shared" if is_shared else space, at, 1, 0, 0)
                return
            for rank in range(frame.batch.launch.cluster_size):
                chosen = frame.active() & ((ranks >> rank & 1) == 1)
                if chosen.any():
                    with frame.only(chosen):
                        signal(registers, "shared", registers[0].batch.at_rank(at, rank), 1, 0, 0)

        frame.batch.asynchrony.launch(frame, effect, place, queue=_QUEUE)

    return Step(run)


_COPIES = (
    "128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23",
    "32x128b.warpx4",
)  # fmt: skip


@opcode(*(f"tcgen05.cp.{_GROUP}.{shape}" for shape in _COPIES))
def _copy(line: Binder) -> Step:
    ctas = int(line.parts["group"][-1])
    shape = line.line.opcode.split(f"cta_group::{ctas}.", 1)[1]
    readers = [line.bracketed(0), line.read(1, "b64")]

    def copy(group: _Group, values: Sequence[int]) -> None:
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

    return _issued(line, readers, copy)


@opcode(f"tcgen05.shift.{_GROUP}.down")
def _shift(line: Binder) -> Step:
    def shift(group: _Group, values: Sequence[int]) -> None:
        words = group.frame.batch.tensor_memories.words
        lane, column = address_parts(values[0])
        for own in group.members.T:
            part = words[own]
            tcgen05.shift_down(part, lane, column)
            words[own] = part

    return _issued(line, [line.bracketed(0)], shift)
