"""Matrix instructions and tensor copies on the GPU against the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matrices
import numpy as np
from accumulation import Adding, added_by, hopper
from cuda_driver import Device

from gpu_emulator.engines import products
from gpu_emulator.engines.matrices import (
    load_matrices,
    move_matrix,
    store_matrices,
    wgmma_descriptor,
)
from gpu_emulator.engines.products import mma_sync
from gpu_emulator.numbers.formats import from_float64

__all__ = ["Row", "compared", "run", "run_parts"]

RNG = np.random.default_rng(17)
WARPS = 64
Row = dict[str, Any]


def compared(name: str, found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> Row:
    differing = found != expected
    places = np.argwhere(differing)[:4]
    return {
        "opcode": name,
        "elements": found.size,
        "differing": int(differing.sum()),
        "examples": [
            {
                "at": place.tolist(),
                "gpu": f"{int(found[tuple(place)]):#x}",
                "emulator": f"{int(expected[tuple(place)]):#x}",
            }
            for place in places
        ],
    }


# mma.sync


@dataclass(frozen=True)
class Mma:
    """One shape and its types, with how the opcode ends."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    tail: str = ""

    @property
    def opcode(self) -> str:
        return (
            f"mma.sync.aligned.{self.shape}.row.col{'.satfinite' * (self.tail == '.satfinite')}"
            f".{self.d}.{self.a}.{self.b}.{self.c}{self.tail.replace('.satfinite', '')}"
        )

    @property
    def counts(self) -> tuple[int, int, int, int]:
        m, n, k = (int(x) for x in re.findall(r"\d+", self.shape))
        bits = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "b1": 1}
        width = bits.get(self.a, 8)
        register = 64 if self.a == "f64" else 32

        def registers(elements: int, size: int) -> int:
            return elements * size // register // 32

        c, d = (64 if x == "f64" else int(x[1:]) for x in (self.c, self.d))
        return (
            registers(m * n, d), registers(m * k, width), registers(n * k, width),
            registers(m * n, c),
        )  # fmt: skip


def _mmas() -> Iterator[Mma]:
    for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"):
        yield Mma(shape, "f64", "f64", "f64", "f64")
    for shape in ("m16n8k4", "m16n8k8"):
        yield Mma(shape, "f32", "tf32", "tf32", "f32")
    for shape in ("m16n8k8", "m16n8k16"):
        yield Mma(shape, "f32", "bf16", "bf16", "f32")
        yield Mma(shape, "f32", "f16", "f16", "f32")
        yield Mma(shape, "f16", "f16", "f16", "f16")
    yield from (
        Mma("m16n8k32", "f32", a, b, "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")
    )
    for shape in ("m8n8k16", "m16n8k16", "m16n8k32"):
        for tail in ("", ".satfinite"):
            yield from (
                Mma(shape, "s32", a, b, "s32", tail) for a, b in (("s8", "u8"), ("u8", "s8"))
            )
    for shape in ("m8n8k32", "m16n8k32", "m16n8k64"):
        yield from (Mma(shape, "s32", a, b, "s32") for a, b in (("s4", "u4"), ("u4", "s4")))
    for shape in ("m8n8k128", "m16n8k128", "m16n8k256"):
        yield from (Mma(shape, "s32", "b1", "b1", "s32", f".{op}.popc") for op in ("xor", "and"))


def _operand(kind: str, count: int, *, exact: bool) -> np.ndarray[Any, Any]:
    """Registers of random elements: small integers where sums shall be exact."""
    shape = (WARPS, 32, count)
    if kind in ("s8", "u8", "s4", "u4", "b1", "s32"):
        return RNG.integers(0, 2**32, shape, dtype=np.uint32)
    per = {"f64": 1, "f32": 1, "tf32": 1, "f16": 2, "bf16": 2}.get(kind, 4)
    values = RNG.normal(size=(*shape, per))
    if exact:
        values = np.clip(np.rint(2 * values), -4, 4)
    codes = np.ascontiguousarray(from_float64(values, kind))
    return codes.view(np.uint64 if kind == "f64" else np.uint32)[..., 0]


def _run_mma(device: Device) -> Iterator[Row]:
    cases = list(_mmas())
    texts = [
        matrices.mma_text(f"m{i}", case.opcode, case.counts, 64 if case.a == "f64" else 32)
        for i, case in enumerate(cases)
    ]
    module = device.module(matrices.HEADER + "".join(texts))
    for i, case in enumerate(cases):
        function = device.function(module, f"m{i}")
        for exact in (True, False):
            integral = case.d == "s32"
            if not exact and integral:
                continue
            kinds = (case.a, case.b, case.c)
            a, b, c = (
                _operand(kind, count, exact=exact)
                for kind, count in zip(kinds, case.counts[1:], strict=True)
            )
            d = np.zeros((WARPS, 32, case.counts[0]), c.dtype)
            pointers = [device.upload(x) for x in (d, a, b, c)]
            device.launch(function, WARPS, 32, pointers)
            found = device.download(pointers[0], d)
            device.free(*pointers)
            with added_by(None if exact else _adding("mma.sync", case.a, case.d)):
                expected = mma_sync(
                    case.shape, a, b, c, a_type=case.a, b_type=case.b, c_type=case.c, d_type=case.d,
                    saturate=case.tail == ".satfinite", operation=case.tail[1:4] or "xor",
                )  # fmt: skip
            name = case.opcode if exact else f"{case.opcode}, sums of random numbers"
            yield compared(name, found, expected)


def _adding(instruction: str, a_type: str, d_type: str) -> Adding | None:
    order = hopper(instruction, a_type, d_type)
    return order.add if order else None


# ldmatrix, stmatrix, movmatrix


def _run_moves(device: Device) -> Iterator[Row]:
    shapes = [(count, transposed) for count in (1, 2, 4) for transposed in (False, True)]
    texts = [matrices.move_matrix_text("move")]
    for count, transposed in shapes:
        tag = f"{count}{'t' * transposed}"
        texts.append(matrices.load_matrix_text(f"load{tag}", count, transposed=transposed))
        texts.append(matrices.store_matrix_text(f"store{tag}", count, transposed=transposed))
    module = device.module(matrices.HEADER + "".join(texts))
    rows = RNG.integers(0, 256, (WARPS, 32, 16)).astype(np.uint8)
    for count, transposed in shapes:
        tag = f"{count}{'t' * transposed}"
        used = rows[:, : 8 * count]
        held: np.ndarray[Any, Any] = np.zeros((WARPS, 32, count), np.uint32)
        pointers = [device.upload(held), device.upload(rows)]
        function = device.function(module, f"load{tag}", 1024)
        device.launch(function, WARPS, 32, pointers, shared=1024)
        found = device.download(pointers[0], held)
        expected = load_matrices(used, transposed=transposed)
        yield compared(f"ldmatrix.x{count}{'.trans' * transposed}", found, expected)
        function = device.function(module, f"store{tag}", 1024)
        device.launch(function, WARPS, 32, pointers, shared=1024)
        stored = device.download(pointers[1], rows)
        expected_rows = store_matrices(found, transposed=transposed)
        device.free(*pointers)
        yield compared(
            f"stmatrix.x{count}{'.trans' * transposed}", stored[:, : 8 * count], expected_rows
        )
    held = RNG.integers(0, 2**32, (WARPS, 32), dtype=np.uint32)
    pointers = [device.upload(np.zeros_like(held)), device.upload(held)]
    device.launch(device.function(module, "move"), WARPS, 32, pointers)
    yield compared("movmatrix", device.download(pointers[0], held), move_matrix(held))
    device.free(*pointers)


# wgmma


@dataclass(frozen=True)
class Wgmma:
    """One instruction of a warpgroup."""

    n: int
    d: str
    kind: str
    a_in_registers: bool = False
    tnsp_a: bool = False
    tnsp_b: bool = False
    negate: bool = False

    @property
    def opcode(self) -> str:
        k = {"tf32": 8, "f16": 16, "bf16": 16}.get(self.kind, 32)
        other = "u8" if self.kind == "s8" else self.kind
        return f"wgmma.mma_async.sync.aligned.m64n{self.n}k{k}.{self.d}.{self.kind}.{other}"

    @property
    def tail(self) -> str:
        if self.kind in ("s8", "u8"):
            return ""
        scales = f", {-1 if self.negate else 1}, 1"
        if self.kind not in ("f16", "bf16"):
            return scales
        if self.a_in_registers:
            return f"{scales}, {int(self.tnsp_b)}"
        return f"{scales}, {int(self.tnsp_a)}, {int(self.tnsp_b)}"

    @property
    def d_count(self) -> int:
        return self.n // (4 if self.d == "f16" else 2)


def _wgmmas() -> Iterator[Wgmma]:
    for kind in ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8"):
        for n in (8, 24, 64, 128, 256):
            if kind == "s8" and n == 24:
                yield Wgmma(24, "s32", kind)
                continue
            d = "s32" if kind == "s8" else "f32"
            yield Wgmma(n, d, kind)
            yield Wgmma(n, d, kind, a_in_registers=True)
    for kind in ("bf16", "f16"):
        for tnsp_a, tnsp_b in ((True, False), (False, True), (True, True)):
            for n in (8, 64, 128, 256):
                yield Wgmma(n, "f32", kind, tnsp_a=tnsp_a, tnsp_b=tnsp_b, negate=True)
    yield Wgmma(64, "f16", "f16")
    yield Wgmma(40, "f16", "f16", a_in_registers=True, tnsp_b=True)


def _random_descriptor() -> int:
    """Any start, offsets and swizzle: far from canonical, and all inside of 64 KiB."""
    swizzle = int(RNG.integers(0, 4))
    span = (16, 128, 64, 32)[swizzle]
    # Canonical in the large, so that hardware need not do what nothing documents.
    within = 32 * int(RNG.integers(0, span // 32)) if span >= 32 else 16 * int(RNG.integers(0, 9))
    start = 1024 * int(RNG.integers(0, 8)) + within
    unit = 8 * span
    leading, stride = (unit * int(RNG.integers(1, 4)) for _ in range(2))
    return start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | swizzle << 62


def _shared_image(kind: str) -> np.ndarray[Any, Any]:
    if kind == "s8":
        return RNG.integers(0, 256, matrices.SHARED_BYTES).astype(np.uint8)
    size = {"tf32": 4, "f16": 2, "bf16": 2}.get(kind, 1)
    values = RNG.integers(-4, 5, matrices.SHARED_BYTES // size).astype(float)
    return np.ascontiguousarray(from_float64(values, kind)).view(np.uint8)


def _wgmma_expected(
    case: Wgmma,
    shared: np.ndarray[Any, Any],
    a: np.ndarray[Any, Any] | int,
    b: int,
    d: np.ndarray[Any, Any],
    *,
    accumulate: bool,
) -> np.ndarray[Any, Any]:
    other = "u8" if case.kind == "s8" else case.kind
    if isinstance(a, np.ndarray):
        left = products.register_operand(a, case.kind)
    else:
        left = products.shared_operand(
            shared, wgmma_descriptor(a), case.kind, rows=64, mn_major=case.tnsp_a
        )
    right = products.shared_operand(
        shared, wgmma_descriptor(b), other, rows=case.n, mn_major=case.tnsp_b
    )
    return products.wgmma(
        left, right, d, a_type=case.kind, b_type=other, d_type=case.d,
        accumulate=np.array(accumulate), negate_a=case.negate,
    )  # fmt: skip


def _wgmma_operands(
    case: Wgmma, shared: np.ndarray[Any, Any], repeat: int
) -> tuple[np.ndarray[Any, Any] | int, int, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A (registers or descriptor), the descriptor of B, D before, and D after."""
    shape = (128, case.d_count)
    start: np.ndarray[Any, Any] = np.zeros(shape, np.uint32)
    if case.d == "f32":
        start = from_float64(RNG.integers(-9, 9, shape).astype(float), "f32")
    elif case.d == "s32":
        start = RNG.integers(0, 99, shape).astype(np.uint32)
    words = shared[: 128 * 16].view(np.uint32).reshape(128, 4)
    while True:
        b = _random_descriptor()
        a = np.roll(words, repeat, 0) if case.a_in_registers else _random_descriptor()
        try:
            wanted = _wgmma_expected(case, shared, a, b, start, accumulate=bool(repeat % 2))
        except IndexError:  # the matrix does not lie inside of shared memory
            continue
        return a, b, start, wanted


def _run_wgmma(device: Device, repeats: int = 6) -> Iterator[Row]:
    cases = list(_wgmmas())
    for i, case in enumerate(cases):
        text = matrices.wgmma_text(
            f"w{i}", case.opcode, case.d_count, a_in_registers=case.a_in_registers, tail=case.tail
        )
        module = device.module(matrices.HEADER + text)
        function = device.function(module, f"w{i}", matrices.SHARED_BYTES)
        shared = _shared_image(case.kind)
        memory = device.upload(shared)
        found, expected = [], []
        for repeat in range(repeats):
            a, b, start, wanted = _wgmma_operands(case, shared, repeat)
            expected.append(wanted)
            pointers = [device.upload(start)]
            operand = device.upload(a) if isinstance(a, np.ndarray) else a
            device.launch(
                function, 1, 128, [pointers[0], memory, operand, b, repeat % 2],
                shared=matrices.SHARED_BYTES,
            )  # fmt: skip
            found.append(device.download(pointers[0], start))
            device.free(*pointers)
        device.free(memory)
        tags = " A in registers" * case.a_in_registers + " tnspA" * case.tnsp_a
        tags += " tnspB" * case.tnsp_b
        yield compared(case.opcode + tags, np.stack(found), np.stack(expected))


def _run_wgmma_sums(device: Device) -> Iterator[Row]:
    """Random numbers, added as sm_90 does."""
    for kind in ("bf16", "f16", "tf32", "e4m3", "e5m2"):
        case = Wgmma(64, "f32", kind)
        text = matrices.wgmma_text(
            "w", case.opcode, case.d_count, a_in_registers=False, tail=case.tail
        )
        module = device.module(matrices.HEADER + text)
        function = device.function(module, "w", matrices.SHARED_BYTES)
        size = {"tf32": 4, "f16": 2, "bf16": 2}.get(kind, 1)
        values = RNG.normal(size=matrices.SHARED_BYTES // size)
        shared = np.ascontiguousarray(from_float64(values, kind)).view(np.uint8)
        start = from_float64(RNG.normal(size=(128, case.d_count)), "f32")
        # Not swizzled: 64 rows of 32 bytes each, A first.
        a, b = (place >> 4 | 128 >> 4 << 16 | 256 >> 4 << 32 for place in (0, 8192))
        pointers = [device.upload(start), device.upload(shared)]
        device.launch(function, 1, 128, [*pointers, a, b, 1], shared=matrices.SHARED_BYTES)
        found = device.download(pointers[0], start)
        device.free(*pointers)
        with added_by(_adding("wgmma", kind, "f32")):
            expected = _wgmma_expected(case, shared, a, b, start, accumulate=True)
        yield compared(f"{case.opcode}, sums of random numbers", found, expected)


def run_parts(device: Device, parts: Sequence[Callable[[Device], Iterator[Row]]]) -> list[Row]:
    """The rows of some parts; a part that fails is a row that says so."""
    rows: list[Row] = []
    for part in parts:
        try:
            rows += part(device)
        except Exception as error:  # noqa: BLE001 - the other parts are still worth their time
            rows.append({"opcode": part.__name__, "differing": -1, "examples": [str(error)[:2000]]})
    return rows


def run(device: Device) -> list[Row]:
    """Everything of this file."""
    return run_parts(device, (_run_moves, _run_mma, _run_wgmma, _run_wgmma_sums))
