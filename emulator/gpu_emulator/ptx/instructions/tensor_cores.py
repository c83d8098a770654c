"""`tcgen05`. PTX ISA, "TensorCore 5th Generation Family Instructions".

Loads and stores of tensor memory are complete at `tcgen05.wait`. `gpu_emulator.state.tensor_memory`
has what they move and what is issued, `gpu_emulator.engines` the arithmetic and the layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_emulator.engines import tcgen05
from gpu_emulator.engines.tcgen05 import address_parts
from gpu_emulator.ptx.instructions.matrix import result_slots
from gpu_emulator.ptx.program.binder import Binder, Parts, acts, opcode, without_effect
from gpu_emulator.state import tensor_memory
from gpu_emulator.state.frame import Frame, scatter
from gpu_emulator.state.lanes import whole_warps, write_all
from gpu_emulator.state.tensor_memory import STORES, Group, Move, begin_store
from gpu_emulator.steps import WARP, Array, Reader, Registers, Step

_GROUP = "{group:cta_group::1|cta_group::2}"


@opcode(f"tcgen05.alloc.{_GROUP}.sync.aligned?{{space:shared::cta}}.b32", waits=True)
def _allocate(line: Binder) -> Step:
    space = "shared" if line.parts["space"] else "generic"

    def allocate(registers: Registers, address: Array, count: Array) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        at, amount, lead = frame.full(address), frame.full(count), _leads(frame)
        granted = np.zeros(frame.shape, dtype=np.bool_)

        def attempt() -> Array:
            for row, column in np.argwhere(lead & ~granted).tolist():
                first = tensor_memory.allocate(frame, row, int(amount[row, column]))
                if first is not None:
                    mask = np.zeros(frame.shape, dtype=np.bool_)
                    mask[row, column] = True
                    with frame.only(mask):
                        scatter(registers, space, at, np.full((1, 1), first, dtype=np.uint32))
                    granted[row, column : column + WARP] = True
            return granted

        waiting = frame.active() & ~attempt()
        if waiting.any():
            frame.hold(waiting, attempt, lambda: "free columns of tensor memory")

    return line.acting(allocate, ["address", "u32"])


def _leads(frame: Frame) -> Array:
    """The first threads of warps that are active."""
    return frame.active() & (frame.threads % WARP == 0)


@acts(f"tcgen05.dealloc.{_GROUP}.sync.aligned.b32", takes="b32 u32")
def _free(registers: Registers, parts: Parts, address: Array, count: Array) -> None:
    del parts
    frame: Frame = registers[0]
    whole_warps(registers)
    at, amount = frame.full(address), frame.full(count)
    for row, column in np.argwhere(_leads(frame)).tolist():
        _, first = address_parts(int(at[row, column]))
        tensor_memory.free(frame, row, first, int(amount[row, column]))


opcode(f"tcgen05.relinquish_alloc_permit.{_GROUP}.sync.aligned")(
    lambda _: Step(tensor_memory.relinquish)
)

_COUNTS = "x1|x2|x4|x8|x16|x32|x64|x128"
_SHAPES = "32x32b|16x64b|16x128b|16x256b|16x32bx2"


@opcode(f"tcgen05.ld.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:pack::16b}}.b32")
def _load(line: Binder) -> Step:
    slots = result_slots(line, "b32")
    # They are written at the wait, in another place.
    line.slots.late.update(slots)
    address, move = line.bracketed(1), _moved(line, len(slots), line.constant(2) or 0)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        where = address(registers)

        def effect(_: Array | None) -> None:
            write_all(frame, slots, move.loaded(frame, where))

        frame.loaded_late(slots)
        frame.batch.asynchrony.groups(frame, "tcgen05.ld").issue(effect)

    return Step(run, tuple(slots), reads_old=True)


@opcode(f"tcgen05.st.sync.aligned.{{shape:{_SHAPES}}}.{{count:{_COUNTS}}}?{{pack:unpack::16b}}.b32")
def _store(line: Binder) -> Step:
    is_split = line.parts["shape"] == "16x32bx2"
    readers = line.sources(2 if is_split else 1, "b32")
    address = line.bracketed(0)
    move = _moved(line, len(readers), (line.constant(1) or 0) if is_split else 0)
    return Step(lambda rs: begin_store(rs, move, address(rs), [read(rs) for read in readers]))


def _moved(line: Binder, registers: int, split: int) -> Move:
    parts = line.parts
    cells = tcgen05.warp_cells(
        parts["shape"], int(parts["count"][1:]), split=split, packed=bool(parts["pack"])
    )
    if cells.lane.shape[1] != registers:
        raise line.refuse(f"has {registers} registers, not {cells.lane.shape[1]}")
    return Move(cells)


@opcode("tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned")
def _wait(line: Binder) -> Step:
    kind = "tcgen05.ld" if "::ld" in line.line.opcode else STORES

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, kind).wait(-1)
        if kind == "tcgen05.ld":
            frame.waited_for_loads()

    return Step(run)


without_effect("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")


@opcode(
    f"tcgen05.mma.{_GROUP}.{{kind:kind::f16|kind::tf32|kind::f8f6f4|kind::i8}}",
    "tcgen05.mma.ws.{group:cta_group::1}.{kind:kind::f16|kind::tf32|kind::f8f6f4|kind::i8}",
)  # fmt: skip
@opcode(
    f"tcgen05.mma.{_GROUP}.{{kind:kind::mxf8f6f4}}.block_scale?{{vec:scale_vec::1X|block32}}",
    f"tcgen05.mma.{_GROUP}.{{kind:kind::mxf4}}.block_scale?{{vec:scale_vec::2X|block32}}",
    f"tcgen05.mma.{_GROUP}.{{kind:kind::mxf4nvf4}}.block_scale"
    ".{vec:scale_vec::2X|scale_vec::4X|block16|block32}",
)  # fmt: skip
def _multiply(line: Binder) -> Step:
    """Operands: [D], A, descriptor of B, instruction, others, enable, (shift).

    The others are lanes that are off, or [scales of A] and [scales of B].
    """
    in_tensor, is_ws = line.operand(1).startswith("["), ".ws." in line.line.opcode
    kind = line.parts["kind"].removeprefix("kind::")
    is_scaled = kind.startswith("mx")
    more: list[Reader] = []
    enable_at, shift, blocks = 4, 0, 0
    if is_scaled:
        enable_at, more = 6, [line.bracketed(4), line.bracketed(5)]
        default = {"mxf8f6f4": 1, "mxf4": 2}.get(kind, 4)
        named = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4, "block16": 4}
        vector = line.parts["vec"]
        blocks = named.get(vector, 2 if kind == "mxf4nvf4" and vector else default)
    else:
        if line.count > 4 and line.operand(4).startswith("{"):
            enable_at, more = 5, line.sources(4, "b32")
        shift = line.constant(enable_at + 1) or 0
        if is_ws and line.count > enable_at + 1:
            raise line.refuse("has a zero-column mask, which is not known")
    readers: list[Reader] = [
        line.bracketed(0), line.bracketed(1) if in_tensor else line.read(1, "b64"),
        line.read(2, "b64"), line.read(3, "b32"), line.read(enable_at, "pred"), *more,
    ]  # fmt: skip

    def multiply(group: Group, values: Sequence[int]) -> None:
        d, a, b, instruction, enable, *own = values
        scales = None
        if is_scaled:
            columns = [address_parts(address)[1] for address in own]
            scales = tcgen05.Scales(a_column=columns[0], b_column=columns[1], blocks=blocks)
        tensor_memory.multiply(
            group, (d, a, b), tcgen05.decode_instruction(kind, instruction), in_tensor=in_tensor,
            ws=is_ws, accumulate=bool(enable), scale_input=shift, scales=scales,
            disabled=None if is_scaled else own or None,
        )  # fmt: skip

    return _issued(line, readers, multiply)


def _issued(
    line: Binder, readers: Sequence[Reader], operation: Callable[[Group, Sequence[int]], None]
) -> Step:
    """A step that has each active thread issue an operation of its CTA, or of its pair."""
    ctas = int(line.parts["group"][-1])

    def run(registers: Registers) -> None:
        values = [np.asarray(reader(registers)) for reader in readers]
        tensor_memory.issue(registers, ctas, values, operation)

    return Step(run)


@opcode(
    f"tcgen05.commit.{_GROUP}.mbarrier::arrive::one?{{space:shared::cluster}}"
    "?{multicast:multicast::cluster}.b64",
)  # fmt: skip
def _commit(line: Binder) -> Step:
    address, space = line.address(0), "shared" if line.parts["space"] else "generic"
    targets = line.read(1, "u16") if line.parts["multicast"] else None

    def run(registers: Registers) -> None:
        at = address(registers)
        # Without a space the address is generic; many programs give one of shared memory.
        frame: Frame = registers[0]
        # Threads that do not execute it may hold anything there.
        most = frame.full(at).max(where=frame.active(), initial=0)
        is_shared = space == "shared" or int(most) < frame.batch.windows["shared"]
        ranks = None if targets is None else targets(registers)
        tensor_memory.commit(registers, "shared" if is_shared else space, at, ranks)

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
    return _issued(line, readers, partial(tensor_memory.copy, shape))


@opcode(f"tcgen05.shift.{_GROUP}.down")
def _shift(line: Binder) -> Step:
    return _issued(line, [line.bracketed(0)], tensor_memory.shift)
