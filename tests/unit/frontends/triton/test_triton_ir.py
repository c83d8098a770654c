from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import assert_linear

from harness.frontends.texts.ir_inputs import IrFacts, read_triton_ir
from harness.values.errors import UsageError

TTIR = """#loc = loc("/some/file.py":7:0)
module {
  tt.func public @add(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    tt.return loc(#loc)
  }
}
"""
TTGIR = """#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32]}>
module attributes {"ttg.num-ctas" = 2 : i32, "ttg.num-warps" = 8 : i32, ttg.maxnreg = 128 : i32,
  ttg.target = "cuda:100", "ttg.threads-per-warp" = 32 : i32} {
  tt.func private @helper(%x: i32) attributes {"ttg.num-warps" = 1 : i32} { tt.return }
  tt.func public @"odd name"(%x: i32) { tt.return }
  tt.func public @second(%x: i32) { tt.return }
}
"""
OLD = TTGIR.replace("ttg.", "triton_gpu.").replace('"cuda:100"', '"cuda:90"')


def test_what_a_module_says_of_itself() -> None:
    assert read_triton_ir(TTIR) == IrFacts(kernel="add")
    # The module's own attributes count, not those of a function in it.
    assert read_triton_ir(TTGIR) == IrFacts(
        kernel="odd name", num_warps=8, num_ctas=2, maxnreg=128, capability=100
    )
    assert read_triton_ir(OLD).capability == 90


@pytest.mark.parametrize(
    "text",
    ["", "module {}", "tt.func private @f() {}", TTIR + "\0", "tt.func public @(", "\x7fELF"],
)
def test_what_is_no_ir(text: str) -> None:
    with pytest.raises(UsageError, match=r"not Triton's IR: "):
        read_triton_ir(text)


@given(st.text(alphabet='tt.func public @"ab(ttg.num-warps=8:i32,\n ', max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_triton_ir(text)
    except UsageError:
        return
    assert found.kernel
    assert found.kernel in text


@pytest.mark.parametrize(
    "piece", ["tt.func public @" + "a" * 600, '"ttg.num-warps" = ', "tt.func "]
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    def read(times: int) -> None:
        with pytest.raises(UsageError):
            read_triton_ir(piece * times)

    assert_linear(read, 2_500)
