"""Two cells side by side: what differs is shown, and what only has other names is not."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
from nights import row

from harness.site.overview import night_of
from harness.site.pairs import neighbours, pair_facts, stage_diffs
from harness.values.bug import Seen
from harness.values.change import ChangeKind, Changes
from harness.values.row import BugFacts, Row

_decode = msgspec.json.Decoder(BugFacts).decode


def facts(of: Row) -> BugFacts:
    return _decode(msgspec.json.encode(of))


def test_code_is_compared_without_the_numbers_of_registers_and_addresses() -> None:
    lines = [f"    op{n}.f32 %f{n}, %f{n + 1}, 0f00000000;" for n in range(20)]
    renamed = [f"  op{n}.f32 %f{n + 40}, %f{n + 7}, 0f00000000;" for n in range(20)]
    before, after = "\n".join(lines), "\n".join(["// other", *renamed])
    (same,) = stage_diffs({"ptx": before.encode()}, {"ptx": after.encode()})
    assert same.words.startswith("The same but for the names")
    renamed[10] = "  mul.f32 %f1, %f2, %f3;"
    sass = b"        /*0010*/  MOV R1, R2 ;  /* 0x0000000000017802 */"
    moved = b"        /*0040*/  MOV R7, R9 ;  /* 0x0000000000077802 */"
    ptx, code = stage_diffs(
        {"ptx": before.encode(), "sass": sass}, {"ptx": "\n".join(renamed).encode(), "sass": moved}
    )
    assert ptx.words == "1 of 20 lines are only in the first cell, 1 of 20 only in the second."
    assert [line.kind for line in ptx.lines].count("changed") == 1
    assert [line.left for line in ptx.lines if line.kind == "skip"] == [
        "7 equal lines",
        "6 equal lines",
    ]
    assert code.words.startswith("The same but for the names")
    (missing,) = stage_diffs({"ptx": b"ret;"}, {})
    assert missing.words == "The second cell has none."


def test_long_code_is_cut_and_says_so() -> None:
    before = "\n".join(f"op{n} ;" for n in range(5_000)).encode()
    after = "\n".join(f"po{n} ;" for n in range(5_000)).encode()
    (diff,) = stage_diffs({"sass": before}, {"sass": after})
    assert len(diff.lines) == 500
    assert diff.words == (
        "Compared are the first 4,000 lines of each, which have 5,000 and 5,000: "
        "4,000 of 4,000 lines are only in the first cell, 4,000 of 4,000 only in the second."
    )
    assert "3,500 lines of the comparison are left out" in diff.note


def test_the_pair_of_a_bug_changes_one_tool_where_it_can() -> None:
    def cell(triton: str, ptxas: str) -> BugFacts:
        return facts(row(triton=triton, ptxas=ptxas))

    good, bad, fixed = cell("3.6.0", "13.0.88"), cell("3.6.0", "13.1.115"), cell("3.8.0", "13.3.33")
    beside = [(fixed, "", Seen.CLEAN), (bad, "", Seen.HERE), (good, "", Seen.CLEAN)]
    assert neighbours(beside) == (good.cell, bad.cell)
    assert neighbours(beside[:2]) == (fixed.cell, bad.cell)
    assert neighbours(beside[1:2]) is None


def test_facts_that_differ_are_marked() -> None:
    both = pair_facts(facts(row(n_regs=64)), facts(row("ptxas_ice", "s1", ptxas="13.1.115")))
    differing = {name for name, one, other in both if one != other}
    assert {"verdict", "toolchain", "registers"} <= differing
    assert "config" not in differing


def test_a_night_has_its_date_its_duration_and_its_counts() -> None:
    counts = {ChangeKind.REGRESSED: 2, ChangeKind.FLAKY: 1, ChangeKind.NEW: 4, ChangeKind.INFRA: 1}
    counts |= {ChangeKind.FIXED: 1, ChangeKind.SAME_OK: 90}
    changes = Changes(older=2, newer=3, counts=counts)
    night = SimpleNamespace(**night_of(3, 1_700_000_000.0, 1_700_003_725.0, changes))
    assert (night.date, night.took) == ("Tue 14 Nov 2023, 22:13 UTC", "1:02:05")
    assert (night.worse, night.better, night.new, night.unknown, night.same) == (3, 1, 4, 1, 90)
    assert night.cells == 99
    assert not night_of(3, 0.0, 0.0, None)["compared"]
