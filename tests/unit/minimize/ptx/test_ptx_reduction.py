"""The reduction of PTX on made-up oracles: structure, weight, and a second bug to drift to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_texts import FILES, MODULE

from gpu_emulator.ptx.text.document import parse
from harness.minimize.ptx.reduce import (
    count_instructions,
    reduce_ptx,
    single_deletions,
    undeclared,
    undefined_registers,
)
from harness.minimize.reduction.reducer import Effort, Reduction, ReductionProgress

BODY = [
    "ld.param.u64 %rd1, [a];",
    "mov.u32 %r1, %tid.x;",
    "mad.lo.s32 %r2, %r1, 8, %r1;",
    "ld.global.b32 %r3, [%rd1+16];",
    *(f"add.s32 %r{n + 1}, %r{n}, {n};" for n in range(3, 20)),
    "@%p1 fma.rn.f32 %r21, %r20, %r1, %r2;",
    *(f"st.shared.b32 [s+{n}], %r{n};" for n in range(20)),
    "st.global.v4.b32 [%rd1], {%r4, %r5, %r6, %r7};",
    "setp.eq.s32 %p1, %r21, 0;",
    "@%p1 bra DONE;",
    "ex2.approx.f32 %r22, %r21;",
    "DONE:",
    "st.global.b32 [%rd1], %r22;",
    "ret;",
]
KERNEL = """//
.version 8.8
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 s[];
.visible .entry kernel(.param .u64 a, .param .u32 b)
.reqntid 128
{{
    .reg .pred %p<4>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<4>;
    {}
}}
""".format("\n    ".join(BODY))

SMALL = """.version 8.8
.target sm_90
.extern .shared .align 16 .b8 s[];
.visible .entry small()
{{
    .reg .b32 %r<9>;
    mov.u32 %r1, %tid.x;
    {}
}}
"""


def run(
    text: str,
    predicate: Callable[[str], bool],
    *,
    defined: bool = False,
    watch: Callable[[ReductionProgress[str]], None] = lambda _: None,
    **effort: Any,
) -> tuple[Reduction[str], list[str]]:
    asked = []

    def start(candidate: str) -> Awaitable[bool]:
        asked.append(candidate)

        async def test() -> bool:
            return predicate(candidate)

        return asyncio.ensure_future(test())

    async def main() -> Reduction[str]:
        return await reduce_ptx(text, start, defined=defined, effort=Effort(**effort), watch=watch)

    return asyncio.run(main()), asked


def opcodes(text: str) -> list[str]:
    return [instruction.opcode for _, instruction in parse(text).instructions]


def holds_structure(text: str) -> bool:
    words = opcodes(text)
    return any(word.startswith("fma") for word in words) and any(w.startswith("ex2") for w in words)


def test_only_what_is_needed_is_left() -> None:
    result, asked = run(KERNEL, holds_structure)
    assert count_instructions(result.document) == 2
    assert sorted(opcodes(result.document)) == ["ex2", "fma"]
    assert len(result.document) < 200
    assert result.tests == len(asked) == len(set(asked))
    assert result.is_finished
    assert result.is_minimal
    assert ".version 8.8" in result.document
    assert ".target sm_90" in result.document


def weight(text: str) -> int:
    """What a store weighs by the registers that it names; nothing else weighs anything."""
    return sum(str(one).count("%") for _, one in parse(text).instructions if one.base == "st")


def test_the_pump_leaves_a_threshold_of_weight() -> None:
    """No single instruction can go, and yet twenty light ones make way for a few heavy ones."""
    result, _ = run(KERNEL, lambda text: holds_structure(text) and weight(text) >= 24)
    stores = [one for one in opcodes(result.document) if one.startswith("st")]
    assert holds_structure(result.document)
    assert weight(result.document) >= 24
    assert len(stores) <= 6
    assert result.ledger["ballast"].accepted >= 1


def test_it_does_not_drift_to_a_second_bug() -> None:
    """`ret` alone shows another bug with the same words: the fingerprint tells them apart."""

    def fails(text: str) -> bool:
        return holds_structure(text) or opcodes(text) == ["ret"]

    result, _ = run(KERNEL, lambda text: fails(text) and holds_structure(text))
    assert holds_structure(result.document)


def test_a_flaky_oracle_ends_and_what_is_left_was_seen_to_hold() -> None:
    seen = set()

    def flaky(text: str) -> bool:
        holds = holds_structure(text) and hash(text) % 5 != 0
        if holds:
            seen.add(text)
        return holds

    result, _ = run(KERNEL, flaky)
    assert result.document in seen
    assert count_instructions(result.document) <= 12


def test_the_pump_takes_arithmetic_on_a_passing_value_where_that_weighs_more() -> None:
    def predicate(text: str) -> bool:
        lines = [one for _, one in parse(text).instructions]
        made = [name for one in lines if one.base == "fma" for name in one.writes]
        passed = [name for one in lines if one.base == "ex2" for name in one.reads]
        weight = sum(5 if one.base == "rem" else 1 for one in lines)
        return ".reg .b32" in text and bool(set(made) & set(passed)) and weight >= 26

    result, _ = run(KERNEL, predicate)
    assert predicate(result.document)
    # Five remainders and the two that are needed; without them it would take 26.
    assert count_instructions(result.document) == 7
    assert result.ledger["ballast"].accepted >= 1


def test_defined_reads_nothing_undefined_at_any_step() -> None:
    best: list[str] = []

    def watch(progress: ReductionProgress[str]) -> None:
        if progress.document is not None:
            best.append(progress.document)

    result, _ = run(KERNEL, holds_structure, defined=True, watch=watch)
    assert holds_structure(result.document)
    assert best[-1] == result.document
    assert not any(undefined_registers(parse(text)) for text in best)
    assert all(undeclared(parse(text)) <= {"%tid", "%ctaid"} for text in best)
    assert count_instructions(result.document) <= 6


def test_what_needs_another_value_gets_that_one() -> None:
    """One is to be the same for all threads, one is to differ: neither will do for both."""

    text = SMALL.format("st.shared.b32 [s], %r1; add.s32 %r2, %r1, 1; st.shared.u32 [s+4], %r2;")

    def predicate(candidate: str) -> bool:
        lines = [str(one) for _, one in parse(candidate).instructions]
        made = {line.split()[1]: line.split()[-1] for line in lines if line.startswith("mov")}
        stored = {line.split()[0]: line.split()[-1].replace(";", ",") for line in lines}
        wanted = {"st.shared.b32": "%tid.x;", "st.shared.u32": "%ctaid.x;"}
        return all(
            opcode in stored and made.get(stored[opcode], source) == source
            for opcode, source in wanted.items()
        )

    result, _ = run(text, predicate, defined=True)
    assert predicate(result.document)
    assert not undefined_registers(parse(result.document))
    assert count_instructions(result.document) == 4


def test_what_only_an_undefined_register_shows_is_reduced_with_values_at_each_step() -> None:
    def predicate(text: str) -> bool:
        # It goes wherever a value is made out of nothing, except by what each step makes.
        return "ex2" in text and "%ctaid" not in text and "mov.b32 %r22, 1;" not in text

    result, _ = run(KERNEL, predicate, defined=True)
    assert predicate(result.document)
    assert not undefined_registers(parse(result.document))


def test_as_many_registers_as_the_original_leaves_undefined_may_stay_so() -> None:
    text = SMALL.format("rem.s32 %r3, %r1, %r2; add.s32 %r4, %r3, %r1; st.b32 [s], %r4;")

    def predicate(candidate: str) -> bool:
        reads = [one for one in parse(candidate).instructions if one[1].opcode == "rem.s32"]
        return bool(undefined_registers(parse(candidate))) and bool(reads)

    result, _ = run(text, predicate, defined=True)
    assert undefined_registers(parse(result.document)).total() == 1
    assert count_instructions(result.document) <= 3


@settings(deadline=None, max_examples=15)
@given(
    st.sets(st.sampled_from([line.split()[0] for line in BODY if line.endswith(";")]), max_size=3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.booleans(),
)
def test_any_needed_opcodes_survive_and_a_seed_makes_one_result(
    needed: set[str], jobs: int, seed: int, defined: bool
) -> None:
    def predicate(text: str) -> bool:
        return all(word in text for word in needed)

    result, _ = run(KERNEL, predicate, jobs=jobs, seed=seed, defined=defined, max_tests=400)
    again, _ = run(KERNEL, predicate, jobs=jobs, seed=seed, defined=defined, max_tests=400)
    assert result == again
    assert predicate(result.document)
    assert count_instructions(result.document) <= len(needed) + (6 if defined else 0)


def test_the_watcher_gets_each_best_text_and_the_budget_holds() -> None:
    heard: list[ReductionProgress[str]] = []
    result, asked = run(KERNEL, holds_structure, max_tests=20, watch=heard.append)
    assert len(asked) == result.tests == 20
    assert not result.is_finished
    assert not result.is_minimal
    kept = [progress.document for progress in heard if progress.is_accepted]
    assert kept[-1] == result.document
    assert all(text is not None and holds_structure(text) for text in kept)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_real_file_that_needs_nothing_is_reduced_to_nothing(path) -> None:  # type: ignore[no-untyped-def]
    result, _ = run(path.read_text(), lambda text: ".version" in text)
    assert count_instructions(result.document) == 0


def test_single_deletions_leave_all_but_one() -> None:
    deletions = list(single_deletions(MODULE))
    assert len(deletions) == count_instructions(MODULE) == 18
    assert all(count_instructions(text) == 17 for _, text in deletions)
    assert ("@again bra inner;", MODULE.replace("\n\t@again bra inner;", "")) in deletions


@pytest.mark.parametrize("text", ["", "no ptx\0", "{" * 50, "x;" * 50])
def test_what_is_no_ptx_is_handled(text: str) -> None:
    result, _ = run(text, lambda candidate: False)
    assert result.document == text


def test_no_candidate_reads_what_nothing_wrote() -> None:
    seen = []

    async def keeps_store(candidate: str) -> bool:
        seen.append(candidate)
        return "st.global.b32" in candidate

    done = asyncio.run(reduce_ptx(KERNEL, keeps_store, always=True))
    allowed = undefined_registers(parse(KERNEL))
    assert seen
    assert all(undefined_registers(parse(each)) <= allowed for each in seen)
    assert count_instructions(done.document) < 12
    assert "st.global.b32" in done.document
