"""PTX for tests: the files at hand, a small module of all kinds of statements, made-up ones."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

FILES = sorted((Path(__file__).parent / "data" / "ptx").glob("*.ptx"))

MODULE = """\
//
// made by hand
//
.version 8.8
.target sm_90a, debug
.address_size 64
.file 1 "a;b{c.py"
.extern .func (.param .b32 out) helper(.param .b32 in);
.global .align 4 .b8 table[2][2] = {{1, 2}, {3, 4}};
.extern .shared .align 16 .b8 memory[];
.visible .entry first(.param .u64 .ptr .global .align 1 first_0, .param .u32 unused)
.reqntid 128, 1, 1
.maxnreg 64
{
	.reg .pred	%p<3>;	// two are used
	.reg .b32 %r<6>;
	.reg .b64 %rd<3>;
	.loc	1 2 3, function_name $L_name + 4, inlined_at 1 5 6
TABLE: .branchtargets LOOP, DONE;
	ld.param.b64 %rd1, [first_0];
	mov.u32 %r1, %tid.x;
LOOP:
	{ // a scope
	.reg .pred again;
	.reg .b32 x<2>;
inner:
	mov.b32 x1, memory;
	setp.ne.b32 again, %r1, 0;
	@again bra inner;
	}
	{ .reg .pred again; .reg .b32 y;
	add.s32 y, %r1, 0x10; setp.eq.s32 again, y, 3;
	@!again bra.uni DONE; }
	ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1 + 0];
	brx.idx %r2, TABLE;
	{ .param .b32 a0; .param .b32 b0;
	st.param.b32 [a0], %r2;
	call.uni (b0), helper, (a0);
	ld.param.b32 %r3, [b0]; }
	st.global.b32 [%rd1+4], /* why not */ %r3;
DONE:
	ret;
}
.visible .entry second()
{
	bar.sync 0;
	.pragma "nounroll";
	trap;
	exit;
}
.section .debug_x
{
.b8 1 // DW
.b8 2
}
"""

_NAMES = st.sampled_from(
    ["%r1", "%r2", "%p1", "%rd1", "x", "$L__1", "%tid.x", "0", "-1", "0f00000000"]
)
_OPERANDS = st.one_of(
    _NAMES,
    st.lists(_NAMES, min_size=1, max_size=4).map(lambda names: "{" + ", ".join(names) + "}"),
    st.tuples(_NAMES, _NAMES).map(lambda two: f"[{two[0]} + {two[1]}]"),
)
_BLANKS = st.sampled_from([" ", "\n", "\t", "\n\n", " // a comment; {\n", " /* } */ ", "\r\n"])
_STATEMENTS = st.one_of(
    st.tuples(
        st.sampled_from(["", "@%p1 ", "@!%p1 "]),
        st.sampled_from(["add.s32", "ld.global.b32", "bar.sync", "cp.async::x.y", "ret"]),
        st.lists(_OPERANDS, max_size=4).map(", ".join),
    ).map(lambda parts: f"{parts[0]}{parts[1]} {parts[2]};"),
    st.sampled_from(
        [
            "$L__1:",
            "{",
            "}",
            ".reg .b32 %r<3>;",
            ".loc 1 2 3",
            '.file 1 "x"',
            ".version 8.8",
            ".target sm_80",
            ".visible .entry k()",
            ".func (.param .b32 r) f(.param .b32 a);",
            ".global .b8 v[2] = {1, 2};",
            '.pragma "x;{";',
            ".section .debug { .b8 1 }",
        ]
    ),
)
texts = st.lists(st.tuples(_BLANKS, _STATEMENTS), max_size=30).map(
    lambda parts: "".join(blank + one for blank, one in parts)
)


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    """A module with pieces cut out, doubled, or overwritten."""
    text = draw(st.one_of(texts, st.just(MODULE)))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 40)))
        text = text[:begin] + draw(st.text('{};:.@%"/*\n\0aµ', max_size=5)) + text[end:]
    return text


mutated = _mutated()
