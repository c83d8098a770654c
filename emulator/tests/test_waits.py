"""Loops that wait for what another block writes, found in the text of PTX."""

from __future__ import annotations

import pytest

from gpu_emulator.ptx.text.facts import read_ptx

HEAD = """\
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
LOOP = """
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
    ptx = HEAD + before + LOOP.format(read=read, after=after)
    assert read_ptx(ptx).waits is waits
