"""The order in which versions are asked, and programs that do not end."""

from __future__ import annotations

from harness.minimize.hunt.hunting import apart
from harness.minimize.hunt.voting import Vote, Voter, vote_on


def test_versions_that_are_asked_first_lie_apart() -> None:
    assert apart([1, 2, 3, 4, 5, 6, 7]) == [7, 1, 4, 2, 5, 3, 6]
    assert apart([1, 2]) == [2, 1]
    assert apart([1]) == [1]
    assert apart([]) == []


ENDLESS = """.version 7.8
.target sm_90
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n, .param .u32 m)
{
.reg .b32 %r0;
.reg .pred %p0;
mov.u32 %r0, %tid.x;
L1:
xor.b32 %r0, %r0, 1;
setp.ne.u32 %p0, %r0, 80;
@%p0 bra L1;
ret;
}
"""


def test_a_program_that_does_not_end_is_left_out_soon() -> None:
    answer = vote_on(Voter(text=ENDLESS, seed=1, entry="k"), {}, is_thorough=False)
    assert answer.vote is Vote.LEFT_OUT
    assert answer.words == "no end within 50,000 instructions of threads"
