"""tcgen05.mma against numpy, for each kind, data path layout and place of A."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from canonical import stored

from gpu_emulator.engines.matrices import registers, tcgen05_descriptor
from gpu_emulator.engines.products import decode
from gpu_emulator.engines.tcgen05 import (
    MatrixInstruction,
    Scales,
    copy,
    copy_lanes,
    decode_instruction,
    multiply,
    operand_from_shared,
    operand_from_tensor_memory,
    placement,
)
from gpu_emulator.numbers.formats import from_float64, to_float64

RNG = np.random.default_rng(0)
SWIZZLE = {"none": 0, "128B": 2, "64B": 4, "32B": 6}
TYPE = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "i8": {"u8": 0, "s8": 1},
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
TYPE["mxf8f6f4"] = TYPE["f8f6f4"]


def idesc(
    kind: str, m: int, n: int, a: str, b: str, d: str = "f32", extra: int = 0
) -> MatrixInstruction:
    word = TYPE[kind][a] << 7 | TYPE[kind][b] << 10 | (n >> 3) << 17 | (m >> 4) << 24 | extra
    if not kind.startswith("mx"):
        word |= {"f16": 0, "f32": 1, "s32": 2}[d] << 4
    return decode_instruction(kind, word)


def describe(leading: int, stride: int, swizzle: str, start: int = 0) -> int:
    return (
        start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | 1 << 46 | SWIZZLE[swizzle] << 61
    )


def codes(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if name in ("s8", "u8"):
        return RNG.integers(0, 256, shape).astype(np.uint8)
    return from_float64(RNG.integers(-2, 3, shape).astype(np.float64), name)


def in_bytes(matrix: np.ndarray[Any, Any], kind: str, name: str) -> np.ndarray[Any, Any]:
    """Rows of K as shared memory has them: packed fours, or 4 and 6 bits padded to 16 bytes."""
    if kind in ("mxf4", "mxf4nvf4"):
        return np.asarray(matrix[..., 0::2] | matrix[..., 1::2] << 4)
    if name not in ("e2m1", "e2m3", "e3m2"):
        return matrix
    width = 4 if name == "e2m1" else 6
    out = np.zeros(matrix.shape, np.uint8)
    for index in np.ndindex(*matrix.shape[:-1]):
        for group in range(0, matrix.shape[-1], 16):
            whole = sum(
                int(v) << (width * i) for i, v in enumerate(matrix[index][group : group + 16])
            )
            out[index][group : group + 2 * width] = list(whole.to_bytes(2 * width, "little"))
    return out


def in_shared(
    matrix: np.ndarray[Any, Any], swizzle: str, *, mn_major: bool = False
) -> tuple[np.ndarray[Any, Any], int]:
    """(ctas, rows, K) as shared memory (ctas, bytes), and the descriptor."""
    parts = [stored(part, swizzle, mn_major=mn_major) for part in matrix]
    return np.stack([data for data, _, _ in parts]), describe(*parts[0][1:], swizzle)


CASES = [
    ("f16", "bf16", "bf16"), ("f16", "f16", "f16"), ("tf32", "tf32", "tf32"), ("i8", "s8", "u8"),
    ("f8f6f4", "e4m3", "e5m2"), ("f8f6f4", "e2m3", "e2m1"), ("f8f6f4", "e3m2", "e4m3"),
]  # fmt: skip
LAYOUTS = [
    (2, 256, 64, False), (2, 128, 64, False), (1, 128, 48, False), (1, 64, 64, True),
    (1, 64, 24, False), (1, 32, 64, True), (1, 128, 64, True),
]  # fmt: skip


@pytest.mark.parametrize(("ctas", "m", "n", "ws"), LAYOUTS)
def test_each_element_has_a_cell_of_its_own(ctas: int, m: int, n: int, ws: bool) -> None:
    where = placement(m, n, ctas=ctas, ws=ws)
    cta, lane, column = np.broadcast_arrays(where.cta, where.lane, where.column)
    assert len(set(zip(cta.ravel(), lane.ravel(), column.ravel(), strict=True))) == m * n
    assert cta.max() == ctas - 1
    assert lane.max() < 128
    assert column.max() < n


@pytest.mark.parametrize(
    ("place", "row", "column", "expected"),
    [
        ((256, 64, 2, False), 200, 3, ("A", 1, 72, 3)),
        ((128, 64, 2, False), 70, 40, ("B", 1, 6 + 64, 8)),
        ((128, 64, 1, False), 70, 40, ("D", 0, 70, 40)),
        ((64, 64, 1, True), 33, 40, ("E", 0, 33 + 64, 8)),
        ((64, 64, 1, False), 33, 40, ("F", 0, 65, 40)),
        ((32, 64, 1, True), 31, 40, ("G", 0, 31 + 64, 8)),
    ],
)
def test_layouts_by_their_letter(
    place: tuple[int, int, int, bool], row: int, column: int, expected: tuple[str, int, int, int]
) -> None:
    m, n, ctas, ws = place
    where = placement(m, n, ctas=ctas, ws=ws)
    arrays = np.broadcast_arrays(where.cta, where.lane, where.column)
    assert (where.letter, *(int(x[row, column]) for x in arrays)) == expected


@pytest.mark.parametrize(("kind", "a_type", "b_type"), CASES)
@pytest.mark.parametrize(("ctas", "m", "n", "ws"), LAYOUTS)
def test_a_product_is_that_of_numpy(
    kind: str, a_type: str, b_type: str, ctas: int, m: int, n: int, ws: bool
) -> None:
    integral = kind == "i8"
    instruction = idesc(kind, m, n, a_type, b_type, "s32" if integral else "f32")
    k = instruction.k
    a, b = codes(a_type, (m, k)), codes(b_type, (n, k))
    shared_a, where_a = in_shared(in_bytes(a, kind, a_type).reshape(ctas, m // ctas, -1), "32B")
    shared_b, where_b = in_shared(in_bytes(b, kind, b_type).reshape(ctas, n // ctas, -1), "none")
    left = operand_from_shared(shared_a, tcgen05_descriptor(where_a), instruction, "a")
    right = operand_from_shared(shared_b, tcgen05_descriptor(where_b), instruction, "b")
    assert np.array_equal(left, a)
    assert np.array_equal(right, b)
    memory = RNG.integers(0, 2**32, (ctas, 128, 512), dtype=np.uint32)
    old = RNG.integers(-7, 7, (m, n))
    cells, _ = multiply(memory, left, right, instruction, 0, 32, accumulate=False, ws=ws)
    memory[cells] = old.astype(np.int32 if integral else np.float32).view(np.uint32)
    before = memory.copy()
    cells, values = multiply(memory, left, right, instruction, 0, 32, accumulate=True, ws=ws)
    expected = decode(a, a_type) @ decode(b, b_type).T
    kind_of_value = np.int32 if integral else np.float32
    assert np.array_equal(values.view(kind_of_value), expected + old)
    assert np.array_equal(memory, before)
    _, alone = multiply(memory, left, right, instruction, 0, 32, accumulate=False, ws=ws)
    assert np.array_equal(alone.view(kind_of_value), expected)


@pytest.mark.parametrize("swizzle", SWIZZLE)
@pytest.mark.parametrize("mn_major", [False, True])
def test_both_majors_and_every_swizzle(swizzle: str, mn_major: bool) -> None:
    extra = (1 << 15 | 1 << 16) if mn_major else 0
    instruction = idesc("f16", 128, 128, "bf16", "bf16", extra=extra)
    a = codes("bf16", (128, 16 if mn_major else 64))
    shared, value = in_shared(a[None], swizzle, mn_major=mn_major)
    found = operand_from_shared(shared, tcgen05_descriptor(value), instruction, "a")
    assert np.array_equal(found, a[:, :16])
    assert np.array_equal(
        operand_from_shared(shared, tcgen05_descriptor(value), instruction, "b"), found
    )


@pytest.mark.parametrize(("ctas", "m"), [(1, 128), (1, 64), (2, 256), (2, 128)])
@pytest.mark.parametrize(("kind", "name"), [("f16", "f16"), ("tf32", "tf32"), ("f8f6f4", "e4m3")])
def test_a_from_tensor_memory(ctas: int, m: int, kind: str, name: str) -> None:
    instruction = idesc(kind, m, 64, name, name)
    a = codes(name, (m, instruction.k))
    words = registers(a, a.itemsize * 8)
    memory = np.zeros((ctas, 128, 512), np.uint32)
    for row in range(m):
        cta, own = row // (m // ctas), row % (m // ctas)
        lane = own % 16 + 32 * (own // 16) if (m, ctas) == (64, 1) else own
        memory[cta, lane, 100:108] = words[row]
    assert np.array_equal(operand_from_tensor_memory(memory, 0, 100, instruction), a)


def test_signs_scales_and_disabled_lanes() -> None:
    instruction = idesc("f16", 128, 32, "f16", "bf16", extra=1 << 13)
    assert instruction.negate_a
    a, b = codes("f16", (128, 16)), codes("bf16", (32, 16))
    memory = np.zeros((1, 128, 512), np.uint32)
    memory[0, :, :32] = from_float64(np.full((128, 32), 6.0), "f32")
    cells, values = multiply(
        memory, a, b, instruction, 0, 0, accumulate=True, scale_input=1,
        disabled=[0b101, 0, 0, 1 << 31],
    )  # fmt: skip
    expected = 3.0 - decode(a, "f16") @ decode(b, "bf16").T
    expected[[0, 2, 127]] = 6.0
    memory[cells] = values
    assert np.array_equal(to_float64(memory[0, :, :32], "f32"), expected)


def test_half_accumulators_have_a_cell_each() -> None:
    instruction = idesc("f16", 64, 16, "f16", "f16", d="f16")
    a, b = codes("f16", (64, 16)), codes("f16", (16, 16))
    memory = np.full((1, 128, 512), 0xDEAD3C00, np.uint32)  # 1.0 below garbage
    _, values = multiply(memory, a, b, instruction, 0, 0, accumulate=True)
    assert np.array_equal(to_float64(values, "f16"), decode(a, "f16") @ decode(b, "f16").T + 1)
    assert (values >> 16 == 0).all()


@pytest.mark.parametrize(
    ("kind", "name", "scale", "blocks"),
    [
        ("mxf8f6f4", "e4m3", 1, 1),
        ("mxf4", "e2m1", 1, 2),
        ("mxf4nvf4", "e2m1", 0, 4),
        ("mxf4nvf4", "e2m1", 1, 2),
    ],
)
@pytest.mark.parametrize("ctas", [1, 2])
def test_block_scales_that_a_copy_brought(
    kind: str, name: str, scale: int, blocks: int, ctas: int
) -> None:
    m, n = 128 * ctas, 64
    ids = (2 << 29 | 2 << 4) if blocks < 4 else 0
    instruction = idesc(kind, m, n, name, name, extra=scale << 23 | ids)
    k = instruction.k
    a, b = codes(name, (m, k)), codes(name, (n, k))
    shared_a, where_a = in_shared(in_bytes(a, kind, name).reshape(ctas, 128, -1), "32B")
    shared_b, where_b = in_shared(in_bytes(b, kind, name).reshape(ctas, n // ctas, -1), "32B")
    left = operand_from_shared(shared_a, tcgen05_descriptor(where_a), instruction, "a")
    right = operand_from_shared(shared_b, tcgen05_descriptor(where_b), instruction, "b")
    assert np.array_equal(left, a)
    # Scale factors near 1: of each row four bytes, of which the instruction takes `blocks`.
    near = (0x3A, 0x3D) if scale == 0 else (125, 129)
    of_a, of_b = (RNG.integers(*near, (rows, 4)).astype(np.uint8) for rows in (m, n))
    memory = np.zeros((ctas, 128, 512), np.uint32)
    # The usual block of 512 bytes: 32 rows of 16 bytes, four bytes for each of four groups of rows.
    for cta in range(ctas):
        for column, factors in ((200, of_a[128 * cta : 128 * cta + 128]), (300, of_b)):
            groups = factors.reshape(-1, 32, 4)
            block = np.zeros((32, 4, 4), np.uint8)
            block[:, : len(groups)] = groups.transpose(1, 0, 2)
            descriptor = tcgen05_descriptor(describe(0, 128, "none"))
            lanes, words = copy(block.reshape(-1), descriptor, "32x128b.warpx4")
            for part in lanes:
                memory[cta, part, column : column + 4] = words
    first = 2 if ids else 0
    taken_a, taken_b = (f[:, first : first + blocks] for f in (of_a, of_b))
    kind_of_scale = ("ue4m3", "ue8m0")[scale]
    scaled_a = decode(a, name) * np.repeat(to_float64(taken_a, kind_of_scale), k // blocks, -1)
    scaled_b = decode(b, name) * np.repeat(to_float64(taken_b, kind_of_scale), k // blocks, -1)
    _, values = multiply(
        memory, left, right, instruction, 0, 0, accumulate=False,
        scales=Scales(a_column=200, b_column=300, blocks=blocks),
    )  # fmt: skip
    assert np.array_equal(to_float64(values, "f32"), scaled_a @ scaled_b.T)


def test_lanes_that_a_copy_writes() -> None:
    assert copy_lanes("4x256b")[0].tolist() == [[0, 32, 64, 96]]
    lanes, columns = copy_lanes("64x128b.warpx2::01_23")
    assert columns == 4
    assert lanes[:, 40].tolist() == [72, 104]
    lanes, _ = copy_lanes("64x128b.warpx2::02_13")
    assert lanes[:, 40].tolist() == [40, 104]
    assert np.array_equal(np.sort(copy_lanes("32x128b.warpx4")[0].ravel()), np.arange(128))
    assert copy_lanes("128x256b")[1] == 8
    with pytest.raises(ValueError, match="no shape 1x1b"):
        copy_lanes("1x1b")


def test_a_copy_of_128_rows_follows_the_descriptor() -> None:
    data = RNG.integers(0, 2**32, (128, 8), dtype=np.uint32)
    raw, leading, stride = stored(data, "32B", mn_major=False)
    lanes, words = copy(raw, tcgen05_descriptor(describe(leading, stride, "32B")), "128x256b")
    assert np.array_equal(words, data)
    assert np.array_equal(lanes[0], np.arange(128))


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="sparse"):
        decode_instruction("f16", 1 << 2)
    with pytest.raises(ValueError, match="K = 96"):
        decode_instruction("mxf4", 1 << 31)
    with pytest.raises(ValueError, match="tf32 lacks"):
        decode_instruction("tf32", 1 << 4)
    with pytest.raises(ValueError, match=r"M = 256 with cta_group::1"):
        placement(256, 64, ctas=1)
    with pytest.raises(ValueError, match="e2m1 in tensor memory"):
        operand_from_tensor_memory(
            np.zeros((1, 128, 512), np.uint32), 0, 0, idesc("f8f6f4", 128, 64, "e2m1", "e4m3")
        )


def test_fields_of_the_instruction() -> None:
    # 128 x 256, bf16 x bf16 into f32, B transposed, as Triton writes it for a kernel of ours.
    word = 1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | 32 << 17 | 8 << 24
    found = decode_instruction("f16", word)
    assert (found.m, found.n, found.k) == (128, 256, 16)
    assert (found.a_type, found.b_type, found.d_type) == ("bf16", "bf16", "f32")
    assert (found.a_mn_major, found.b_mn_major) == (False, True)
    scaled = decode_instruction("mxf8f6f4", 1 << 23 | 16 << 17 | 8 << 24 | 3 << 29 | 2 << 4)
    assert (scaled.scale_type, scaled.a_scale_byte, scaled.b_scale_byte) == ("ue8m0", 3, 2)
