"""Kernels as Python, reduced against oracles that only read them."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.frontends.triton.front_end import TRITON_FRONT_END
from harness.frontends.triton.source import TritonForm
from harness.minimize.python.python_passes import (
    KEYWORDS,
    NUMBERS,
    OPTIONS,
    PASSES,
    PLAIN_ASSIGNMENTS,
    PROPAGATIONS,
    STATEMENTS,
    TRAILING_ARGUMENTS,
    TWINS,
    UNUSED,
    arguments,
    branches,
    constants,
    operands,
    python_format,
    variables,
)
from harness.minimize.python.tree import PythonFile, undefined
from harness.minimize.reduction.reducer import Effort, FoundPass, Reduction, ReductionProgress
from harness.values.standalone import FileLaunch, Standalone

TRITON_FORM = TritonForm(TRITON_FRONT_END)

CODE = '''
import triton.language as tl
from triton.language.extra import libdevice

SCALE = tl.constexpr(2)
SPARE = tl.constexpr(3)


@triton.jit
def half(x):
    """Half of it."""
    return x * 0.5


@triton.jit
def spare(x):
    return x + SPARE


@triton.jit
def kernel(a, b, out, n, stride, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    """What it does."""
    rows = tl.arange(0, BLOCK)  # which rows
    mask = rows[:, None] < n
    if FLAG:
        left = tl.load(a + rows[:, None] * stride + rows, mask=mask, other=0.0)
    else:
        left = tl.zeros([BLOCK, BLOCK], tl.float16)
    right = tl.load(b + rows[:, None] * stride + rows)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for step in range(0, n, BLOCK):
        total += tl.dot(left, right) * half(step)
        left = libdevice.tanh(left)
    size = SCALE
    tl.store(out + rows[:, None] * size + rows, total, mask=mask)
'''

LAUNCH = FileLaunch(
    kernel="kernel",
    signature={
        "a": '"*fp16"',
        "b": '"*fp16"',
        "out": '"*fp32"',
        "n": '"i32"',
        "stride": '"i32"',
        "BLOCK": '"constexpr"',
        "FLAG": '"constexpr"',
    },
    constants={("BLOCK",): "64", ("FLAG",): "True"},
    attributes={("a",): '[["tt.divisibility", 16]]', ("n",): '[["tt.divisibility", 16]]'},
    options={"num_warps": "8"},
    target=("cuda", 90, 32),
)

SOURCE = PythonFile.of(Standalone(code=CODE, launch=LAUNCH), TRITON_FORM)


def reduced(
    holds: Callable[[PythonFile], bool],
    source: PythonFile = SOURCE,
    *,
    watch: Callable[[ReductionProgress[PythonFile]], None] = lambda _: None,
    **effort: Any,
) -> Reduction[PythonFile]:
    async def is_interesting(candidate: PythonFile) -> bool:
        return holds(candidate)

    how = Effort(**effort)
    return asyncio.run(
        python_format(TRITON_FORM).reduce(source, is_interesting, effort=how, watch=watch)
    )


def body(source: PythonFile) -> list[str]:
    return [ast.unparse(each) for each in source.kernel.node.body]


def source_of(*lines: str, **constants: str) -> PythonFile:
    """A kernel of arguments x and y, and a constant N."""
    code = "import triton.language as tl\n@triton.jit\ndef kernel(x, y, N: tl.constexpr):\n    "
    launch = FileLaunch(
        kernel="kernel",
        signature={"x": '"*fp32"', "y": '"i32"', "N": '"constexpr"'},
        constants={("N",): constants.get("N", "64")},
        attributes={},
        options={},
        target=("cuda", 90, 32),
    )
    return PythonFile.of(Standalone(code=code + "\n    ".join(lines), launch=launch), TRITON_FORM)


def applied(change: FoundPass[PythonFile], source: PythonFile) -> PythonFile | None:
    """All that a pass offers, at once."""
    return change.apply(source, change.opportunities(source))


def test_comments_and_docstrings_go_at_once() -> None:
    assert "What it does" not in SOURCE.code
    assert "which rows" not in SOURCE.code
    assert "Half of it" not in SOURCE.text


def test_a_statement_goes_with_all_that_needs_it() -> None:
    source = source_of("a = y", "b = a + 1", "c = y", "if b:", "    c = 2", "tl.store(x, c)")
    [first, *_] = STATEMENTS.opportunities(source)
    left = STATEMENTS.apply(source, [first])
    assert left is not None
    assert body(left) == ["c = y", "tl.store(x, c)"]


def test_what_is_made_of_its_own_old_value_needs_a_first_one() -> None:
    source = source_of("a = y", "a += 1", "a = a * 2", "tl.store(x, 1)")
    [first, *_] = STATEMENTS.opportunities(source)
    left = STATEMENTS.apply(source, [first])
    assert left is not None
    assert body(left) == ["tl.store(x, 1)"]


def test_unused_is_what_unused_things_use_too() -> None:
    source = source_of("a = y", "b = a", "for i in range(y):", "    c = b", "tl.store(x, y)")
    left = applied(UNUSED, source)
    assert left is not None
    assert body(left) == ["tl.store(x, y)"]


def test_unused_helpers_imports_and_constants_go() -> None:
    left = applied(UNUSED, SOURCE)
    assert left is not None
    assert "spare" not in left.code
    assert "SPARE" not in left.code
    assert "SCALE" in left.code
    assert "libdevice" in left.code


def test_what_the_launch_names_is_used() -> None:
    launch = FileLaunch(
        kernel="kernel",
        signature={"f": '"constexpr"'},
        constants={("f",): "helper"},
        attributes={},
        options={},
        target=("cuda", 90, 32),
    )
    code = "@triton.jit\ndef helper(x):\n    return x\n@triton.jit\ndef kernel(f):\n    f(1)\n"
    assert not UNUSED.opportunities(
        PythonFile.of(Standalone(code=code, launch=launch), TRITON_FORM)
    )


def test_arms_of_branches() -> None:
    source = source_of(
        "if N > 1:", "    tl.store(x, 1)", "else:", "    tl.store(x, 2)",
        "for i in range(y, 9):", "    tl.store(x, i)",
    )  # fmt: skip
    kept, other = applied(branches("body"), source), applied(branches("else"), source)
    assert kept is not None
    assert other is not None
    assert body(kept) == ["tl.store(x, 1)", "i = y", "tl.store(x, i)"]
    assert body(other) == ["tl.store(x, 2)"]


def test_unread_arguments_leave_the_launch() -> None:
    left = applied(arguments(is_inlining=False), source_of("tl.store(x, 1)"))
    assert left is not None
    assert left.kernel.parameters == ["x"]
    assert left.launch.signature == {"x": '"*fp32"'}
    assert left.launch.constants == {}


def test_numbers_stand_in_for_arguments_and_pointers_stay() -> None:
    left = applied(arguments(is_inlining=True), source_of("tl.store(x + N, y)"))
    assert left is not None
    assert body(left) == ["tl.store(x + 64, 1)"]
    assert left.kernel.parameters == ["x"]


def test_an_argument_that_is_set_stays() -> None:
    assert not arguments(is_inlining=True).opportunities(source_of("y = y + 1", "N = 2"))


def test_numbers_are_halved_wherever_they_stand() -> None:
    source = source_of("a = tl.zeros([32, 32], tl.float32)", "tl.store(x, a + 4)")
    left = NUMBERS.apply(source, [("value", 32), ("constant", ("N",))])
    assert left is not None
    assert body(left) == ["a = tl.zeros([16, 16], tl.float32)", "tl.store(x, a + 4)"]
    assert left.launch.constants == {("N",): "32"}


def test_options_and_attributes_go() -> None:
    left = applied(OPTIONS, SOURCE)
    assert left is not None
    assert not left.launch.options
    assert not left.launch.attributes


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (KEYWORDS, "tl.store(x, tl.load(x, mask=y, other=1), mask=y)", "tl.store(x, tl.load(x))"),
        (PLAIN_ASSIGNMENTS, "y += 1", "y = 1"),
        (operands(0), "tl.store(x, (x + 1)[:, None])", "x"),
        (operands(1), "tl.store(x + y, -y)", "-y"),
        (operands(0), "y = x.to(tl.float32)", "y = x"),
        # All at once: `tl.int1.to(tl.int8)` has no second operand.
        (operands(1), "y = tl.full([], tl.int1).to(tl.int8)", "y = tl.int1.to(tl.int8)"),
        (operands(0), "y = tl.float32 if N else 2", "y = tl.float32"),
        (TRAILING_ARGUMENTS, "tl.store(x, y, 1)", "tl.store(x, y)"),
        (constants(1.0), "tl.store(x + y, N)", "tl.store(1.0, 1.0)"),
    ],
)
def test_expressions(change: FoundPass[PythonFile], before: str, after: str) -> None:
    left = applied(change, source_of(before))
    assert left is not None
    assert body(left) == [after]


def test_what_is_set_once_is_written_in_place() -> None:
    source = source_of("a = y", "b = a", "c = tl.exp(b)", "c2 = 2", "tl.store(x + b + c2, c + c2)")
    left = applied(PROPAGATIONS, source)
    assert left is not None
    assert body(left) == ["tl.store(x + y + 2, tl.exp(y) + 2)"]


def test_what_is_set_twice_stays() -> None:
    assert not PROPAGATIONS.opportunities(source_of("a = y", "a = 1", "b = a", "tl.store(x, b)"))


def test_variables_are_set_apart_from_each_other() -> None:
    source = source_of("a, b = (y, 1)", "a, b = (b, a)", "tl.store(x + a, b)")
    # Python 3.10 prints a tuple that is assigned to in parentheses.
    swapped = ast.unparse(ast.parse("a, b = (b, a)"))
    assert body(source) == ["a = y", "b = 1", swapped, "tl.store(x + a, b)"]


def test_a_number_for_a_variable_and_all_that_sets_it() -> None:
    source = source_of(
        "a = y", "a += 1", "b = a", "for i in range(a):", "    tl.store(x, a + b + i)"
    )
    left = variables(0).apply(source, [("kernel", "a"), ("kernel", "b")])
    assert left is not None
    assert body(left) == ["for i in range(0):\n    tl.store(x, 0 + 0 + i)"]


def test_what_is_set_in_the_same_way_is_one() -> None:
    source = source_of(
        "a = tl.load(x + 1)", "b = tl.load(y + 1)", "c = tl.load(y + 2)", "tl.dot(a, b, c)"
    )
    assert len(TWINS.opportunities(source)) == 1
    left = applied(TWINS, source)
    assert left is not None
    assert body(left) == ["a = tl.load(x + 1)", "c = tl.load(y + 2)", "tl.dot(a, a, c)"]


@pytest.mark.parametrize(
    ("needs", "left"),
    [
        (["tl.dot("], ["tl.dot()"]),
        (["tl.dot(", "tl.store("], ["tl.dot()", "tl.store()"]),
        (["half("], ["half()"]),
    ],
)
def test_nothing_is_left_but_what_is_needed(needs: list[str], left: list[str]) -> None:
    def holds(source: PythonFile) -> bool:
        return all(each in "\n".join(body(source)) for each in needs)

    found = reduced(holds)
    assert found.is_minimal
    assert body(found.document) == left


def test_a_failure_of_weight_keeps_what_it_weighs() -> None:
    """At least so many loads, whichever: no single one can be named."""
    lines = [f"v{n} = tl.load(x + {n})" for n in range(12)]
    source = source_of(*lines, f"tl.store(x, {' + '.join(f'v{n}' for n in range(12))})")
    found = reduced(lambda source: source.code.count("tl.load(") >= 3, source)
    assert found.is_minimal
    assert found.document.code.count("tl.load(") == 3
    assert len(body(found.document)) <= 3


def test_a_block_size_is_halved_as_far_as_it_fails() -> None:
    def holds(source: PythonFile) -> bool:
        value = source.launch.constants.get(("N",))
        return value is not None and int(value) >= 16

    found = reduced(holds, source_of("tl.store(x + N, 1)", N="256"))
    assert found.document.launch.constants == {("N",): "16"}


def test_the_budget_ends_it_and_what_was_found_is_kept() -> None:
    seen: list[ReductionProgress[PythonFile]] = []
    found = reduced(lambda source: "tl.dot(" in source.code, max_tests=5, watch=seen.append)
    assert not found.is_finished
    assert not found.is_minimal
    assert found.tests == 5 == len(seen)
    assert found.document.size < SOURCE.size


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_is_applied_leaves_a_program_or_is_refused(data: st.DataObject) -> None:
    source = SOURCE
    for _ in range(data.draw(st.integers(1, 6))):
        change = data.draw(st.sampled_from(PASSES))
        offered = list(change.opportunities(source))
        chosen = [edit for edit in offered if data.draw(st.booleans())]
        left = change.apply(source, chosen)
        if left is None:
            continue
        ast.parse(left.text)
        assert not undefined(left)
        assert list(left.launch.signature) == left.kernel.parameters
        assert {path[0] for path in left.launch.constants} <= set(left.kernel.parameters)
        source = left


def test_a_seed_and_a_number_of_jobs_make_one_result() -> None:
    def holds(source: PythonFile) -> bool:
        return "tl.dot(" in source.code and "mask" in source.code

    for jobs in (1, 3):
        first, second = (reduced(holds, jobs=jobs, seed=5) for _ in range(2))
        assert first.document.text == second.document.text
        assert first.tests == second.tests


def test_an_edit_is_known_again_when_the_rest_has_changed() -> None:
    before = source_of("a = y", "b = tl.exp(a)", "tl.store(x, b)")
    after = source_of("b = tl.exp(a)", "tl.store(x, b)")
    change = operands(0)
    marks = [{change.words(s, e) for e in change.opportunities(s)} for s in (before, after)]
    assert marks[0] == marks[1]
    assert change.opportunities(before) != change.opportunities(after)
