"""Panes of a cell: lines that come from the same line of the source, across every stage."""

from __future__ import annotations

import re
from html import unescape

from conftest import HERE

from harness.judging.origins import (
    kernel_file,
    mlir_origins,
    ptx_origins,
    sass_addresses,
    sass_origins,
)
from harness.judging.ptxas.sass import LineTable, line_tables
from harness.site.panes import Pane, PaneLine, pane_html, panes_of, shown_stages

PTX = """\
.visible .entry k(
	.param .u64 p
)
{
	.loc	1 9 0                           // kernel.py:9:0
	mov.u32 %r1, %tid.x;
	.loc	2 216 16, function_name $L__info_string0, inlined_at 1 21 32 // standard.py:216:16
	add.s32 %r2, %r1, 1;
	.loc	2 196 12, function_name $L__info_string1, inlined_at 2 216 16 // standard.py:196:12
	add.s32 %r2, %r2, 1;
	.loc	3 5 1
	ret;
}
	.file	1 "/home/me/kernel.py"
	.file	2 "/lib/standard.py"
	.file	3 "/lib/other.py"
"""


def test_what_was_inlined_counts_where_it_was_called() -> None:
    assert kernel_file(PTX) == "kernel.py"
    nothing = [None] * 4
    assert ptx_origins(PTX) == [*nothing, 9, 9, 21, 21, 21, 21, None, None, None, *[None] * 3]


def test_ptx_without_debug_information_has_no_origins() -> None:
    bare = "\n".join(line for line in PTX.splitlines() if ".loc" not in line)
    assert kernel_file(bare) is None
    assert set(ptx_origins(bare)) == {None}


def test_inline_assembly_is_of_the_line_that_its_first_line_names() -> None:
    # LLVM counts a line on for each line of the text.
    ptx = """\
	.loc	1 8 0
	// begin inline asm
	.loc	1 9 12
	mov.u32 %r1, 0x0;
	.loc	1 10 12
	ld.global.b32 { %r1 }, [ %rd1 + 0 ];
	// end inline asm
	.loc	1 11 5
"""
    assert ptx_origins(ptx) == [8, 8, 9, 9, 9, 9, 9, 11]


MLIR = """\
#loc = loc("/home/me/kernel.py":9:1)
#loc1 = loc(unknown)
#loc2 = loc("/home/me/kernel.py":21:32)
#loc3 = loc("/lib/standard.py":203:1)
module {
  tt.func public @k(%q: i32 loc("q"(#loc))) {
    %a = arith.constant 1 : i32 loc(#loc1)
    %b = arith.addi %a, %a : i32 loc(#loc4)
    %c = arith.addi %b, %a : i32 loc(#loc6)
    scf.for %i = %a to %b step %c  : i32 {
    } loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc4 = loc("b"(#loc2))
#loc5 = loc(callsite(#loc3 at #loc2))
#loc6 = loc("c"(#loc5))
#loc7 = loc(callsite(#loc7 at #loc8))
#loc8 = loc(fused[#loc3, #loc7])
"""


def test_locations_of_ir_are_followed_to_the_kernel_s_file() -> None:
    found = mlir_origins(MLIR, "kernel.py")
    lines = MLIR.splitlines()
    at = {line.split()[0]: origin for line, origin in zip(lines, found, strict=True)}
    assert (at["%a"], at["%b"], at["%c"]) == (None, 21, 21)
    # The closing braces: of the loop, whose places go round in circles, and of the function.
    assert [o for line, o in zip(lines, found, strict=True) if line.strip().startswith("}")] == [
        None,
        9,
        9,
    ]
    assert set(mlir_origins(MLIR, "other.py")) == {None}


SASS = """\
.text.k:
        /*0000*/                   S2R R1, SR_TID.X ;
.L_x_1:
        /*0010*/                   STL [R1], R2 ;      \n        /*0020*/                   EXIT ;
.text.other:
        /*0000*/                   LDL R2, [R1] ;
"""


def test_sass_comes_from_the_ptx_that_the_cubin_names() -> None:
    tables = {"k": LineTable((0, 0x10), (6, 8))}
    found = sass_origins(SASS, tables, ptx_origins(PTX))
    assert found == [None, 9, None, 21, 21, None, None]
    assert sass_addresses(SASS)[3:] == [("k", 0x10), ("k", 0x20), None, ("other", 0)]
    # A line that the PTX does not have says nothing.
    assert sass_origins(SASS, {"k": LineTable((0,), (99,))}, [1])[1] is None


def test_local_loads_and_stores_are_marked_and_long_texts_cut() -> None:
    (sass,) = panes_of({"sass": SASS.encode()})
    assert [line.text.split()[1] for line in sass.lines if line.is_spill] == ["STL", "LDL"]
    assert (sass.spills, sass.is_linked, sass.note) == (2, False, "")
    (long,) = panes_of({"ptx": b"x\n" * 12_000})
    assert len(long.lines) == 10_000
    assert "10,000 of 12,000" in long.note
    assert panes_of({}) == []


def test_the_source_takes_the_place_of_the_compiler_s_words_for_it() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 30)).encode()
    panes = panes_of({"python": text, "source": b"module {}", "ptx": PTX.encode()})
    assert [pane.name for pane in panes] == ["python", "ptx"]
    firsts = [(line.origin, line.text.strip()[:4]) for line in panes[1].lines if line.is_first]
    assert firsts == [(9, "mov."), (21, "add.")]


def test_lines_of_generated_source_are_those_of_the_debug_information() -> None:
    python = "".join(f"line {n}\n" for n in range(1, 30)).encode()
    cuda = "".join(f"int x{n};\n" for n in range(1, 30)).encode()
    generated = re.sub(r'"[^"]*kernel\.py"', '"/tmp/kernel.cu"', PTX).encode()
    stages = {"python": python, "cuda": cuda, "bytes": b"\0\1", "ptx": generated}
    panes = {pane.name: pane for pane in panes_of(stages)}
    assert list(panes) == ["python", "cuda", "ptx"]
    assert [pane.name for pane in panes.values() if pane.is_source] == ["cuda"]
    assert not panes["python"].is_linked
    assert [line.text for line in panes["cuda"].lines if line.origin] == ["int x9;", "int x21;"]
    # The same of a file of Python: its lines are the kernel's.
    source, *_ = panes_of({**stages, "ptx": PTX.encode()})
    assert (source.name, source.is_source, source.is_linked) == ("python", True, True)


def test_the_stages_of_a_compiler_stand_between_its_source_and_its_code() -> None:
    assert shown_stages(("tir", "cuda", "llir", "ptx")) == (
        "python", "source", "tir", "cuda", "ptx", "sass", "log",
    )  # fmt: skip


def test_what_is_no_cubin_has_no_lines() -> None:
    assert line_tables(b"") == {}
    assert line_tables(b"\x7fELF" + b"\0" * 100) == {}
    for path in sorted((HERE / "data" / "cubins").rglob("*.cubin"))[:3]:
        data = path.read_bytes()
        assert all(table.line(-1) is None for table in line_tables(data).values())
        for cut in range(0, len(data), max(1, len(data) // 40)):
            line_tables(data[:cut])


def test_what_the_store_holds_is_text_of_a_page() -> None:
    hostile = "</pre><script>alert(1)</script>"
    source = Pane(
        name="python",
        title="Source",
        lines=(PaneLine(hostile, 1, margin='2"'), PaneLine("x < y", 2)),
        is_source=True,
    )
    assert pane_html(source, {1: 'sass-1"'}) == (
        '<i>2&quot;</i><a data-l="1" href="#sass-1&quot;">'
        "&lt;/pre&gt;&lt;script&gt;alert(<var>1</var>)&lt;/script&gt;</a>\n<i></i>x &lt; y\n"
    )
    stage = Pane(
        name="sass", title="SASS", lines=(PaneLine("STL <", 7, is_spill=True, is_first=True),)
    )
    assert pane_html(stage, {}) == (
        '<i></i><span data-l="7" id="sass-7"><mark><b>STL</b> &lt;</mark></span>\n'
    )


def test_lines_of_debug_information_are_left_out_and_the_others_keep_their_numbers() -> None:
    debug = "\t.section\t.debug_str\n\t{\n.b8 1\n\t}\n\t.section\t.debug_loc\t{\t}\n// end\n"
    ptx, ttir = panes_of({"ptx": (PTX + debug).encode(), "ttir": MLIR.encode()})
    shown = {line.number: line.text.strip() for line in ptx.lines}
    assert shown[6] == "mov.u32 %r1, %tid.x;"
    assert [text for text in shown.values() if ".loc" in text or ".file" in text] == []
    assert list(shown) == [1, 2, 3, 4, 6, 8, 10, 12, 13, 22]
    assert [line.text for line in ttir.lines][:3] == [
        "module {",
        "  tt.func public @k(%q: i32) {",
        "    %a = arith.constant 1 : i32",
    ]
    assert "loc(" not in "".join(line.text for line in ttir.lines)


def test_code_has_the_colours_of_its_language_and_its_text_stays() -> None:
    cases = {
        "python": "def f(x):  # a < b\n    return 'é' + x\n",
        "ptx": "\t@%p1 bra \t$L__BB0_4;\n\tret;  // a < b\n",
        "sass": "/*0010*/  @!P0 IMAD R1, R2 ;\n//-- .text.k  --\n",
        "ttir": "    %a, %b = arith.addi %c : i32\n",
    }
    coloured = {
        "python": ["<b>def</b>", "<u>f</u>", "<em># a &lt; b</em>", "<b>return</b>"],
        "ptx": ["<b>bra</b>", "<b>ret</b>;", "<em>// a &lt; b</em>"],
        "sass": ["<em>/*0010*/</em>", "<b>IMAD</b>", "<em>//-- .text.k  --</em>"],
        "ttir": ["<b>arith.addi</b>"],
    }
    for stage, text in cases.items():
        (pane,) = panes_of({stage: text.encode()})
        html = pane_html(pane, {})
        for piece in coloured[stage]:
            assert piece in html, stage
        assert unescape(re.sub(r"<i[^>]*></i>|<[^>]*>", "", html)) == "".join(
            f"{line.rstrip()}\n" for line in text.splitlines()
        )
