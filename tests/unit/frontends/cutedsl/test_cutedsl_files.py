"""A kernel of CuTe DSL as one file: written, read back, and what a reduction may leave out."""

from __future__ import annotations

import pytest
from msgspec import structs

from harness.frontends.cutedsl.front_end import CUTEDSL_FRONT_END, CuteDslForm
from harness.frontends.inline import inline
from harness.frontends.one_file import StandaloneError
from harness.minimize.python.python_passes import NUMBERS, arguments
from harness.minimize.python.tree import PythonFile
from harness.values.standalone import Binding, Constant, Definition, Export, Standalone

CUTEDSL_FORM = CuteDslForm(CUTEDSL_FRONT_END)
DIALECT, read_standalone, render = CUTEDSL_FORM.dialect, CUTEDSL_FORM.read, CUTEDSL_FORM.render

KERNEL = """@dsl.kernel
def scaled_kernel(x: dsl.Tensor, size: cutlass.Constexpr):
    thread, _, _ = dsl.arch.thread_idx()
    x[thread] = x[thread] * FACTOR * size
"""
HOST = """@dsl.jit
def scaled(x: dsl.Tensor, y: dsl.Tensor, size: cutlass.Constexpr):
    scaled_kernel(x, size).launch(grid=[1, 1, 1], block=[128, 1, 1])
"""
DSL = {"dsl": Binding(module="cutlass.cute"), "cutlass": Binding(module="cutlass")}
EXPORT = Export(
    signature=dict.fromkeys(("x", "y", "size"), "argument"),
    constants=[Constant(path=[2], value="128")],
    attributes=[],
    options={"options": Binding(value="'--opt-level 2'")},
    source_class=Binding(value="compile"),
    target=("sm_90a",),
    definitions=[
        Definition(source=HOST, names={**DSL, "scaled_kernel": Binding(definition=1)}),
        Definition(source=KERNEL, names={**DSL, "FACTOR": Binding(value="2.5")}),
    ],
)
LONG = "(cute.sym_int64(divisibility=8), cute.sym_int32(divisibility=16), 64)"
CALLS = {
    "x": "runtime.make_fake_tensor(cutlass.Float32, (128,), (1,), assumed_align=16)",
    "y": f"runtime.make_fake_tensor(cutlass.Float8E4M3FN, {LONG}, (64, 64, 1), assumed_align=16)",
}


@pytest.fixture
def made() -> Standalone:
    plain = inline(EXPORT, DIALECT)
    return structs.replace(plain, launch=CUTEDSL_FORM.completed(plain.launch, {"arguments": CALLS}))


def test_what_is_written_is_read_back(made: Standalone) -> None:
    text = render(made, header="What it shows.")
    assert read_standalone(text) == made
    assert made.launch.constants == {("size",): "128"}
    assert '    options = "--gpu-arch sm_90a --keep-ptx --opt-level 2"\n' in text
    assert "cute.compile(scaled, *arguments.values(), options=options)" in text
    assert "\nFACTOR = 2.5\n" in text
    assert text.index("def scaled_kernel") < text.index("def scaled(")
    assert max(map(len, text.splitlines())) <= 100
    compile(text, "min.py", "exec")
    with pytest.raises(StandaloneError):
        read_standalone("print(1)")


def test_what_may_go(made: Standalone) -> None:
    source = PythonFile.of(made, CUTEDSL_FORM)
    unread = arguments(is_inlining=False)
    assert list(unread.opportunities(source)) == ["y"]
    fewer = unread.apply(source, ["y"])
    assert fewer is not None
    assert '"y"' not in fewer.text
    # What stands for data is not a constant that code could have in its place.
    assert list(arguments(is_inlining=True).opportunities(fewer)) == ["size"]
    halved = NUMBERS.apply(fewer, [("constant", ("size",))])
    assert halved is not None
    assert '"size": 64,' in halved.text
    none = structs.replace(
        made, launch=structs.replace(made.launch, signature={}, constants={}, options={})
    )
    assert read_standalone(render(none)) == none
    assert 'options = "--gpu-arch sm_90a --keep-ptx"\n' in render(none)
