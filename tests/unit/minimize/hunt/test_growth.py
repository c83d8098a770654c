"""What is out of proportion is told by the program's own text, and by what ptxas says of it."""

from __future__ import annotations

import pytest

from harness.judging.ptxas.log import FunctionUsage
from harness.minimize.hunt.growth import growth_of, seconds_allowed
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
