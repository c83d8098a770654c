"""A kernel of cuTile as one file: written, read back, and what a reduction may leave out."""

from __future__ import annotations

import pytest
from msgspec import structs

from harness.frontends.cutile.front_end import CUTILE_FRONT_END, CuTileForm
from harness.frontends.inline import inline
from harness.frontends.one_file import StandaloneError
from harness.minimize.python.python_passes import NUMBERS, OPTIONS, arguments
from harness.minimize.python.tree import PythonFile
from harness.values.standalone import Binding, Constant, Definition, Export, Standalone

CUTILE_FORM = CuTileForm(CUTILE_FRONT_END)
DIALECT, read_standalone, render = CUTILE_FORM.dialect, CUTILE_FORM.read, CUTILE_FORM.render

SOURCE = """def scaled(x, alpha, size: tile.Constant[int]):
    i = tile.bid(0)
    part = tile.load(x, index=(i,), shape=(size,))
    tile.store(x, index=(i,), tile=part * FACTOR)
"""
EXPORT = Export(
    signature=dict.fromkeys(("x", "alpha", "size"), "argument"),
    constants=[Constant(path=[2], value="128")],
    attributes=[],
    options={"num_ctas": Binding(value="2")},
    source_class=Binding(module="cuda.tile.compilation", attribute="cutile_python_v1"),
    target=("sm_100",),
    definitions=[
        Definition(
            source=SOURCE,
            names={
                "tile": Binding(module="cuda.tile"),
                "ct": Binding(module="cuda.tile"),
                "FACTOR": Binding(value="2.5"),
            },
            decorator="ct.kernel",
        )
    ],
)
CALLS = {
    "x": "compilation.ArrayConstraint(ct.float32, 1)",
    "alpha": "compilation.ScalarConstraint(ct.float32)",
}
ALWAYS = {
    "index_dtype": "ct.int32",
    "stride_lower_bound_incl": "0",
    "alias_groups": "()",
    "may_alias_internally": "False",
}
KEYWORDS = {"x": {**ALWAYS, "stride_constant": "(1,)", "base_addr_divisible_by": "16"}, "alpha": {}}


@pytest.fixture
def made() -> Standalone:
    plain = inline(EXPORT, DIALECT)
    told = {"parameters": CALLS, "keywords": KEYWORDS}
    return structs.replace(plain, launch=CUTILE_FORM.completed(plain.launch, told))


def test_what_is_written_is_read_back(made: Standalone) -> None:
    text = render(made, header="What it shows.")
    assert read_standalone(text) == made
    # What has to be said of each array is said, and is not part of what a reduction may take.
    assert "index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=()" in text
    assert set(made.launch.attributes) == {
        ("x", "stride_constant"),
        ("x", "base_addr_divisible_by"),
    }
    assert made.launch.constants == {("size",): "128"}
    assert "kernel = scaled.replace_hints(num_ctas=2)" in text
    assert "convention = compilation.CallingConvention.cutile_python_v1()" in text
    assert "\nFACTOR = 2.5\n" in text
    assert "@ct.kernel\ndef scaled(x, alpha, size: tile.Constant[int]):" in text
    compile(text, "min.py", "exec")
    with pytest.raises(StandaloneError):
        read_standalone("print(1)")


def test_what_may_go(made: Standalone) -> None:
    source = PythonFile.of(made, CUTILE_FORM)
    offered = list(OPTIONS.opportunities(source))
    bare = OPTIONS.apply(source, offered)
    assert bare is not None
    assert "base_addr_divisible_by" not in bare.text
    assert "kernel = scaled\n" in bare.text
    assert "alias_groups=()" in bare.text
    unread = arguments(is_inlining=False)
    assert list(unread.opportunities(bare)) == ["alpha"]
    fewer = unread.apply(bare, ["alpha"])
    assert fewer is not None
    assert '"alpha"' not in fewer.text
    halved = NUMBERS.apply(fewer, [("constant", ("size",))])
    assert halved is not None
    assert '"size": 64,' in halved.text
    none = structs.replace(
        made, launch=structs.replace(made.launch, signature={}, constants={}, attributes={})
    )
    assert "parameters = {}" in render(none)
    assert read_standalone(render(none)) == none
