"""Matrices of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma.sync`.

PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions". Layouts and arithmetic are in
`gpu_emulator.engines`; here are registers and shared memory.

`wgmma`: products of four warps, from shared memory, under way until they are waited for. PTX ISA,
"Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Each warp owns 16 of the 64
rows of A and D, and runs for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_emulator.engines import matrices, products
from gpu_emulator.engines.matrices import MatrixDescriptor, pieces, wgmma_descriptor
from gpu_emulator.ptx.instructions.copies import commits, waits
from gpu_emulator.ptx.program.binder import Binder, opcode, without_effect
from gpu_emulator.state.frame import Frame, MemoryOperand, Trouble, by_operands, gather, scatter
from gpu_emulator.state.lanes import first_lanes, side_by_side, whole_warps, write_all
from gpu_emulator.steps import WARP, Array, Registers, Step
from gpu_emulator.values import Place

_FLOATS = "f16|bf16|tf32|f64|e4m3|e5m2|e3m2|e2m3|e2m1"
_SHARED = "shared|shared::cta"


def result_slots(line: Binder, kind: str) -> list[int]:
    """The slots of the vector that operand 0 is."""
    return [slot for slot, _ in line.targets(0, kind)]


@opcode(
    f"ldmatrix.sync.aligned.m8n8.{{count:x1|x2|x4}}?{{trans:trans}}"
    f"?{{space:{_SHARED}}}.{{type:b16}}",
    f"ldmatrix.sync.aligned.m16n16.{{count:x1|x2}}.{{trans:trans}}?{{space:{_SHARED}}}.{{type:b8}}",
)  # fmt: skip
def _load_matrix(line: Binder) -> Step:
    slots = result_slots(line, "b32")
    address = line.address(1)
    is_bytes = line.parts["type"] == "b8"
    rows = int(line.parts["count"][1:]) * (16 if is_bytes else 8)
    transposed = bool(line.parts["trans"])
    operand = MemoryOperand("shared" if line.parts["space"] else "generic", 16, line.place)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        # The other lanes' addresses do not count.
        with frame.only(first_lanes(frame, rows)):
            value = gather(registers, operand, address(registers))
        warps = frame.by_warp(value)[:, :, :rows]
        taken = np.ascontiguousarray(warps)[..., None].view(np.uint8)
        load = (
            matrices.load_bytes(taken)
            if is_bytes
            else matrices.load_matrices(taken, transposed=transposed)
        )
        write_all(frame, slots, load)

    return Step(run, tuple(slots))


@opcode(
    f"stmatrix.sync.aligned.m8n8.{{count:x1|x2|x4}}?{{trans:trans}}"
    f"?{{space:{_SHARED}}}.{{type:b16}}",
    f"stmatrix.sync.aligned.m16n8.{{count:x1|x2|x4}}.{{trans:trans}}"
    f"?{{space:{_SHARED}}}.{{type:b8}}",
)  # fmt: skip
def _store_matrix(line: Binder) -> Step:
    address = line.address(0)
    readers = line.sources(1, "b32")
    is_bytes, transposed = line.parts["type"] == "b8", bool(line.parts["trans"])
    rows = 8 * len(readers)
    operand = MemoryOperand("shared" if line.parts["space"] else "generic", 16, line.place)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        values = side_by_side(frame, [reader(registers) for reader in readers])
        data = (
            matrices.store_bytes(values)
            if is_bytes
            else matrices.store_matrices(values, transposed=transposed)
        )
        wide = np.zeros((frame.ctas, frame.lanes // WARP, WARP), dtype="c16")
        wide[:, :, :rows] = np.ascontiguousarray(data).view("c16")[..., 0]
        with frame.only(first_lanes(frame, rows)):
            scatter(registers, operand, address(registers), wide.reshape(frame.shape))

    return Step(run)


@opcode("movmatrix.sync.aligned.m8n8.trans.b16")
def _move_matrix(line: Binder) -> Step:
    slots = result_slots(line, "b32")
    reader = line.read(1, "b32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        moved = matrices.move_matrix(frame.by_warp(reader(registers)))
        frame.write(slots[0], moved.reshape(frame.shape))

    return Step(run, tuple(slots))


_SHAPES = (
    "m8n8k4|m8n8k16|m8n8k32|m8n8k128|m16n8k4|m16n8k8|m16n8k16|m16n8k32|m16n8k64|m16n8k128|m16n8k256"
)
_HEAD = f"mma.sync.aligned.{{shape:{_SHAPES}}}.row.col"


@opcode(
    f"{_HEAD}.{{d:f16|f32|f64}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f16|f32|f64}}",
    f"{_HEAD}.kind::f8f6f4.{{d:f16|f32}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f16|f32}}",
    f"{_HEAD}?{{sat:satfinite}}.{{d:s32}}.{{a:u8|s8|u4|s4}}.{{b:u8|s8|u4|s4}}.{{c:s32}}",
    f"{_HEAD}.{{d:s32}}.{{a:b1}}.{{b:b1}}.{{c:s32}}.{{operation:xor|and}}.popc",
)  # fmt: skip
@opcode(
    f"{_HEAD}.kind::mxf8f6f4.block_scale?{{vec:scale_vec::1X}}"
    f".{{d:f32}}.{{a:{_FLOATS}}}.{{b:{_FLOATS}}}.{{c:f32}}.{{scale:ue8m0}}",
    f"{_HEAD}.kind::mxf4.block_scale?{{vec:scale_vec::2X}}"
    ".{d:f32}.{a:e2m1}.{b:e2m1}.{c:f32}.{scale:ue8m0}",
    f"{_HEAD}.kind::mxf4nvf4.block_scale.{{vec:scale_vec::2X|scale_vec::4X}}"
    ".{d:f32}.{a:e2m1}.{b:e2m1}.{c:f32}.{scale:ue8m0|ue4m3}",
)  # fmt: skip
def _multiply(line: Binder) -> Step:
    parts = line.parts
    kinds = {name: "b64" if parts[name] == "f64" else "b32" for name in "abcd"}
    slots = result_slots(line, kinds["d"])
    operands = [line.sources(number, kinds[name]) for number, name in enumerate("abc", 1)]
    scales = _scales(line) if "scale" in parts else None
    operation = parts.get("operation") or "xor"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        a, b, c = (side_by_side(frame, [read(registers) for read in some]) for some in operands)
        extra = {} if scales is None else scales(registers)
        result = products.mma_sync(
            parts["shape"], a, b, c, a_type=parts["a"], b_type=parts["b"], c_type=parts["c"],
            d_type=parts["d"], saturate=bool(parts.get("sat")), operation=operation, **extra,
        )  # fmt: skip
        write_all(frame, slots, result)

    return Step(run, tuple(slots))


def _scales(line: Binder) -> Callable[[Registers], dict[str, Any]]:
    """Operands 4 to 9: data of the scales of A, {byte, thread}, and the same of B."""
    vector = line.parts["vec"] or (
        "scale_vec::1X" if "mxf8f6f4" in line.line.opcode else "scale_vec::2X"
    )
    blocks = int(vector[-2])
    data = [line.read(4, "b32"), line.read(6, "b32")]
    where = [line.sources(number, "u16") for number in (5, 7)]

    def read(registers: Registers) -> dict[str, Any]:
        frame: Frame = registers[0]
        scales: dict[str, Any] = {"scale_type": line.parts["scale"]}
        functions = {"scale_a": products.scales_of_a, "scale_b": products.scales_of_b}
        for (name, function), source, (byte, thread) in zip(
            functions.items(), data, where, strict=True
        ):
            scales[name] = function(
                np.ascontiguousarray(frame.by_warp(source(registers))), blocks=blocks,
                byte=int(byte(registers).flat[0]), thread=int(thread(registers).flat[0]),
            )  # fmt: skip
        return scales

    return read


def note_matrix(
    frame: Frame,
    ctas: Array,
    warps: Array,
    matrix: MatrixDescriptor,
    name: str,
    rows: int,
    place: Place,
    *,
    mn_major: bool,
) -> None:
    """Tell the checks which 16 bytes of the shared memory of some CTAs a product reads."""
    batch, memory = frame.batch, frame.batch.memories["shared"]
    if batch.watch is None and memory.written is None:
        return
    width = products.shared_width(name)
    where = pieces(matrix, rows=rows, k_bytes=32, width=width, mn_major=mn_major)
    spots = (ctas.reshape(-1, 1) * memory.stride + where.reshape(1, -1)).reshape(-1)
    batch.note_unwritten(memory, spots, 16, None, place)
    for warp in warps.tolist() if batch.watch is not None else ():
        owners = spots // memory.stride
        batch.watch.engine("shared", warp, owners, spots, 16, place, writes=False)


KIND = "wgmma"
_GROUP = 4


def _shapes(k: int) -> str:
    return "|".join(f"m64n{n}k{k}" for n in range(8, 257, 8))


_WARPGROUPS_HEAD = "wgmma.mma_async.sync.aligned"


@opcode(
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(16)}}}.{{d:f16|f32}}.{{a:f16}}.{{b:f16}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(16)}}}.{{d:f32}}.{{a:bf16}}.{{b:bf16}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(8)}}}.{{d:f32}}.{{a:tf32}}.{{b:tf32}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(32)}}}.{{d:f16|f32}}.{{a:e4m3|e5m2}}.{{b:e4m3|e5m2}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(32)}}}?{{sat:satfinite}}.{{d:s32}}"
    f".{{a:s8|u8}}.{{b:s8|u8}}",
    f"{_WARPGROUPS_HEAD}.{{shape:{_shapes(256)}}}.{{d:s32}}.{{a:b1}}.{{b:b1}}"
    f".{{operation:and}}.popc",
)  # fmt: skip
def _warpgroups_multiply(line: Binder) -> Step:
    """Operands: D, A or its descriptor, that of B, scale-d, then signs and transpositions."""
    slots = result_slots(line, "b32")
    line.slots.accumulators.update(slots)
    from_registers = line.operand(1).startswith("{")
    a = line.sources(1, "b32" if from_registers else "b64")
    b = line.read(2, "b64")
    scale = line.read(3, "pred") if line.count > 3 else None
    flags = [line.constant(number) for number in range(4, line.count)]
    signs = flags[:2] if len(flags) >= 2 else [1, 1]
    turns = [bool(flag) for flag in ([0] if from_registers else []) + flags[2:]]
    turns += [False] * (2 - len(turns))
    product = _Product(line, slots, turns, [sign == -1 for sign in signs])

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        values = [reader(registers) for reader in a]
        descriptor = b(registers)
        adds = np.ones((1, 1), np.bool_) if scale is None else scale(registers)

        def effect(_: Array | None) -> None:
            product.apply(registers, values, descriptor, adds, from_registers=from_registers)

        frame.batch.asynchrony.groups(frame, KIND).issue(effect, line.place)

    return Step(run, tuple(slots), reads_old=True)


@dataclass(frozen=True, slots=True)
class _Warpgroup:
    """Warps `start` to `start + 3` of CTAs in some rows; `members` are those in the frame."""

    frame: Frame
    rows: Array
    members: Array
    start: int

    def taken(self, registers: Array) -> Array:
        """The registers (CTAs, warps, 32, n) of its threads, (rows, 128, n)."""
        shape = (len(self.rows), _GROUP, WARP, registers.shape[-1])
        whole = np.zeros(shape, dtype=np.uint32)
        whole[:, self.members - self.start] = registers[np.ix_(self.rows, self.members)]
        return whole.reshape(len(self.rows), _GROUP * WARP, -1)


class _Product:
    def __init__(
        self, line: Binder, slots: list[int], turns: list[bool], negate: list[bool]
    ) -> None:
        self._parts = line.parts
        self._place = line.place
        self._slots = slots
        self._turns = turns
        self._negate = negate
        self._n = int(line.parts["shape"].split("n")[1].split("k")[0])

    def apply(
        self, registers: Registers, a: list[Array], b: Array, adds: Array, *, from_registers: bool
    ) -> None:
        frame: Frame = registers[0]
        warps = frame.lanes // WARP
        first = frame.first // WARP
        active = frame.active().reshape(frame.ctas, warps, WARP)[:, :, 0]
        old = side_by_side(frame, [registers[slot] for slot in self._slots])
        new = old.copy()
        for start in range(-(first % _GROUP), warps, _GROUP):
            members = [warp for warp in range(start, start + _GROUP) if 0 <= warp < warps]
            lead = members[0] * WARP
            rows = np.nonzero(active[:, members[0]])[0]
            if not len(rows):
                continue
            values = [b, adds, *([] if from_registers else a)]
            for same, (descriptor, adding, *of_a) in by_operands(frame, lead, rows, values):
                right = wgmma_descriptor(descriptor)
                operand = wgmma_descriptor(of_a[0]) if of_a else a
                group = _Warpgroup(frame, same, np.array(members), start)
                self._multiply(group, operand, right, old, new, adds=bool(adding))
        write_all(frame, self._slots, new)

    def _multiply(
        self,
        group: _Warpgroup,
        left: MatrixDescriptor | list[Array],
        right: MatrixDescriptor,
        old: Array,
        new: Array,
        *,
        adds: bool,
    ) -> None:
        memory, parts = group.frame.batch.memories["shared"], self._parts
        shared = memory.data.reshape(-1, memory.stride)[group.rows]

        def from_shared(matrix: MatrixDescriptor, name: str, rows: int, *, mn_major: bool) -> Array:
            try:
                codes = products.shared_operand(
                    shared, matrix, parts[name], rows=rows, mn_major=mn_major
                )
            except IndexError:
                raise Trouble("a matrix descriptor reaches beyond shared memory") from None
            first = group.frame.first // WARP
            note_matrix(
                group.frame, group.rows, group.members + first, matrix, parts[name], rows,
                self._place, mn_major=mn_major,
            )  # fmt: skip
            return codes

        b = from_shared(right, "b", self._n, mn_major=self._turns[1])
        if isinstance(left, MatrixDescriptor):
            a = from_shared(left, "a", 64, mn_major=self._turns[0])
        else:
            a = products.register_operand(group.taken(side_by_side(group.frame, left)), parts["a"])
        result = products.wgmma(
            a, b, group.taken(old), a_type=parts["a"], b_type=parts["b"], d_type=parts["d"],
            accumulate=np.full(len(group.rows), adds), negate_a=self._negate[0],
            negate_b=self._negate[1], saturate=bool(parts.get("sat")),
        )  # fmt: skip
        grouped = result.reshape(len(group.rows), _GROUP, WARP, -1)
        new[np.ix_(group.rows, group.members)] = grouped[:, group.members - group.start]


without_effect("wgmma.fence.sync.aligned")


commits("wgmma.commit_group.sync.aligned", KIND)
waits("wgmma.wait_group.sync.aligned", KIND)
