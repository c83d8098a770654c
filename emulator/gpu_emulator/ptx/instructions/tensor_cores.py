"""`tcgen05.mma`, `cp`, `shift` and `commit`: what one thread issues.

PTX ISA, "TensorCore 5th Generation Family Instructions". The arithmetic and the layouts are in
`gpu_emulator.engines`. Products and copies run in order, behind the thread that issues them;
`tcgen05.commit` has an mbarrier say when.

`tcgen05.alloc`, `ld`, `st` and `wait`: tensor memory and registers. PTX ISA, "TensorCore 5th
Generation Family Instructions". Loads and stores are complete at `tcgen05.wait`. Which lane and
column each register is, is in `gpu_emulator.engines`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_emulator.engines import tcgen05
from gpu_emulator.engines.matrices import MatrixDescriptor, pieces, tcgen05_descriptor
from gpu_emulator.engines.tcgen05 import (
    COLUMNS,
    ROWS,
    MatrixInstruction,
    address_parts,
    decode_instruction,
    load,
    may_access,
    shift_down,
    store,
    warp_cells,
)
from gpu_emulator.ptx.instructions.barriers import signal
from gpu_emulator.ptx.instructions.matrix import held, whole_warps
from gpu_emulator.ptx.program.binder import Binder, opcode, without_effect
from gpu_emulator.state.frame import (
    CLUSTER_SHIFT,
    Frame,
    TensorMemories,
    Trouble,
    alike,
    issuers,
    scatter,
)
from gpu_emulator.steps import MASK, WARP, Array, Reader, Registers, Step
from gpu_emulator.values import Place

_GROUP = "{group:cta_group::1|cta_group::2}"


def note_cells(
    frame: Frame,
    warp: int,
    rows: Array,
    lanes: Array,
    columns: Array,
    place: Place,
    *,
    writes: bool,
) -> None:
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
    return frame.batch.tensor_memories


@opcode(f"tcgen05.alloc.{_GROUP}.sync.aligned?{{space:shared::cta}}.b32", waits=True)
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

    return Step(run)


def _grant(
    frame: Frame, row: int, column: int, amount: int, at: Array, space: str, place: Place
) -> bool:
    try:
        first = memories_of(frame).allocators[row].allocate(amount)
    except ValueError as error:
        raise Trouble(str(error)) from None
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


@opcode(f"tcgen05.dealloc.{_GROUP}.sync.aligned.b32")
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
                raise Trouble(str(error)) from None

    return Step(run)


@opcode(f"tcgen05.relinquish_alloc_permit.{_GROUP}.sync.aligned")
def _relinquish(line: Binder) -> Step:
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        for row in np.nonzero(frame.active().any(axis=1))[0].tolist():
            memories_of(frame).allocators[row].relinquish()

    return Step(run)


_COUNTS = "x1|x2|x4|x8|x16|x32|x64|x128"
_SHAPES = "32x32b|16x64b|16x128b|16x256b"


@opcode(
    f"tcgen05.ld.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:pack::16b}}.b32",
    f"tcgen05.ld.sync.aligned.{{shape:16x32bx2}}.{{count:{_COUNTS}}}?{{pack:pack::16b}}.b32",
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

    return Step(run, tuple(slots), reads_old=True)


@opcode(
    f"tcgen05.st.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:unpack::16b}}.b32",
    f"tcgen05.st.sync.aligned.{{shape:16x32bx2}}.{{count:{_COUNTS}}}?{{pack:unpack::16b}}.b32",
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

    return Step(run)


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
        self,
        frame: Frame,
        rows: Array,
        warp: int,
        lane: int,
        column: int,
        place: Place,
        *,
        writes: bool,
    ) -> None:
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
                        f"warp {number} accesses lane {lane} of tensor memory, not one of its own"
                    )
                if column + int(self.cells.column.max()) >= COLUMNS:
                    raise Trouble(f"column {column} of tensor memory and more")
                found.append((same, warp, lane, column))
        return found


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


def _troubled(action: Callable[[], None]) -> None:
    """What the engines refuse is a fault of the program."""
    try:
        action()
    except (ValueError, IndexError) as error:
        raise Trouble(f"tensor memory: {error}") from None


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
        disabled = [line.source(each, "b32") for each in line.parts_of(4)]
        enable_at = 5
    shift = line.constant(enable_at + 1) or 0
    if is_ws and line.count > enable_at + 1:
        raise line.refuse("has a zero-column mask, which is not known")
    readers: list[Reader] = [
        line.bracketed(0), line.bracketed(1) if in_tensor else line.read(1, "b64"),
        line.read(2, "b64"), line.read(3, "b32"), line.read(enable_at, "pred"), *disabled,
    ]  # fmt: skip
    kind, place = line.parts["kind"].removeprefix("kind::"), line.line.place
    ctas = int(line.parts["group"][-1])

    def one(frame: Frame, rows: Array, values: Sequence[int], warp: int) -> None:
        d, a, b, instruction, enable, *off = values
        what = decode_instruction(kind, instruction)
        _multiplied(
            frame, rows, ctas, d, a, b, what, in_tensor=in_tensor, enable=bool(enable),
            ws=is_ws, shift=shift, off=off or None, warp=warp, place=place,
        )  # fmt: skip

    return _issued(readers, one, ctas, line.line.place)


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
    kind, place = line.parts["kind"].removeprefix("kind::"), line.line.place
    ctas = int(line.parts["group"][-1])
    default = {"mxf8f6f4": 1, "mxf4": 2}.get(kind, 4)
    named = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4, "block16": 4}
    blocks = named.get(
        line.parts["vec"], 2 if kind == "mxf4nvf4" and line.parts["vec"] else default
    )

    def one(frame: Frame, rows: Array, values: Sequence[int], warp: int) -> None:
        d, a, b, instruction, enable, scale_a, scale_b = values
        scales = tcgen05.Scales(
            a_column=address_parts(scale_a)[1], b_column=address_parts(scale_b)[1], blocks=blocks
        )
        what = decode_instruction(kind, instruction)
        _multiplied(
            frame, rows, ctas, d, a, b, what, in_tensor=in_tensor, enable=bool(enable),
            ws=False, shift=0, off=None, scales=scales, warp=warp, place=place,
        )  # fmt: skip

    return _issued(readers, one, ctas, line.line.place)


def _issued(
    readers: Sequence[Reader],
    one: Callable[[Frame, Array, Sequence[int], int], None],
    ctas: int,
    place: Place,
) -> Step:
    """A step that has each active thread issue an operation of its CTA, or of its pair."""

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = [np.asarray(each(registers)) for each in readers]
        values = [v.view(f"u{v.dtype.itemsize}") if v.dtype.kind != "b" else v for v in values]
        for column, rows in issuers(frame):
            for same, numbers in alike(frame, column, rows, values):
                lead = same if ctas == 1 else same // 2 * 2

                def effect(
                    _: Array | None,
                    lead: Array = lead,
                    numbers: Sequence[int] = tuple(numbers),
                    warp: int = (frame.first + column) // WARP,
                ) -> None:
                    _troubled(partial(one, frame, lead, numbers, warp))

                frame.batch.asynchrony.launch(frame, effect, place, queue=_QUEUE)

    return Step(run)


def _multiplied(
    frame: Frame,
    rows: Array,
    ctas: int,
    d: int,
    a: int,
    b: int,
    what: MatrixInstruction,
    *,
    in_tensor: bool,
    enable: bool,
    ws: bool,
    shift: int,
    off: list[int] | None,
    warp: int,
    place: Place,
    scales: tcgen05.Scales | None = None,
) -> None:
    memory = frame.batch.memories["shared"]
    members = rows[:, None] + np.arange(ctas)[None, :]
    shared = memory.data.reshape(-1, memory.stride)[members]
    words = memories_of(frame).words
    tensor = words[members]
    if in_tensor:
        lane, column = address_parts(a)
        left = tcgen05.operand_from_tensor_memory(tensor, lane, column, what, ws=ws)
        cells = tcgen05.operand_cells(lane, column, what, ctas=ctas, ws=ws)
        _note(frame, members, cells, warp, place, writes=False)
    else:
        left = tcgen05.operand_from_shared(shared, tcgen05_descriptor(a), what, "a")
        _watch(frame, members, tcgen05_descriptor(a), what, "a", warp, place)
    right = tcgen05.operand_from_shared(shared, tcgen05_descriptor(b), what, "b")
    _watch(frame, members, tcgen05_descriptor(b), what, "b", warp, place)
    lane, column = address_parts(d)
    (cta, lanes, columns), result = tcgen05.multiply(
        tensor, left, right, what, lane, column, accumulate=enable, ws=ws, scales=scales,
        scale_input=shift, disabled=off,
    )  # fmt: skip
    if enable:
        _note(frame, members, (cta, lanes, columns), warp, place, writes=False)
    _note(frame, members, (cta, lanes, columns), warp, place, writes=True)
    tensor[:, cta, lanes, columns] = result
    words[members] = tensor


def _note(
    frame: Frame,
    members: Array,
    cells: tuple[Array, Array, Array],
    warp: int,
    place: Place,
    *,
    writes: bool,
) -> None:
    """Tell the checks of cells (CTA of the group, lane, column) of groups of CTAs (n, ctas)."""
    cta, lanes, columns = cells
    for member in range(members.shape[1]):
        own = cta == member
        rows = members[:, [member]]
        note_cells(frame, warp, rows, lanes[own], columns[own], place, writes=writes)


def _watch(
    frame: Frame,
    members: Array,
    descriptor: MatrixDescriptor,
    what: MatrixInstruction,
    which: str,
    warp: int,
    place: Place,
) -> None:
    """Tell the checks which 16 bytes of shared memory a product reads."""
    watch, memory = frame.batch.watch, frame.batch.memories["shared"]
    if watch is None and memory.written is None:
        return
    name, rows = (what.a_type, what.m) if which == "a" else (what.b_type, what.n)
    where = pieces(
        descriptor, rows=rows // members.shape[1], k_bytes=32,
        width={"tf32": 32, "f16": 16, "bf16": 16}.get(name, 8),
        mn_major=what.a_mn_major if which == "a" else what.b_mn_major,
    )  # fmt: skip
    spots = (members.reshape(-1, 1) * memory.stride + where.reshape(1, -1)).reshape(-1)
    frame.batch.note_unwritten(memory, spots, 16, None, place)
    if watch is not None:
        watch.block(warp, spots, 16, place, writes=False)


@opcode(
    f"tcgen05.commit.{_GROUP}.mbarrier::arrive::one?{{space:shared::cluster}}"
    "?{multicast:multicast::cluster}.b64",
)  # fmt: skip
def _commit(line: Binder) -> Step:
    address, place = line.address(0), line.line.place
    space = "shared" if line.parts["space"] else "generic"
    targets = line.read(1, "u16") if line.parts["multicast"] else None

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at = address(registers)
        ranks = None if targets is None else targets(registers)

        def effect(_: Array | None) -> None:
            if ranks is None:
                signal(registers, _space_of(frame, space, at), at, 1, 0, 0)
                return
            outer = registers[MASK]
            for rank in range(frame.batch.geometry.cluster_size):
                chosen = frame.active() & ((ranks >> rank & 1) == 1)
                if chosen.any():
                    registers[MASK] = chosen
                    offset = at & ((1 << CLUSTER_SHIFT) - 1)
                    signal(registers, "shared", offset | (rank + 1 << CLUSTER_SHIFT), 1, 0, 0)
                    registers[MASK] = outer

        frame.batch.asynchrony.launch(frame, effect, place, queue=_QUEUE)

    return Step(run)


def _space_of(frame: Frame, space: str, address: Array) -> str:
    """Without a space the address is generic; many programs give one of shared memory."""
    if space == "generic" and int(address.max()) < frame.batch.windows["shared"]:
        return "shared"
    return space


_COPIES = (
    "128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23",
    "32x128b.warpx4",
)  # fmt: skip


@opcode(*(f"tcgen05.cp.{_GROUP}.{shape}" for shape in _COPIES))
def _copy(line: Binder) -> Step:
    ctas = int(line.parts["group"][-1])
    shape = line.line.opcode.split(f"cta_group::{ctas}.", 1)[1]
    readers = [line.bracketed(0), line.read(1, "b64")]

    def one(frame: Frame, rows: Array, values: Sequence[int], warp: int) -> None:
        memory = frame.batch.memories["shared"]
        words = memories_of(frame).words
        lane, column = address_parts(values[0])
        for member in range(ctas):
            own = rows + member
            shared = memory.data.reshape(-1, memory.stride)[own]
            lanes, data = tcgen05.copy(shared, tcgen05_descriptor(values[1]), shape)
            part = words[own]
            columns = (column + np.arange(data.shape[-1]))[None, :]
            for each in lanes:
                there, across = np.broadcast_arrays((lane + each)[:, None], columns)
                place = line.line.place
                note_cells(frame, warp, own[:, None], there, across, place, writes=True)
                part[:, there, across] = data
            words[own] = part

    return _issued(readers, one, ctas, line.line.place)


@opcode(f"tcgen05.shift.{_GROUP}.down")
def _shift(line: Binder) -> Step:
    ctas = int(line.parts["group"][-1])

    def one(frame: Frame, rows: Array, values: Sequence[int], _: int) -> None:
        words = memories_of(frame).words
        lane, column = address_parts(values[0])
        for member in range(ctas):
            part = words[rows + member]
            shift_down(part, lane, column)
            words[rows + member] = part

    return _issued([line.bracketed(0)], one, ctas, line.line.place)
