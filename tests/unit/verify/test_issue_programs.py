"""Which programs an issue holds, and what its other code blocks are."""

import pytest
from issue_cases import KERNEL, PTX, fenced, read

from harness.verify.programs import Program

TILELANG = """\
import tilelang.language as T

@T.prim_func
def f(x: T.Tensor((1,), "float32")):
    pass
"""
IR = """\
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k() {
    tt.return
  }
}
"""

REPRODUCER = """\
{-#
  external_resources: {
    mlir_reproducer: {
      pipeline: "builtin.module(canonicalize)",
      disable_threading: true,
      verify_each: true
    }
  }
#-}
"""


@pytest.mark.parametrize(
    ("text", "language", "what"),
    [
        (KERNEL, "python", "a program"),
        (KERNEL, "", "a program"),
        (PTX, "ptx", "a program"),
        ("__global__ void k(int *p) { *p = 1; }\n", "cuda", "a program"),
        (TILELANG, "py", "a program"),
        (IR, "mlir", "a program"),
        ("ptxas fatal   : (C7907) Internal compiler error\n", "", "a log"),
        ("Traceback (most recent call last):\n  File ...\n", "python", "a log"),
        ("$ ptxas -O3 k.ptx\n", "sh", "commands"),
        ("Triton version: 3.4.0\n", "", "other text"),
        ("import triton\nprint(triton.__version__)\n", "python", "Python without a kernel"),
        ("def f(:\n", "python", "Python that cannot be parsed"),
    ],
)
def test_each_code_block_is_called_what_it_is(text: str, language: str, what: str) -> None:
    [block] = read(f"# A title\n\n{fenced(text, language)}").blocks
    assert (block.what, block.line) == (what, 3)


def program(text: str) -> Program:
    [found] = read(text).programs
    return found


@pytest.mark.parametrize(
    ("text", "kind", "suffix"),
    [(KERNEL, "triton", ".py"), (TILELANG, "tilelang", ".py"), (PTX, "ptx", ".ptx")],
)
def test_a_program_has_a_compiler(text: str, kind: str, suffix: str) -> None:
    found = program(fenced(text))
    assert (found.compiler, found.suffix) == (kind, suffix)


def test_ptx_behind_what_ptxas_says_is_a_program() -> None:
    log = f"ptxas fatal : (C7907) Internal compiler error\nRepro command: ptxas k.ptx\n{PTX}"
    assert program(fenced(log)).text.strip() == PTX.strip()


def test_a_folded_attachment_is_read() -> None:
    folded = f"<details><summary>k.ptx</summary>\n\n{fenced(PTX, 'ptx')}\n</details>\n"
    assert str(program(folded).target) == "sm_90"


def test_imports_that_examples_leave_out_are_added_and_said() -> None:
    found = program(fenced(KERNEL.partition("\n\n")[2], "python"))
    assert found.undefined == ()
    assert "import triton.language as tl" in found.text
    assert "`import torch; import triton; import triton.language as tl` was added" in found.assumed


def test_a_name_that_nothing_defines_makes_a_fragment() -> None:
    assert program(fenced(KERNEL + "run(make_size())\n")).undefined == ("make_size",)
    # A parameter, a comprehension and a name that a function binds are defined.
    assert program(fenced(KERNEL + "sizes = [run(n) for n in (1, 2)]\n")).undefined == ()


def test_a_block_that_goes_on_from_another_is_one_file_with_it() -> None:
    launch = "import torch\nprint(run(128))\n"
    found = program(f"{fenced(KERNEL)}\nThen:\n\n{fenced(launch)}")
    assert found.text.endswith("print(run(128))\n")
    assert found.line == 1
    assert "two code blocks are one file" in found.assumed


def test_what_launches_nothing_is_called_where_it_needs_nothing() -> None:
    found = program(fenced(KERNEL))
    assert found.call == "run()"
    assert "run(64)" in found.called("run(64)")
    assert found.functions == {"run"}
    launching = program(fenced(KERNEL + "run(32)\n"))
    assert (launching.call, launching.called("")) == ("", launching.text)
    without = program(fenced(KERNEL.replace("n=64", "n")))
    assert without.assumed == ("it launches nothing",)


def test_the_reproducer_of_mlir_is_a_program_where_no_other_is() -> None:
    printed = f"{IR}\n{REPRODUCER}"
    text = f"# A title\n\n{fenced(KERNEL, 'python')}\n\n{fenced(printed, 'mlir')}"
    assert [block.what for block in read(text).blocks] == ["a program", "other text"]
    assert [block.what for block in read(f"# A\n\n{fenced(printed)}").blocks] == ["a program"]
