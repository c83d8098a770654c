"""What is left of a hit, which causes are one, and what a program becomes on its way there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpu_emulator.ptx.text.document import parse
from harness.hunt.causes import (
    Cause,
    LeastProgram,
    is_same_cause,
    is_same_kind,
    join,
    joined,
    known_words,
    said_of,
)
from harness.hunt.generator import Generator
from harness.hunt.hunt_words import spread
from harness.hunt.oracles import AskedTogether, HuntCase
from harness.hunt.plan import Hit, HuntPlan, HuntState
from harness.hunt.ptxas_hunt import HuntedPtxas
from harness.hunt.variants import combined, is_closed, pruned, slices, tidy
from harness.hunt.voting import SOME_ORDERS, HuntAnswer, Vote
from harness.io.processes.hub import ResourceLimits
from harness.minimize.ptx.reduce import count_unwritten
from harness.values.target import Target
from harness.values.toolchain import Assembler

BODY = """.version 7.8
.target sm_90
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n, .param .u32 m)
{{
.reg .b32 %r0, %r1, %r2;
.reg .b64 %out;
ld.param.u64 %out, [out];
mov.u32 %r0, %tid.x;
{lines}
ret;
}}
"""
WRONG = HuntAnswer(vote=Vote.WRONG, levels=(3,), words="thread 0")


def least(*lines: str, answer: HuntAnswer = WRONG, **versions: str) -> LeastProgram:
    text = BODY.format(lines="\n".join(lines))
    named = {name.replace("v", "").replace("_", "."): words for name, words in versions.items()}
    return replace(LeastProgram.of(HuntCase(text, 1), answer), versions=named)


def hunted(
    judge: object, causes: list[Cause] | None = None, seen: dict[str, int] | None = None
) -> HuntedPtxas:
    """A ptxas whose answers to a reduction are those of a judge."""
    together: Any = judge
    ptxas = Assembler(version="13.0.88", path=Path("ptxas"), sha256="0", origin="test")
    plan = HuntPlan(tool=ptxas, targets=(Target.parse("90"),), seed=1, seconds=1.0)
    state = HuntState(causes=[], seen=seen or {})
    state.causes = [] if causes is None else causes
    return HuntedPtxas(
        plan=plan,
        state=state,
        program=Generator("", ()).program,
        oracles=getattr(together, "oracles", together),
        together=together,
    )


def test_a_slice_has_what_one_store_needs_and_nothing_else() -> None:
    lines = ("add.u32 %r1, %r0, 1;", "xor.b32 %r2, %r0, 7;")
    stores = ("st.global.u32 [%out], %r1;", "st.global.u32 [%out+4], %r2;")
    first, second = slices(least(*lines, *stores).text)
    assert "xor" not in first
    assert "add" in first
    assert "add" not in second
    assert "[%out+4]" in second


def test_a_value_that_a_branch_needs_stays() -> None:
    lines = (
        ".reg .pred %p0;",
        "setp.eq.u32 %p0, %r0, 3;",
        "@%p0 bra L1;",
        "add.u32 %r1, %r0, 1;",
        "L1:",
        "L2:",
        "st.global.u32 [%out], %r0;",
    )
    text = str(pruned(parse(least(*lines).text)))
    assert "setp" in text
    assert "L1:" in text
    assert "L2:" not in text
    assert "add" not in text


def test_changes_of_different_lines_are_made_together() -> None:
    text = "a\nb\nc\nd\n"
    assert combined(text, ["a\nc\nd\n", "a\nb\nc\nx\n"]) == "a\nc\nx\n"
    # The second one changes a line that is changed already.
    assert combined(text, ["a\nc\nd\n", "a\ny\nc\nd\n"]) == "a\nc\nd\n"
    assert combined(text, ["a\nb\nz\nc\nd\n"]) == "a\nb\nz\nc\nd\n"


def test_what_nothing_names_is_not_declared() -> None:
    assert ".reg .b32 %r0;" in tidy(least("st.global.u32 [%out], %r0;").text)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (WRONG, "bfe shl at -O3"),
        (HuntAnswer(vote=Vote.WRONG, levels=(0, 3)), "bfe shl at -O0 and -O3"),
        (
            HuntAnswer(vote=Vote.FAILS, levels=(3,), words="ptxas (C7907) died"),
            "ptxas (C7907) died (bfe shl)",
        ),
    ],
)
def test_a_cause_is_named_by_what_is_left(answer: HuntAnswer, name: str) -> None:
    program = least("bfe.u32 %r1, %r0, 3, 4;", "shl.b32 %r1, %r1, 2;", answer=answer)
    assert program.name == name


def test_what_is_guarded_at_every_level_is_one_cause() -> None:
    both = HuntAnswer(vote=Vote.WRONG, levels=(0, 3))
    flag = ".reg .pred %p0;\nsetp.gt.s32 %p0, %r0, 3;"
    guarded = "@%p0 set.lt.f32.s32 %r0, %r0, 7;"
    assert least(flag, guarded, answer=both).name == "guarded set at -O0 and -O3"
    assert least(flag, guarded).name == "set setp at -O3"
    assert "setp" in least(flag, "@%p0 bra L1;", "L1:", answer=both).name


def test_a_failure_is_the_same_by_its_signature_and_wrong_code_by_its_level() -> None:
    fails = HuntAnswer(vote=Vote.FAILS, levels=(3,), signature="a")
    assert not is_same_kind(fails, HuntAnswer(vote=Vote.FAILS, levels=(3,), signature="b"))
    assert is_same_kind(fails, fails)
    assert not is_same_kind(HuntAnswer(vote=Vote.RIGHT), WRONG)
    assert not is_same_kind(HuntAnswer(vote=Vote.WRONG, levels=(0,)), WRONG)
    assert said_of(WRONG) == "wrong -O3"


def test_programs_of_one_name_that_fail_on_other_versions_are_two_causes() -> None:
    old = least("bfe.u32 %r1, %r0, 3, 4;", v12_9="wrong -O3", v13_0="wrong -O3", v13_5="right")
    new = least("bfe.s32 %r1, %r0, 3, 4;", v12_9="right", v13_0="wrong -O3", v13_5="wrong -O3")
    one, two = Cause(programs=[old, new], hits=9).parted("13.0")
    assert (one.hits, two.hits) == (9, 1)
    assert spread(old, "13.0") == ("12.9 or before", "fixed in 13.5")
    assert spread(new, "13.0") == ("13.0", "still wrong")


def test_a_program_that_holds_another_one_is_of_its_cause() -> None:
    small = Cause(programs=[least("bfe.u32 %r1, %r0, 3, 4;", v13_0="wrong -O3")], seconds=9.0)
    large = Cause(
        programs=[least("bfe.s32 %r1, %r0, 3, 4;", "max.u32 %r2, %r1, %r0;", v13_0="wrong -O3")],
        seconds=5.0,
    )
    other = Cause(programs=[least("sad.u32 %r1, %r0, 3, 4;", v13_0="wrong -O3")])
    first, second = sorted(joined([large, other, small]), key=lambda cause: cause.name)
    assert (first.name, first.hits, first.seconds) == ("bfe at -O3", 2, 5.0)
    assert second.name == "sad at -O3"


def test_what_needs_more_opcodes_for_the_same_joins_what_needs_fewer() -> None:
    causes: list[Cause] = []
    more = least("bfe.s32 %r1, %r0, 3, 4;", "max.u32 %r2, %r1, %r0;")
    cause, is_new = join(causes, more, seconds=1.0, tried=1)
    assert is_new
    assert join(causes, least("bfe.u32 %r1, %r0, 3, 4;"), seconds=2.0, tried=2) == (cause, False)
    assert cause.name == "bfe at -O3"
    assert join(causes, least("sad.u32 %r1, %r0, 3, 4;"), seconds=3.0, tried=3)[1]
    both = HuntAnswer(vote=Vote.WRONG, levels=(0, 3))
    assert join(causes, least("bfe.u32 %r1, %r0, 3, 4;", answer=both), seconds=4.0, tried=4)[1]


def test_a_generator_leaves_out_the_rarest_opcode_and_after_three_of_a_word_the_word() -> None:
    forms = ("bfe.u32", "bfe.s32", "bfe.s64")
    lines = [(f"{opcode} %r1, %r0, 3, 4;", "xor.b32 %r1, %r1, 7;") for opcode in forms]
    programs = [least(*some) for some in lines]
    seen = {"xor.b32": 9}
    assert known_words([Cause(programs=programs[:1])], seen) == {"bfe.u32"}
    assert known_words([Cause(programs=programs)], seen) == {*forms, "bfe"}


class Judge:
    """Says of a program that it is wrong where it has one of these groups of words."""

    def __init__(self, *groups: str) -> None:
        self.groups = [group.split() for group in groups]
        self.asked: list[str] = []

    async def ask(self, asked: HuntCase, levels: tuple[int, ...]) -> HuntAnswer:
        assert levels == (3,)
        self.asked.append(asked.text)
        is_wrong = any(all(word in asked.text for word in group) for group in self.groups)
        return WRONG if is_wrong else HuntAnswer(vote=Vote.RIGHT)


SUM = "add.u32 %r1, %r0, 3;"
FIELD = "bfe.u32 %r1, %r0, 3, 4;"
DIFFERENCE = "sad.u32 %r2, %r0, 3, 4;"
STORES = ("st.global.u32 [%out], %r1;", "st.global.u32 [%out+4], %r2;")


def test_a_hit_without_all_that_is_known_is_another_hit_or_none() -> None:
    judge = Judge("bfe", "sad")
    known = [Cause(programs=[least(FIELD)]), Cause(programs=[least("prmt.b32 %r1, %r0, 3, 4;")])]
    causes = hunted(judge, known)
    hit = least(FIELD, DIFFERENCE, "add.u32 %r2, %r2, %r1;", *STORES[1:]).asked
    left = asyncio.run(causes.walk_around(Hit(hit, WRONG)))
    assert left
    assert "bfe" not in left.asked.text
    assert "sad" in left.asked.text
    # What was taken out once is not taken out again.
    count = len(judge.asked)
    assert asyncio.run(causes.walk_around(left)) == left
    assert len(judge.asked) == count
    alone = least(SUM, FIELD, *STORES[:1]).asked
    assert asyncio.run(causes.walk_around(Hit(replace_seed(alone, 2), WRONG))) is None
    assert known[0].hits == 2


def test_a_hit_is_cut_down_to_one_result_first() -> None:
    causes = hunted(Judge("sad"), [], {"sad.u32": 3})
    hit = least(SUM, DIFFERENCE, *STORES).asked
    left = asyncio.run(causes.walk_around(Hit(hit, WRONG)))
    assert left
    assert "add" not in left.asked.text
    assert causes.mark(left) == "sad.u32"
    assert causes.mark(Hit(hit, WRONG)) == "add.u32"


def test_a_reduction_ends_where_its_cause_comes_up_in_the_meantime() -> None:
    known: list[Cause] = []
    causes = hunted(Judge("sad"), known)
    hit = least(DIFFERENCE, *STORES[1:]).asked
    assert asyncio.run(causes.walk_around(Hit(hit, WRONG)))
    known.append(Cause(programs=[least(DIFFERENCE)]))
    assert asyncio.run(causes.reduce(Hit(hit, WRONG), is_time_up=lambda: False)) == ""
    assert known[0].hits == 2


class RefusingJudge(Judge):
    """Refuses what has one of these words, as ptxas does; the result may not depend on garbage."""

    def __init__(self, group: str, refused: str) -> None:
        super().__init__(group)
        self.refused = refused
        self.n_refused: list[int] = []

    async def ask(
        self, asked: HuntCase, levels: tuple[int, ...], *, is_thorough: bool = False
    ) -> HuntAnswer:
        if is_thorough:
            return WRONG
        if self.refused in asked.text:
            self.n_refused.append(asked.seed)
            return HuntAnswer(vote=Vote.REFUSED)
        return await super().ask(asked, levels)


def test_what_ptxas_refused_once_is_not_asked_of_the_next_hit() -> None:
    judge = RefusingJudge("sad st", "ld.u64 ")
    causes = hunted(judge)
    for seed in (1, 2):
        hit = HuntCase(least(SUM, FIELD, DIFFERENCE, *STORES).text, seed)
        program = asyncio.run(causes.reduce(Hit(hit, WRONG), is_time_up=lambda: False))
        assert isinstance(program, LeastProgram)
        assert program.opcodes == ("sad.u32",)
    assert judge.n_refused
    assert set(judge.n_refused) == {1}


def test_a_step_that_failed_is_tried_again_where_no_other_is_left() -> None:
    class Ordered(Judge):
        """One constant may go only where the other is gone."""

        async def ask(
            self, asked: HuntCase, levels: tuple[int, ...], *, is_thorough: bool = False
        ) -> HuntAnswer:
            self.asked.append(asked.text)
            is_wrong = asked.text.count("sad") == 2 and not is_early(asked.text)
            return WRONG if is_wrong else HuntAnswer(vote=Vote.RIGHT)

    def is_early(text: str) -> bool:
        return "255" in text and "4095" not in text

    judge = Ordered()
    causes = hunted(judge)
    lines = ("sad.u32 %r1, %r0, 255, 1;", "sad.u32 %r2, %r1, 4095, 1;")
    hit = least(*lines, *STORES[1:]).asked
    program = asyncio.run(causes.reduce(Hit(hit, WRONG), is_time_up=lambda: False))
    assert isinstance(program, LeastProgram)
    assert any(map(is_early, judge.asked))
    assert "255" not in program.text
    assert "4095" not in program.text


def replace_seed(asked: HuntCase, seed: int) -> HuntCase:
    return HuntCase(asked.text, seed)


def test_a_borrow_is_not_read_as_a_carry() -> None:
    sets = "add.cc.u32 %r1, %r0, 3;"
    assert is_closed(least(sets, "addc.u32 %r2, %r0, 3;").text)
    assert is_closed(least(sets, "madc.lo.u32 %r2, %r0, 3, 4;").text)
    assert not is_closed(least(sets, "subc.u32 %r2, %r0, 3;").text)
    assert not is_closed(least("sub.cc.u32 %r1, %r0, 3;", "addc.u32 %r2, %r0, 3;").text)


def test_a_result_that_depends_on_an_address_is_left_out() -> None:
    load = "ld.u32 %r1, [%out+4];"
    assert is_closed(least(load, "st.global.u32 [%out], %r1;").text)
    index = "mad.wide.u32 %out, %r0, 64, %out;"
    assert is_closed(least(index, load, "st.global.u32 [%out], %r1;").text)
    assert not is_closed(least("bfi.b64 %out, %out, %out, 3, 4;").text)
    assert not is_closed(least("cvt.u32.u64 %r1, %out;", "st.global.u32 [%out], %r1;").text)
    assert not is_closed(least(index, "st.global.u64 [%out], %out;").text)
    # Where an address was, a number may be.
    assert is_closed(least("mov.b64 %out, 3;", "cvt.u32.u64 %r1, %out;").text)


def test_of_a_register_that_is_both_halves_nobody_knows_the_value() -> None:
    halves = ".reg .b16 %h0, %h1;\nmov.b32 {%h0, %h1}, %r0;"
    assert count_unwritten(least(halves).text) == 0
    assert count_unwritten(least(halves.replace("{%h0, %h1}", "{%h0, %h0}")).text) == 1


@dataclass
class HangingPtxas:
    """Takes as long as it may, where there is a `sad`."""

    limits: ResourceLimits
    spent: list[float]

    async def ask(self, programs: Sequence[HuntCase], *, votes: bool) -> list[HuntAnswer]:
        assert not votes
        hangs = ["sad" in asked.text for asked in programs]
        self.spent += [self.limits.timeout for is_hang in hangs if is_hang]
        return [HANG if is_hang else HuntAnswer(vote=Vote.ASSEMBLED) for is_hang in hangs]


HANG = HuntAnswer(vote=Vote.FAILS, levels=(3,), words="killed after 60 s", signature="hang")


def test_a_hang_is_not_waited_for_to_its_end_at_each_step() -> None:
    ptxas = HangingPtxas(ResourceLimits(timeout=60.0, memory=1 << 30), [])
    causes = hunted(AskedTogether(ptxas))  # type: ignore[arg-type]  # it answers
    hit = least(SUM, DIFFERENCE, *STORES).asked
    program = asyncio.run(causes.reduce(Hit(hit, HANG), is_time_up=lambda: False))
    assert isinstance(program, LeastProgram)
    assert program.opcodes == ("sad.u32",)
    # The last answer is that of the ptxas that has all its time.
    assert ptxas.spent[-1] == 60.0
    assert set(ptxas.spent[:-1]) == {10.0}


CRASH = HuntAnswer(vote=Vote.FAILS, levels=(0, 3), words="died by SIGSEGV", signature="same")


def test_failures_that_say_nothing_are_told_apart_by_what_is_left() -> None:
    param, wide, local = (
        least(f"st.{space} [%out], {value};", answer=CRASH)
        for space, value in (("param.b32", "%r1"), ("param.b64", "%out"), ("local.b32", "%r1"))
    )
    assert param.name == "died by SIGSEGV (st.param)"
    assert is_same_cause(param, wide)
    assert not is_same_cause(param, local)
    at_one = least("st.param.b32 [%out], %r1;", answer=replace(CRASH, levels=(0,)))
    assert not is_same_cause(param, at_one)
    # With an instruction that computes, this is what a program is known by.
    assert least("st.param.b32 [%out], %r1;", "brev.b32 %r1, %r0;").opcodes == ("brev.b32",)


def kernel(*calls: str, race: str = "", latent: bool = False) -> LeastProgram:
    kind = f"wrong_result {SOME_ORDERS}" if latent else "wrong_result"
    answer = HuntAnswer(vote=Vote.WRONG, words="an element", signature=kind, race=race)
    name = f"{race or 'wrong result on sm_80'} ({', '.join(calls)})"
    return LeastProgram(
        text=name, seed=1, answer=answer, name=name, opcodes=calls, instructions=len(calls)
    )


def test_kernels_of_one_race_are_one_cause() -> None:
    copied = "read-write shared: wgmma.mma_async and cp.async"
    small = kernel("loop dot", "store", race=copied, latent=True)
    large = kernel("branch", "loop dot", "store", race=copied)
    assert is_same_cause(small, large)
    assert not is_same_cause(small, kernel("loop dot", "store", race="another"))
    # Without a race they are what their names say.
    assert not is_same_cause(kernel("loop dot"), kernel("loop dot", "store"))
    assert is_same_cause(kernel("loop dot"), kernel("loop dot"))
    # The least is one that a GPU is sure to show.
    causes = [Cause(programs=[small])]
    _, is_new = join(causes, large, seconds=1.0, tried=1)
    assert (is_new, causes[0].hits, causes[0].least) == (False, 2, large)


def test_a_failure_is_walked_around_by_the_store_that_it_needs() -> None:
    known = Cause(programs=[least("st.param.b64 [%out], %out;", answer=CRASH)])
    other = least("brev.b32 %r1, %r0;", "st.param.b64 [%out], %out;", answer=CRASH)

    class Oracles(AskedTogether):
        def __init__(self) -> None:
            pass

    async def walk() -> None:
        causes = hunted(Oracles(), [known])

        async def ask(asked: HuntCase, like: HuntAnswer) -> HuntAnswer:
            return like if "st.param" in asked.text else HuntAnswer(vote=Vote.ASSEMBLED)

        causes._ask = ask  # type: ignore[method-assign]
        assert await causes.walk_around(Hit(HuntCase(other.text, 1), CRASH)) is None

    asyncio.run(walk())
    assert known.hits == 2
