from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from gpu_emulator.ptx.text.facts import harmless_variants, read_ptx, rename_entry
from harness.blame.blame_words import Blame, NextStep, blame
from harness.blame.grid import (
    Cell,
    Culprit,
    Grid,
    Ground,
    Line,
    PairTrial,
    Varied,
    culprit_of,
    fold,
    order_for_others,
    order_for_the_first,
    worth_trying,
)
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import FollowedFailure, follow
from harness.tables.survivors import survivors
from harness.values.row import Row
from harness.values.toolchain import EXECUTOR_NAMES, SASS
from harness.values.verdict import Stage, VerdictKind

PTXAS = ("12.9.86", "13.0.88", "13.1.115", "13.3.33")
TRITONS = ("3.5.1", "3.6.0", "3.8.0")
SAME, OK, OTHER, HOLE = (
    VerdictAnswer.SAME,
    VerdictAnswer.OK,
    VerdictAnswer.OTHER,
    VerdictAnswer.UNTESTABLE,
)
WORDS = {"x": SAME, "+": OK, "o": OTHER, "?": HOLE, "!": VerdictAnswer.INFRA}
# How each outcome is told, besides by the failure itself.
VERDICTS = {OK: "ok", OTHER: "pass_failure", HOLE: "unsupported", VerdictAnswer.INFRA: "infra"}

ICE = FollowedFailure(kind=VerdictKind.PTXAS_ICE, stage="cubin", signature="f")
REFUSAL = FollowedFailure(kind=VerdictKind.PTXAS_ERROR, stage="cubin", signature="f")
SPILLS = FollowedFailure(kind=VerdictKind.SICK, stage="cubin", signature="f")
STUB = FollowedFailure(kind=VerdictKind.TRAP_STUB, stage="llir", signature="f")
REJECTED = FollowedFailure(kind=VerdictKind.REJECTED, stage="ttir", signature="f")
TOO_LARGE = FollowedFailure(kind=VerdictKind.OUT_OF_RESOURCES, stage="launch", signature="f")
CRASH = FollowedFailure(kind=VerdictKind.COMPILER_CRASH, stage="llir", signature="f")
PASS = FollowedFailure(kind=VerdictKind.PASS_FAILURE, stage="ttgir", signature="f")
SLOW = FollowedFailure(kind=VerdictKind.TIMEOUT, stage="cubin", signature="f")
BEYOND = FollowedFailure(kind=VerdictKind.UNSUPPORTED, stage="cubin", signature="f")


def cell(outcome: VerdictAnswer, focus: FollowedFailure) -> Cell:
    verdict = focus.kind.value if outcome is SAME else VERDICTS[outcome]
    return Cell(outcome=outcome, verdict=verdict, reason="because")


def line(
    letters: str,
    focus: FollowedFailure,
    *,
    triton: str | None = "3.6.0",
    body: str = "a",
    version: str = "8.8",
    flags: tuple[str, ...] = (),
) -> Line:
    """One program; a letter for each ptxas, a dot where it was not tried."""
    cells = {v: cell(WORDS[c], focus) for v, c in zip(PTXAS, letters, strict=False) if c != "."}
    compilers = (triton,) if triton else ()
    return Line(compilers=compilers, body=body, version=version, flags=flags, cells=cells)


def stopped(letter: str, focus: FollowedFailure, *, triton: str) -> Line:
    """What came to no PTX."""
    return Line(compilers=(triton,), stopped=cell(WORDS[letter], focus))


def judged(focus: FollowedFailure, *lines: Line, trials: Sequence[PairTrial] = ()) -> Blame:
    return blame(Grid(lines=lines, assemblers=PTXAS, focus=focus, trials=tuple(trials)))


def trial(varied: Varied, before: VerdictAnswer, after: VerdictAnswer) -> PairTrial:
    return PairTrial(
        label="varied",
        varied=varied,
        version="3.6.0",
        assembler=PTXAS[0],
        before=before,
        after=after,
        verdict="",
    )


def test_what_differs_over_one_ptx_is_ptxas() -> None:
    found = judged(ICE, line("++x+", ICE))
    assert found.culprit is Culprit.PTXAS
    assert found.reasons[0] == (
        "PTX identical on both sides (Triton 3.6.0, PTX 8.8): yes, so ptxas. "
        "It fails on 13.1.115, and works on 12.9.86, 13.0.88, 13.3.33."
    )
    assert judged(SPILLS, line("++x+", SPILLS)).culprit is Culprit.PTXAS


def test_a_crash_of_ptxas_is_ptxas_whatever_made_the_ptx() -> None:
    fine = line("++++", ICE, triton="3.8.0", body="b")
    for lines in ([line("xxxx", ICE)], [line("xxxx", ICE), fine]):
        assert judged(ICE, *lines).ground is Ground.PTXAS_CRASH
    found = judged(ICE, line("xxxx", ICE), fine)
    assert "The PTX of Triton 3.8.0, PTX 8.8 works on the same ptxas" in "".join(found.reasons)
    assert any("The PTX triggers it; the bug is in ptxas." in reason for reason in found.reasons)


def test_what_every_ptxas_shows_on_one_ptx_and_none_on_another_is_tritons() -> None:
    fails, works = line("?xxx", SPILLS), line("?+++", SPILLS, triton="3.8.0", body="b")
    assert judged(SPILLS, fails, works).ground is Ground.FOLLOWS_PTX
    # One ptxas alone might be what does not like it.
    found = judged(SPILLS, line("??x?", SPILLS), works)
    assert (found.culprit, found.next_step) == (Culprit.CANNOT_TELL, NextStep.OTHER_PTXAS)
    # Another Triton's PTX that no ptxas in common could read says nothing.
    apart = line("+???", SPILLS, triton="3.8.0", body="b")
    found = judged(SPILLS, line("?xxx", SPILLS), line("?xxx", SPILLS, triton="3.5.1"), apart)
    assert (found.ground, found.next_step) == (Ground.NO_COMMON_PTXAS, NextStep.OTHER_PTXAS)


def test_a_stub_is_tritons_and_others_that_make_none_are_named() -> None:
    works = line("??++", STUB, triton="3.8.0", body="b")
    found = judged(STUB, line("xxxx", STUB), works)
    assert (found.culprit, found.ground) == (Culprit.TRITON, Ground.STUB)
    assert "Triton 3.8.0 compiles the same source: it depends on the Triton." in found.reasons
    too_much = FollowedFailure(kind=STUB.kind, stage=STUB.stage, signature="f", is_over_limit=True)
    found = judged(too_much, line("xxxx", STUB))
    assert found.ground is Ground.STUB
    assert "No Triton that was tried does better." in found.reasons
    # What every Triton takes for impossible may be so.
    assert judged(STUB, line("xxxx", STUB)).next_step is NextStep.IR
    # Where nobody knows what it was made from, a trap may be what was written.
    found = judged(STUB, line("xxxx", STUB, triton=None))
    assert (found.culprit, found.next_step) == (Culprit.CANNOT_TELL, NextStep.SOURCE)


def test_what_happens_before_ptxas() -> None:
    fails = stopped("x", PASS, triton="3.6.0")
    works = line("..+.", PASS, triton="3.8.0", body="b")
    assert judged(PASS, fails, works).ground is Ground.ANOTHER_TRITON
    also = stopped("x", PASS, triton="3.8.0")
    assert judged(PASS, fails, also).ground is Ground.NO_TRITON
    assert judged(PASS, fails).next_step is NextStep.OTHER_TRITONS
    # A compiler may refuse, but not die.
    assert judged(CRASH, stopped("x", CRASH, triton="3.6.0")).ground is Ground.TRITON_CRASH
    caught = msgspec.structs.replace(
        PASS, said="pass TritonGPUPipeline crashed: LowerLoops.cpp: Assertion `x' failed"
    )
    assert judged(caught, fails, also).ground is Ground.TRITON_CRASH
    failed = msgspec.structs.replace(PASS, said="pass TritonGPUPipeline failed: it crashed")
    assert judged(failed, fails, also).ground is Ground.NO_TRITON


@pytest.mark.parametrize(
    "said",
    [
        "pass LayoutInference failed: no available layout found (Check failed)",
        "stage cuda failed: Check failed: (opaque.empty()) is false:",
        "stage llir failed: Allocation.cpp:87: Assertion `order.size() == 2' failed.",
        "pass ConvertTritonGPUToLLVM failed: TODO: unsupported scan layout",
        "pass LowerTileOp failed: divide by zero (InternalError)",
        "stage ptx failed: UNREACHABLE executed at Utility.cpp:12!",
    ],
)
def test_a_check_of_the_compilers_own_is_the_compilers_in_compile_and_in_blame(said: str) -> None:
    focus = msgspec.structs.replace(PASS, said=said)
    fails = [stopped("x", focus, triton=triton) for triton in ("3.6.0", "3.8.0")]
    assert judged(focus, *fails).culprit is Culprit.TRITON
    row = msgspec.structs.replace(
        spills(0, 32), verdict=focus.kind, stage=focus.stage, signature="f", reason=said
    )
    [fate] = survivors([row]).fates
    assert fate.at_fault == "at fault: Triton, stage ttgir"
    # What is refused in words may be the kernel's own.
    refused = msgspec.structs.replace(PASS, said="pass LowerTileOp failed: M must be 16")
    assert judged(refused, *fails).culprit is Culprit.CANNOT_TELL


def test_what_all_refuse_is_the_kernels() -> None:
    fails = stopped("x", REJECTED, triton="3.6.0")
    other = Cell(outcome=OTHER, verdict="rejected", reason="in other words")
    also = Line(compilers=("3.2.0",), stopped=other)
    assert judged(REJECTED, fails, also).ground is Ground.REJECTED
    # Another Triton has taken the source, even though it failed later.
    later = stopped("o", REJECTED, triton="3.8.0")
    assert judged(REJECTED, fails, also, later).culprit is Culprit.CANNOT_TELL
    assert judged(REJECTED, fails).next_step is NextStep.OTHER_TRITONS
    # Where ptxas refuses it for the target's sake, nobody has taken it.
    words = "ptxas ended with exit code 255: Feature '.cluster' requires .target sm_90 or higher"
    refused = Line(
        compilers=("3.4.0",),
        body="b",
        cells={PTXAS[0]: Cell(outcome=OTHER, verdict="ptxas_error", reason=words)},
    )
    assert judged(REJECTED, fails, also, refused).ground is Ground.REJECTED


def test_a_limit_of_the_target_is_the_kernels() -> None:
    lines = [line("xxxx", TOO_LARGE, triton=t, body=t) for t in TRITONS]
    assert judged(TOO_LARGE, *lines).ground is Ground.LIMIT
    fits = line("++++", TOO_LARGE, triton="3.9.0", body="b")
    assert judged(TOO_LARGE, *lines, fits).culprit is Culprit.TRITON
    assert judged(TOO_LARGE, lines[0]).next_step is NextStep.OTHER_TRITONS
    assert judged(TOO_LARGE, line("x", TOO_LARGE, triton=None)).ground is Ground.LIMIT


def test_pairings() -> None:
    assert judged(BEYOND, line("x??+", BEYOND)).culprit is Culprit.PAIRING
    # Refused, not crashed, and only together: either may be in the wrong.
    works = line("++++", REFUSAL, triton="3.8.0", body="b")
    assert judged(REFUSAL, line("++xx", REFUSAL), works).ground is Ground.BOTH
    assert judged(REFUSAL, line("++xx", REFUSAL)).culprit is Culprit.PTXAS
    # One program, under another version of PTX.
    newer = line("++++", SPILLS, triton="3.8.0", version="9.1")
    assert judged(SPILLS, line("xxxx", SPILLS), newer).ground is Ground.SETTINGS
    flag = trial(Varied.FLAGS, SAME, OK)
    assert judged(SPILLS, line("xxxx", SPILLS), trials=[flag]).ground is Ground.SETTINGS


def test_a_triton_that_is_pointed_at_a_ptxas_it_does_not_know() -> None:
    fails = Line(compilers=("3.6.0",), made_for="13.1.115", stopped=cell(SAME, PASS))
    works = line("+...", PASS)
    assert judged(PASS, fails, works).ground is Ground.POINTED
    fails = Line(compilers=("3.6.0",), made_for="13.1.115", stopped=cell(SAME, BEYOND))
    found = judged(BEYOND, fails, works)
    assert found.culprit is Culprit.PAIRING
    assert found.reasons[-1] == "Triton 3.6.0, PTX 8.8 works on ptxas 12.9.86."


def test_what_must_not_matter_and_does_is_said() -> None:
    renamed = trial(Varied.NAME_OR_LINES, SAME, OK)
    found = judged(ICE, line("++x+", ICE), trials=[renamed])
    assert found.culprit is Culprit.PTXAS
    assert any("It depends on what must not matter" in reason for reason in found.reasons)
    works = line("++++", SPILLS, triton="3.8.0", body="b")
    found = judged(SPILLS, line("xxxx", SPILLS), works, trials=[renamed])
    assert (found.ground, found.next_step) == (Ground.FRAGILE, NextStep.REDUCTION)


def test_what_comes_out_otherwise_when_it_is_run_again_is_not_told() -> None:
    again = trial(Varied.NOTHING, SAME, OK)
    found = judged(SPILLS, line("++x+", SPILLS), trials=[again])
    assert (found.culprit, found.next_step) == (Culprit.CANNOT_TELL, NextStep.AGAIN)
    # A crash now and then is a crash.
    assert judged(ICE, line("++x+", ICE), trials=[again]).ground is Ground.PTXAS_CRASH


def test_a_failure_of_another_kind_and_what_is_sick_besides() -> None:
    assert ICE.outcome(VerdictKind.SICK, "cubin", "s") is OK
    assert ICE.outcome(VerdictKind.OUT_OF_RESOURCES, "launch", "s") is OTHER
    assert ICE.outcome(VerdictKind.TIMEOUT, "cubin", "s") is VerdictAnswer.UNTESTABLE
    assert SPILLS.outcome(VerdictKind.SICK, "cubin", "s") is OTHER
    # Written away: not what the source says, so it does not work either.
    assert STUB.outcome(VerdictKind.SICK, "llir", "s") is OTHER
    assert BEYOND.outcome(VerdictKind.UNSUPPORTED, "cubin", "s") is HOLE


letters = st.text("x+o?!.", min_size=len(PTXAS), max_size=len(PTXAS))
stages = st.sampled_from([stage.value for stage in Stage.all()])
kinds = st.sampled_from([kind for kind in VerdictKind if kind is not VerdictKind.INFRA])


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    kind = draw(kinds)
    focus = FollowedFailure(kind=kind, stage=draw(stages), signature="f")
    is_raw = draw(st.booleans())
    lines = []
    for triton in TRITONS[: 1 if is_raw else draw(st.integers(1, 3))]:
        if not is_raw and draw(st.booleans()):
            lines.append(stopped(draw(st.sampled_from("xo?!")), focus, triton=triton))
            continue
        lines.append(
            line(
                draw(letters),
                focus,
                triton=None if is_raw else triton,
                body=draw(st.sampled_from("ab")),
                version=draw(st.sampled_from(["8.8", "9.1"])),
            )
        )
    trials = draw(
        st.lists(
            st.builds(
                trial,
                st.sampled_from(list(Varied)),
                st.sampled_from([SAME, OK]),
                st.sampled_from(list(VerdictAnswer)),
            ),
            max_size=2,
        )
    )
    return Grid(lines=tuple(lines), assemblers=PTXAS, focus=focus, trials=tuple(trials))


@settings(max_examples=500)
@given(grids())
def test_every_answer_is_true_of_grids_of_all_kinds(grid: Grid) -> None:
    assert_true_of(grid)


@pytest.mark.parametrize("focus", [ICE, REFUSAL, SPILLS, TOO_LARGE, STUB, SLOW])
def test_every_answer_is_true_of_every_small_grid(focus: FollowedFailure) -> None:
    """Two lines of three ptxas, and three lines of two, of one program or of several."""
    for size, bodies in ((3, "aa"), (3, "ab"), (2, "aab"), (2, "abc")):
        rows = ["".join(letters) for letters in itertools.product("x+?", repeat=size)]
        for chosen in itertools.product(rows, repeat=len(bodies)):
            lines = [
                line(letters, focus, triton=triton, body=body, version=triton[:3])
                for letters, triton, body in zip(chosen, TRITONS, bodies, strict=False)
            ]
            assert_true_of(Grid(lines=tuple(lines), assemblers=PTXAS, focus=focus))


def assert_true_of(grid: Grid) -> None:
    """Every claim, checked against the grid itself."""
    found, focus = blame(grid), grid.focus
    every = [each for one in grid.lines for each in one.all_cells()]
    fails = any(each.outcome is SAME for each in every)
    is_ptxas_crash = focus.is_crash and focus.stage in ("cubin", "launch")
    is_triton_crash = focus.is_crash and not is_ptxas_crash
    assert (found.culprit is None) is not fails
    assert bool(found.reasons) is fails
    assert (found.next_step is not None) is (found.culprit is Culprit.CANNOT_TELL)
    if not fails or focus.kind is VerdictKind.UNSUPPORTED:
        assert found.culprit in (None, Culprit.PAIRING)
        return
    if is_ptxas_crash or is_triton_crash:
        assert found.culprit is (Culprit.PTXAS if is_ptxas_crash else Culprit.TRITON)
        return
    differs = any(one.ptxas(SAME) and one.ptxas(OK) for one in grid.lines)
    if found.culprit is Culprit.PTXAS:
        assert differs, "one PTX, byte for byte, under two ptxas"
    if found.culprit in (Culprit.TRITON, Culprit.KERNEL):
        assert not differs, "every ptxas that could be told fails on that PTX"
        assert grid.lines[0].compilers or found.ground is Ground.LIMIT
    if found.culprit is Culprit.TRITON and found.ground is not Ground.STUB:
        works = [one for one in grid.lines if one.has(OK)]
        broken = [one for one in grid.lines if one.has(SAME)]
        assert works
        if found.ground is Ground.FOLLOWS_PTX:
            assert any(
                one.body != other.body and set(one.ptxas(SAME)) & set(other.ptxas(OK))
                for one in broken
                for other in works
            )
            assert any(len(one.ptxas(SAME)) > 1 for one in broken)
    if found.culprit is Culprit.KERNEL:
        assert not any(each.outcome is OK for each in every)
        assert len(grid.compilers_with(focus.kind)) > 1 or grid.is_raw


@given(grids(), st.sampled_from("o?!"))
def test_what_tells_nothing_never_counts(grid: Grid, letter: str) -> None:
    """Whatever is no *same* and no *ok* may be any other word: the answer stays the same."""
    # That others refuse the source too, or fail later, does tell of a refusal.
    assume(grid.focus.kind not in (VerdictKind.REJECTED, VerdictKind.PASS_FAILURE))

    def swapped(each: Cell) -> Cell:
        return each if each.outcome.moves_a_bound else cell(WORDS[letter], PASS)

    lines = [
        replace(
            one,
            stopped=one.stopped and swapped(one.stopped),
            cells={version: swapped(each) for version, each in one.cells.items()},
        )
        for one in grid.lines
    ]
    assert blame(replace(grid, lines=tuple(lines))).ground is blame(grid).ground


def test_versions_fold_into_ranges_of_neighbours() -> None:
    columns = ["1", "2", "3", "4", "5", "6"]
    assert fold(["2", "3", "4", "6"], columns) == "2 - 4 (3), 6"
    assert fold(["1", "2"], columns) == "1, 2"
    assert fold([], columns) == "none"


def test_which_versions_are_tried() -> None:
    minors = [f"3.{n}.0" for n in range(2, 14)]
    assert worth_trying(minors, "3.6.1", 4) == ["3.6.1", "3.13.0", "3.6.0", "3.7.0"]
    assert order_for_the_first(
        case="13.1.1", bundled=["12.9.1"], minors=["12.8.1", "13.1.1"], installed={"11.7.1"}
    ) == ["13.1.1", "12.9.1", "12.8.1", "11.7.1"]


def test_the_other_lines_are_asked_where_the_first_one_changes() -> None:
    columns = ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0"]
    first = dict(zip(columns, [HOLE, OK, OK, SAME, SAME, OK], strict=True))
    order = order_for_others("4.0", first, columns)
    assert order == ["4.0", "6.0", "5.0", "3.0", "2.0", "1.0"]


PTX = """// foo, as foo( was written
.version 8.8
.target sm_90a
.visible .entry foo(
\t.param .u64 foo_param_0, // foo_param_0
\t.param .u64 foo_param_10
)
{
\t.reg .b64 %rd<3>;
\t.loc 1 2 3, function_name foo
\tld.param.b64 %rd1, [foo_param_0];
\tst.global.b64 [%rd1], %rd2;
\tret;
}
.section .debug_str { .b8 102 }
"""


def test_renaming_touches_the_entry_and_its_parameters_only() -> None:
    text = PTX.replace(", function_name foo", "")
    varied = rename_entry(text, "foo")
    assert varied is not None
    renamed, name = varied
    assert renamed == text.replace("entry foo", f"entry {name}").replace(
        "u64 foo_param", f"u64 {name}_param"
    ).replace("[foo_param", f"[{name}_param")
    assert read_ptx(renamed).entry == name
    assert "// foo, as foo( was written" in renamed
    assert "// foo_param_0" in renamed


def test_a_name_that_means_something_else_too_is_not_renamed() -> None:
    assert rename_entry(PTX, "foo") is None
    assert rename_entry(PTX, "bar") is None
    # An opcode is not a use of the name, and neither is a register's or a directive's.
    text = PTX.replace(", function_name foo", "").replace("foo", "st")
    varied = rename_entry(text, "st")
    assert varied is not None
    assert "\tst.global.b64 [%rd1], %rd2;" in varied[0]
    assert rename_entry(text.replace("\tret;", "$L: st: ret;"), "st") is None


def test_the_new_name_is_new() -> None:
    text = PTX.replace(", function_name foo", "").replace("$L", "$L").replace("%rd2", "renamed")
    varied = rename_entry(text, "foo")
    assert varied is not None
    assert varied[1] == "renamed_"


def test_variants_that_change_nothing_are_left_out() -> None:
    plain = ".version 8.8\n.target sm_90a\n.entry foo()\n{\nret;\n}"
    assert [what for what, _, _ in harmless_variants(plain, "foo")] == ["with the entry renamed"]
    names = {what for what, _, _ in harmless_variants(PTX, "foo")}
    assert names == {"without line information"}


@pytest.mark.parametrize("ground", Ground)
def test_every_ground_has_an_answer(ground: Ground) -> None:
    assert (culprit_of(ground) is None) is (ground is Ground.NOTHING_FAILS)


@given(st.text(max_size=300), st.text(max_size=20))
def test_renaming_any_text_never_fails(text: str, entry: str) -> None:
    varied = rename_entry(text, entry)
    assert varied is None or varied[1] in varied[0]


def spills(stores: int, regs: int) -> Row:
    values: dict[str, Any] = dict.fromkeys(
        ("cell", "short", "kernel", "launch", "target", "ptxas", "ptxas_origin"), "k"
    )
    return Row(
        **values,
        config={},
        triton="3.6.0",
        compiler="triton",
        compiler_version="3.6.0",
        verdict=VerdictKind.SICK if stores > 500 else VerdictKind.OK,
        reason="spills",
        stage="cubin",
        signature="f",
        n_regs=regs,
        spill_stores=stores,
        spill_loads=stores,
    )


NUMBERS = follow(spills(3796, 32), others=[spills(616, 255)])


def numbered(letters: str, triton: str, body: str) -> Line:
    rows = {"x": spills(3796, 32), "X": spills(3900, 32), "+": spills(616, 255)}
    cells = {
        version: Cell(outcome=NUMBERS.of(rows[letter]), verdict="sick", row=rows[letter])
        for version, letter in zip(PTXAS, letters, strict=True)
    }
    return Line(compilers=(triton,), body=body, version="8.8", cells=cells)


def test_a_regression_of_spills_between_tritons_is_tritons_with_its_numbers() -> None:
    found = judged(NUMBERS, numbered("xxXx", "3.6.0", "a"), numbered("++++", "3.5.1", "b"))
    assert (found.culprit, found.ground) == (Culprit.TRITON, Ground.FOLLOWS_PTX)
    followed, bad, good = found.reasons[:3]
    assert followed.startswith(
        "Followed: spill_stores >= 3080 (5 times the best toolchain or worse"
    )
    assert bad == (
        "PTX identical on both sides: no, it depends on the PTX. The PTX of Triton 3.6.0, PTX 8.8 "
        "meets the condition on every ptxas that gave a result: 12.9.86 - 13.3.33 (4) (32 "
        "registers, 3,796 - 3,900 B of spill stores)."
    )
    assert good == (
        "The PTX of Triton 3.5.1, PTX 8.8 does not meet it on the same ptxas: 12.9.86 - 13.3.33 "
        "(4) (255 registers, 616 B of spill stores)."
    )


def test_a_regression_of_spills_between_ptxas_is_ptxas() -> None:
    found = judged(NUMBERS, numbered("++xx", "3.6.0", "a"))
    assert found.culprit is Culprit.PTXAS
    assert "12.9.86, 13.0.88 (255 registers, 616 B of spill stores)" in found.reasons[1]


def test_that_every_toolchain_spills_says_nothing_of_the_kernel() -> None:
    found = judged(NUMBERS, numbered("xxxx", "3.6.0", "a"), numbered("xxxx", "3.5.1", "b"))
    assert (found.ground, found.next_step) == (Ground.NO_BETTER, NextStep.WORKAROUND)
    assert found.culprit is Culprit.CANNOT_TELL


def test_a_source_that_one_triton_refuses_is_no_failure_of_triton() -> None:
    works = line("..+.", REJECTED, triton="3.8.0", body="b")
    found = judged(REJECTED, stopped("x", REJECTED, triton="3.3.1"), works)
    assert (found.culprit, found.ground) == (Culprit.PAIRING, Ground.DIALECT)
    assert found.reasons[-1] == "The message says which side to change: because."


def test_what_nothing_supports_is_said_in_the_words_of_each_ptxas() -> None:
    cells = {
        "12.9.86": Cell(outcome=SAME, verdict="unsupported", reason="no such target"),
        "13.0.88": Cell(outcome=HOLE, verdict="unsupported", reason="the PTX is too old"),
    }
    mine = Line(compilers=("3.4.0",), body="a", version="8.7", cells=cells)
    pointed = Line(
        compilers=("3.4.0",),
        body="b",
        version="8.8",
        made_for="13.0.88",
        cells={"13.0.88": Cell(outcome=OK, verdict="ok")},
    )
    found = judged(BEYOND, mine, pointed)
    assert found.reasons == (
        "Triton 3.4.0, PTX 8.7 with ptxas 12.9.86: no such target.",
        "Triton 3.4.0, PTX 8.7 with ptxas 13.0.88: the PTX is too old.",
        "Triton 3.4.0 works when it is pointed at ptxas 13.0.88.",
    )
    assert judged(BEYOND, mine).reasons[-1] == "No combination that was tried works."


RUN = FollowedFailure(kind=VerdictKind.WRONG_RESULT, stage="run", signature="f")
RACE = structs.replace(RUN, kind=VerdictKind.RACE)
FAULT = structs.replace(RUN, kind=VerdictKind.MEMORY_FAULT)


def executed(focus: FollowedFailure, *trials: PairTrial, **compilers: str) -> Blame:
    """Each Triton (`v3_6="x"`) with PTX of its own, on the emulator."""
    lines = tuple(
        Line(
            compilers=(name.removeprefix("v").replace("_", "."),),
            body=name,
            cells={"emulator": cell(WORDS[letter], focus)},
        )
        for name, letter in compilers.items()
    )
    return blame(Grid(lines=lines, assemblers=("emulator",), focus=focus, trials=trials))


def varied(what: str, how: Varied, after: VerdictAnswer) -> PairTrial:
    return replace(trial(how, SAME, after), label=what, verdict="right" if after is OK else "wrong")


def test_executed_ptx_that_another_triton_has_right_is_tritons() -> None:
    found = executed(RUN, v3_6="x", v3_9="+")
    assert (found.culprit, found.ground) == (Culprit.TRITON, Ground.ANOTHER_TRITON)
    said = "\n".join(found.reasons)
    assert "ptxas is not involved" in said
    assert "wrong_result, on the same inputs: Triton 3.6." in said
    # What could not be run says nothing.
    found = executed(RUN, v3_6="x", v3_9="?")
    assert (found.ground, found.next_step) == (Ground.ONE_TRITON, NextStep.OTHER_TRITONS)
    assert any("Says nothing of it: Triton 3.9" in reason for reason in found.reasons)


def test_what_may_not_change_a_result_and_does_is_tritons() -> None:
    for what, how, ground in (
        ("num_stages=1", Varied.OPTION, Ground.OPTION),
        ("num_warps=2", Varied.OPTION, Ground.OPTION),
        ("sm_80", Varied.TARGET, Ground.TARGET),
    ):
        found = executed(RUN, varied(what, how, OK), v3_6="x", v3_9="x")
        assert (found.culprit, found.ground) == (Culprit.TRITON, ground)
        assert any(what in reason and "right" in reason for reason in found.reasons)
    # Fewer threads have fewer races, whoever made them.
    fewer = varied("num_warps=1", Varied.OPTION, OK)
    assert executed(RACE, fewer, v3_6="x", v3_9="x").culprit is Culprit.KERNEL
    unpipelined = varied("num_stages=1", Varied.OPTION, OK)
    assert executed(RACE, unpipelined, v3_6="x", v3_9="x").culprit is Culprit.TRITON


def test_what_nothing_has_right_may_be_the_kernel() -> None:
    same = varied("num_stages=1", Varied.OPTION, SAME)
    assert executed(FAULT, same, v3_6="x", v3_9="x").culprit is Culprit.KERNEL
    found = executed(RUN, same, v3_6="x", v3_9="x")
    assert (found.culprit, found.ground) == (Culprit.CANNOT_TELL, Ground.NOTHING_IS_RIGHT)


def launched(
    focus: FollowedFailure,
    *lines: Line,
    held: bool = False,
    device: str = "H200",
    **levels: VerdictAnswer,
) -> Blame:
    """Cubins on a GPU; each level (`O3=SAME`) of the first ptxas."""
    trials = tuple(varied(f"-{name}", Varied.LEVEL, after) for name, after in levels.items())
    return blame(
        Grid(
            lines=lines,
            assemblers=PTXAS,
            focus=focus,
            trials=trials,
            device=device,
            is_held_to_ptx=held,
        )
    )


def test_cubins_of_one_ptx_that_disagree_are_ptxas() -> None:
    found = launched(RUN, line("xx++", RUN, triton=None), O0=OK, O3=SAME)
    assert (found.culprit, found.ground) == (Culprit.PTXAS, Ground.SPLIT)
    assert found.reasons[0] == (
        "Measured on H200: cubins of one PTX were launched on the same inputs."
    )
    assert "By optimisation level: -O3 fails, -O0 works." in found.reasons
    # One level of every ptxas: the PTX is the same.
    found = launched(RUN, line("xxxx", RUN, triton=None), O0=OK, O1=OK, O3=SAME)
    assert (found.culprit, found.ground) == (Culprit.PTXAS, Ground.LEVELS)
    assert "it fails at -O3, and works at -O0, -O1." in found.reasons[1]
    span = f"{PTXAS[0]} - {PTXAS[-1]} ({len(PTXAS)})"
    assert found.reasons[2] == f"Every ptxas that gave a result does it: {span}."


def test_cubins_of_one_ptx_that_agree_are_no_matter_of_ptxas() -> None:
    one, other = line("xx", RUN), line("++", RUN, triton="3.8.0", body="b")
    found = launched(RUN, one, other, O0=SAME, O3=SAME)
    assert (found.culprit, found.ground) == (Culprit.TRITON, Ground.ANOTHER_TRITON)
    assert "ptxas is not involved" in found.reasons[1]
    both = line("xx", FAULT), line("xx", FAULT, triton="3.8.0", body="b")
    assert launched(FAULT, *both, O0=SAME, O3=SAME).culprit is Culprit.KERNEL
    both = line("xx", RUN), line("xx", RUN, triton="3.8.0", body="b")
    assert launched(RUN, *both, O0=SAME).ground is Ground.NOTHING_IS_RIGHT
    found = launched(RUN, line("xx", RUN, triton=None), O0=SAME, O3=SAME)
    assert (found.culprit, found.ground) == (Culprit.CANNOT_TELL, Ground.RAW_PTX)


@pytest.mark.parametrize(("device", "asks"), [("H200", False), (EXECUTOR_NAMES[SASS], True)])
def test_where_every_level_contradicts_the_emulated_ptx_both_votes_are_said(
    device: str, asks: bool
) -> None:
    one = line("xxx", RUN, triton=None)
    found = launched(RUN, one, held=True, device=device, O0=SAME, O3=SAME)
    assert (found.culprit, found.ground) == (Culprit.CANNOT_TELL, Ground.EVERY_LEVEL)
    assert found.headline == "Cannot determine whether ptxas is to blame, or the emulator."
    assert "at -O0, -O3 and with ptxas" in found.reasons[1]
    assert ("--on gpu" in found.reasons[2]) is asks
    # What differs between levels accuses ptxas, whatever it is held to.
    assert launched(RUN, one, held=True, O0=OK, O3=SAME).culprit is Culprit.PTXAS


@pytest.mark.parametrize("kind", [VerdictKind.NONDETERMINISTIC, VerdictKind.HANG])
def test_what_the_order_of_threads_may_decide_accuses_no_ptxas(kind: VerdictKind) -> None:
    focus = structs.replace(RUN, kind=kind)
    found = launched(focus, line("x+", focus), O0=OK, O3=SAME)
    assert (found.culprit, found.ground) == (Culprit.CANNOT_TELL, Ground.ORDER)
    assert kind.value in found.reasons[1]


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ((OK, SAME, SAME, OK), "between TTIR and TTGIR, in the passes of Triton 3.6"),
        ((SAME, OK, SAME, OK), "in the lowering from TTGIR, in Triton 3.6"),
        ((OK, SAME, HOLE, HOLE), "in the TTGIR of Triton 3.6 already"),
        ((OK, HOLE, SAME, OK), None),
        ((OK, OK, SAME, OK), None),
    ],
)
def test_crossings_say_where_it_comes_about(
    outcomes: tuple[VerdictAnswer, ...], said: str | None
) -> None:
    whats = [f"the {stage} of {who}" for stage in ("TTGIR", "TTIR") for who in ("good", "bad")]
    trials = [varied(w, Varied.STAGE, o) for w, o in zip(whats, outcomes, strict=True)]
    found = executed(RUN, *trials, v3_6="x", v3_9="+")
    where = [reason for reason in found.reasons if reason.startswith("So it")]
    assert len(where) == (said is not None)
    assert said is None or said in where[0]


def test_what_older_ones_die_of_and_newer_ones_refuse_is_the_kernels() -> None:
    said = "num_ctas > 1 needs sm_90. Please target an SM90+ GPU."
    refused = Cell(outcome=OTHER, verdict="rejected", reason=said)
    newer = [Line(compilers=(version,), stopped=refused) for version in ("3.5.1", "3.9.0")]
    found = judged(PASS, stopped("x", PASS, triton="3.4.0"), *newer)
    assert (found.culprit, found.ground) == (Culprit.KERNEL, Ground.REJECTED)
    assert found.reasons[0] == (
        "Triton 3.5.1, 3.9.0 refuse the source, and no Triton that was tried compiles it: "
        "num_ctas > 1 needs sm_90. Please target an SM90+ GPU."
    )
    assert not any(".." in reason for reason in found.reasons)
    crashed = judged(CRASH, stopped("x", CRASH, triton="3.4.0"), *newer)
    assert "Triton 3.5.1, 3.9.0 refuse it with a message." in crashed.reasons[1]
    # An older one that refuses what a newer one takes, and dies of, says nothing of the kernel.
    older = [Line(compilers=("3.3.1",), stopped=refused)]
    died = judged(PASS, stopped("x", PASS, triton="3.4.0"), *older)
    assert died.culprit is Culprit.CANNOT_TELL
