"""What is out of proportion is told by the program's own text, and by what ptxas says of it."""

from __future__ import annotations

import pytest

from harness.hunt.growth import growth_of, seconds_allowed, slowest_pass, triton_seconds_allowed
from harness.judging.ptxas.ptxas_log import FunctionUsage
from harness.values.target import Target

TARGET = Target.parse("90a")


def kernel(live: int, directives: str = "", more: str = "") -> str:
    """An entry in which so many registers are live at once, and no more."""
    names = range(1, live + 1)
    loads = "".join(f"ld.volatile.shared.u32 %r{n}, [s+{4 * n}];\n" for n in names)
    stores = "".join(f"st.volatile.shared.u32 [s+{4 * n}], %r{n};\n" for n in names)
    return (
        f".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k() {directives}\n{{\n"
        f".reg .b32 %r<{live + 1}>;\n.shared .b32 s[{live + 1}];\n{loads}{stores}{more}ret;\n}}\n"
    )


def usage(registers: int, spilled: int = 0) -> FunctionUsage:
    return FunctionUsage(
        name="k0", is_entry=True, n_regs=registers, spill_stores=spilled, spill_loads=spilled
    )


@pytest.mark.parametrize(
    ("text", "used", "grows"),
    [
        (kernel(191), usage(255, 100), "spills"),
        (kernel(192), usage(255, 100), None),
        (kernel(70), usage(255, 31), None),
        # A block of 1,024 threads has 64 registers for each; two of 256, 128.
        (kernel(48, ".reqntid 32, 32"), usage(64, 100), "spills"),
        (kernel(49, ".reqntid 32, 32"), usage(64, 100), None),
        (kernel(96, ".maxntid 256 .minnctapersm 2"), usage(128, 100), "spills"),
        (kernel(97, ".maxntid 256 .minnctapersm 2"), usage(128, 100), None),
        (kernel(25, ".maxnreg 32"), usage(32, 100), None),
        (kernel(10, more="call helper;\n"), usage(168, 100), None),
        # Registers that other warps have: how many are left is not known.
        (kernel(10, more="setmaxnreg.dec.sync.aligned.u32 24;\n"), usage(168, 100), None),
        (kernel(32), usage(128), "registers"),
        (kernel(33), usage(128), None),
        (kernel(1), usage(127), None),
    ],
)
def test_only_what_the_text_does_not_ask_for_is_out_of_proportion(
    text: str, used: FunctionUsage, grows: str | None
) -> None:
    growth = growth_of(text, used, TARGET)
    assert (growth[0] if growth else None) == grows


def test_a_longer_program_may_take_longer() -> None:
    assert 2.0 < seconds_allowed(kernel(10)) < seconds_allowed(kernel(100)) < 5.0


# Of the reports of Triton 3.9.0: MLIR prints the clock alone, LLVM four columns.
TIMES = """\
  Total Execution Time: 2.0413 seconds

  ----Wall Time----  ----Name----
    0.2364 ( 11.6%)  'any' Pipeline
    0.0450 (  2.2%)    CanonicalizerPass
    0.9000 ( 44.1%)      (A) DominanceInfo
    0.0584 (  2.9%)  CanonicalizerPass
    0.0900 (  4.4%)  TritonGPUPipeline
   -0.2348 (-11.5%)  Rest
    2.0413 (100.0%)  Total
"""
MORE_TIMES = """\
   ---User Time---   --System Time--   --User+System--   ---Wall Time---  --- Name ---
   0.9200 ( 53.7%)   0.0000 (  0.6%)   0.9200 ( 48.6%)   0.0100 ( 46.9%)  NVPTX Assembly Printer
   0.0200 (  5.4%)   0.0000 (  0.0%)   0.0200 (  6.0%)   0.0660 (  6.1%)  Global Value Numbering
   0.0200 (  5.4%)   0.0000 (  0.0%)   0.0200 (  6.0%)   0.0660 (  6.1%)  Global Value Numbering #2
   0.0372 (100.0%)   0.0039 (100.0%)   0.0411 (100.0%)   0.1403 (100.0%)  Total
"""


def test_the_slowest_pass_is_told_by_all_its_runs() -> None:
    assert slowest_pass(TIMES) == "CanonicalizerPass"
    assert slowest_pass(TIMES + MORE_TIMES) == "Global Value Numbering"
    assert slowest_pass("a log without times ( 1.0%)\n") == ""


def test_what_becomes_more_ptx_may_take_triton_longer() -> None:
    assert 10.0 <= triton_seconds_allowed(0) < triton_seconds_allowed(1000) < 20.0
