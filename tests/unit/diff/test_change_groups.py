from __future__ import annotations

from change_cases import compared, facts
from msgspec import UNSET, structs
from rich.console import Console

from harness.diff.diff_words import changes_document, changes_said, group_changes
from harness.matrix.history_table import sparkline
from harness.tables.terminal import for_terminal
from harness.values.change import ChangeKind, Changes
from harness.values.matrix import Expectation, Selector
from harness.values.row import Facts
from harness.values.verdict import VerdictKind


def printed(changes: Changes) -> list[str]:
    console = Console(width=300, color_system=None)
    with console.capture() as capture:
        console.print(for_terminal(changes_said(changes)), soft_wrap=True)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def broken(each: Facts, signature: str, reason: str = "it broke") -> Facts:
    return structs.replace(each, verdict=VerdictKind.PTXAS_ICE, signature=signature, reason=reason)


def test_failures_are_grouped_by_signature_the_largest_first() -> None:
    older = [facts(kernel=kernel, warps=warps) for kernel in "abcdef" for warps in (4, 8)]
    newer = [broken(each, "s1" if each.kernel == "a" else "s2") for each in older]
    found = group_changes(compared(older, newer).changes)
    assert [(group.kind, len(group.changes)) for group in found] == [
        (ChangeKind.REGRESSED, 10),
        (ChangeKind.REGRESSED, 2),
    ]
    assert found[0].where.startswith("5 kernels · default · sm_100a · Triton 3.6.0 · ptxas 13.1")
    assert found[1].where.startswith("a · ")
    assert found[1].where.endswith("2 configs")


def test_metrics_are_grouped_by_the_step_that_decides() -> None:
    older = [facts(warps=1), facts(warps=2), facts(warps=4), facts(warps=8)]
    newer = [
        structs.replace(older[0], spill_stores=16, n_regs=65),
        structs.replace(older[1], spill_stores=48),
        structs.replace(older[2], n_regs=128),
        structs.replace(older[3], n_regs=40),
    ]
    found = group_changes(compared(older, newer).changes)
    assert [(group.kind, group.what) for group in found] == [
        (ChangeKind.METRIC_WORSE, "spills 0 B -> 16 B to 48 B"),
        (ChangeKind.METRIC_WORSE, "registers 64 -> 128"),
        (ChangeKind.METRIC_BETTER, "registers 64 -> 40"),
    ]


def test_what_is_new_and_fails_comes_before_what_is_new_and_works() -> None:
    newer = [facts(warps=1), facts(warps=2), facts("ptxas_ice", "s1", warps=4)]
    works = [group.changes[0].facts.verdict for group in group_changes(compared([], newer).changes)]
    assert works == [VerdictKind.PTXAS_ICE, VerdictKind.OK]


def test_a_launch_with_the_name_of_a_verdict_is_grouped_like_any_other() -> None:
    changes = compared([], [facts("trap_stub", "s1", launch="trap_stub")]).changes
    (group,) = group_changes(changes)
    assert (group.kind, group.changes[0].facts.verdict) == (ChangeKind.NEW, VerdictKind.TRAP_STUB)
    assert isinstance(group.changes[0].facts.verdict, VerdictKind)


def test_nothing_to_compare_with() -> None:
    changes = structs.replace(compared([], [facts()]), older=None)
    assert printed(changes)[0] == "run 2: 1 new"


def test_an_expectation_is_named_with_its_issue() -> None:
    known = Expectation(
        selector=Selector(), verdict=VerdictKind.PTXAS_ICE, signature="s1", issue="a/b#1", line=12
    )
    older = broken(facts(), "s1")
    assert printed(compared([older], [facts()], [known]))[1] == (
        "1 fixed: ptxas_ice (it broke) -> ok [a/b#1]"
    )
    assert printed(compared([], [facts()], [known]))[1] == (
        "1 fixed: expected ptxas_ice -> ok [a/b#1]"
    )
    other = broken(facts(), "s2", "in another way")
    assert printed(compared([older], [other], [known]))[1] == (
        "1 regressed: expected ptxas_ice, ptxas_ice -> ptxas_ice (in another way) [a/b#1]"
    )


def test_an_expectation_that_never_held_is_said_every_night() -> None:
    known = Expectation(selector=Selector(), verdict=VerdictKind.TRAP_STUB, line=12)
    changes = compared([facts()], [facts()], [known])
    assert printed(changes) == [
        "run 1 -> run 2: nothing changed (1 compile as before)",
        (
            "1 cell is ok, as before, though matrix.yaml line 12 expects trap_stub: change "
            f"`expect` (triage show {facts().short})"
        ),
    ]
    assert changes_document(changes).surprises[0].line == 12


def test_a_flaky_cell_says_what_the_worst_of_its_runs_was() -> None:
    lines = printed(compared([facts()], [structs.replace(broken(facts(), "s1"), flaky=True)]))
    assert lines[1] == "1 flaky: ok -> ptxas_ice (it broke); its own runs disagree"


def test_the_document_has_every_kind_that_is_told() -> None:
    document = changes_document(compared([], []))
    assert set(document.counts) == {kind.value for kind in ChangeKind}
    assert set(document.changes) == {kind.value for kind in ChangeKind if not kind.is_quiet}
    assert document.informational is UNSET
    assert changes_document(compared([], []), informational=True).informational == []


def test_a_sparkline_spans_what_is_known() -> None:
    good = [False] * 4
    assert sparkline([32, 64, 255, None], good) == "▁▂█·"
    assert sparkline([0, 0, 0, 0], good) == "▁▁▁▁"
    assert sparkline([64, 64, 64, 64], good) == "▄▄▄▄"
    assert sparkline([64, 4, None, 128], [False, True, False, False]) == "▁x·█"
    assert sparkline([], []) == ""
