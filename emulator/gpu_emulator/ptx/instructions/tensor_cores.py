"""`tcgen05.mma`, `cp`, `shift` and `commit`: what one thread issues.

PTX ISA, "TensorCore 5th Generation Family Instructions". The arithmetic and the layouts are in
`gpu_emulator.engines`. Products and copies run in order, behind the thread that issues them;
`tcgen05.commit` has an mbarrier say when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_emulator.engines import tcgen05
from gpu_emulator.engines.shared_matrices import MatrixDescriptor, pieces, tcgen05_descriptor
from gpu_emulator.engines.tensor_core import MatrixInstruction, decode_instruction
from gpu_emulator.engines.tensor_memory import address_parts, shift_down
from gpu_emulator.ptx.instructions.mbarriers import signal
from gpu_emulator.ptx.instructions.tensor_moves import memories_of, note_cells
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.issuers import alike, issuers
from gpu_emulator.state.memory import CLUSTER_SHIFT, Trouble
from gpu_emulator.steps import MASK, WARP, Reader, Registers, Step
from gpu_emulator.types import Array
from gpu_emulator.values import Place

__all__: list[str] = []

_TITLE = "TensorCore 5th Generation Family Instructions"
_GROUP = "{group:cta_group::1|cta_group::2}"
_QUEUE = "tcgen05"


def _troubled(action: Callable[[], None]) -> None:
    """What the engines refuse is a fault of the program."""
    try:
        action()
    except (ValueError, IndexError) as error:
        raise Trouble("memory_fault", f"tensor memory: {error}") from None


@opcode(
    "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync",
    section=f"{_TITLE}: tcgen05.fence", pure=True,
)  # fmt: skip
def _fence(line: Binder) -> Step:
    del line
    return Step(lambda _: None, (), is_pure=True)


@opcode(
    f"tcgen05.mma.{_GROUP}.{{kind:kind::f16|kind::tf32|kind::f8f6f4|kind::i8}}",
    "tcgen05.mma.ws.{group:cta_group::1}.{kind:kind::f16|kind::tf32|kind::f8f6f4|kind::i8}",
    section=f"{_TITLE}: tcgen05.mma",
)
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
    section=f"{_TITLE}: tcgen05.mma with block scaling",
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
                    _: Array | None, lead: Array = lead, numbers: Sequence[int] = tuple(numbers),
                    warp: int = (frame.first + column) // WARP,
                ) -> None:  # fmt: skip
                    _troubled(partial(one, frame, lead, numbers, warp))

                frame.batch.asynchrony.launch(frame, effect, place, queue=_QUEUE)

    return Step(run, (), is_pure=False)


def _multiplied(
    frame: Frame, rows: Array, ctas: int, d: int, a: int, b: int, what: MatrixInstruction,
    *, in_tensor: bool, enable: bool, ws: bool, shift: int, off: list[int] | None,
    warp: int, place: Place, scales: tcgen05.Scales | None = None,
) -> None:  # fmt: skip
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
    frame: Frame, members: Array, cells: tuple[Array, Array, Array], warp: int, place: Place,
    *, writes: bool,
) -> None:  # fmt: skip
    """Tell the checks of cells (CTA of the group, lane, column) of groups of CTAs (n, ctas)."""
    cta, lanes, columns = cells
    for member in range(members.shape[1]):
        own = cta == member
        rows = members[:, [member]]
        note_cells(frame, warp, rows, lanes[own], columns[own], place, writes=writes)


def _watch(
    frame: Frame, members: Array, descriptor: MatrixDescriptor, what: MatrixInstruction, which: str,
    warp: int, place: Place,
) -> None:  # fmt: skip
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
    section=f"{_TITLE}: tcgen05.commit",
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

    return Step(run, (), is_pure=False)


def _space_of(frame: Frame, space: str, address: Array) -> str:
    """Without a space the address is generic; many programs give one of shared memory."""
    if space == "generic" and int(address.max()) < frame.batch.windows["shared"]:
        return "shared"
    return space


_COPIES = (
    "128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23",
    "32x128b.warpx4",
)  # fmt: skip


@opcode(*(f"tcgen05.cp.{_GROUP}.{shape}" for shape in _COPIES), section=f"{_TITLE}: tcgen05.cp")
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


@opcode(f"tcgen05.shift.{_GROUP}.down", section=f"{_TITLE}: tcgen05.shift")
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
