from __future__ import annotations

import ast
import hashlib

import numpy as np
import pytest

from harness.minimize.executed.launch_file import (
    LaunchForm,
    NoLaunchFileError,
    launch_text,
    recorded_name,
)
from harness.values.execution import Argument, ArgumentKind, Buffer, LaunchVariant
from harness.values.standalone import FileLaunch, Standalone

RANDOM = np.arange(12, dtype=np.float32).tobytes()
FEW = np.arange(3, dtype=np.int32).tobytes()
MANY = np.arange(100, dtype=np.int64).tobytes()
ZEROS = bytes(16)
CONTENTS = {hashlib.sha256(data).hexdigest(): data for data in (RANDOM, FEW, MANY, ZEROS)}


def buffer(data: bytes, *, unwritten: bool = False) -> Buffer:
    return Buffer(sha256=hashlib.sha256(data).hexdigest(), size=len(data), unwritten=unwritten)


def tensor(
    name: str, number: int, dtype: str, shape: tuple[int, ...], *, offset: int = 0
) -> Argument:
    strides = tuple(int(np.prod(shape[n + 1 :])) for n in range(len(shape)))
    return Argument(
        name=name,
        kind=ArgumentKind.TENSOR,
        buffer=number,
        dtype=dtype,
        shape=shape,
        strides=strides,
        offset=offset,
    )


def written(
    *arguments: Argument,
    buffers: tuple[Buffer, ...] = (),
    form: LaunchForm = LaunchForm(),  # noqa: B008 - frozen
    signature: dict[str, str] | None = None,
) -> str:
    launch = FileLaunch(
        kernel="double",
        signature={each.name: '"*"' for each in arguments} if signature is None else signature,
        constants={("BLOCK",): "32"},
        attributes={},
        options={"num_warps": "2", "maxnreg": "None", "debug": "False"},
        target=("cuda", 80, 32),
    )
    variant = LaunchVariant(
        config={}, grid=(3, 1), arguments=arguments, buffers=buffers, described=[]
    )
    text = launch_text(
        Standalone(code="@triton.jit\ndef double(x, BLOCK): pass", launch=launch),
        variant,
        CONTENTS,
        form,
        header="what it is",
    )
    ast.parse(text)
    return text


def test_a_launch_says_what_the_kernel_is_given() -> None:
    scale = Argument(name="scale", kind=ArgumentKind.SCALAR, type="float", value=(0.1).hex())
    count = Argument(name="count", kind=ArgumentKind.SCALAR, type="int", value="7")
    nothing = Argument(name="bias", kind=ArgumentKind.NONE)
    text = written(
        tensor("x", 0, "float32", (3, 4)), scale, count, nothing, buffers=(buffer(RANDOM),)
    )
    assert text.startswith('"""what it is\n"""\n')
    for line in (
        'x = torch.randn((3, 4), device="cuda").to(torch.float32)',
        "scale = 0.1",
        "count = 7",
        "bias = None",
        "double[(3, 1)](",
        "BLOCK=32,",
        "num_warps=2,",
        "num_stages=num_stages,",
        'return {"x": x}',
    ):
        assert f"    {line}\n" in text
    # Triton's own number, where the launch says none.
    assert "def launch(num_stages=3):" in text
    # What is none is not said, nor what a launch has no word for.
    assert "maxnreg" not in text
    assert "debug" not in text


def test_as_a_program_it_compares_only_with_what_is_right() -> None:
    for compares in (True, False):
        text = written(
            tensor("x", 0, "float32", (3, 4)),
            buffers=(buffer(RANDOM),),
            form=LaunchForm(compares=compares),
        )
        assert ("launch(num_stages=1)" in text) is compares
        assert 'if __name__ == "__main__":' in text


def test_what_it_computes_is_what_the_kernel_writes() -> None:
    given = (tensor("x", 0, "float32", (12,)), tensor("y", 0, "float32", (12,)))
    for outputs, words in ((("y", "z"), '{"y": y}'), (("z",), '{"x": x, "y": y}')):
        text = written(*given, buffers=(buffer(RANDOM),), form=LaunchForm(outputs=outputs))
        assert f"    return {words}\n" in text


def test_a_kernel_that_asks_for_memory_gets_it() -> None:
    for allocates in (True, False):
        text = written(form=LaunchForm(allocates=allocates), signature={})
        assert ("    triton.set_allocator(" in text) is allocates


def test_memory_is_as_it_was() -> None:
    empty = written(
        tensor("x", 0, "float32", (12,)),
        buffers=(buffer(RANDOM, unwritten=True),),
        form=LaunchForm(exact=True),
    )
    assert 'x = torch.empty((12,), dtype=torch.float32, device="cuda")' in empty
    assert "numpy" not in empty
    few = written(tensor("x", 0, "int32", (3,)), buffers=(buffer(FEW),))
    assert "torch.tensor([0, 1, 2], dtype=torch.int32" in few
    assert "torch.zeros((4,)" in written(tensor("x", 0, "float32", (4,)), buffers=(buffer(ZEROS),))
    # Random whole numbers may be addresses of nothing.
    many = written(tensor("x", 0, "int64", (100,)), buffers=(buffer(MANY),))
    assert f'numpy.load(Path(__file__).parent / "{recorded_name(0)}")' in many
    exact = written(
        tensor("x", 0, "float32", (12,)), buffers=(buffer(RANDOM),), form=LaunchForm(exact=True)
    )
    assert recorded_name(0) in exact


def test_arguments_that_share_memory_share_it() -> None:
    halves = (tensor("x", 0, "float32", (6,)), tensor("y", 0, "float32", (6,), offset=24))
    text = written(*halves, buffers=(buffer(RANDOM),))
    assert text.count("torch.randn") == 1
    assert "x = memory0.view(torch.float32).as_strided((6,), (1,), 0)" in text
    assert "y = memory0.view(torch.float32).as_strided((6,), (1,), 6)" in text


def test_a_descriptor_is_made_of_its_tensor() -> None:
    whole = tensor("x", 0, "float32", (3, 4))
    described = Argument(
        name="x",
        kind=ArgumentKind.DESCRIPTOR,
        buffer=0,
        dtype="float32",
        shape=whole.shape,
        strides=whole.strides,
        block=(1, 4),
    )
    text = written(described, buffers=(buffer(RANDOM),))
    assert "from triton.tools.tensor_descriptor import TensorDescriptor" in text
    assert "[3, 4], [4, 1], [1, 4])" in text


def test_what_cannot_be_written_is_refused() -> None:
    strange = Argument(name="x", kind=ArgumentKind.OBJECT)
    with pytest.raises(NoLaunchFileError, match="x is a object"):
        written(strange)
    with pytest.raises(NoLaunchFileError, match="gives nothing for y"):
        written(signature={"y": '"*fp32"'})
