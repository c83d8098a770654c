from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pytest
from change_cases import compared, counted, facts, in_order, told
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from packaging.specifiers import SpecifierSet

from harness.cells.matrix_rules import exclusion_of
from harness.diff.compare import compare
from harness.diff.diff_words import changes_said
from harness.values.change import ChangeKind, Severity
from harness.values.kernel import ConfigFilter
from harness.values.matrix import (
    Excluded,
    Expectation,
    Extra,
    Matrix,
    Selector,
    ToolRange,
    VersionChoice,
)
from harness.values.row import Facts
from harness.values.target import Target
from harness.values.verdict import VerdictKind

OK = facts()
FAILS = facts("ptxas_ice", "s1")


@pytest.mark.parametrize(
    ("older", "newer", "kind"),
    [
        (OK, FAILS, ChangeKind.REGRESSED),
        (facts("sick"), FAILS, ChangeKind.REGRESSED),
        (FAILS, OK, ChangeKind.FIXED),
        (facts("wrong_result", "w"), facts("right"), ChangeKind.FIXED),
        # What spills now was not mended; what nothing was compared with may be wrong still.
        (FAILS, facts("sick"), ChangeKind.MUTATED),
        (facts("trap_stub", "s2"), facts("sick"), ChangeKind.MUTATED),
        (facts("wrong_result", "w"), facts("ran"), ChangeKind.UNTESTABLE),
        (facts("race", "r"), facts("ran"), ChangeKind.FIXED),
        (FAILS, facts("ptxas_ice", "s2"), ChangeKind.MUTATED),
        (FAILS, facts("compiler_crash", "s3"), ChangeKind.MUTATED),
        (FAILS, FAILS, ChangeKind.SAME_FAIL),
        (OK, OK, ChangeKind.SAME_OK),
        (OK, facts("unsupported"), ChangeKind.UNTESTABLE),
        (OK, facts("timeout", "t"), ChangeKind.UNTESTABLE),
        (FAILS, facts("out_of_memory", "m"), ChangeKind.UNTESTABLE),
        (OK, facts("infra"), ChangeKind.INFRA),
        (FAILS, facts("infra"), ChangeKind.INFRA),
        # What could not be told before is neither a fix nor a regression.
        (facts("timeout", "t"), OK, ChangeKind.NEW),
        (facts("unsupported"), FAILS, ChangeKind.NEW),
        (facts("infra"), OK, ChangeKind.NEW),
        (facts("infra"), facts("timeout", "t"), ChangeKind.SAME_UNTOLD),
    ],
)
def test_a_cell_that_both_runs_have(older: Facts, newer: Facts, kind: ChangeKind) -> None:
    changes = compared([older], [newer])
    assert counted(changes) == {kind: 1}
    assert told(changes) == ({} if kind.is_quiet else {newer.cell: kind})


def test_a_cell_that_the_matrix_excludes_by_now_is_not_lost() -> None:
    gone, lost = facts(target="sm_120a"), facts(warps=8)
    matrix = Matrix(
        triton=VersionChoice(specs=()),
        ptxas=VersionChoice(specs=()),
        targets=(),
        kernels=(),
        exclude=(Excluded(selector=Selector(target="sm_120*"), reason="no such GPU here"),),
    )
    excluded = partial(exclusion_of, matrix)
    changes = compare(in_order([OK, gone, lost]), in_order([OK]), runs=(1, 2), excluded=excluded)
    assert told(changes) == {gone.cell: ChangeKind.EXCLUDED, lost.cell: ChangeKind.MISSING}
    said = " ".join(line.text for line in changes_said(changes))
    assert "since then, by the matrix (no such GPU here); was ok" in said
    only = compare(in_order([OK, gone]), [OK], runs=(1, 2), excluded=excluded)
    assert only.exit_code() == 0
    # What the matrix includes beside its product, no exclusion speaks of.
    kept = structs.replace(matrix, include=(Extra(kernel="k*", targets=(Target.parse("120a"),)),))
    there = compare([gone], [], runs=(1, 2), excluded=partial(exclusion_of, kept))
    assert told(there) == {gone.cell: ChangeKind.MISSING}


def test_missing_is_never_fixed() -> None:
    changes = compared([FAILS, facts(warps=8)], [facts(warps=8)])
    assert told(changes) == {FAILS.cell: ChangeKind.MISSING}


def test_each_planted_change_is_what_it_is_and_nothing_else_is() -> None:
    older = [
        facts(verdict, signature, kernel=kernel, warps=warps, target=target, ptxas=ptxas)
        for kernel, verdict, signature in (("a", "ok", None), ("b", "ptxas_ice", "s1"))
        for warps in (1, 2, 4, 8)
        for target in ("sm_80", "sm_100a")
        for ptxas in ("12.9.86", "13.1.115", "13.3.33")
    ]
    broken, fixed, other, spills = older[0], older[-1], older[-2], older[7]
    planted = {
        broken.cell: structs.replace(broken, verdict=VerdictKind.COMPILER_CRASH, signature="s9"),
        fixed.cell: structs.replace(fixed, verdict=VerdictKind.OK, signature=None),
        other.cell: structs.replace(other, signature="s2"),
        spills.cell: structs.replace(spills, spill_stores=16),
    }
    gone = {each.cell for each in older if (each.kernel, each.ptxas) == ("a", "13.3.33")}
    newer = [planted.get(each.cell, each) for each in older if each.cell not in gone]
    changes = compared(older, newer)
    assert told(changes) == {
        broken.cell: ChangeKind.REGRESSED,
        fixed.cell: ChangeKind.FIXED,
        other.cell: ChangeKind.MUTATED,
        spills.cell: ChangeKind.METRIC_WORSE,
        **dict.fromkeys(gone, ChangeKind.MISSING),
    }
    (step,) = next(each for each in changes.changes if each.kind is ChangeKind.METRIC_WORSE).steps
    assert (step.metric, step.older, step.newer) == ("spills", 0, 16)
    assert step.severity is Severity.SPILLS_BEGIN
    assert sum(changes.counts.values()) == len(older)


def test_a_cell_whose_own_runs_disagree_is_flaky_and_said_once() -> None:
    flaky = facts(attempts=2)
    died_twice = facts("compiler_crash", "s1", attempts=2, signal=11)
    assert told(compared([OK], [flaky])) == {OK.cell: ChangeKind.FLAKY}
    assert told(compared([flaky], [died_twice])) == {OK.cell: ChangeKind.FLAKY}
    assert not told(compared([flaky], [flaky]))
    assert told(compared([OK], [structs.replace(FAILS, flaky=True)])) == {OK.cell: ChangeKind.FLAKY}
    assert told(compared([OK], [died_twice])) == {OK.cell: ChangeKind.REGRESSED}


# --- the last result that told something -------------------------------------------------------


def after_hole(older: list[Facts], newer: Facts, known: Mapping[str, Facts]) -> list[ChangeKind]:
    asked: list[str] = []

    def earlier(cells: Sequence[str]) -> Mapping[str, Facts]:
        asked.extend(cells)
        return known

    changes = compare(older, [newer], runs=(1, 2), earlier=earlier)
    assert asked == [newer.cell]
    return [change.kind for change in changes.changes]


@pytest.mark.parametrize("older", [[facts("infra")], []])
def test_a_hole_in_history_hides_no_change(older: list[Facts]) -> None:
    assert after_hole(older, FAILS, {OK.cell: OK}) == [ChangeKind.REGRESSED]
    assert after_hole(older, OK, {OK.cell: FAILS}) == [ChangeKind.FIXED]
    assert after_hole(older, OK, {OK.cell: OK}) == [ChangeKind.NEW]
    assert after_hole(older, OK, {}) == [ChangeKind.NEW]


# --- new versions ------------------------------------------------------------------------------


def versions(*found: tuple[str, str], triton: str = "3.6.0") -> list[Facts]:
    return [
        facts(verdict, None if verdict == "ok" else verdict, triton=triton, ptxas=ptxas)
        for ptxas, verdict in found
    ]


def test_a_new_version_that_breaks_what_the_one_before_compiled_is_a_regression() -> None:
    older = versions(("12.9.86", "ptxas_ice"), ("13.0.88", "ok"))
    newer = [*older, *versions(("13.1.80", "ptxas_ice"))]
    (change,) = compared(older, newer).changes
    assert change.kind is ChangeKind.REGRESSED
    assert change.since == "ptxas 13.1.80 after 13.0.88"
    assert change.older == older[1]


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ("ptxas_ice", "ok", ChangeKind.FIXED),
        ("ptxas_ice", "compiler_crash", ChangeKind.MUTATED),
        ("ptxas_ice", "ptxas_ice", ChangeKind.NEW),
        ("ok", "ok", ChangeKind.NEW),
        ("ok", "unsupported", ChangeKind.NEW),
    ],
)
def test_a_new_version_against_the_one_before(before: str, now: str, kind: ChangeKind) -> None:
    older = versions(("9.9.1", "ok"), ("13.0.88", before))
    assert [each.kind for each in compared(older, [*older, *versions(("13.1.80", now))]).changes] \
        == [kind]  # fmt: skip


def test_versions_are_sorted_as_versions_and_untold_neighbours_are_stepped_over() -> None:
    older = versions(("12.9.86", "ok"), ("12.10.1", "ptxas_ice"), ("12.11.1", "timeout"))
    (change,) = compared(older, [*older, *versions(("13.0.1", "ok"))]).changes
    assert change.since == "ptxas 13.0.1 after 12.10.1"
    assert change.kind is ChangeKind.FIXED


def test_the_neighbour_is_the_same_nights() -> None:
    older = versions(("13.0.88", "ok"))
    newer = versions(("13.0.88", "ptxas_ice"), ("13.1.80", "ptxas_ice"))
    kinds = {each.facts.ptxas: each.kind for each in compared(older, newer).changes}
    assert kinds == {"13.0.88": ChangeKind.REGRESSED, "13.1.80": ChangeKind.NEW}


def test_a_version_that_is_added_inside_a_known_range_is_no_news() -> None:
    older = versions(("13.0.88", "ok"), ("13.1.115", "ptxas_ice"))
    newer = [*older, *versions(("13.1.80", "ptxas_ice"))]
    assert [each.kind for each in compared(older, newer).changes] == [ChangeKind.NEW]


def test_a_new_triton_is_compared_with_the_triton_before_on_the_same_ptxas() -> None:
    older = versions(("13.0.88", "ok"), ("13.1.80", "ptxas_ice"), triton="3.9.0")
    newer = [*older, *versions(("13.0.88", "trap_stub"), ("13.1.80", "ptxas_ice"), triton="3.10.0")]
    found = compared(older, newer).changes
    assert {each.facts.ptxas: (each.kind, each.since) for each in found} == {
        "13.0.88": (ChangeKind.REGRESSED, "Triton 3.10.0 after 3.9.0"),
        "13.1.80": (ChangeKind.NEW, "Triton 3.10.0 after 3.9.0"),
    }


def test_what_a_triton_bundles_is_compared_with_what_the_one_before_bundles() -> None:
    older = [facts(triton="3.8.0", ptxas="13.3.33", bundled=True)]
    newer = [*older, facts("rejected", "r", triton="3.9.0", ptxas="13.4.59", bundled=True)]
    (change,) = compared(older, newer).changes
    assert (change.kind, change.since) == (ChangeKind.REGRESSED, "Triton 3.9.0 after 3.8.0")


def test_where_both_tools_are_new_each_news_is_said_once() -> None:
    older = versions(("13.0.88", "ok"), triton="3.8.0")
    newer = [
        *older,
        *versions(("13.1.80", "ok"), triton="3.8.0"),
        *versions(("13.0.88", "trap_stub"), ("13.1.80", "trap_stub"), triton="3.9.0"),
    ]
    kinds = {(each.facts.triton, each.facts.ptxas): each.kind for each in
             compared(older, newer).changes}  # fmt: skip
    assert kinds == {
        ("3.8.0", "13.1.80"): ChangeKind.NEW,
        ("3.9.0", "13.0.88"): ChangeKind.REGRESSED,
        ("3.9.0", "13.1.80"): ChangeKind.NEW,
    }


def test_a_kernels_first_night_compares_no_versions() -> None:
    newer = versions(("13.0.88", "ok"), ("13.1.80", "ptxas_ice"))
    assert counted(compared([facts(kernel="other")], [*newer, facts(kernel="other")])) == {
        ChangeKind.NEW: 2,
        ChangeKind.SAME_OK: 1,
    }


def test_raw_ptx_has_the_axis_of_ptxas_only() -> None:
    older = [facts(triton=None, ptxas="13.0.88")]
    newer = [*older, facts("ptxas_ice", "s1", triton=None, ptxas="13.1.80")]
    (change,) = compared(older, newer).changes
    assert (change.kind, change.since) == (ChangeKind.REGRESSED, "ptxas 13.1.80 after 13.0.88")


# --- expectations ------------------------------------------------------------------------------


def expected(verdict: str, signature: str | None = None, **selected: object) -> Expectation:
    selector = Selector(**selected)  # type: ignore[arg-type]
    return Expectation(selector=selector, verdict=VerdictKind(verdict), signature=signature, line=7)


@pytest.mark.parametrize(
    ("older", "newer", "kind"),
    [
        (OK, FAILS, ChangeKind.EXPECTED),
        (FAILS, FAILS, ChangeKind.EXPECTED),
        (None, FAILS, ChangeKind.EXPECTED),
        (FAILS, OK, ChangeKind.FIXED),
        (FAILS, facts("sick"), ChangeKind.MUTATED),
        (None, OK, ChangeKind.FIXED),
        (facts("infra"), OK, ChangeKind.FIXED),
        (FAILS, facts("trap_stub", "s2"), ChangeKind.REGRESSED),
        (None, facts("trap_stub", "s2"), ChangeKind.REGRESSED),
        (FAILS, facts("ptxas_ice", "s2"), ChangeKind.REGRESSED),
        (FAILS, facts("timeout", "t"), ChangeKind.UNTESTABLE),
        (FAILS, facts("infra"), ChangeKind.INFRA),
        (None, facts("infra"), ChangeKind.NEW),
    ],
)
def test_a_known_failure(older: Facts | None, newer: Facts, kind: ChangeKind) -> None:
    changes = compared([older] if older else [], [newer], [expected("ptxas_ice", "s1")])
    assert counted(changes) == {kind: 1}
    assert not changes.surprises


def test_without_a_signature_any_failure_of_the_verdict_is_expected() -> None:
    newer = facts("ptxas_ice", "s2")
    assert counted(compared([FAILS], [newer], [expected("ptxas_ice")])) == {ChangeKind.EXPECTED: 1}


@pytest.mark.parametrize("both", [OK, facts("trap_stub", "s2")])
def test_an_expectation_that_did_not_hold_before_either_is_no_change_but_is_said(
    both: Facts,
) -> None:
    changes = compared([both], [both], [expected("ptxas_ice", "s1")])
    assert not changes.changes
    (surprise,) = changes.surprises
    assert (surprise.cells, surprise.verdict, surprise.example) == (1, both.verdict, both.short)
    assert changes.exit_code() == 0
    assert changes.exit_code(strict_fixed=True) == 5


def test_a_sick_kernel_that_is_expected_still_tells_that_it_got_worse() -> None:
    older = facts("sick", spill_stores=44_000, spill_loads=50_000)
    newer = structs.replace(older, spill_stores=88_000)
    assert counted(compared([older], [older], [expected("sick")])) == {ChangeKind.EXPECTED: 1}
    assert counted(compared([older], [newer], [expected("sick")])) == {ChangeKind.METRIC_WORSE: 1}
    assert counted(compared([older], [OK], [expected("sick")])) == {ChangeKind.FIXED: 1}


def test_expectations_speak_of_the_cells_they_select() -> None:
    selected = expected(
        "ptxas_ice",
        kernel="k*",
        assemblers=(ToolRange(kind="ptxas", versions=SpecifierSet(">=13.1,<13.3")),),
        config=ConfigFilter.parse("num_warps=8"),
    )
    newer = [
        facts("ptxas_ice", "s1", warps=warps, ptxas=ptxas)
        for warps in (4, 8)
        for ptxas in ("13.0.88", "13.1.115", "13.3.33")
    ]
    changes = compared([], newer, [selected])
    assert counted(changes) == {ChangeKind.EXPECTED: 1, ChangeKind.NEW: 5}
    by_cell = expected("ptxas_ice", cell="*/num_warps=8@*/ptxas-13.3.33")
    assert counted(compared([], newer, [selected, by_cell]))[ChangeKind.EXPECTED] == 2


def test_of_several_expectations_one_that_happens_is_enough() -> None:
    both = [expected("ptxas_ice", "s0"), expected("ptxas_ice", "s1")]
    assert counted(compared([OK], [FAILS], both)) == {ChangeKind.EXPECTED: 1}


# --- exit codes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("older", "newer", "code", "strict"),
    [
        ([OK], [OK], 0, 0),
        ([OK], [FAILS], 1, 1),
        ([FAILS], [facts("ptxas_ice", "s2")], 1, 1),
        ([OK], [facts(spill_stores=16)], 1, 1),
        ([FAILS], [OK], 0, 5),
        ([OK], [facts("infra")], 4, 4),
        ([OK, facts(warps=8)], [OK], 4, 4),
        ([FAILS, facts(warps=8)], [OK, facts("infra", warps=8)], 4, 4),
        ([], [FAILS], 0, 0),
    ],
)
def test_exit_codes(older: list[Facts], newer: list[Facts], code: int, strict: int) -> None:
    changes = compared(older, newer)
    assert changes.exit_code() == code
    assert changes.exit_code(strict_fixed=True) == strict


# --- for all runs ------------------------------------------------------------------------------

_FAILURES = ("ptxas_ice", "trap_stub", "compiler_crash", "rejected")
_UNTOLD = ("unsupported", "infra", "timeout")
_small = st.sampled_from([None, 0, 16, 40, 44, 48, 100, 2000])


@st.composite
def cells(draw: st.DrawFn, ptxas: Sequence[str]) -> Facts:
    verdict = draw(st.sampled_from(("ok", "sick", *_FAILURES, *_UNTOLD)))
    fails = verdict in _FAILURES
    return facts(
        verdict,
        draw(st.sampled_from(("s1", "s2"))) if fails else None,
        kernel=draw(st.sampled_from("ab")),
        warps=draw(st.sampled_from((4, 8))),
        ptxas=draw(st.sampled_from(ptxas)),
        attempts=draw(st.sampled_from((1, 2))) if len(ptxas) > 1 else 1,
        n_regs=draw(_small),
        spill_stores=draw(_small),
        spill_loads=draw(_small),
        shared=draw(_small),
        occupancy=draw(st.sampled_from((None, 0.125, 0.25))),
        cubin_sha256=draw(st.sampled_from((None, "c1", "c2"))),
    )


def runs(*ptxas: str) -> st.SearchStrategy[list[Facts]]:
    return st.lists(cells(ptxas), unique_by=lambda each: each.cell).map(in_order)


@given(runs("12.9.86", "13.0.88", "13.1.80"))
def test_a_run_and_itself_differ_in_nothing(run: list[Facts]) -> None:
    changes = compared(run, run)
    assert not changes.changes
    assert not changes.informational
    assert sum(changes.counts.values()) == len(run)
    assert changes.exit_code(strict_fixed=True) == 0


_MIRROR = {
    ChangeKind.REGRESSED: {
        ChangeKind.FIXED,
        ChangeKind.MUTATED,
        ChangeKind.UNTESTABLE,
        ChangeKind.REMOVED,
    },
    ChangeKind.FIXED: {ChangeKind.REGRESSED},
    ChangeKind.METRIC_WORSE: {ChangeKind.METRIC_BETTER, ChangeKind.REMOVED},
    ChangeKind.METRIC_BETTER: {ChangeKind.METRIC_WORSE, ChangeKind.REMOVED},
    # Another config has come in its place, and goes on the way back.
    ChangeKind.REMOVED: {
        ChangeKind.NEW,
        ChangeKind.REGRESSED,
        ChangeKind.METRIC_WORSE,
        ChangeKind.METRIC_BETTER,
        ChangeKind.UNTESTABLE,
        ChangeKind.INFRA,
        ChangeKind.FLAKY,
    },
    ChangeKind.MISSING: {ChangeKind.NEW},
    ChangeKind.UNTESTABLE: {ChangeKind.NEW, ChangeKind.REGRESSED, ChangeKind.REMOVED},
    ChangeKind.INFRA: {ChangeKind.NEW, ChangeKind.REMOVED},
    ChangeKind.NEW: {
        ChangeKind.MISSING,
        ChangeKind.REMOVED,
        ChangeKind.UNTESTABLE,
        ChangeKind.INFRA,
    },
    ChangeKind.MUTATED: {ChangeKind.MUTATED, ChangeKind.REGRESSED},
}


@given(runs("13.0.88"), runs("13.0.88"))
def test_the_way_back_is_the_mirror_of_the_way(a: list[Facts], b: list[Facts]) -> None:
    there, back = told(compared(a, b)), told(compared(b, a))
    assert there.keys() == back.keys()
    for cell, kind in there.items():
        assert back[cell] in _MIRROR[kind], (cell, kind)


@given(runs("12.9.86", "13.0.88", "13.1.80"), runs("12.9.86", "13.0.88", "13.1.80"))
def test_every_cell_of_either_run_is_counted_once(a: list[Facts], b: list[Facts]) -> None:
    changes = compared(a, b)
    assert sum(changes.counts.values()) == len({each.cell for each in (*a, *b)})
    assert len(changes.changes) == sum(
        count for kind, count in changes.counts.items() if not kind.is_quiet
    )
    for change in changes.changes:
        untold = change.newer is not None and change.newer.verdict in _UNTOLD
        assert not (untold and (change.kind.is_bad or change.kind is ChangeKind.FIXED))
        before_untold = change.older is not None and change.older.verdict in _UNTOLD
        assert not (before_untold and change.kind in (ChangeKind.FIXED, ChangeKind.REGRESSED))
