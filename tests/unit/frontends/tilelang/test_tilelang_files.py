"""A kernel of TileLang as one file: written, read back, and what a reduction may leave out."""

from __future__ import annotations

import ast

import pytest

from harness.frontends.inline import inline
from harness.frontends.one_file import StandaloneError
from harness.frontends.partners import Pinned
from harness.frontends.tilelang.front_end import TILELANG_FRONT_END, TileLangForm
from harness.minimize.python.python_passes import PARAMETERS, STATEMENTS, branches
from harness.minimize.python.tree import PythonFile
from harness.values.standalone import Binding, Constant, Definition, Export
from harness.values.toolchain import NOTHING

TILELANG_FORM = TileLangForm(TILELANG_FRONT_END)
DIALECT, read_standalone, render = TILELANG_FORM.dialect, TILELANG_FORM.read, TILELANG_FORM.render

SOURCE = """def build(n, dtype) -> torch.Tensor:
    shape = (n, WIDTH)

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            tile = T.alloc_shared(shape, dtype)
            for i, j in T.Parallel(n, WIDTH):
                tile[i, j] = A[i, j]

    return kernel
"""
EXPORT = Export(
    signature={"n": "argument", "dtype": "argument"},
    constants=[Constant(path=[0], value="64"), Constant(path=[1], value="'float16'")],
    attributes=[],
    options={"tl.disable_tma_lower": Binding(value="True")},
    source_class=Binding(value="lower"),
    target=("cuda", "sm_90a"),
    definitions=[
        Definition(
            source=SOURCE,
            names={"T": Binding(module="tilelang.language"), "WIDTH": Binding(value="8")},
        )
    ],
)


def test_what_is_written_is_read_back() -> None:
    made = inline(EXPORT, DIALECT)
    text = render(made, header="What it shows.")
    assert read_standalone(text) == made
    assert made.launch.constants == {("n",): "64", ("dtype",): '"float16"'}
    assert 'kernel = build(n=64, dtype="float16")' in text
    assert 'options = {"tl.disable_tma_lower": True}' in text
    assert text.count("import tilelang.language as T") == 1
    # A global value is what it is, and types of arguments stay: a kernel is made of them.
    assert "\nWIDTH = 8\n" in text
    assert "A: T.Tensor(shape, dtype)" in text
    compile(text, "min.py", "exec")
    with pytest.raises(StandaloneError):
        read_standalone("print(1)")


def test_what_is_needed_comes_without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    def pins(_: Pinned, version: str, *, without: str) -> tuple[str, ...]:
        assert without == "nvcc"
        return f"tilelang=={version}", "apache-tvm-ffi==0.1.9"

    monkeypatch.setattr(Pinned, "pins", pins)
    install = TILELANG_FORM.install("0.1.8", NOTHING)
    assert install.lines == [
        "pip install ml_dtypes numpy torch",
        "pip install --no-deps tilelang==0.1.8 apache-tvm-ffi==0.1.9",
    ]
    assert install.variable == "TILELANG"


def test_functions_within_functions_are_reduced_too() -> None:
    source = PythonFile.of(inline(EXPORT, DIALECT), TILELANG_FORM)
    assert "-> torch" not in source.text
    edits = [edit for edit in PARAMETERS.opportunities(source) if isinstance(edit, int)]
    found = [source.nodes[edit] for edit in edits]
    assert [each.arg for each in found if isinstance(each, ast.arg)] == ["B"]
    smaller = PARAMETERS.apply(source, edits)
    assert smaller is not None
    assert "def kernel(A: T.Tensor(shape, dtype)):" in smaller.text
    # What a statement sets goes with all that needs it: the tile's loop with the tile.
    (tile,) = (
        edit
        for edit in STATEMENTS.opportunities(smaller)
        if isinstance(edit, int) and ast.unparse(smaller.nodes[edit]).startswith("tile =")
    )
    bare = STATEMENTS.apply(smaller, [tile])
    assert bare is not None
    assert "alloc_shared" not in bare.text
    assert "tile[i, j]" not in bare.text
    once = branches("body").apply(smaller, branches("body").opportunities(smaller))
    assert once is not None
    assert "i = 0\n" in once.text
    assert "j = 0\n" in once.text
