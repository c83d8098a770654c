"""What a file of Triton's IR is launched with, by the types of its arguments."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from harness.run.comparing import ELEMENTS
from harness.run.inputs import guessed_launch
from harness.run.launch import NotRunError
from harness.values.execution import ArgumentKind, LaunchVariant

HEADER = "tt.func public @kernel({}) attributes {{noinline = false}} {{"


def launch_of(arguments: str) -> tuple[LaunchVariant, dict[str, bytes]]:
    contents: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        contents[name] = data
        return name

    return guessed_launch(HEADER.format(arguments), keep), contents


def test_each_argument_gets_what_its_type_and_its_hint_say() -> None:
    launch, contents = launch_of(
        '%x: !tt.ptr<bf16> {tt.divisibility = 16 : i32} loc("x"(#loc)), %at: !tt.ptr<i32>, '
        "%stride: i64 {tt.divisibility = 16 : i32}, %n: i32, %m: i32, %scale: f32, %flag: i1"
    )
    names = ["x", "at", "stride", "n", "m", "scale", "flag"]
    assert [argument.name for argument in launch.arguments] == names
    assert launch.grid == (1,)
    x, at = (
        np.frombuffer(contents[buffer.sha256], ELEMENTS[argument.dtype])
        for buffer, argument in zip(launch.buffers, launch.arguments, strict=False)
    )
    # Sums of small whole numbers are exact, and no two places are one.
    assert set(x.astype(np.float64)) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert np.array_equal(np.sort(at), np.arange(len(at)))
    stride, n, m, scale, flag = launch.arguments[2:]
    assert all(one.kind is ArgumentKind.SCALAR for one in launch.arguments[2:])
    assert int(stride.value) % 16 == 0
    # A loop that runs more often than a branch is taken.
    assert 1 < int(m.value) < int(n.value)
    assert float.fromhex(scale.value) == 0.5
    assert flag.value == "1"


def test_the_same_text_is_launched_with_the_same() -> None:
    assert launch_of("%x: !tt.ptr<f32>") == launch_of("%x: !tt.ptr<f32>")


@pytest.mark.parametrize(
    "argument",
    [
        "%d: !tt.tensordesc<16x16xf16>",
        "%d: !tt.ptr<i8> {tt.nv_tma_desc = 1 : i32}",
        "%p: !tt.ptr<!tt.ptr<f32>>",
        "%q: !tt.ptr<f4E2M1FN>",
    ],
)
def test_what_no_launch_is_known_for_is_said(argument: str) -> None:
    with pytest.raises(NotRunError, match=r"known|neither"):
        launch_of(f"%x: !tt.ptr<f32>, {argument}")
