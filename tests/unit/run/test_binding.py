"""What Triton's launchers of all versions pass, and what is refused."""

from __future__ import annotations

import re
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gpu_emulator.values import Null, Pointer, Scalar, TensorMapArgument
from harness.run.inputs import EntryError, bind, cluster_of, read_entry
from harness.values.execution import Argument, ArgumentKind, Buffer, LaunchVariant

X = Argument(
    name="x",
    kind=ArgumentKind.TENSOR,
    buffer=1,
    offset=32,
    dtype="float32",
    shape=(8,),
    strides=(1,),
)
N = Argument(name="n", kind=ArgumentKind.SCALAR, type="int", value="-2")
SCALE = Argument(name="scale", kind=ArgumentKind.SCALAR, type="float", value=(0.1).hex())
BIAS = Argument(name="bias", kind=ArgumentKind.NONE)
BLOCK = Argument(name="BLOCK", kind=ArgumentKind.CONSTEXPR)
DESCRIPTOR = Argument(
    name="d",
    kind=ArgumentKind.DESCRIPTOR,
    buffer=0,
    offset=64,
    dtype="bfloat16",
    shape=(6, 48),
    strides=(64, 1),
    block=(2, 16),
    nan_padding=True,
)


def variant(
    *arguments: Argument, buffers: int = 2, grid: tuple[int, ...] = (3, 2)
) -> LaunchVariant:
    return LaunchVariant(
        config={},
        grid=(3, 2),
        arguments=arguments,
        buffers=tuple(Buffer(sha256=str(n), size=256) for n in range(2)),
        described=[],
    )


def entry(*types: str) -> Any:
    words = [
        f".param .align 64 .b8 p{n}[128]" if each == "map" else f".param .{each} p{n}"
        for n, each in enumerate(types)
    ]
    return read_entry(f".entry k({', '.join(words)}) {{ ret; }}")


def bound(*launch: Any) -> SimpleNamespace:
    """What the entry is passed, as the emulator takes it."""
    arguments, scratch = bind(*launch)
    return SimpleNamespace(
        arguments=tuple(passed.argument for passed in arguments), scratch=scratch
    )


def signature(**types: object) -> dict[str, object]:
    return {"signature": list(types.items()), "constants": []}


def integer(value: int, size: int) -> Scalar:
    return Scalar(raw=value.to_bytes(size, "little", signed=value < 0))


def test_constexprs_are_left_out_and_scratch_pointers_follow() -> None:
    given = variant(X, N, SCALE, BLOCK, BIAS)
    types = signature(x="*fp32", n="i32", scale="fp32", BLOCK="constexpr", bias="constexpr")
    expected = (
        Pointer(allocation=1, offset=32),
        integer(-2, 4),
        Scalar(raw=struct.pack("<f", 0.1)),
    )
    # Triton 3.2, 3.3, 3.5.
    for scratch in range(3):
        found = bound(given, types, entry("u64", "u32", "f32", *["u64"] * scratch))
        assert found.arguments == (*expected, *[Null()] * scratch)
        assert found.scratch == ()


def test_triton_3_2_names_constants_apart_from_the_signature() -> None:
    types = signature(x="*fp32", n="i32", bias="*i8") | {"constants": ["n", "bias"]}
    assert bound(variant(X, N, BIAS), types, entry("u64")).arguments == (
        Pointer(allocation=1, offset=32),
    )


def test_scratch_memory_has_room_for_every_program() -> None:
    types = signature(x="*fp32") | {"global_scratch_size": 100, "num_ctas": 2}
    found = bound(variant(X), types, entry("u64", "u64", "u64"))
    assert found.scratch == (100 * 6 * 2,)
    assert found.arguments[1:] == (Pointer(allocation=2), Null())


@pytest.mark.parametrize(
    ("kind", "value", "size"),
    [("i1", 1, 1), ("i8", -1, 1), ("i16", 7, 2), ("i64", -5, 8), ("u64", (1 << 64) - 1, 8)],
)
def test_integers_of_every_width(kind: str, value: int, size: int) -> None:
    argument = replace(N, value=str(value))
    ptx = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[size]
    found = bound(variant(argument), signature(n=kind), entry(ptx))
    assert found.arguments == (integer(value, size),)


@pytest.mark.parametrize(
    ("kind", "ptx", "raw"),
    [
        ("fp64", "f64", struct.pack("<d", 0.1)),
        ("fp16", "b16", b"\x66\x2e"),
        # 0.1 is 0x3dcccccd; the launcher drops the lower half and does not round.
        ("bf16", "b16", b"\xcc\x3d"),
    ],
)
def test_floats_of_every_width(kind: str, ptx: str, raw: bytes) -> None:
    found = bound(variant(SCALE), signature(scale=kind), entry(ptx))
    assert found.arguments == (Scalar(raw=raw),)


def test_a_tuple_is_passed_item_by_item() -> None:
    both = Argument(name="t", kind=ArgumentKind.TUPLE, items=(X, N, BLOCK))
    found = bound(variant(both), signature(t=["*fp32", "i32", "constexpr"]), entry("u64", "u32"))
    assert found.arguments == (Pointer(allocation=1, offset=32), integer(-2, 4))


@pytest.mark.parametrize("flags", [0, 1, 2])
def test_a_descriptor_in_pieces(flags: int) -> None:
    """Triton 3.4 passes no flags, 3.5 NaN padding, 3.7 rounding to TF32, too."""
    ptx = entry("u64", *["u64"] * 4, *["u8"] * flags, "u32", "u32", "u64", "u64")
    found = bound(variant(DESCRIPTOR), signature(d="tensordesc<bf16[2, 16]>"), ptx)
    wide = [integer(each, 8) for each in (6, 48, 64, 1)]
    narrow = [integer(6, 4), integer(48, 4), integer(64, 8), integer(1, 8)]
    said = [integer(1, 1), integer(0, 1)][:flags]
    assert list(found.arguments) == [Pointer(allocation=0, offset=64), *wide, *said, *narrow]


def test_a_descriptor_as_a_tensor_map() -> None:
    meta = {
        "swizzle": 3,
        "elem_size": 2,
        "elem_type": 10,
        "block_size": [2, 16],
        "fp4_padded": False,
    }
    types = signature(d="tensordesc<bf16[2, 16]>") | {"tensordesc_meta": [meta]}
    found = bound(variant(DESCRIPTOR), types, entry("map", "u32", "u32", "u64", "u64"))
    first = found.arguments[0]
    assert isinstance(first, TensorMapArgument)
    tensor_map = first.tensor_map
    assert (tensor_map.allocation, tensor_map.offset) == (0, 64)
    assert (tensor_map.element, tensor_map.swizzle, tensor_map.nan_fill) == ("bf16", 128, True)
    # Innermost first; strides in bytes, without the innermost.
    assert (tensor_map.sizes, tensor_map.strides, tensor_map.box) == ((48, 6), (128,), (16, 2))


@pytest.mark.parametrize(
    ("given", "types", "ptx", "said"),
    [
        (variant(N), signature(n="i64"), entry("u32"), "n is 8 bytes, and the parameter `.u32 p0`"),
        (variant(N), signature(n="i32"), entry(), "gives more than the 0 parameters"),
        (variant(N), signature(n="i32"), entry("u32", "u32"), "gives nothing for `.u32 p1`"),
        (variant(N), signature(n="i32"), entry("u32", *["u64"] * 3), "gives nothing for"),
        (variant(N), signature(m="i32"), entry("u32"), "no argument 'm'"),
        (variant(N), signature(n="*fp32"), entry("u64"), "n is a pointer to the kernel"),
        (variant(X), signature(x="i32"), entry("u32"), "x is i32 to the kernel"),
        (variant(SCALE), signature(scale="i32"), entry("u32"), "no float is passed as i32"),
        (variant(replace(N, value=str(1 << 40))), signature(n="i32"), entry("u32"), "does not fit"),
        (variant(N), {}, entry("u32"), "Triton does not say"),
        (
            variant(X),
            signature(x="tensordesc<f32[8]>"),
            entry("u64"),
            "x is not a tensor descriptor",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_words(
    given: LaunchVariant, types: dict[str, object], ptx: Any, said: str
) -> None:
    with pytest.raises(EntryError, match=re.escape(said)):
        bind(given, types, ptx)


def test_clusters_of_old_and_new_tritons() -> None:
    assert cluster_of({"cluster_dims": [2, 1, 1], "num_ctas": 2}) == (2, 1, 1)
    assert cluster_of({"num_ctas": 4}) == (4, 1, 1)
    assert cluster_of({}) == (1, 1, 1)
