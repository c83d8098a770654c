"""Real CUDA C++, reduced by its syntax; the oracle only looks at the text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

pytest.importorskip("tree_sitter_cuda", reason="a dependency that this environment lacks")

from harness.frontends.cuda.front_end import CUDA_SYNTAX
from harness.minimize.reduction.reducer import Reduction
from harness.minimize.syntax import SourceTree, SyntaxChange, syntax_format

TEXT = """\
#include <cuda_fp16.h>
#define COUNT 64
// Adds é.
struct Shape { int rows, columns; };
template <typename T> __device__ T twice(T x) { return x + x; }
__device__ __noinline__ float helper(const float *__restrict__ p, int unused, float extra) {
    return p[0] * extra;
}
namespace inner {
__device__ float third(float x) { return x / 3.0f; }
}
extern "C" __global__ void __launch_bounds__(128, 4) kernel(float *out, const float *in, int n) {
    __shared__ float shared[128];
    float kept[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) { kept[i] = in[i * n] * 2.0f; }
    if (n > 3) { kept[0] = helper(in, n, 3.0f); } else kept[1] = twice<float>(2.f);
    float more = inner::third(4.0f);
    out[threadIdx.x] = n ? kept[n] : shared[0] + more;
}
"""


def tree(text: str) -> SourceTree:
    return SourceTree(text, CUDA_SYNTAX)


def reduced(
    is_interesting: Callable[[SourceTree], bool], text: str = TEXT
) -> Reduction[SourceTree]:
    async def ask(candidate: SourceTree) -> bool:
        return is_interesting(candidate)

    return asyncio.run(syntax_format(CUDA_SYNTAX).reduce(tree(text), ask))


def has(*words: str) -> Callable[[SourceTree], bool]:
    return lambda each: each.errors == 0 and all(word in each.text for word in words)


def test_what_is_not_asked_for_goes_and_what_is_left_is_minimal() -> None:
    done = reduced(has("__global__", "helper(", "kept["))
    assert done.is_minimal
    assert done.document.lines < 8
    for gone in ("#include", "#define", "twice", "inner", "Shape", "é", "shared", "restrict"):
        assert gone not in done.document.text
    # A part in place of the whole, and a parameter with its arguments.
    assert "if (" not in done.document.text
    assert "unused" not in done.document.text


def test_a_loop_gives_way_to_its_body_and_names_get_short() -> None:
    text = "void f(float *out) {\n  for (int i = 0; i < 4; ++i) { out[i] = sum(7); }\n}\n"
    done = reduced(has("sum(7)"), text)
    assert done.document.text == "void f() {\n    sum(7);\n}\n"
    named = reduced(has("(7)", "=", "void"), "void long_name(int x) { int value = g(7); }\n")
    assert "long_name" not in named.document.text
    assert "value" not in named.document.text


def test_what_the_grammar_does_not_read_is_reduced_around() -> None:
    text = TEXT.replace("float more", "CHECK(n > 1)\n    float more").replace(
        "#define", "@\n#define"
    )
    assert tree(text).errors > 0
    done = reduced(lambda each: "CHECK(n" in each.text, text)
    assert "CHECK(n" in done.document.text
    assert done.document.size < len(text) / 4


def test_elements_of_a_list_take_their_separators_along() -> None:
    call = tree("void f() { g(a, b, c); }\n")
    (arguments,) = call.of_kind({"argument_list"})
    a, b, c = call.named(arguments)
    found = {}
    for gone in ((a,), (b,), (c,), (a, b), (a, c), (b, c), (a, b, c)):
        changed = call.changed([SyntaxChange("", elements=gone)])
        assert changed is not None
        found[gone] = changed.text.partition("g")[2].partition(";")[0]
    assert list(found.values()) == ["(b, c)", "(a, c)", "(a, b)", "(c)", "(b)", "(a)", "()"]


def test_an_item_goes_with_all_that_names_it() -> None:
    whole = tree(TEXT)
    helper = next(i for i in whole.items if whole.words(i).startswith("__device__ __noinline__"))
    gone = [whole.words(each) for each in whole.closure([helper])]
    assert gone[1:] == ["kept[0] = helper(in, n, 3.0f);"]


def test_positions_are_those_of_characters() -> None:
    whole = tree("// é é\nint value;\n")
    assert [whole.words(at) for at in whole.of_kind({"identifier"})] == ["value"]
