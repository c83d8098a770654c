"""Where two compilers' IR begins to differ in kind, and which pass did it."""

from __future__ import annotations

import pytest

from harness.bisect.ir_difference import StageStory, compare_stages, first_trap, kinds_of
from harness.frontends.triton.source import follow_passes

TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [1]}>
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%arg0: !tt.ptr<f32>) {
    %0 = tt.get_program_id x : i32 loc(#loc1)
    %1:2 = "tt.reduce"(%0) <{axis = 0 : i32}> ({
      tt.reduce.return %0 : i32
    }) : (i32) -> i32
    tt.return
  }
}
"""
LLIR = """
define void @k(ptr %0) {
  %2 = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %3 = call float @llvm.fma.f32(float %x, float %y, float %z)
  store i32 %2, ptr %0
  ret void
}
"""
STUB = "define void @k(ptr %0) {\n  call void @llvm.trap()\n  unreachable\n}\n"


def test_kinds_of_operation() -> None:
    assert kinds_of("ttgir", TTGIR) == {
        "tt.func",
        "tt.get_program_id",
        "tt.reduce",
        "tt.reduce.return",
        "tt.return",
    }
    assert {"llvm.nvvm.read.ptx.sreg.tid.x", "llvm.fma", "store", "ret"} <= kinds_of("llir", LLIR)
    ptx = ".version 8.0\n.target sm_80\n.entry k() { mov.u32 %r1, 1; ret; }"
    assert kinds_of("ptx", ptx) == {"mov", "ret"}


def test_counts_and_names_are_no_difference_in_kind() -> None:
    twice = TTGIR.replace("    tt.return\n", "    %7 = tt.get_program_id y : i32\n    tt.return\n")
    [stage] = compare_stages({"ttgir": TTGIR}, {"ttgir": twice})
    assert not stage.differs
    assert stage.words == "the same kinds of operation: tt.get_program_id +1"
    [alike] = compare_stages({"ttgir": TTGIR}, {"ttgir": TTGIR})
    assert alike.words == "the same kinds of operation"


def test_operations_that_are_lost_are_counted_where_their_kind_is_not() -> None:
    """Four masks are gone, the whole of a compiler's bug; others of their kind are still there."""
    mask = "  and.b16 %rs1, %rs1, 255;\n"
    text = ".version 8.0\n.entry k() {{\n{}  and.b32 %r1, %r1, 1;\n  mov.u32 %r2, 1;\n{}}}\n"
    move = "  mov.u32 %r3, 1;\n"
    [stage] = compare_stages({"ptx": text.format(mask * 4, "")}, {"ptx": text.format("", move)})
    assert not stage.differs
    assert stage.words == "the same kinds of operation: and.b16 -4, mov.u32 +1"
    assert StageStory(stages=(stage,)).first is stage


def test_the_first_stage_that_differs() -> None:
    stages = compare_stages({"ttgir": TTGIR, "llir": LLIR}, {"ttgir": TTGIR, "llir": STUB})
    story = StageStory(stages=tuple(stages))
    assert story.first is not None
    assert story.first.stage == "llir"
    assert "llvm.trap" in story.first.gained
    assert "store" in story.first.lost
    assert first_trap({"ttgir": TTGIR, "llir": STUB}, {"llir": LLIR}) == "llir"
    assert first_trap({"llir": STUB}, {"llir": STUB}) is None


def test_a_stage_that_one_side_never_made() -> None:
    [ttgir, llir] = compare_stages({"ttgir": TTGIR}, {"ttgir": TTGIR, "llir": LLIR})
    assert not ttgir.differs
    assert (llir.missing, llir.differs) == ("before", True)


def dump(*bodies: tuple[str, str]) -> list[str]:
    lines = []
    for name, body in bodies:
        lines.append(f"// -----// IR Dump Before {name} ('builtin.module' operation) //----- //\n")
        lines += body.splitlines(keepends=True)
    return lines


def test_the_pass_before_the_first_trap_made_it() -> None:
    lines = dump(
        ("Inliner (inline)", TTGIR),
        ("Allocate (allocate-it)", TTGIR),
        ("Next (next-pass)", "  llvm.intr.trap loc(#loc)\n"),
        ("Last", "  llvm.intr.trap\n"),
    )
    trail = follow_passes(lines)
    assert (trail.trapping, trail.last) == ("allocate-it", "Last")


def test_a_kernel_that_came_with_a_trap_blames_no_pass() -> None:
    trail = follow_passes(dump(("A (a)", '  %0 = "nvvm.trap"\n'), ("B (b)", "  nvvm.trap\n")))
    assert trail.trapping is None
    assert follow_passes([]).last is None


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Inliner (inline) ('builtin.module' operation) //----- //", "inline"),
        ("Canonicalizer ('tt.func' operation: @k) //----- //", "Canonicalizer"),
        ("ConvertToLLVM: //----- //", "ConvertToLLVM"),
        ("{anonymous}::Odd: (tritongpu-odd.pass_1) //----- //", "tritongpu-odd.pass_1"),
        ("Odd (two words) //----- //", "Odd"),
    ],
)
def test_a_pass_has_its_argument_for_its_name_or_its_class_without_a_colon(
    said: str, name: str
) -> None:
    header = f"// -----// IR Dump Before {said}\n"
    assert follow_passes([header]).last == name
    trail = follow_passes([header, "  tt.return\n", *dump(("Next (next-pass)", "  llvm.trap\n"))])
    assert (trail.trapping, trail.last) == (name, "next-pass")


def test_what_merely_speaks_of_a_pass_or_of_a_trap_is_neither() -> None:
    lines = [
        "error: // -----// IR Dump Before Quoted (quoted)\n",
        "// -----// IR Dump After Done (done)\n",
        "  llvm.call @trap_handler()\n",
        "  %trap = arith.constant 1\n",
        "  // llvm.trap\n",
    ]
    trail = follow_passes([*dump(("A (a)", "")), *lines, *dump(("B (b)", ""))])
    assert (trail.trapping, trail.last) == (None, "b")


def test_modifiers_count_of_the_instruction_that_the_failure_names() -> None:
    """One form of one instruction was refused; all others differ in ways that do not matter."""
    copy = "cp.async.bulk.tensor.2d.tile::gather4.shared::{}.global.mbarrier::complete_tx::bytes"
    before, after = (
        f".version 8.7\n.entry k() {{\n  {copy.format(space)} [%r1], [%rd1, {{%r2}}], [%r3];\n"
        f"  ld.global{cached}.u32 %r1, [%rd1];\n  ret;\n}}\n"
        for space, cached in (("cluster", ""), ("cta", ".nc"))
    )
    said = "Feature '.tile::gather4 with destination state space as .shared::cluster' not supported"
    (found,) = compare_stages({"ptx": before}, {"ptx": after}, said)
    assert (found.gained, found.lost) == ((copy.format("cta"),), (copy.format("cluster"),))
    (unnamed,) = compare_stages({"ptx": before}, {"ptx": after})
    assert not unnamed.differs
