"""Products that the installed Triton compiles, executed: every matrix unit, against numpy.

The operands are small integers, so that no order of adding changes the result; the layouts of
fragments, descriptors, tensor memory and scale factors must all be those that Triton relies on.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import HERE

from gpu_emulator.api import run
from gpu_emulator.engines.products import decode
from gpu_emulator.numbers.formats import from_float64, to_float64
from gpu_emulator.values import Allocation, Budget, Checks, Launch, Pointer, Schedule

pytestmark = pytest.mark.tools

RNG = np.random.default_rng(0)
TYPES = {
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "tf32",
    "fp8e4nv": "e4m3",
    "fp8e5": "e5m2",
    "i8": "s8",
}


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    spec = importlib.util.spec_from_file_location("products", HERE / "kernels" / "products.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(kernel: Any, types: dict[str, str], sizes: dict[str, Any], sm: int, warps: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {**types, **dict.fromkeys(sizes, "constexpr")}
    source = ASTSource(fn=kernel, signature=signature, constexprs=sizes)
    target = GPUTarget("cuda", sm, 32)
    return triton.compile(source, target=target, options={"num_warps": warps})


def executed(kernel: Any, buffers: list[np.ndarray[Any, Any]], warps: int) -> np.ndarray[Any, Any]:
    """The last buffer after a run of one block; all of it, alike early and late."""
    launch = Launch(
        ptx=kernel.asm["ptx"],
        grid=(1, 1, 1),
        block=(32 * warps, 1, 1),
        dynamic_shared=kernel.metadata.shared,
        allocations=tuple(
            Allocation(name=str(i), data=np.ascontiguousarray(b).view(np.uint8).reshape(-1))
            for i, b in enumerate(buffers)
        ),
        arguments=tuple(Pointer(allocation=i) for i in range(len(buffers))),
    )
    found = []
    for warp_order, completion in (("first", "early"), ("last", "late")):
        schedule = Schedule(warps=warp_order, completion=completion)  # type: ignore[arg-type]
        outcome = run(launch, schedule, Budget(), Checks(races=True))
        assert outcome.not_run is None
        assert not outcome.faults
        assert not [race for race in outcome.races if not race.formal]
        found.append(outcome.allocations[-1].data)
    assert np.array_equal(found[0], found[1])
    return np.asarray(found[0].view(np.uint32).reshape(buffers[-1].shape))


def integers(name: str, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    if name == "s8":
        return RNG.integers(0, 256, shape).astype(np.uint8)
    return from_float64(RNG.integers(-3, 4, shape).astype(float), name)


@pytest.mark.parametrize(
    ("sm", "kind", "unit", "m", "n", "k", "transposed", "warps"),
    [
        (80, "fp16", "mma.sync.aligned.m16n8k16", 64, 32, 64, (True, False), 4),
        (80, "fp32", "mma.sync.aligned.m16n8k8", 32, 32, 32, (False, True), 2),
        (90, "bf16", "wgmma.mma_async.sync.aligned.m64n64k16", 128, 64, 64, (True, False), 4),
        (90, "fp8e4nv", "wgmma.mma_async.sync.aligned.m64n64k32", 64, 64, 128, (False, True), 4),
        (90, "i8", "wgmma.mma_async.sync.aligned.m64n64k32.s32", 128, 64, 64, (False, False), 8),
        (100, "fp16", "kind::f16", 128, 64, 64, (True, True), 4),
        (100, "bf16", "kind::f16", 64, 64, 128, (False, False), 4),
        (100, "fp32", "kind::tf32", 128, 32, 32, (False, False), 4),
        (100, "fp8e5", "kind::f8f6f4", 128, 64, 64, (False, True), 8),
        pytest.param(
            100,
            "i8",
            "kind::i8",
            128,
            64,
            64,
            (False, False),
            4,
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="Triton 3.9 has no wheel for Python 3.10"
            ),
        ),
        (120, "fp8e4nv", "mma.sync.aligned.m16n8k32", 64, 32, 64, (False, False), 4),
    ],
)
def test_a_product_is_that_of_numpy(
    products: ModuleType, sm: int, kind: str, unit: str, m: int, n: int, k: int,
    transposed: tuple[bool, bool], warps: int,
) -> None:  # fmt: skip
    name = TYPES[kind]
    total = "i32" if kind == "i8" else "fp32"
    types = {"a": f"*{kind}", "b": f"*{kind}", "c": f"*{total}"}
    sizes = {"M": m, "N": n, "K": k, "TA": transposed[0], "TB": transposed[1]}
    kernel = compiled(products.dot, types, sizes, sm, warps)
    assert unit in kernel.asm["ptx"]
    a, b = integers(name, (m, k)), integers(name, (k, n))
    left, right = (x.T if turned else x for x, turned in zip((a, b), transposed, strict=True))
    found = executed(kernel, [left, right, np.zeros((m, n), np.uint32)], warps)
    values = found.view(np.int32) if kind == "i8" else found.view(np.float32)
    assert np.array_equal(values, decode(a, name) @ decode(b, name))


def packed(
    name: str, shape: tuple[int, int], axis: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Codes, and the bytes that a kernel loads: two e2m1 in each."""
    codes = from_float64(RNG.integers(-2, 3, shape).astype(float), name)
    if name != "e2m1":
        return codes, codes
    low, high = (np.take(codes, range(i, shape[axis], 2), axis) for i in (0, 1))
    return codes, low | high << 4


@pytest.mark.parametrize(
    ("sm", "left", "right", "unit"),
    [
        (100, "e4m3", "e5m2", "kind::mxf8f6f4"),
        (100, "e2m1", "e4m3", "kind::mxf8f6f4"),
        (100, "e2m1", "e2m1", "kind::mxf4"),
        (120, "e5m2", "e4m3", "kind::mxf8f6f4"),
        (120, "e2m1", "e2m1", "kind::mxf4nvf4"),
        # Without an instruction for this pair, Triton converts: `cvt.rn.bf16x2.e2m1x2`.
        (120, "e4m3", "e2m1", "mma.sync.aligned.m16n8k16.row.col.f32.bf16"),
    ],
)
def test_a_product_with_block_scales(
    products: ModuleType, sm: int, left: str, right: str, unit: str
) -> None:
    m, n, k, warps = 128, 64, 128, 4
    types = {"a": "*u8", "sa": "*u8", "b": "*u8", "sb": "*u8", "c": "*fp32"}
    fold = {"e2m1": 2}
    sizes = {
        "M": m, "N": n, "K": k, "FA": left, "FB": right, "PA": fold.get(left, 1),
        "PB": fold.get(right, 1),
    }  # fmt: skip
    kernel = compiled(products.scaled, types, sizes, sm, warps)
    assert unit in kernel.asm["ptx"]
    (a, a_bytes), (b, b_bytes) = packed(left, (m, k), 1), packed(right, (k, n), 0)
    scale_a, scale_b = (RNG.integers(125, 130, (x, k // 32)).astype(np.uint8) for x in (m, n))
    buffers = [a_bytes, scale_a, b_bytes, scale_b, np.zeros((m, n), np.uint32)]
    found = executed(kernel, buffers, warps).view(np.float32)
    factors = (np.repeat(to_float64(s, "ue8m0"), 32, axis=1) for s in (scale_a, scale_b))
    of_a, of_b = factors
    assert np.array_equal(found, (decode(a, left) * of_a) @ (decode(b, right) * of_b.T))
