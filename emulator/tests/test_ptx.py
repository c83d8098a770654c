from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import assert_linear

from gpu_emulator.ptx.text.facts import (
    PtxError,
    body_sha256,
    instructions_sha256,
    opcodes,
    read_ptx,
    retarget,
    writes_outside,
)

HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n"
KERNEL = HEAD + (
    ".visible .entry k(\n\t.param .u64 p\n)\n.reqntid 128, 2\n{\n"
    "\t.reg .b32 %r<9>;\n\t.loc 1 12 5\n$L__tmp0:\n\tld.param.b64 %rd1, [p];\n"
    "$L__BB0_1:\n\t@%p1 st.global.v2.b32 [%rd1], {%r1, %r2};\n\t@!%p1 bra $L__BB0_1;\n\tret;\n}\n"
)
STUB = HEAD + ".visible .entry k()\n{\n\t.reg .b32 %r<2>;\n\t// begin inline asm\n\ttrap;\n}\n"
GUARD = ".func guard()\n{\n\ttrap;\n}\n"
PIECES = [
    HEAD,
    ".entry k()",
    "{",
    "}",
    ";",
    '"',
    "//",
    "/*",
    "*/",
    "\n",
    "\\",
    ".loc 1 2 3",
    ".file 1",
    ".section .debug_info {",
    "$L__tmp1:",
    "trap",
    "st.global.b32 [%r1], %r2",
    "a:",
    "::",
    "@%p1 ",
    "tcgen05.alloc.cta_group::1 [%r1], 512",
    ".reqntid 99999999999999999999999",
    "\0",
    "é",
    "\u0663",
    ".version 8.0",
    ".target sm_9",
    "\r",
    "\x0b",
    "cp.async.bulk.global.shared::cta",
    "call",
    "0" * 5000,
]


def body(code: str) -> str:
    return HEAD + ".entry k()\n{\n" + code + "\n}\n"


def test_what_a_kernel_says() -> None:
    facts = read_ptx(KERNEL)
    assert (facts.version, facts.target, facts.entry) == ("8.8", "sm_100a", "k")
    assert facts.threads == 256
    assert (facts.instructions, facts.effects, facts.traps) == (4, 1, 0)
    assert not facts.does_nothing
    assert not facts.always_traps


def test_a_stub_only_traps() -> None:
    facts = read_ptx(STUB)
    assert facts.is_trap_stub
    assert facts.always_traps
    assert facts.instructions == 1


def test_the_trap_of_another_function_is_not_the_entrys() -> None:
    assert read_ptx(KERNEL + GUARD).traps == 0
    assert read_ptx(HEAD + GUARD + KERNEL.removeprefix(HEAD)).entry == "k"


@pytest.mark.parametrize(
    ("code", "always"),
    [
        ("trap;", True),
        ("mov.b32 %r1, 0; { trap; }", True),
        ("@%p1 trap; ret;", False),
        ("@%p1 bra $L; trap; $L: ret;", False),
        ("ret; trap;", False),
        ("mov.b32 %r1, 0; ret;", False),
    ],
)
def test_no_way_leads_past_a_trap(code: str, *, always: bool) -> None:
    assert read_ptx(body(code)).always_traps is always


@pytest.mark.parametrize(
    "opcode",
    [
        "st.global.b32",
        "st.b32",
        "st.volatile.global.u32",
        "atom.global.add.u32",
        "red.relaxed.gpu.global.add.f32",
        "call.uni",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32",
        "multimem.red.relaxed.sys.global.add.f32",
        "sust.b.2d.v4.b32.trap",
        "wmma.store.d.sync.aligned.m16n16k16.global.row.f32",
        "tensormap.replace.tile.global_address.global.b1024.b64",
    ],
)
def test_writes_that_can_be_seen(opcode: str) -> None:
    assert writes_outside(opcode)


@pytest.mark.parametrize(
    "opcode",
    [
        "st.shared.b32",
        "st.local.b32",
        "st.param.b64",
        "st.async.shared::cluster.b32",
        "ld.global.b32",
        "atom.shared::cta.add.u32",
        "cp.async.ca.shared.global",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile",
        "cp.async.bulk.commit_group",
        "cp.async.bulk.prefetch.L2.global",
        "stmatrix.sync.aligned.m8n8.x4.shared.b16",
        "multimem.ld_reduce.relaxed.sys.global.add.f32",
        "wmma.load.a.sync",
        "tensormap.replace.tile.global_address.shared::cta.b1024.b64",
        "tcgen05.st.sync",
        "trap",
    ],
)
def test_writes_that_cannot_be_seen(opcode: str) -> None:
    assert not writes_outside(opcode)


def test_opcodes_are_not_operands_labels_or_directives() -> None:
    code = (
        ".reg .b32 a0, a1; loop: @a0 add.s32 a0,\n a1,\n b2; { call.uni (r0),\n printf,\n (p0); }"
        "$L: done: ld.v2.b32 {a0, a1}, [x]; .pragma ; t: .branchtargets a, b; loop:mov.b32 x, y"
    )
    assert list(opcodes(code)) == [
        ("add.s32", True),
        ("call.uni", False),
        ("ld.v2.b32", False),
        ("mov.b32", False),
    ]


def test_comments_and_strings_are_not_code() -> None:
    code = (
        '/* trap; } */ // trap; }\n.pragma "trap; } // /*"; st.global.b32 [%r1], %r2; /* /* */ ret;'
    )
    facts = read_ptx(body(code))
    assert (facts.traps, facts.effects, facts.instructions) == (0, 1, 2)
    assert read_ptx("// .version 1.0\n/*\n.target sm_10\n*/" + KERNEL).version == "8.8"


def test_a_declaration_is_not_the_entry() -> None:
    facts = read_ptx(HEAD + ".visible .entry k(.param .u64 p);\n" + KERNEL.removeprefix(HEAD))
    assert facts.entries == ("k",)
    assert facts.instructions == 4


def test_entries_by_name() -> None:
    text = KERNEL + STUB.removeprefix(HEAD).replace(" k(", " other(")
    assert read_ptx(text).entry == "k"
    assert read_ptx(text, "other").is_trap_stub
    with pytest.raises(PtxError, match="no entry 'nope'; the file has k, other"):
        read_ptx(text, "nope")


def test_tensor_memory_is_the_largest_allocation() -> None:
    alloc = "@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {};"
    assert read_ptx(body(alloc.format(64) + alloc.format(512))).tmem_columns == 512
    assert read_ptx(body(alloc.format("%r2"))).tmem_columns is None
    held = alloc.format("%r2")
    for text, columns in {
        f"mov.b32 %r2, 256; {held}": 256,
        f"$L_1: mov.u32 %r3, 0x100; mov.b32 %r2, %r3; {held}": 256,
        f"mov.b32 %r2, 128; {held} add.s32 %r4, %r2, 1; {alloc.format(32)}": 128,
        # What another way may have set, or nothing says.
        f"mov.b32 %r2, 128; @%p2 mov.b32 %r2, 256; {held}": None,
        f"@%p2 mov.b32 %r2, 256; {held}": None,
        f"ld.param.u32 %r2, [n]; {held} {alloc.format(64)}": None,
        f"mov.b32 %r2, %r3; mov.b32 %r3, %r2; {held}": None,
        f"add.s32 %r2, %r3, 256; {held}": None,
        f"mov.b64 {{%r2, %r3}}, %rd1; {held}": None,
    }.items():
        assert read_ptx(body(text)).tmem_columns == columns, text
    assert read_ptx(KERNEL).tmem_columns is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no .version"),
        ("hello", "no .version"),
        (".version 8.0\n.address_size 64\n", "no .target"),
        (HEAD, "no .entry"),
        ("\x7fELF\0\0", "binary"),
        ("x" + KERNEL, "no .version"),
    ],
)
def test_what_is_not_ptx(text: str, said: str) -> None:
    with pytest.raises(PtxError, match=said):
        read_ptx(text)


def test_debug_information_paths_and_version_do_not_count() -> None:
    debug = (
        KERNEL.replace(".loc 1 12 5", ".loc 1 99 7, function_name $L__info0, inlined_at 1 2 3")
        .replace("$L__tmp0:", "$L__tmp42: // \t/home/me/k.py:3")
        .replace("8.8", "9.1")
    )
    debug += '.file 1 "/home/me/k.py", 123, 456\n.section .debug_abbrev\n{\n.b8 1\n.b8 2\n}\n'
    assert body_sha256(debug) == body_sha256(KERNEL)


@pytest.mark.parametrize(
    ("old", "new"),
    [("%r1, %r2", "%r2, %r1"), ("sm_100a", "sm_100f"), ("128, 2", "128, 4"), ("ret", "exit")],
)
def test_code_counts(old: str, new: str) -> None:
    assert body_sha256(KERNEL.replace(old, new)) != body_sha256(KERNEL)


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("8.8", "9.1", True),
        ("sm_100a", "sm_80", True),
        (".reqntid", ".maxnreg 128\n.reqntid", True),
        (".reqntid", ".minnctapersm 1 .reqntid", True),
        ("128, 2", "128, 4", False),
        ("%r1, %r2", "%r2, %r1", False),
    ],
)
def test_what_is_executed_is_neither_target_nor_registers(
    old: str, new: str, is_same: bool
) -> None:
    other = KERNEL.replace(old, new)
    assert other != KERNEL
    assert (instructions_sha256(other) == instructions_sha256(KERNEL)) is is_same


def test_a_line_table_on_one_line_hides_no_code() -> None:
    one_line = "st.global.b32 [%r1], %r2; .loc 1 2 3 trap; ret;"
    assert read_ptx(body(one_line)).traps == 1
    assert body_sha256(body(one_line)) != body_sha256(body(one_line.replace("trap", "exit")))


def test_retarget_changes_the_header_and_nothing_else() -> None:
    text = "/*\n.version 1.0\n.target sm_10\n*/\n" + KERNEL + "// .target sm_100a\n"
    changed = retarget(text, target="sm_100f", version="9.1")
    assert read_ptx(changed).target == "sm_100f"
    assert read_ptx(changed).version == "9.1"
    assert retarget(changed, target="sm_100a", version="8.8") == text
    assert retarget(text) == text
    with pytest.raises(PtxError):
        retarget("nothing", target="sm_90")


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_nothing_but_ptx_errors(text: str) -> None:
    for whole in (text, HEAD + ".entry k() {" + text):
        try:
            facts = read_ptx(whole)
        except PtxError:
            pass
        else:
            assert facts.effects + facts.traps <= facts.instructions
        assert len(body_sha256(whole)) == 64


@given(st.text(alphabet=st.characters(), max_size=300))
def test_any_text_has_a_hash(text: str) -> None:
    assert body_sha256(text) == body_sha256(text)
    assert body_sha256("\ud800") != body_sha256("\udfff")


# Twice the text may take at most about twice the time: checked on sizes at which a quadratic
# reading would take minutes.
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "\n",
        " ",
        "/*",
        "/",
        "/**/",
        "//\n",
        '"',
        '"\n',
        "{",
        "{}",
        "a.",
        "a:",
        "a::b",
        "1",
        "@",
        "tcgen05.alloc ",
        ".loc 1 2 3\n",
        ".loc ",
        ".file 1 ",
        ".section .debug_x {",
        "$L__tmp",
        "$L__tmp1:\n",
        "\x01\xff",
        ".entry a ",
        ".entry a(){}\n",
        "mov.b32 %r1, %r2; ",
        ", 1",
    ],
)
@pytest.mark.parametrize("head", [HEAD, HEAD + ".entry k()\n{\n", ""])
def test_hostile_text_is_read_in_linear_time(unit: str, head: str) -> None:
    def read(size: int) -> None:
        text = head + unit * (size // len(unit))
        with contextlib.suppress(PtxError):
            read_ptx(text)
        body_sha256(text)

    assert_linear(read, 60_000)


def test_the_end_of_a_string_of_c_is_no_binary_data() -> None:
    """As CuTe DSL writes PTX that it is asked to keep; ptxas takes it."""
    text = HEAD + ".entry k()\n{\n\tret;\n}\n"
    assert read_ptx(text + "\0") == read_ptx(text)
    with pytest.raises(PtxError, match="binary data"):
        read_ptx(text + "\0more")


WAITING = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 flag)
{
	.reg .pred %p<9>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<9>;
	ld.param.b64 %rd1, [flag];
	mov.u32 %r2, %ctaid.x;
"""
POLL = """
$L__BB0_1:                              // =>This Inner Loop Header: Depth=1
	.loc	1 13 11
	// begin inline asm
	{read}
	// end inline asm
	setp.lt.s32 %p1, %r1, %r2;
	@%p1 bra $L__BB0_1;
	{after}
	ret;
}}
"""
TICKET = "atom.global.gpu.relaxed.add.u32 %r2, [%rd1], 1;"


@pytest.mark.parametrize(
    ("before", "read", "after", "waits"),
    [
        ("", "ld.volatile.global.b32 { %r1 }, [ %rd1 ];", "", True),
        ("", "ld.global.gpu.acquire.b32 %r1, [%rd1];", "", True),
        ("", "atom.global.acq_rel.gpu.cas.b32 %r1, [%rd1], %r2, %r2;", "", True),
        # What is read is signalled to the next one.
        ("", "ld.global.gpu.acquire.b32 %r1, [%rd1];", TICKET, True),
        # By a ticket it waits for those alone that began before.
        (TICKET, "ld.global.gpu.acquire.b32 %r1, [%rd1];", "", False),
        # A plain load need not see what others write.
        ("", "ld.global.b32 %r1, [%rd1];", "", False),
        # A lock, whose holder runs; work that is taken, item by item; a loop that counts.
        ("", "atom.global.acq_rel.gpu.cas.b32 %r1, [%rd1], 0, 1;", "", False),
        ("", TICKET.replace("%r2", "%r1"), "", False),
        ("", "ld.volatile.global.b32 %r1, [%rd1]; add.s32 %r2, %r2, -1;", "", False),
    ],
)
def test_a_loop_that_ends_when_another_block_writes(
    before: str, read: str, after: str, *, waits: bool
) -> None:
    ptx = WAITING + before + POLL.format(read=read, after=after)
    assert read_ptx(ptx).waits is waits
