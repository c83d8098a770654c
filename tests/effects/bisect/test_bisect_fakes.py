"""Bisections over an index of fake ptxas: histories that no real compiler gives us at will."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage
from local_index import LINUX, LocalIndex, Served, wheel

pytest_plugins = ["local_index_fixtures"]

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 p) { .reg .b64 %rd<2>; st.global.u64 [%rd1], %rd1; ret; }
"""
FAKE = """\
#!/bin/sh
case " $* " in
*" --version "*)
  echo "Cuda compilation tools, release 0.0, V{version}"
  echo "Build fake.{version}";;
*) FAKE_PTXAS={word} exec {fake} "$@";;
esac
"""


def serve(index: LocalIndex, **history: str) -> dict[str, Served]:
    """One fake wheel a version; `v13_1="ok"` is 13.1.0, which does that."""
    served = {}
    for name, word in history.items():
        version = name[1:].replace("_", ".") + ".0"
        script = FAKE.format(version=version, word=word, fake=HERE / "fakes" / "ptxas")
        filename, body = wheel(
            "nvidia_cuda_nvcc", version, {"nvidia/cu0/bin/ptxas": script}, tag=LINUX
        )
        served[version] = index.add(filename, body)
    return served


@pytest.fixture
def triage(tmp_path: Path, local_index: LocalIndex, empty_cache: Path) -> Triage:
    (tmp_path / "case.ptx").write_text(PTX)
    env = {
        **os.environ,
        "TRIAGE_HOME": str(tmp_path / "results"),
        "FAKE_PTXAS_COUNT": str(tmp_path / "count"),
        "PYTHONPATH": str(HERE.parent),
    }
    return Triage(tmp_path, env)


def bisect(triage: Triage, *words: str, code: int = 0) -> dict[str, Any]:
    case = [] if "--resume" in words or "--replay" in words else ["--kernel", "case.ptx"]
    sm = ["--sm", "80"] if case else []
    done = triage("bisect", *case, *sm, "--json", "--jobs", "1", *words, timeout=300)
    assert done.returncode == code, done.stderr[-2000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


def spans(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(part["first"], part["last"], part["verdict"]) for part in document["segments"]]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_failure_that_comes_now_and_then(
    triage: Triage, local_index: LocalIndex, seed: int
) -> None:
    flaky = f"flaky30-{seed}"
    serve(local_index, v13_0="ok", v13_1="ok", v13_2=flaky, v13_3=flaky)
    # Whoever reports such a failure has seen it, and says with which version.
    found = bisect(triage, "--ptxas", "13.3.0", "--repeat", "8")
    assert (found["last_good"], found["first_bad"]) == ("13.1.0", "13.2.0")
    good_side, bad_side = found["runs"]["13.1.0"], found["runs"]["13.2.0"]
    assert 0 < bad_side["failures"] < bad_side["runs"]
    assert good_side["failures"] == 0
    assert good_side["runs"] >= 8
    # By the rate that was seen, a bad version would have passed all these runs that rarely.
    rate = bad_side["failures"] / bad_side["runs"]
    assert found["confidence"] == pytest.approx(1 - (1 - rate) ** good_side["runs"])
    assert 0.98 < found["confidence"] < 1


def test_histories_that_come_back_are_shown_whole(triage: Triage, local_index: LocalIndex) -> None:
    serve(local_index, v12_1="segv", v12_2="ok", v12_3="ice", v12_4="ok", v12_5="ice", v12_6="ok")
    found = bisect(triage, "--repeat", "2")
    assert spans(found) == [
        ("12.1.0", "12.1.0", "compiler_crash"),
        ("12.2.0", "12.2.0", "ok"),
        ("12.3.0", "12.3.0", "ptxas_ice"),
        ("12.4.0", "12.4.0", "ok"),
        ("12.5.0", "12.5.0", "ptxas_ice"),
        ("12.6.0", "12.6.0", "ok"),
    ]
    assert (found["last_good"], found["first_bad"], found["first_fixed"]) == (
        "12.4.0",
        "12.5.0",
        "12.6.0",
    )
    assert found["came_back"]
    # No version was named: which failure is meant was known only after some had answered.
    assert bisect(triage, "--replay", found["log"]) == found
    signatures = [part["signature"] for part in found["segments"]]
    assert signatures[0] not in (None, signatures[2])
    assert signatures[2] == signatures[4]
    crash = bisect(triage, "--repeat", "2", "--bad", "12.1.0")
    assert (crash["last_good"], crash["first_fixed"]) == (None, "12.2.0")
    assert not crash["came_back"]


def test_a_broken_wheel_stops_it_and_resume_goes_on(
    triage: Triage, local_index: LocalIndex
) -> None:
    served = serve(local_index, v12_1="ok", v12_2="ok", v12_3="ice", v12_4="ice", v12_5="ok")
    served["12.3.0"].status = 500
    stopped = bisect(triage, "--ptxas", "12.4.0", "--repeat", "2", code=4)
    assert "12.3.0" in stopped["trouble"]
    assert "12.3.0" in stopped["not_tried"]
    assert stopped["first_bad"] is None
    assert bisect(triage, "--replay", stopped["log"], code=4)["segments"] == stopped["segments"]
    served["12.3.0"].status = 200
    runs = (triage.folder / "count").read_text().count("\n")
    found = bisect(triage, "--resume", stopped["log"])
    assert (found["last_good"], found["first_bad"], found["first_fixed"]) == (
        "12.2.0",
        "12.3.0",
        "12.5.0",
    )
    assert found["trouble"] is None
    # What the log knew was not asked again, beyond what both sides are repeated.
    assert (triage.folder / "count").read_text().count("\n") - runs <= 6
    local_index.down = True
    again = bisect(triage, "--replay", stopped["log"])
    assert {**again, "log": ""} == {**found, "log": ""}


def test_a_full_disk_stops_it_with_what_is_known(triage: Triage, local_index: LocalIndex) -> None:
    serve(local_index, v12_1="ok", v12_2="full", v12_3="ice", v12_4="ok")
    stopped = bisect(triage, "--ptxas", "12.3.0", "--repeat", "2", code=4)
    assert "No space left" in stopped["trouble"]
    assert "12.2.0" in stopped["trouble"]
    # No verdict of that version, and so no first bad one.
    assert "12.2.0" in stopped["not_tried"]
    assert stopped["first_bad"] is None
    assert [part["verdict"] for part in stopped["segments"] if part["first"] == "12.3.0"] == [
        "ptxas_ice"
    ]


def test_an_index_that_does_not_answer(triage: Triage, local_index: LocalIndex) -> None:
    serve(local_index, v12_1="ok")
    local_index.down = True
    done = triage("bisect", "--kernel", "case.ptx", "--sm", "80", "--json")
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert msgspec.json.decode(done.stdout)["exit_code"] == 4


def test_the_users_own_predicate(triage: Triage, local_index: LocalIndex) -> None:
    serve(local_index, v12_1="ok", v12_2="ok", v12_3="ice", v12_4="ok")
    script = 'case "$TRIAGE_PTXAS" in *12.1.0*) exit 125;; *12.[34].0*) exit 7;; esac'
    found = bisect(triage, "--script", f"test -s $TRIAGE_PTX && {script}", "--repeat", "2")
    assert spans(found) == [
        ("12.1.0", "12.1.0", "script: exit code 125"),
        ("12.2.0", "12.2.0", "script: exit code 0"),
        ("12.3.0", "12.4.0", "script: exit code 7"),
    ]
    assert (found["last_good"], found["first_bad"]) == ("12.2.0", "12.3.0")
    assert found["untestable"] == ["12.1.0"]
    aborted = bisect(triage, "--script", "exit 128", code=4)
    assert "script: exit code 128" in aborted["trouble"]


def test_flags_of_raw_ptx_one_at_a_time(triage: Triage, local_index: LocalIndex) -> None:
    serve(local_index, v12_1="ice-unless-O0")
    found = bisect(triage, "--axis", "flag", "--ptxas", "12.1.0")
    assert found["works"] == ["-O0"]
    assert {"-O1", "-O2", "-O3", "with -lineinfo"} <= set(found["fails"])
    done = triage("bisect", "--kernel", "case.ptx", "--sm", "80", "--axis", "config")
    assert done.returncode == 2
    assert "PTX has no configs" in done.stderr
    done = triage("bisect", "--kernel", "case.ptx", "--sm", "80", "--axis", "flag", "--bad", "1")
    assert "--bad does not apply to --axis flag" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty, not the log of a bisection"),
        ("{}\n", "1: not a line of a bisection's log"),
        ('{"type":"end"}\n', "1: not a line of a bisection's log"),
    ],
)
def test_what_is_no_log(triage: Triage, text: str, said: str) -> None:
    (triage.folder / "log").write_text(text)
    done = triage("bisect", "--replay", "log")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_cannot_be_run_is_no_evidence(
    triage: Triage, local_index: LocalIndex
) -> None:
    serve(local_index, v12_1="ok", v12_2="ok")
    found = bisect(triage, "--script", "test ! -z $TRIAGE_PTXAS  # always", "--repeat", "1", code=1)
    assert spans(found) == [("12.1.0", "12.2.0", "script: exit code 0")]
    for script, said in (
        ("no-such-command", "the command of --script cannot be run: "),
        ("./case.ptx", "the command of --script cannot be run: "),
        ("echo 'half", "--script: the shell cannot read it: "),
    ):
        done = triage("bisect", "--kernel", "case.ptx", "--sm", "80", "--script", script)
        assert done.returncode == 2, done.stderr
        assert done.stderr.strip().count("\n") == 0
        assert said in done.stderr


def test_a_bisection_that_was_interrupted_ends_as_if_it_was_not(
    triage: Triage, local_index: LocalIndex
) -> None:
    history = dict.fromkeys((f"v12_{minor}" for minor in range(14)), "ok")
    history |= dict.fromkeys(("v12_6", "v12_7", "v12_8"), "ice")
    serve(local_index, **history)
    whole = bisect(triage, "--bad", "12.7.0", "--max-tries", "6", "--repeat", "2")
    assert whole["not_tried"]
    lines = Path(whole["log"]).read_text().splitlines(keepends=True)
    # Killed after the first batch was planned, and later, in the middle of a line.
    for kept in (3, len(lines) // 2):
        log = triage.folder / f"killed-{kept}.jsonl"
        log.write_text("".join(lines[:kept]) + lines[kept][: len(lines[kept]) // 2])
        resumed = bisect(triage, "--resume", str(log))
        assert {**resumed, "log": ""} == {**whole, "log": ""}, kept


def test_nothing_is_printed_for_each_version(triage: Triage, local_index: LocalIndex) -> None:
    serve(local_index, v12_1="ok", v12_2="ice", v12_3="segv", v12_4="ok")
    words = ["bisect", "--kernel", "case.ptx", "--sm", "80", "--repeat", "1"]
    done = triage(*words)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if re.search(r"\b12\.\d", line)] == []
    assert "First bad: ptxas 12.3.0" in done.stdout or "any of 12.2.0, 12.3.0" in done.stdout
    listed = next(line for line in done.stdout.splitlines() if line.startswith("Also seen: "))
    assert "ptxas 12.2.0, ptxas_ice: " in listed
    command = next(line for line in done.stdout.splitlines() if "--bad 12.2.0" in line)
    again = triage(*command.split()[1:], "--repeat", "1")
    assert again.returncode == 0
    assert "12.2.0  ptxas_ice  <- this failure" in again.stdout
