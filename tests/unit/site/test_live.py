"""The curve of live registers: its peak, its limit, and where local memory is accessed."""

from __future__ import annotations

import pytest

from harness.judging.ptxas.sass import LiveRegisters
from harness.site.live import Live, live_curves, live_margins, live_text
from harness.site.panes import panes_of

SASS = """\
.text.k:
        /*0000*/                   S2R R1, SR_TID.X ;
.L_x_1:
        /*0010*/                   STL [R1], R2 ;
        /*0020*/                   LDL R2, [R1] ;
.text.other:
        /*0000*/                   EXIT ;
"""
KERNELS = {"k": LiveRegisters((0, 0x10, 0x20), (1, 8, 2)), "other": LiveRegisters((0,), (0,))}


def test_each_instruction_has_its_count_and_the_peaks_can_be_led_to() -> None:
    live = Live(kernels=KERNELS, tool="nvdisasm 1")
    counts = ["", "1", "", "8", "2", "", "0"]
    assert [count for count, _ in live_margins(SASS, live)] == counts
    [pane] = panes_of({"sass": SASS.encode()}, live)
    assert [line.margin for line in pane.lines] == counts
    assert pane.anchors == {"peak-1", "peak-2"}
    [peak] = [line.text for line in pane.lines if line.anchor == "peak-1"]
    assert "STL" in peak
    assert [(each.first, each.instructions) for each in pane.curves] == [(0, 3), (3, 1)]
    shown = live_text(SASS, live).splitlines()
    assert shown[0] == "# k: up to 8 live registers, first at /*0010*/; counted by nvdisasm 1"
    assert [line.split()[0] for line in shown if "/*" in line and line[:1] != "#"] == list("1820")


def test_local_accesses_stand_where_they_are_and_the_peak_where_it_is() -> None:
    origins = [None, 4, None, 5, 6, None, None]
    curve, other = live_curves(SASS, origins, Live(kernels=KERNELS, registers=10, limit=255))
    assert (curve.peak, curve.peak_address, curve.peak_line) == (8, "0010", 5)
    assert (curve.n_stores, curve.n_loads) == (1, 1)
    assert curve.stores == (round(curve.peak_x),)
    assert curve.loads == (round(curve.steps[2][0]),)
    assert curve.peak_y == min(high for _, high, _ in curve.steps)
    # What spills is shown below the limit, however far that is; what does not would be flattened.
    assert curve.limit_y is not None
    assert curve.registers_y is not None
    assert curve.limit_y < curve.registers_y < curve.peak_y
    assert (other.limit, other.limit_y) == (255, None)


@pytest.mark.parametrize("count", [1, 500, 501, 12_890])
def test_a_long_kernel_keeps_its_peak_in_few_steps(count: int) -> None:
    counts = [3] * count
    counts[count // 2] = 7
    kernels = {"k": LiveRegisters(tuple(range(0, 16 * count, 16)), tuple(counts))}
    [curve] = live_curves("", [], Live(kernels=kernels))
    assert len(curve.steps) <= 500
    assert min(high for _, high, _ in curve.steps) == curve.peak_y
    assert all(low >= high for _, high, low in curve.steps)
    assert (curve.registers_y, curve.limit_y) == (None, None)
