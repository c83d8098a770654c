"""Products of four warps, from shared memory, under way until they are waited for.

PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Each warp owns 16
of the 64 rows of A and D, and runs for itself. Layouts and arithmetic are in
`gpu_emulator.engines`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_emulator.engines import products
from gpu_emulator.engines.matrices import MatrixDescriptor, pieces, wgmma_descriptor
from gpu_emulator.state.frame import Frame, Trouble, by_operands
from gpu_emulator.state.lanes import side_by_side, write_all
from gpu_emulator.steps import WARP, Array, Reader, Registers
from gpu_emulator.values import Place

PRODUCTS = "wgmma"
"""The kind of their groups."""
_GROUP = 4


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


class Product:
    """D = A x B + C of one instruction.

    `parts`: types `a`, `b` and `d`, the `shape` (`m64n8k16`), and `sat`. `slots`: registers of D.
    `old`: readers of C. `turns`: whether A and B are transposed. `negate`: whether they count as
    their negatives.
    """

    def __init__(
        self,
        parts: Mapping[str, str],
        place: Place,
        slots: list[int],
        old: Sequence[Reader],
        turns: list[bool],
        negate: list[bool],
    ) -> None:
        self._parts = parts
        self._place = place
        self._slots = slots
        self._old = old
        self._turns = turns
        self._negate = negate
        self._n = int(parts["shape"].split("n")[1].split("k")[0])

    def begin(
        self, registers: Registers, a: list[Array], b: Array, adds: Array, *, from_registers: bool
    ) -> None:
        """Add it to the current group of each warp: C and shared memory are read when it runs."""
        frame: Frame = registers[0]

        def effect(_: Array | None) -> None:
            self._apply(registers, a, b, adds, from_registers=from_registers)

        frame.batch.asynchrony.groups(frame, PRODUCTS).issue(effect, self._place)

    def _apply(
        self, registers: Registers, a: list[Array], b: Array, adds: Array, *, from_registers: bool
    ) -> None:
        frame: Frame = registers[0]
        warps = frame.lanes // WARP
        first = frame.first // WARP
        active = frame.active().reshape(frame.ctas, warps, WARP)[:, :, 0]
        old = side_by_side(frame, [read(registers) for read in self._old])
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
