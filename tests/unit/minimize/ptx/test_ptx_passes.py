"""Every pass on real and made-up PTX: what it offers can be applied, alone and together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_texts import FILES, MODULE, mutated

from gpu_emulator.ptx.text.document import Document, parse
from gpu_emulator.ptx.text.registers import most_live, undefined_reads, without_scopes
from harness.minimize.ptx.ptx_passes import (
    FUNCTIONS,
    HEADS,
    MODIFIERS,
    TIDY,
    bypasses,
    declarations,
    definitions,
    deletions,
    guards,
    halves,
    immediates,
    mergers,
    narrowest,
    offsets,
    renaming,
    returns,
    swapping,
    tidied,
    undefined,
)
from harness.minimize.ptx.reduce import completed, undefined_registers
from harness.minimize.reduction.reducer import FoundPass

PASSES: list[FoundPass[Document]] = [
    TIDY,
    FUNCTIONS,
    HEADS,
    swapping("declarations", declarations),
    swapping("delete", deletions),
    swapping("guards", guards),
    swapping("immediates", immediates),
    swapping("offsets", offsets),
    swapping("narrowest", narrowest),
    swapping("halves", halves),
    swapping("definitions", definitions),
    swapping("returns", returns),
    MODIFIERS,
    renaming("undefined", undefined),
    renaming("bypass", bypasses),
    renaming("merge", mergers),
]
by_name = pytest.mark.parametrize("transformation", PASSES, ids=lambda one: one.name)


def check(transformation: FoundPass[Document], text: str, chance: random.Random) -> None:
    document = parse(text)
    edits = list(transformation.opportunities(document))
    assert len(set(edits)) == len(edits)
    some = [edit for edit in edits if chance.random() < 0.5]
    for chosen in [edits, some, *([edit] for edit in chance.sample(edits, min(8, len(edits))))]:
        result = transformation.apply(document, chosen)
        if result is None or not chosen:
            continue
        again = parse(str(result))
        assert [one.code for one in again.statements] == [one.code for one in result.statements]
        assert [one.kind for one in again.statements] == [one.kind for one in result.statements]
        assert len(again.instructions) <= len(document.instructions)
        assert len(again.scopes) <= len(document.scopes)


@by_name
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_opportunity_of_a_real_file_leaves_ptx(
    transformation: FoundPass[Document], path: Path
) -> None:
    check(transformation, path.read_bytes().decode(), random.Random(1))


@by_name
def test_each_opportunity_of_the_small_module_leaves_ptx(
    transformation: FoundPass[Document],
) -> None:
    check(transformation, MODULE, random.Random(1))


@by_name
@given(text=mutated)
@settings(deadline=None, max_examples=30)
def test_damaged_ptx_does_not_break_a_pass(transformation: FoundPass[Document], text: str) -> None:
    document = parse(text)
    edits = list(transformation.opportunities(document))
    transformation.apply(document, edits)
    for edit in edits[:4]:
        transformation.apply(document, [edit])


def small(body: str, head: str = ".entry k()") -> str:
    registers = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;"
    return f".version 8.8\n.target sm_80\n{head} {{\n{registers}\n{body}\n}}\n"


def lines(document: Document) -> list[str]:
    return [str(instruction) for _, instruction in document.instructions]


@pytest.mark.parametrize(
    ("transformation", "before", "after"),
    [
        (swapping("", guards), "@%p1 ret;", ["ret;"]),
        (swapping("", immediates), "add.s32 %r1, %r2, 0x10;", ["add.s32 %r1, %r2, 0;"]),
        (swapping("", offsets), "st.b32 [%rd1+16], %r1;", ["st.b32 [%rd1], %r1;"]),
        (
            swapping("", narrowest),
            "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];",
            ["ld.global.b32 %r1, [%rd1];"],
        ),
        (
            swapping("", halves),
            "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r1, %r2, %r3, %r4}, [%r5];",
            ["tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r5];"],
        ),
        (swapping("", definitions), "add.s32 %r1, %r2, 1;", ["mov.u32 %r1, %tid.x;"]),
        (swapping("", returns), "@!%p1 bra L; L: ret;", ["@!%p1 ret;", "ret;"]),
        (MODIFIERS, "add.rn.f32 %r1, %r2, %r3;", ["add %r1, %r2, %r3;"]),
        (
            renaming("", undefined),
            "add.s32 %r1, %r2, %r3; add.s32 %r4, %r1, %r5;",
            ["add.s32 %r1, %r2, %r2;", "add.s32 %r4, %r1, %r2;"],
        ),
        (
            renaming("", bypasses),
            "mov.b32 %r1, %r2; neg.s32 %r3, %r1; st.b32 [%rd1], %r3;",
            ["st.b32 [%rd1], %r2;"],
        ),
        (
            renaming("", mergers),
            "add.s32 %r1, %r2, %r3; mov.b64 %rd1, %rd2;",
            ["add.s32 %r2, %r2, %r2;", "mov.b64 %rd2, %rd2;"],
        ),
    ],
)
def test_what_a_pass_does(
    transformation: FoundPass[Document], before: str, after: list[str]
) -> None:
    document = parse(small(before))
    result = transformation.apply(document, list(transformation.opportunities(document)))
    assert result is not None
    assert lines(result) == after


def test_heads_lose_their_parts_one_by_one_or_together() -> None:
    document = parse(small("ret;", ".visible .entry k(.param .u32 a, .param .u64 b) .reqntid 8, 1"))
    edits = HEADS.opportunities(document)
    assert len(edits) == 4
    bare = HEADS.apply(document, edits)
    assert bare is not None
    assert bare.statements[2].code == ".entry k()"


def test_tidy_leaves_what_it_left() -> None:
    once = tidied(parse(MODULE))
    assert tidied(once) == once
    assert "//" not in str(once)
    assert ".loc" not in str(once)
    assert "unused" not in str(once)
    assert len(once.instructions) == len(parse(MODULE).instructions)


def test_names_of_two_scopes_stay_two_names() -> None:
    flat = without_scopes(parse(MODULE))
    declared = [one.code for one in flat.statements if one.code.startswith(".reg .pred again")]
    assert len(set(declared)) == 2
    guards_of_branches = [one.guard for _, one in flat.instructions if one.base == "bra"]
    assert len(set(guards_of_branches)) == 2


@pytest.mark.parametrize(
    ("body", "registers"),
    [
        ("add.s32 %r1, %r2, 1; ret;", ["%r2"]),
        ("mov.u32 %r2, 0; add.s32 %r1, %r2, 1; ret;", []),
        ("setp.eq.u32 %p1, 0, 0; @%p1 bra L; mov.u32 %r1, 0; L: st.b32 [0], %r1;", ["%r1"]),
        ("mov.u32 %r1, 0; L: st.b32 [0], %r1; bra L;", []),
        ("L: mov.u32 %r1, 0; st.b32 [0], %r1; bra L;", []),
        ("bra L; K: st.b32 [0], %r1; ret; L: mov.u32 %r1, 0; bra K;", []),
        ("ret; st.b32 [0], %r1;", []),
        (
            "setp.eq.u32 %p1, 0, 0; @%p1 mov.u32 %r1, 0; @%p1 st.b32 [0], %r1; st.b32 [0], %r1;",
            ["%r1"],
        ),
        (
            "setp.eq.u32 %p1, 0, 0; @%p1 mov.u32 %r1, 0; not.pred %p1, %p1; @%p1 st.b32 [0], %r1;",
            ["%r1"],
        ),
    ],
)
def test_reads_before_writes_are_found(body: str, registers: list[str]) -> None:
    document = parse(small(body))
    found = undefined_reads(document, document.functions[0])
    assert [read.register for read in found] == registers


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Straight pieces with branches forward and back, over a few registers."""
    count = draw(st.integers(1, 5))
    body = []
    for block in range(count):
        body.append(f"L{block}:")
        for _ in range(draw(st.integers(0, 3))):
            target, source = draw(st.integers(1, 3)), draw(st.integers(1, 3))
            body.append(
                draw(
                    st.sampled_from(
                        [
                            f"mov.b32 %r{target}, 0;",
                            f"mov.b32 %r{target}, %r{source};",
                            f"st.b32 [0], %r{source};",
                            "ret;",
                        ]
                    )
                )
            )
        goal = draw(st.integers(0, count - 1))
        body.append(draw(st.sampled_from(["", f"bra L{goal};", f"@%p0 bra L{goal};"])))
    return small("mov.pred %p0, 1;\n" + "\n".join(body))


def walked(document: Document) -> set[tuple[int, str]]:
    """Undefined reads by walking: every state of (place, what is defined) that can be reached."""
    starts = {one.label: place for place, one in enumerate(document.statements) if one.label}
    seen: set[tuple[int, frozenset[str]]] = set()
    waiting = [(document.functions[0].opening, frozenset[str]())]
    found = set()
    while waiting:
        state = waiting.pop()
        place, defined = state
        if state in seen or place >= document.functions[0].closing:
            continue
        seen.add(state)
        one = document.statements[place].instruction
        if one is None:
            waiting.append((place + 1, defined))
            continue
        names = [name for name in one.reads if name.startswith("%")]
        found |= {(place, name) for name in names if name not in defined}
        if one.base == "bra":
            waiting.append((starts[one.operands[0]], defined))
        if not one.ends:
            waiting.append((place + 1, defined | set(one.writes)))
    return found


@given(programs())
@settings(deadline=None)
def test_reads_before_writes_are_those_that_walking_finds(text: str) -> None:
    document = parse(text)
    found = undefined_reads(document, document.functions[0])
    assert {(read.place, read.register) for read in found} == walked(document)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("mov.u32 %r1, 0; mov.u32 %r2, 0; add.s32 %r3, %r1, %r2; st.b32 [0], %r3;", 2),
        ("mov.u64 %rd1, 0; mov.u32 %r1, 0; st.b64 [0], %rd1; st.b32 [0], %r1;", 3),
        ("mov.u32 %r1, 0; mov.u32 %r2, 0; st.b32 [0], %r1;", 1),
        # Until a guarded write both values may be the one that is read.
        ("mov.u32 %r2, 0; @%p1 mov.u32 %r1, %r2; st.b32 [0], %r1;", 2),
        # What is read behind a loop lives in it.
        ("mov.u32 %r2, 0; mov.u32 %r1, 0; L: add.s32 %r1, %r1, 1; @%p1 bra L; st.b32 [0], %r2;", 2),
        ("ret;", 0),
    ],
)
def test_live_registers_are_counted(body: str, count: int) -> None:
    document = parse(small(body))
    assert most_live(document, document.functions[0]) == count


@given(programs())
@settings(deadline=None)
def test_what_lives_is_what_walking_reads(text: str) -> None:
    document = parse(text)
    starts = {one.label: place for place, one in enumerate(document.statements) if one.label}

    def is_read(place: int, register: str) -> bool:
        """Whether some way from a place reads a register before it is written."""
        seen, waiting = set[int](), [place]
        while waiting:
            place = waiting.pop()
            if place in seen or place >= document.functions[0].closing:
                continue
            seen.add(place)
            one = document.statements[place].instruction
            if one and register in one.reads:
                return True
            if one and one.base == "bra":
                waiting.append(starts[one.operands[0]])
            if one is None or not (one.ends or register in one.writes):
                waiting.append(place + 1)
        return False

    counts = [
        sum(is_read(place, f"%r{number}") for number in range(1, 4))
        for place in document.functions[0].body
    ]
    assert most_live(document, document.functions[0]) == max(counts)


@given(programs(), st.data())
@settings(deadline=None)
def test_a_completed_program_reads_nothing_undefined(text: str, data: st.DataObject) -> None:
    document = parse(text)
    places = [place for place, _ in document.instructions]
    gone = data.draw(st.sets(st.sampled_from(places)))
    whole = completed(document.without(gone))
    assert not undefined_registers(whole)
    assert completed(whole) == whole
    assert parse(str(whole)).instructions == whole.instructions


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_real_files_are_completed(path: Path) -> None:
    assert not undefined_registers(completed(parse(path.read_text())))


def test_what_the_isa_demands_of_an_opcode_is_not_taken_away() -> None:
    text = ".version 8.0\n.target sm_90a\n.entry k()\n{\nwgmma.commit_group.sync.aligned;\n}\n"
    found = MODIFIERS.opportunities(parse(text))
    assert found == [("wgmma.commit_group.sync.aligned", 1)]
