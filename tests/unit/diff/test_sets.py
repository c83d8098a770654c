"""The configs of a launch as a set: what a change of the tuning list is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from change_cases import compared, counted, facts, in_order, told
from msgspec import structs

from harness.diff.compare import compare
from harness.diff.diff_words import changes_said, group_changes
from harness.values.change import ChangeKind, Changes
from harness.values.row import Facts

TILES = (16, 32, 64, 128)


def tile(block: int, verdict: str = "ok", signature: str | None = None, **more: Any) -> Facts:
    one = facts(verdict, signature, **more)
    name = f"BLOCK={block},num_warps=4"
    config = {"BLOCK": block, "num_warps": 4}
    cell = one.cell.replace("num_warps=4,num_stages=3", name).replace("num_warps=4", name, 1)
    return structs.replace(one, cell=cell, config=config)


def retiled(newer: Sequence[Facts], older: Sequence[Facts] | None = None) -> Changes:
    return compared(older or [tile(block) for block in TILES], newer)


def fails(block: int) -> Facts:
    return tile(block, "out_of_resources", "s1", reason=f"needs {block * 1024:,} B")


def test_a_list_none_of_which_works_is_worse_and_says_of_how_many() -> None:
    changes = retiled([fails(block * 16) for block in TILES])
    assert counted(changes) == {ChangeKind.REGRESSED: 4, ChangeKind.REMOVED: 4}
    assert changes.exit_code() == 1
    first = group_changes(changes.changes)[0]
    assert first.what == (
        "ok -> out_of_resources (needs 262,144 to 2,097,152 B); another list: "
        "0 of 4 configs work, before 4 of 4"
    )
    (one,) = changes.sets
    assert (one.older, one.newer, one.spills) == ((4, 4), (0, 4), (0, None))


def test_a_list_of_recovered_configs_is_fixed_and_says_of_how_many() -> None:
    failing = [fails(block * 16) for block in TILES]
    changes = compared(failing, [tile(block) for block in TILES[:3]])
    assert counted(changes) == {ChangeKind.FIXED: 3, ChangeKind.REMOVED: 4}
    first = group_changes(changes.changes)[0]
    assert first.what == (
        "out_of_resources (needs 262,144 to 2,097,152 B) -> ok; another list: "
        "3 of 3 configs work, before 0 of 4"
    )
    # As many are fixed as failed; what was undetermined had not failed.
    some = [tile(8), fails(256), tile(512, "timeout", "t")]
    assert counted(compared(some, [tile(block) for block in TILES])) == {
        ChangeKind.FIXED: 1,
        ChangeKind.NEW: 3,
        ChangeKind.REMOVED: 3,
    }


def test_without_another_config_a_list_none_of_which_works_says_so_too() -> None:
    older = [tile(block) for block in TILES]
    changes = compared(older, [fails(block) for block in TILES])
    (group,) = group_changes(changes.changes)
    assert group.what.endswith("; 0 of 4 configs work, before 4 of 4")
    half = compared(older, [*older[:2], *map(fails, TILES[2:])])
    (group,) = group_changes(half.changes)
    # Each of them is said; the rest of the set goes on.
    assert group.what == "ok -> out_of_resources (needs 65,536 to 131,072 B)"
    assert [change.configs and change.configs.newer for change in half.changes] == [(2, 4)] * 2


def test_of_a_list_half_of_which_works_as_many_are_worse_as_are_lost() -> None:
    newer = [tile(TILES[0] + 1), tile(TILES[1] + 1), fails(256), fails(512)]
    changes = retiled(newer)
    assert counted(changes) == {ChangeKind.REGRESSED: 2, ChangeKind.REMOVED: 4, ChangeKind.NEW: 2}
    assert changes.exit_code() == 1


def test_a_new_config_that_fails_takes_nothing_away() -> None:
    older = [tile(block) for block in TILES]
    added = compared(older, [*older, fails(256)])
    assert counted(added) == {ChangeKind.NEW: 1, ChangeKind.SAME_OK: 4}
    replaced = retiled([*(tile(block + 1) for block in TILES), fails(256)])
    assert counted(replaced) == {ChangeKind.NEW: 5, ChangeKind.REMOVED: 4}
    assert (added.exit_code(), replaced.exit_code()) == (0, 0)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (0, 0, ChangeKind.NEW),
        (64, 0, ChangeKind.METRIC_BETTER),
        (0, 64, ChangeKind.METRIC_WORSE),
        # As of one cell, a step that is too small is none.
        (640, 648, ChangeKind.NEW),
    ],
)
def test_lists_that_work_are_compared_by_their_best(
    before: int, after: int, kind: ChangeKind
) -> None:
    older = [tile(16, spill_stores=before), tile(32, spill_stores=4096)]
    newer = [tile(64, spill_stores=8192, n_regs=255), tile(128, spill_stores=after, n_regs=255)]
    changes = retiled(newer, older)
    assert told(changes)[newer[1].cell] is kind
    assert told(changes)[newer[0].cell] is ChangeKind.NEW
    assert changes.exit_code() == (1 if kind is ChangeKind.METRIC_WORSE else 0)
    for change in changes.changes:
        # More registers of another tile are no step.
        assert [step.metric for step in change.steps] in ([], ["spills"])


def test_the_best_may_be_one_that_stays() -> None:
    stays = tile(32, spill_stores=64)
    lost = retiled([stays, tile(64, spill_stores=128)], [tile(16), stays])
    assert lost.exit_code() == 1
    kept = retiled([stays, tile(64, spill_stores=128)], [tile(16, spill_stores=128), stays])
    assert kept.exit_code() == 0
    # Where the source is known to have left the best one out, what is left is the best.
    out = compare(in_order([tile(16), stays]), [stays], runs=(1, 2), removed=lambda _: True)
    assert counted(out) == {ChangeKind.METRIC_WORSE: 1, ChangeKind.SAME_OK: 1}
    assert out.exit_code() == 1


def test_what_is_true_of_several_launches_is_said_of_each() -> None:
    targets = ("sm_80", "sm_90a")
    older = [tile(block, target=target) for block in (16, 32) for target in targets]
    newer = [
        tile(block, "rejected", "s1", target=target) for block in (24, 48) for target in targets
    ]
    group = group_changes(retiled(newer, older).changes)[0]
    assert group.what.endswith(
        "; another list: 0 of 2 configs work, before 2 of 2 at each of 2 places"
    )


def test_what_could_not_be_told_of_the_new_list_is_a_gap() -> None:
    changes = retiled([tile(block + 1, "timeout", "t") for block in TILES])
    assert counted(changes) == {ChangeKind.UNTESTABLE: 4, ChangeKind.REMOVED: 4}
    assert changes.exit_code() == 4


def test_of_part_of_a_run_nothing_is_said_of_its_list() -> None:
    older, newer = [tile(block) for block in TILES], [fails(block * 16) for block in TILES]
    part = compare(in_order(older), in_order(newer), runs=(1, 2), is_whole=False)
    assert counted(part) == {ChangeKind.MISSING: 4, ChangeKind.NEW: 4}


def test_toolchains_targets_and_files_have_sets_of_their_own() -> None:
    older = [tile(block, ptxas=ptxas) for block in TILES for ptxas in ("13.0.88", "13.1.115")]
    newer = [tile(block, ptxas="13.0.88") for block in TILES]
    newer += [tile(block * 16, "ptxas_ice", "s1", ptxas="13.1.115") for block in TILES]
    changes = compared(older, newer)
    assert counted(changes) == {
        ChangeKind.REGRESSED: 4,
        ChangeKind.REMOVED: 4,
        ChangeKind.SAME_OK: 4,
    }
    assert {each.toolchain: each.newer for each in changes.sets} == {
        "Triton 3.6.0 · ptxas 13.0.88": (4, 4),
        "Triton 3.6.0 · ptxas 13.1.115": (0, 4),
    }
    # Files of one name in two folders are two kernels: neither took the place of the other.
    there = [structs.replace(each, file="there:one") for each in older]
    here = [structs.replace(each, file="here:two") for each in newer]
    apart = compared(there, here)
    assert not apart.counts[ChangeKind.REGRESSED] + apart.counts[ChangeKind.REMOVED]
    said = " ".join(line.text for line in changes_said(apart))
    assert "configs work" not in said
