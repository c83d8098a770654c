"""Products of four warps, from shared memory, under way until they are waited for.

PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". Each warp owns 16
of the 64 rows of A and D, and runs for itself. Layouts and arithmetic are in
`gpu_emulator.engines`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpu_emulator.engines import products
from gpu_emulator.engines.matrices import MatrixDescriptor, pieces, wgmma_descriptor
from gpu_emulator.state.frame import Frame, Trouble, by_operands
from gpu_emulator.state.lanes import side_by_side, whole_warps, write_all
from gpu_emulator.steps import WARP, Array, Reader, Registers

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
    batch.note_unwritten(frame, memory, spots, 16, None)
    for warp in warps.tolist() if batch.watch is not None else ():
        owners = spots // memory.stride
        batch.watch.engine("shared", warp, owners, spots, 16, frame.place, writes=False)


def begin_product(
    registers: Registers,
    parts: Mapping[str, str],
    slots: Sequence[int],
    old: Sequence[Reader],
    a: list[Array],
    b: Array,
    adds: Array,
    turns: Sequence[bool],
    *,
    negate: bool,
) -> None:
    """Add D = A x B + C to the current group of each warp.

    `parts`: types `a`, `b` and `d`, the `shape` (`m64n8k16`), and `sat`. `slots`: registers of D.
    `old`: readers of C, which are read when it runs, as is shared memory. `a`: registers of A, or
    its descriptor. `b`: the descriptor of B. `adds`: whether C is added. `turns`: whether A and B
    are transposed. `negate`: whether the product counts as its negative.
    """
    frame: Frame = registers[0]
    whole_warps(registers)
    warps, first = frame.lanes // WARP, frame.first // WARP
    n = int(parts["shape"].split("n")[1].split("k")[0])
    memory = frame.batch.memories["shared"]

    def multiply(
        rows: Array, members: Array, start: int, numbers: Sequence[int], before: Array
    ) -> Array:
        """Registers of D of the warps `start` to `start + 3`; `members` are those in the frame."""
        shared = memory.data.reshape(-1, memory.stride)[rows]

        def taken(of_warps: Array) -> Array:
            """The registers (CTAs, warps, 32, n) of the threads, (rows, 128, n)."""
            whole = np.zeros((len(rows), _GROUP, WARP, of_warps.shape[-1]), dtype=np.uint32)
            whole[:, members - start] = of_warps[np.ix_(rows, members)]
            return whole.reshape(len(rows), _GROUP * WARP, -1)

        def from_shared(descriptor: int, name: str, count: int, *, mn_major: bool) -> Array:
            matrix = wgmma_descriptor(descriptor)
            try:
                codes = products.shared_operand(
                    shared, matrix, parts[name], rows=count, mn_major=mn_major
                )
            except IndexError:
                raise Trouble("a matrix descriptor reaches beyond shared memory") from None
            note_matrix(frame, rows, members + first, matrix, parts[name], count, mn_major=mn_major)
            return codes

        descriptor, adding, *of_a = numbers
        right = from_shared(descriptor, "b", n, mn_major=turns[1])
        if of_a:
            left = from_shared(of_a[0], "a", 64, mn_major=turns[0])
        else:
            left = products.register_operand(taken(side_by_side(frame, a)), parts["a"])
        result = products.wgmma(
            left, right, taken(before), a_type=parts["a"], b_type=parts["b"], d_type=parts["d"],
            accumulate=np.full(len(rows), bool(adding)), negate_a=negate,
            saturate=bool(parts.get("sat")),
        )  # fmt: skip
        return result.reshape(len(rows), _GROUP, WARP, -1)[:, members - start]

    def effect(_: Array | None) -> None:
        active = frame.active().reshape(frame.ctas, warps, WARP)[:, :, 0]
        before = side_by_side(frame, [read(registers) for read in old])
        after = before.copy()
        for start in range(-(first % _GROUP), warps, _GROUP):
            members = np.arange(max(start, 0), min(start + _GROUP, warps))
            rows = np.nonzero(active[:, members[0]])[0]
            if not len(rows):
                continue
            values = [b, adds, *(a if len(a) == 1 else [])]
            for same, numbers in by_operands(frame, int(members[0]) * WARP, rows, values):
                result = multiply(same, members, start, numbers, before)
                after[np.ix_(same, members)] = result
        write_all(frame, slots, after)

    frame.batch.asynchrony.groups(frame, PRODUCTS).issue(effect)
