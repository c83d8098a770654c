"""`triage bugs`, as a user runs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from nights import night, row

if TYPE_CHECKING:
    from conftest import Triage

A, B = "a" * 12, "b" * 12


@pytest.fixture
def home(triage: Triage) -> Path:
    return Path(triage.env["TRIAGE_HOME"])


def document(triage: Triage, *words: str) -> Any:
    done = triage("bugs", *words, "--json")
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout)


def test_failures_become_numbered_bugs(triage: Triage, home: Path) -> None:
    night(home, [row("ptxas_ice", A, code="C7907"), row(warps=8), row("unsupported", B, warps=16)])
    night(home, [row("ptxas_ice", A, code="C7907"), row("trap_stub", B, warps=8, stage="llir")])
    first, second = document(triage)["bugs"]
    assert (first["number"], first["signature"], first["machine"]) == (1, A, "confirmed")
    assert (second["number"], second["signature"], second["machine"]) == (2, B, "new")
    assert (first["kind"], first["code"], first["cells"]) == ("ptxas_ice", "C7907", 1)
    assert first["example"]["command"] == f"triage show {first['example']['short']} --stage log"
    shown = triage("bugs")
    assert "confirmed" in shown.stdout
    assert "cubin ptxas_ice C7907: it is ptxas_ice" in shown.stdout


def test_what_the_source_no_longer_has_is_no_bug_of_today(triage: Triage, home: Path) -> None:
    night(home, [row("ptxas_ice", A), row("ptxas_ice", B, warps=8), row("ptxas_ice", B, warps=16)])
    night(home, [row(warps=2), row("ptxas_ice", B, warps=16)])
    first, second = document(triage)["bugs"]
    assert (first["machine"], first["cells_now"], first["cells"]) == ("gone", 0, 1)
    assert (second["machine"], second["cells_now"], second["cells"]) == ("confirmed", 1, 2)
    # What is known of versions stays.
    assert first["ranges"]
    assert (
        "gone (the source has no cell any more that showed it)"
        in triage("bugs", "show", "1").stdout
    )
    night(home, [row("ptxas_ice", A), row(warps=16)])
    first, second = document(triage)["bugs"]
    assert (first["machine"], first["cells_now"]) == ("confirmed", 1)
    assert (second["machine"], second["cells_now"]) == ("fixed-candidate", 0)


def test_numbers_stay_when_older_history_comes_later(triage: Triage, home: Path) -> None:
    night(home, [row("ptxas_ice", B)])
    document(triage)
    night(home, [row("ptxas_ice", A, warps=8), row("ptxas_ice", B)])
    numbers = {bug["signature"]: bug["number"] for bug in document(triage)["bugs"]}
    assert numbers == {B: 1, A: 2}


def test_what_people_say_is_kept(triage: Triage, home: Path) -> None:
    night(home, [row("ptxas_ice", A), row("trap_stub", B, warps=8)])
    url = "https://example.org/issues/1"
    done = document(triage, "set", "1", "reported", url, "--note", "asked again")
    assert (done["bug"]["state"], done["bug"]["url"]) == ("reported", url)
    assert document(triage, "set", "2", "duplicate", "1")["bug"]["duplicate_of"] == 1
    night(home, [row("ptxas_ice", A), row("trap_stub", B, warps=8)])
    bug = document(triage, "show", "1")["bug"]
    assert (bug["state"], bug["url"], bug["note"]) == ("reported", url, "asked again")
    assert bug["machine"] == "confirmed"
    assert f"reported {url}" in triage("bugs", "show", "1").stdout
    assert [bug["number"] for bug in document(triage, "--state", "duplicate")["bugs"]] == [2]
    assert document(triage, "set", "1", "untriaged")["bug"]["state"] == "untriaged"


def test_kernels_for_which_a_condition_holds(triage: Triage, home: Path) -> None:
    # Without the list of versions that another test may have fetched: it adds those not tried.
    triage = replace(triage, env={**triage.env, "TRIAGE_CACHE_DIR": str(home / "cache")})
    night(home, [row(triton="3.4.0"), row(triton="3.5.0", n_regs=255, spill_stores=616)])
    night(home, [row(triton="3.6.0", n_regs=255, spill_stores=740), row(kernel="scan_bwd")])
    night(home, [row(triton="3.8.0"), row("ptxas_ice", A, triton="3.7.0")])
    found = document(triage, "--while", "spill_stores > 500")
    (held,) = found["held"]
    assert (found["while"], held["kernel"], held["target"]) == (
        "spill_stores > 500",
        "scan_fwd",
        "sm_100a",
    )
    assert held["numbers"] == "255 registers, 616 - 740 B of spill stores"
    assert (held["cells"], held["first_seen"], held["last_seen"]) == (2, 1, 2)
    (triton,) = (each for each in held["ranges"] if each["tool"] == "Triton")
    ends = ("last_good", "first_bad", "last_bad", "first_fixed")
    assert [triton[name] for name in ends] == ["3.4.0", "3.5.0", "3.6.0", "3.8.0"]
    shown = " ".join(triage("bugs", "--while", "spill_stores > 500").stdout.split())
    assert "255 registers, 616 - 740 B of spill stores" in shown
    # 3.7.0 was tried, and fails in another way: it is no candidate for the fix.
    known = "First bad: Triton 3.5.0. Last good: 3.4.0. Gone from 3.7.0 on, which ends with"
    assert f"{known}: it is ptxas_ice; works again from 3.8.0 on." in shown
    # It is a question: no bug comes of it.
    assert [bug["signature"] for bug in document(triage)["bugs"]] == [A]
    assert "holds for no result" in triage("bugs", "--while", "stack > 1").stdout
    assert triage("bugs", "--while", "stack > 1", "--state", "new").returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "9"], "there is no bug 9; they go from 1 to 2"),
        (["set", "9", "expected"], "there is no bug 9"),
        (["set", "1", "reported"], "needs the URL"),
        (["set", "1", "reported", "javascript:alert(1)"], "is not a URL"),
        (["set", "1", "duplicate"], "needs the number"),
        (["set", "1", "duplicate", "7"], "there is no bug 7"),
        (["set", "1", "duplicate", "1"], "leads back"),
        (["set", "1", "wontfix", "why"], "--note keeps text"),
        (["set", "1", "closed"], "closed"),
    ],
)
def test_what_cannot_be_said(triage: Triage, home: Path, words: list[str], said: str) -> None:
    night(home, [row("ptxas_ice", A), row("trap_stub", B, warps=8)])
    done = triage("bugs", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_no_bugs(triage: Triage) -> None:
    assert "no bugs" in triage("bugs").stdout
    assert document(triage)["bugs"] == []


def test_a_duplicate_s_duplicate_cannot_lead_back(triage: Triage, home: Path) -> None:
    night(home, [row("ptxas_ice", A), row("trap_stub", B, warps=8)])
    document(triage, "set", "1", "duplicate", "2")
    assert triage("bugs", "set", "2", "duplicate", "1").returncode == 2


def test_no_text_is_lost_on_a_narrow_screen(triage: Triage, home: Path) -> None:
    url = "https://example.org/a/rather/long/address/issues/1"
    night(home, [row("ptxas_ice", A, kernel="a_kernel_with_a_long_name_of_its_own", code="C7907")])
    document(triage, "set", "1", "reported", url)
    narrow = replace(triage, env={**triage.env, "COLUMNS": "80"})
    lines = narrow("bugs").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    words = "".join("".join(lines).split())
    for text in (
        "cubin ptxas_ice C7907",
        "a_kernel_with_a_long_name_of_its_own",
        url,
        "ptxas 13.0.88",
    ):
        assert text.replace(" ", "") in words
