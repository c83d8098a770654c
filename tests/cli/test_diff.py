"""`triage diff`, as a user runs it, on nights that were replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage
from msgspec.structs import replace
from nights import night, row

from harness.store.store import Store
from harness.values.bug import KeptWorkaround

FIRST = [
    row(),
    row(warps=8),
    row("ptxas_ice", "s1", warps=16, code="C7907"),
    row(kernel="scan_bwd"),
    row("trap_stub", "s2", kernel="scan_bwd", warps=8),
    row(kernel="cumsum", n_regs=128),
    row(kernel="cumsum", warps=8),
    row(kernel="cumsum", target="sm_80"),
    row(kernel="cumsum", target="sm_90a"),
]
SECOND = [
    row("ptxas_ice", "s1", code="C7907", reason="internal compiler error after 12 lines"),
    row("ptxas_ice", "s1", warps=8, code="C7907", reason="internal compiler error after 340 lines"),
    row(warps=16),
    row(kernel="scan_bwd"),
    row("compiler_crash", "s3", kernel="scan_bwd", warps=8),
    row(kernel="cumsum", n_regs=160, spill_stores=16, cached=True),
    row(kernel="cumsum", warps=8, stack=8),
    row("timeout", "t", kernel="cumsum", target="sm_80"),
    row("ptxas_ice", "s1", kernel="scan_bwd", ptxas="13.1.80"),
    row(kernel="cumsum", target="sm_120a"),
]

GOLDEN = """\
run 1 -> run 2: 3 regressed, 1 mutated, 1 metric-worse, 1 fixed, 1 untestable, 1 missing, 1 new \
(2 compile as before)
    2 regressed: ok -> ptxas_ice (internal compiler error after 12 to 340 lines)
      scan_fwd · default · sm_100a · Triton 3.6.0 · ptxas 13.0.88 · 2 configs
      triage show {two} --stage log
    1 regressed: ok -> ptxas_ice (it is ptxas_ice) (since ptxas 13.1.80 after 13.0.88)
      scan_bwd · default · sm_100a · Triton 3.6.0 · ptxas 13.1.80 · num_warps=4,maxnreg=128
      triage show {new} --stage log
    1 mutated: trap_stub (it is trap_stub) -> compiler_crash (it is compiler_crash)
      scan_bwd · default · sm_100a · Triton 3.6.0 · ptxas 13.0.88 · num_warps=8,maxnreg=128
      triage show {mutated} --stage log
    1 metric-worse: spills 0 B -> 16 B; registers 128 -> 160
      cumsum · default · sm_100a · Triton 3.6.0 · ptxas 13.0.88 · num_warps=4,maxnreg=128
      triage show {worse} --stage sass
    1 fixed: ptxas_ice (it is ptxas_ice) -> ok
      scan_fwd · default · sm_100a · Triton 3.6.0 · ptxas 13.0.88 · num_warps=16,maxnreg=128
      triage show {fixed} --stage sass
    1 untestable: ok -> timeout (it is timeout)
      cumsum · default · sm_80 · Triton 3.6.0 · ptxas 13.0.88 · num_warps=4,maxnreg=128
      triage show {untold} --stage log
    1 missing: was ok
      cumsum · default · sm_90a · Triton 3.6.0 · ptxas 13.0.88 · num_warps=4,maxnreg=128
      triage show {missing}
    1 new: ok
      cumsum · default · sm_120a · Triton 3.6.0 · ptxas 13.0.88 · num_warps=4,maxnreg=128
      triage show {added} --stage sass
"""


@pytest.fixture
def home(triage: Triage) -> Path:
    return Path(triage.env["TRIAGE_HOME"])


def document(triage: Triage, *words: str, code: int) -> dict[str, Any]:
    done = triage("diff", "--json", *words)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def test_what_changed_and_nothing_else(triage: Triage, home: Path) -> None:
    night(home, FIRST)
    night(home, SECOND)
    done = triage("diff")
    shorts = {
        "two": SECOND[0].short,
        "new": SECOND[8].short,
        "mutated": SECOND[4].short,
        "worse": SECOND[5].short,
        "fixed": SECOND[2].short,
        "untold": SECOND[7].short,
        "missing": FIRST[8].short,
        "added": SECOND[9].short,
    }
    assert done.stdout == GOLDEN.format(**shorts)
    assert done.stderr == ""
    assert done.returncode == 1
    everything = triage("diff", "--all").stdout
    assert everything.startswith(done.stdout)
    assert "informational: stack 0 B -> 8 B" not in done.stdout


def test_small_differences_are_shown_on_demand(triage: Triage, home: Path) -> None:
    night(home, [row(stack=0)])
    night(home, [row(stack=8)])
    done = triage("diff", "--all")
    assert done.returncode == 0
    assert "1 informational: stack 0 B -> 8 B" in done.stdout
    assert "informational" not in triage("diff").stdout


def test_the_document_has_counts_and_cells_by_kind(triage: Triage, home: Path) -> None:
    night(home, FIRST)
    night(home, SECOND)
    found = document(triage, code=1)
    assert (found["schema"], found["older"], found["newer"]) == (1, 1, 2)
    told = {kind: len(cells) for kind, cells in found["changes"].items()}
    assert told == {
        "regressed": 3,
        "mutated": 1,
        "metric-worse": 1,
        "flaky": 0,
        "fixed": 1,
        "metric-better": 0,
        "untestable": 1,
        "infra": 0,
        "missing": 1,
        "excluded": 0,
        "removed": 0,
        "new": 1,
    }
    assert {kind: found["counts"][kind] for kind in told} == told
    assert found["counts"]["same-ok"] == 2
    (worse,) = found["changes"]["metric-worse"]
    assert worse["steps"][0] == {
        "metric": "spills",
        "older": 0,
        "newer": 16,
        "severity": "spills-begin",
        "worse": True,
    }
    assert worse["older"]["n_regs"] == 128
    assert found["changes"]["missing"][0]["newer"] is None
    assert found["groups"][0]["count"] == 2
    assert sum(group["count"] for group in found["groups"]) == sum(told.values())


def test_the_same_night_twice_says_nothing(triage: Triage, home: Path) -> None:
    night(home, SECOND)
    night(home, [replace(each, cached=True, seconds=0.0) for each in SECOND])
    done = triage("diff", "--strict-fixed")
    assert done.returncode == 0
    assert done.stdout == (
        "run 1 -> run 2: nothing changed (5 compile as before, 4 fail as before, "
        "1 could not be determined, as before)\n"
    )


def test_runs_are_those_of_the_same_command(triage: Triage, home: Path) -> None:
    night(home, FIRST)
    night(home, [row()], command="triage compile --kernel other")
    night(home, [], finish=False)
    night(home, FIRST, command="triage matrix run --jobs 2 --json")
    night(home, FIRST, command="triage matrix run --max-time=60")
    found = document(triage, code=0)
    assert (found["older"], found["newer"]) == (4, 5)
    night(home, FIRST, command="triage matrix run --scheduler local:2 --max-time=60")
    found = document(triage, code=0)
    assert (found["older"], found["newer"]) == (5, 6)
    found = document(triage, "last~3", "last~2", code=0)
    assert (found["older"], found["newer"]) == (1, 4)
    found = document(triage, "4", code=0)
    assert (found["older"], found["newer"]) == (1, 4)
    found = document(triage, "1", "2", code=4)
    assert found["counts"]["missing"] == len(FIRST) - 1


def test_a_run_that_was_killed_is_named(triage: Triage, home: Path) -> None:
    night(home, FIRST)
    night(home, FIRST[:3], finish=False)
    done = triage("diff", "1", "2")
    assert done.returncode == 4
    assert "run 2 did not finish" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["7"], 2, "there is no run 7; the latest are 1"),
        (["yesterday"], 2, "'yesterday' is not a run"),
        (["last~1"], 2, "there are not that many runs"),
        (["1", "1", "1"], 2, "two can be compared"),
        ([], 3, "first of its kind"),
    ],
)
def test_what_cannot_be_compared(
    triage: Triage, home: Path, words: list[str], code: int, said: str
) -> None:
    night(home, FIRST)
    done = triage("diff", *words)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""


def test_no_run_at_all(triage: Triage) -> None:
    done = triage("diff")
    assert done.returncode == 3
    assert "no run has finished yet" in done.stderr


def test_only_fixes(triage: Triage, home: Path) -> None:
    night(home, [row("ptxas_ice", "s1")])
    night(home, [row()])
    assert triage("diff").returncode == 0
    assert triage("diff", "--strict-fixed").returncode == 5


def test_a_night_without_the_machine_hides_no_regression(triage: Triage, home: Path) -> None:
    night(home, [row()])
    night(home, [row("infra")])
    night(home, [row("ptxas_ice", "s1")])
    assert document(triage, "1", "2", code=4)["counts"]["infra"] == 1
    assert document(triage, "2", "3", code=1)["counts"]["regressed"] == 1


MATRIX = """\
version: 1
targets: [sm_100a]
kernels: ["scan_*"]
expect:
  - {kernel: "scan_*", when: {config: num_warps=4}, verdict: ptxas_ice, issue: a/b#1}
"""


def test_known_failures_of_the_matrix_are_quiet(triage: Triage, home: Path) -> None:
    (triage.folder / "matrix.yaml").write_text(MATRIX)
    night(home, [row()])
    night(home, [row("ptxas_ice", "s1")])
    night(home, [row()])
    done = triage("diff", "1", "2")
    assert (done.returncode, done.stdout) == (
        0,
        "run 1 -> run 2: nothing changed (1 fail as expected)\n",
    )
    done = triage("diff", "2", "3", "--strict-fixed")
    assert done.returncode == 5
    assert "1 fixed: ptxas_ice (it is ptxas_ice) -> ok [a/b#1]" in done.stdout
    done = triage("diff", "1", "3", "--strict-fixed")
    assert done.returncode == 5
    assert "though matrix.yaml line 5 expects ptxas_ice" in done.stdout


def test_known_failures_are_those_of_the_matrix_that_was_run(triage: Triage, home: Path) -> None:
    other = triage.folder / "other.yaml"
    other.write_text(MATRIX)
    for command in (f"triage matrix run --matrix {other}", "triage compile --kernel scan_fwd"):
        night(home, [row()], command=command)
        night(home, [row("ptxas_ice", "s1")], command=command)
    assert triage("diff", "1", "2").returncode == 0
    assert triage("diff", "3", "4").returncode == 1
    assert triage("diff", "3", "4", "--matrix", str(other)).returncode == 0
    other.write_text("version: 2\n")
    done = triage("diff", "1", "2")
    assert done.returncode == 2
    assert "other.yaml" in done.stderr


def test_a_workaround_that_a_new_triton_has_no_need_of_is_told(triage: Triage, home: Path) -> None:
    sick = row("sick")
    night(home, [sick])
    night(home, [sick])
    with Store.open(home) as store:
        store.put_workaround(
            KeptWorkaround(baseline=sick, change="maxnreg none -> 256", proof=None, created=1.0)
        )
    assert document(triage, code=0)["expired_workarounds"] == []
    night(home, [sick, row(triton="3.8.0")])
    [told] = document(triage, code=0)["expired_workarounds"]
    assert told.startswith("workaround no longer needed: scan_fwd on sm_100a: it is ok with Triton")
    assert told in triage("diff").stdout


def test_a_part_of_what_is_stored_is_selected_by_the_words_of_compile(
    triage: Triage, home: Path
) -> None:
    night(home, FIRST)
    night(home, SECOND)
    whole = document(triage, code=1)
    part = document(triage, "--kernel", "cumsum", "--sm", "100a", code=1)
    assert whole["counts"]["regressed"] == 3
    assert {name: count for name, count in part["counts"].items() if count} == {
        "same-ok": 1,
        "metric-worse": 1,
    }
    assert not any(document(triage, "--ptxas", "<13", code=0)["counts"].values())

    def lines(*words: str) -> list[str]:
        done = triage("export", "--format", "jsonl", "--all", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    stored = [*FIRST, *SECOND]
    assert len(lines()) == len(stored)
    assert len(lines("--kernel", "cumsum")) == sum(row.kernel == "cumsum" for row in stored)
    assert len(lines("--sm", "90a", "--sm", "80", "--config", "num_warps=4")) == 3

    def bugs(*words: str) -> list[tuple[str, list[str]]]:
        done = triage("bugs", "--json", *words)
        assert done.returncode == 0, done.stderr
        found = msgspec.json.decode(done.stdout)["bugs"]
        return sorted((bug["kind"], sorted(bug["kernels"])) for bug in found)

    everything = [
        ("compiler_crash", ["scan_bwd"]),
        ("ptxas_ice", ["scan_bwd", "scan_fwd"]),
        ("timeout", ["cumsum"]),
        ("trap_stub", ["scan_bwd"]),
    ]
    assert bugs() == everything
    # What is said of a bug is said of all of its cells.
    assert bugs("--kernel", "scan_fwd") == everything[1:2]
    assert bugs("--ptxas", ">=13.1") == everything[1:2]
    assert bugs("--sm", "80") == everything[2:3]

    done = triage("site", "--json", "--kernel", "cumsum", "--sm", "100a", "--out", "pages")
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(done.stdout)["cells"] == 2
    assert not [path for path in (triage.folder / "pages").iterdir() if "scan" in path.name]
