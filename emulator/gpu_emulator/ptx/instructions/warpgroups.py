"""`wgmma`: products of four warps, from shared memory, under way until they are waited for.

PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Each warp owns 16
of the 64 rows of A and D, and runs for itself.
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.engines.shared_matrices import MatrixDescriptor, pieces, wgmma_descriptor
from gpu_emulator.engines.wgmma import register_operand, shared_operand, wgmma
from gpu_emulator.ptx.instructions.matrix import held, whole_warps
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.issuers import alike
from gpu_emulator.state.memory import Trouble
from gpu_emulator.steps import WARP, Registers, Step
from gpu_emulator.types import Array

_TITLE = "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"
KIND = "wgmma"
_GROUP = 4
_WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32}


def _shapes(k: int) -> str:
    return "|".join(f"m64n{n}k{k}" for n in range(8, 257, 8))


_HEAD = "wgmma.mma_async.sync.aligned"


@opcode(
    f"{_HEAD}.{{shape:{_shapes(16)}}}.{{d:f16|f32}}.{{a:f16}}.{{b:f16}}",
    f"{_HEAD}.{{shape:{_shapes(16)}}}.{{d:f32}}.{{a:bf16}}.{{b:bf16}}",
    f"{_HEAD}.{{shape:{_shapes(8)}}}.{{d:f32}}.{{a:tf32}}.{{b:tf32}}",
    f"{_HEAD}.{{shape:{_shapes(32)}}}.{{d:f16|f32}}.{{a:e4m3|e5m2}}.{{b:e4m3|e5m2}}",
    f"{_HEAD}.{{shape:{_shapes(32)}}}?{{sat:satfinite}}.{{d:s32}}.{{a:s8|u8}}.{{b:s8|u8}}",
    f"{_HEAD}.{{shape:{_shapes(256)}}}.{{d:s32}}.{{a:b1}}.{{b:b1}}.{{operation:and}}.popc",
    section=f"{_TITLE}: wgmma.mma_async",
)  # fmt: skip
def _multiply(line: Binder) -> Step:
    """Operands: D, A or its descriptor, that of B, scale-d, then signs and transpositions."""
    slots = [line.target(each, "b32")[0] for each in line.parts_of(0)]
    line.slots.accumulators.update(slots)
    from_registers = line.operand(1).startswith("{")
    a = [line.source(each, "b32" if from_registers else "b64") for each in line.parts_of(1)]
    b = line.read(2, "b64")
    scale = line.read(3, "pred") if line.count > 3 else None
    flags = [line.constant(number) for number in range(4, line.count)]
    signs = flags[:2] if len(flags) >= 2 else [1, 1]
    turns = [bool(each) for each in (flags[2:] if not from_registers else [0, *flags[2:]])]
    turns += [False] * (2 - len(turns))
    product = _Product(line, slots, turns, [each == -1 for each in signs])

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        whole_warps(registers)
        values = [each(registers) for each in a]
        descriptor = b(registers)
        adds = np.ones((1, 1), np.bool_) if scale is None else scale(registers)

        def effect(_: Array | None) -> None:
            product.apply(registers, values, descriptor, adds, from_registers=from_registers)

        frame.batch.asynchrony.groups(frame, KIND).issue(effect, line.line.place)

    return Step(run, tuple(slots), is_pure=False, reads_old=True)


class _Product:
    """What one line computes, for the warps of a mask."""

    def __init__(
        self, line: Binder, slots: list[int], turns: list[bool], negate: list[bool]
    ) -> None:
        self._parts = line.parts
        self._place = line.line.place
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
        old = held(frame, [registers[slot] for slot in self._slots])
        new = old.copy()
        for start in range(-(first % _GROUP), warps, _GROUP):
            members = [each for each in range(start, start + _GROUP) if 0 <= each < warps]
            lead = members[0] * WARP
            rows = np.nonzero(active[:, members[0]])[0]
            if not len(rows):
                continue
            values = [b, adds, *([] if from_registers else a)]
            for same, (descriptor, adding, *left) in alike(frame, lead, rows, values):
                self._group(
                    frame, same, members, start, wgmma_descriptor(descriptor), bool(adding),
                    wgmma_descriptor(left[0]) if left else None, a, old, new,
                )  # fmt: skip
        flat = new.reshape(*frame.shape, len(self._slots))
        for number, slot in enumerate(self._slots):
            frame.write(slot, np.ascontiguousarray(flat[..., number]))

    def _group(
        self, frame: Frame, rows: Array, members: list[int], start: int, b: MatrixDescriptor,
        adding: bool, left: MatrixDescriptor | None, a: list[Array], old: Array, new: Array,  # noqa: FBT001
    ) -> None:  # fmt: skip
        """One warpgroup of some CTAs; of its warps those that are in the frame."""
        memory = frame.batch.memories["shared"]
        shared = memory.data.reshape(-1, memory.stride)[rows]
        parts = self._parts
        places = [each - start for each in members]
        try:
            right = shared_operand(shared, b, parts["b"], rows=self._n, mn_major=self._turns[1])
            if left is not None:
                codes = shared_operand(shared, left, parts["a"], rows=64, mn_major=self._turns[0])
            self._watch(frame, rows, members, b, left)
        except IndexError:
            raise Trouble(
                "memory_fault", "a matrix descriptor reaches beyond shared memory"
            ) from None
        if left is None:
            operand = held(frame, a)
            whole = np.zeros((len(rows), _GROUP, WARP, operand.shape[-1]), dtype=np.uint32)
            whole[:, places] = operand[np.ix_(rows, np.array(members))]
            codes = register_operand(whole.reshape(len(rows), _GROUP * WARP, -1), parts["a"])
        before = np.zeros((len(rows), _GROUP, WARP, old.shape[-1]), dtype=np.uint32)
        before[:, places] = old[np.ix_(rows, np.array(members))]
        result = wgmma(
            codes, right, before.reshape(len(rows), _GROUP * WARP, -1), a_type=parts["a"],
            b_type=parts["b"], d_type=parts["d"],
            accumulate=np.full(len(rows), adding), negate_a=self._negate[0],
            negate_b=self._negate[1], saturate=bool(parts.get("sat")),
        )  # fmt: skip
        grouped = result.reshape(len(rows), _GROUP, WARP, -1)
        new[np.ix_(rows, np.array(members))] = grouped[:, places]

    def _watch(
        self, frame: Frame, rows: Array, members: list[int], b: MatrixDescriptor,
        left: MatrixDescriptor | None,
    ) -> None:  # fmt: skip
        """Tell the checks which 16 bytes of shared memory are read."""
        watch, memory = frame.batch.watch, frame.batch.memories["shared"]
        if watch is None and memory.written is None:
            return
        stride = memory.stride
        read = [(b, "b", self._n, self._turns[1])]
        if left is not None:
            read.append((left, "a", 64, self._turns[0]))
        for descriptor, name, count, is_turned in read:
            where = pieces(
                descriptor, rows=count, k_bytes=32, width=_WIDTHS.get(self._parts[name], 8),
                mn_major=is_turned,
            )  # fmt: skip
            spots = (rows[:, None] * stride + where.reshape(1, -1)).reshape(-1)
            frame.batch.note_unwritten(memory, spots, 16, None, self._place)
            for member in members if watch is not None else ():
                warp = frame.first // WARP + member
                watch.block(warp, spots, 16, self._place, writes=False)


@opcode("wgmma.fence.sync.aligned", section=f"{_TITLE}: wgmma.fence", pure=True)
def _fence(line: Binder) -> Step:
    del line
    return Step(lambda _: None, (), is_pure=True)


@opcode("wgmma.commit_group.sync.aligned", section=f"{_TITLE}: wgmma.commit_group")
def _commit(line: Binder) -> Step:
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, KIND).commit()

    return Step(run, (), is_pure=False)


@opcode("wgmma.wait_group.sync.aligned", section=f"{_TITLE}: wgmma.wait_group")
def _wait(line: Binder) -> Step:
    pending = line.pending(0)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, KIND).wait(pending)

    return Step(run, (), is_pure=False)
