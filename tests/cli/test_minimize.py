"""`triage minimize` from the outside, with ptxas that do as a test says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_toolchains import FakeCache

# Every line of the body is one that a rule below can ask for.
BODY = [
    "mov.u32 %r1, %tid.x;",
    "add.s32 %r2, %r1, %r1;",
    "mul.lo.s32 %r3, %r2, %r1;",
    "bar.sync 0;",
    "sub.s32 %r4, %r3, %r2;",
    "xor.b32 %r5, %r4, %r3;",
    "and.b32 %r6, %r5, %r4;",
    "or.b32 %r7, %r6, %r5;",
    "st.global.u32 [%rd1], %r7;",
]


def ptx(body: list[str], *, times: int = 1) -> str:
    lines = [f"    {line}" for line in body * times]
    return "\n".join(
        [
            ".version 8.0",
            ".target sm_80",
            ".address_size 64",
            ".visible .entry kernel()",
            "{",
            "    .reg .b32 %r<9>;",
            "    .reg .b64 %rd<2>;",
            *lines,
            "    ret;",
            "}",
            "",
        ]
    )


@pytest.fixture
def fakes(tmp_path: Path) -> FakeCache:
    (tmp_path / "kernel.ptx").write_text(ptx(BODY, times=2))
    return FakeCache(tmp_path)


def minimize(fakes: FakeCache, *words: str, code: int = 0) -> dict[str, Any]:
    done = fakes.triage("minimize", "kernel.ptx", *words, "--json", timeout=120)
    assert done.returncode == code, done.stderr[-3000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


def best(fakes: FakeCache, found: dict[str, Any]) -> str:
    return Path(fakes.folder, found["path"], "min.ptx").read_text()


def test_what_is_left_is_what_the_failure_needs(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'if "mul.lo" in text and "bar.sync" in text: ice("C1")')
    fakes.ptxas("1.0")
    fakes.ptxas("3.0")
    found = minimize(fakes, "--ptxas", "2.0")
    assert found["instructions"] == 2
    assert found["is_minimal"] is True
    assert found["fingerprint"]["accepted_by"] == ["1.0", "3.0"]
    assert (found["last_good"], found["first_fixed"]) == ("1.0", "3.0")
    assert (found["verdict"], found["code"], found["ending"]) == ("ptxas_ice", "C1", "finished")
    text = best(fakes, found)
    assert text.count("mul.lo") == text.count("bar.sync") == 1
    folder = fakes.folder / found["path"]
    assert {path.name for path in folder.iterdir()} == {
        "min.ptx",
        "original.ptx",
        "test.sh",
        "repro.sh",
        "README.md",
        "versions.json",
        "log.jsonl",
    }
    assert (folder / "original.ptx").read_text() == (fakes.folder / "kernel.ptx").read_text()
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [records[0]["event"], records[-1]["event"]] == ["begun", "finished"]
    sizes = [record["bytes"] for record in records]
    assert sizes[-1] == len(text.encode()) == found["bytes"]
    readme = (folder / "README.md").read_text()
    assert "ptxas 2.0: accepts it" in readme
    assert str(fakes.folder) not in readme


def test_the_scripts_say_what_we_say(fakes: FakeCache) -> None:
    tools = {
        "PTXAS_BAD": fakes.ptxas("2.0", 'if "mul.lo" in text: ice("C1")'),
        "PTXAS_GOOD": fakes.ptxas("1.0", 'if "xor" in text: ice("C1")\nif "and" in text: ok()'),
        "PTXAS_FIXED": fakes.ptxas("3.0"),
    }
    (fakes.folder / "kernel.ptx").write_text(ptx([line for line in BODY if "xor" not in line]))
    found = minimize(fakes, "--ptxas", "2.0")
    folder = fakes.folder / found["path"]
    env = {"PATH": os.environ["PATH"], **{name: str(path) for name, path in tools.items()}}

    def test_sh(text: str) -> int:
        work = fakes.folder / "work"
        work.mkdir(exist_ok=True)
        (work / "any.ptx").write_text(text)
        return subprocess.run(["sh", folder / "test.sh"], cwd=work, env=env, check=False).returncode

    assert test_sh(best(fakes, found)) == 0
    assert test_sh((folder / "original.ptx").read_text()) == 0
    assert test_sh(best(fakes, found).replace("mul.lo", "mul.hi")) == 1
    assert test_sh(best(fakes, found) + "// xor") == 1
    assert [path.name for path in (fakes.folder / "work").iterdir()] == ["any.ptx"]
    for path, code, said in (
        (tools["PTXAS_BAD"], 0, "it shows: ptxas 2.0 on sm_80"),
        (tools["PTXAS_FIXED"], 1, "it does not show"),
    ):
        done = subprocess.run(
            ["sh", folder / "repro.sh"],
            env={"PATH": os.environ["PATH"], "PTXAS": str(path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
    bare = subprocess.run(
        ["sh", folder / "test.sh"],
        env={"PATH": os.environ["PATH"]},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 125
    assert "pip install --no-deps --target DIR nvidia-cuda-nvcc==2.0" in bare.stderr


def test_another_bug_with_the_same_words_does_not_lead_astray(fakes: FakeCache) -> None:
    """Without `bar.sync` all versions fail in the same words: the shortest way down, if taken."""
    second = 'if "bar.sync" not in text: ice("C1")\n'
    fakes.ptxas("2.0", second + 'if "mul.lo" in text: ice("C1")')
    fakes.ptxas("1.0", second)
    fakes.ptxas("3.0", second)
    found = minimize(fakes, "--ptxas", "2.0")
    assert found["drift"] == []
    assert found["instructions"] == 2
    assert "mul.lo" in best(fakes, found)
    assert "bar.sync" in best(fakes, found)


def test_a_version_that_strays_at_the_end_is_held_from_there_on(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'if "mul.lo" in text: ice("C1")')
    fakes.ptxas("1.0")
    fakes.ptxas("0.9", 'if "sub" not in text: ice("C2")')
    fakes.ptxas("3.0")
    found = minimize(fakes, "--ptxas", "2.0")
    assert found["drift"] == []
    assert found["fingerprint"]["accepted_by"] == ["1.0", "3.0", "0.9"]
    assert found["instructions"] == 2
    assert "sub" in best(fakes, found)
    assert any("0.9: it had differed from the original" in note for note in found["notes"])
    test = (fakes.folder / found["path"] / "test.sh").read_text()
    assert 'accepts "$PTXAS_0_9"' in test


def test_a_crash_and_a_version_that_cannot_tell(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'if "mul.lo" in text: die(signal.SIGSEGV)')
    fakes.ptxas(
        "1.0",
        'print("ptxas kernel.ptx, line 1; fatal   : Unsupported .version 8.0; current version is",'
        " \"'7.0'\", file=sys.stderr)\nsys.exit(255)",
    )
    found = minimize(fakes, "--ptxas", "2.0")
    assert (found["instructions"], found["verdict"]) == (1, "compiler_crash")
    assert found["fingerprint"]["accepted_by"] == []
    patterns = {line["ptxas"]: line for line in found["versions"]}
    assert patterns["1.0"] == {"ptxas": "1.0", "original": "untold", "minimized": "untold"}
    assert "-eq 139" in (fakes.folder / found["path"] / "test.sh").read_text()


@pytest.mark.long
def test_a_hang_is_a_failure_too(fakes: FakeCache) -> None:
    (fakes.folder / "kernel.ptx").write_text(ptx(BODY[:4]))
    fakes.ptxas("2.0", 'if "mul.lo" in text: hang()')
    fakes.ptxas("1.0")
    found = minimize(fakes, "--ptxas", "2.0", "--timeout", "4", "--jobs", "4")
    assert (found["instructions"], found["verdict"]) == (1, "timeout")
    # A few times what the version that accepts takes, not the four seconds.
    assert found["fingerprint"]["limit_seconds"] == 2.0
    assert "-eq 124" in (fakes.folder / found["path"] / "test.sh").read_text()


def test_numbers_can_be_kept_instead(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'ok(32 if "mul.lo" in text else 8, 64 * text.count("sub"))')
    condition = "n_regs<=32 and n_regs>8 and spill_stores>=128"
    found = minimize(fakes, "--ptxas", "2.0", "--while", condition)
    text = best(fakes, found)
    assert (text.count("mul.lo"), text.count("sub"), found["instructions"]) == (1, 2, 3)
    assert found["fingerprint"]["while"] == ("n_regs <= 32 and n_regs > 8 and spill_stores >= 128")
    env = {
        "PATH": os.environ["PATH"],
        "PTXAS_BAD": str(fakes.cache / "toolchains/ptxas-2.0/bin/ptxas"),
    }
    folder = fakes.folder / found["path"]
    done = subprocess.run(["sh", "test.sh"], cwd=folder, env=env, check=False)
    assert done.returncode == 0
    (folder / "min.ptx").write_text(text.replace("sub", "add", 1))
    done = subprocess.run(["sh", "test.sh"], cwd=folder, env=env, check=False)
    assert done.returncode == 1


def test_a_predicate_of_the_users_own(fakes: FakeCache) -> None:
    fakes.ptxas("2.0")
    script = fakes.folder / "mine.sh"
    script.write_text("#!/bin/sh\n[ $# -eq 0 ] && grep -q xor *.ptx && touch here\n")
    script.chmod(0o755)
    found = minimize(fakes, "--ptxas", "2.0", "--script", "./mine.sh")
    assert found["instructions"] == 1
    assert "xor" in best(fakes, found)
    assert not (fakes.folder / "here").exists()
    assert (found["signature"], found["versions"]) == (None, [])


def test_nothing_to_reduce(fakes: FakeCache) -> None:
    fakes.ptxas("1.0")
    found = minimize(fakes, "--ptxas", "1.0", code=1)
    assert found["instructions"] is None
    assert "nothing fails: ok" in found["reason"]
    found = minimize(fakes, "--ptxas", "1.0", "--while", "n_regs>200", code=1)
    assert "--while does not hold" in found["reason"]
    assert not (fakes.folder / "minimized").exists()


def test_what_is_sick_is_followed_by_its_numbers(fakes: FakeCache) -> None:
    """The version that does not spill has to go on not spilling."""
    fakes.ptxas("2.0", 'ok(32, 8192 if "mul.lo" in text or "bar.sync" not in text else 0)')
    fakes.ptxas("1.0", 'ok(32, 0 if "bar.sync" in text else 8192)')
    found = minimize(fakes, "--ptxas", "2.0")
    assert found["fingerprint"]["while"] == "spill_stores >= 4096"
    assert found["fingerprint"]["accepted_by"] == ["1.0"]
    assert found["instructions"] == 2
    assert "mul.lo" in best(fakes, found)
    assert any("what has to stay is that it is sick" in note for note in found["notes"])
    readme = (fakes.folder / found["path"] / "README.md").read_text()
    assert "Only ptxas 2.0 was required to show it, and 1.0 not to show it." in readme


def test_a_wrong_ptxas_is_no_answer(fakes: FakeCache) -> None:
    """Missing, no program, a program that is not ptxas: exit status 125, with the remedy."""
    bad = fakes.ptxas("2.0", 'if "mul.lo" in text: ice("C1")')
    folder = fakes.folder / minimize(fakes, "--ptxas", "2.0")["path"]
    text = fakes.folder / "text"
    text.write_text("no program")

    def ends(script: str, **tools: object) -> tuple[int, str]:
        env = {"PATH": os.environ["PATH"], **{name: str(path) for name, path in tools.items()}}
        done = subprocess.run(
            ["sh", folder / script],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    assert ends("repro.sh", PTXAS=bad)[0] == 0
    for wrong in ("/nowhere/ptxas", text, "/bin/true", "/bin/false"):
        code, said = ends("repro.sh", PTXAS=wrong)
        assert (code, "cannot test: " in said) == (125, True), wrong
    assert ends("test.sh", PTXAS_BAD=bad)[0] == 0
    code, said = ends("test.sh")
    assert (code, said.startswith("set PTXAS_BAD to the path of ptxas 2.0")) == (125, True)
    code, said = ends("test.sh", PTXAS_BAD="/nowhere/ptxas")
    assert (code, "/nowhere/ptxas does not run" in said) == (125, True)


@pytest.mark.long
def test_a_finished_reduction_is_not_done_again(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'if "mul.lo" in text and "sub" in text: ice("C1")')
    first = minimize(fakes, "--ptxas", "2.0", "--out", "o")
    again = minimize(fakes, "--ptxas", "2.0", "--out", "o", "--resume")
    assert (again["tests"], again["passes"]) == (first["tests"], first["passes"])
    assert (again["instructions"], again["is_minimal"], again["drift"]) == (2, True, [])
    # Another seed may find another way.
    other = minimize(fakes, "--ptxas", "2.0", "--out", "o", "--resume", "--seed", "5")
    assert other["tests"] > first["tests"]
    # What the folder holds may be from another time.
    (fakes.folder / "o" / "min.ptx").write_text(ptx(BODY[:1]))
    over = minimize(fakes, "--ptxas", "2.0", "--out", "o", "--resume")
    assert over["instructions"] == 2
    assert "the saved result no longer reproduces; starting over" in over["notes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "what is to be reduced?"),
        (["kernel.ptx", "--kernel", "kernel.ptx"], "which one is meant?"),
        (["none.ptx"], "none.ptx: no such file"),
        (["kernel.ptx", "--while", "n_reg=1"], "no field 'n_reg'; near: n_regs"),
        (["kernel.ptx", "--script", "none-such"], "no such program"),
        (["kernel.ptx", "--script", "true", "--while", "n_regs>1"], "which one is meant?"),
        (["kernel.ptx", "--max-time", "10q"], "write a time, for example 90s"),
        (["kernel.ptx", "--ptxas", "1.0", "--ptxas", "2.0"], "--ptxas: 2 are meant"),
        (["kernel.ptx", "--out", "taken", "--ptxas", "2.0"], "taken is there already"),
        (["kernel.ptx", "--resume", "--ptxas", "2.0"], "holds no reduction to go on from"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refused_in_one_line(fakes: FakeCache, words: list[str], said: str) -> None:
    fakes.ptxas("1.0")
    fakes.ptxas("2.0", 'if "mul.lo" in text: ice("C1")')
    (fakes.folder / "taken").mkdir()
    (fakes.folder / "taken" / "file").touch()
    if not {"--ptxas"} & set(words):
        words = [*words, "--ptxas", "2.0"]
    done = fakes.triage("minimize", *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (fakes.folder / "minimized").exists()


@pytest.mark.long
def test_a_budget_of_tests_and_going_on_from_there(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'if text.count("mul.lo") >= 2: ice("C1")')
    first = minimize(fakes, "--ptxas", "2.0", "--max-tries", "3", "--out", "o")
    assert (first["ending"], first["tests"]) == ("budget", 3)
    assert first["is_minimal"] in (None, False)
    second = minimize(fakes, "--ptxas", "2.0", "--out", "o", "--resume")
    assert (second["ending"], second["instructions"]) == ("finished", 2)
    assert second["tests"] > first["tests"]
    (fakes.folder / "kernel.ptx").write_text(ptx(BODY, times=3))
    done = fakes.triage("minimize", "kernel.ptx", "--ptxas", "2.0", "--out", "o", "--resume")
    assert done.returncode == 2
    assert "is not what would be reduced" in done.stderr


@pytest.mark.long
def test_going_on_takes_the_target_of_the_reduction_or_says_what_differs(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'if text.count("mul.lo") >= 2: ice("C1")')
    first = minimize(fakes, "--ptxas", "2.0", "--sm", "90a", "--max-tries", "3")
    assert first["path"].startswith("minimized/kernel-")
    done = fakes.triage("minimize", "kernel.ptx", "--ptxas", "2.0", "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert f"triage: --resume: {first['path']} is for sm_90a" in done.stderr
    second = msgspec.json.decode(done.stdout)
    assert (second["path"], second["ending"]) == (first["path"], "finished")
    other = fakes.triage("minimize", "kernel.ptx", "--ptxas", "2.0", "--sm", "80", "--resume")
    assert other.returncode == 2
    assert f"{first['path']} has target sm_90a in place of sm_80" in other.stderr
    named = ["--out", first["path"], "--sm", "80", "--resume"]
    other = fakes.triage("minimize", "kernel.ptx", "--ptxas", "2.0", *named)
    assert other.returncode == 2
    assert "is not what would be reduced; it has target sm_90a in place of sm_80" in other.stderr
    # Of two, none is taken.
    minimize(fakes, "--ptxas", "2.0", "--sm", "80", "--max-tries", "3")
    both = fakes.triage("minimize", "kernel.ptx", "--ptxas", "2.0", "--resume")
    assert both.returncode == 2
    assert "--resume: there are reductions for sm_" in both.stderr


@pytest.mark.long
def test_the_same_seed_and_jobs_make_the_same(fakes: FakeCache) -> None:
    fakes.ptxas("2.0", 'if "mul.lo" in text and text.count("sub") > 1: ice("C1")')
    runs = [
        minimize(fakes, "--ptxas", "2.0", "--out", f"o{n}", "--jobs", "3", "--seed", "5")
        for n in range(2)
    ]
    assert runs[0]["tests"] == runs[1]["tests"]
    assert best(fakes, runs[0]) == best(fakes, runs[1])


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_what_is_stopped_keeps_the_best_and_can_go_on(
    fakes: FakeCache, number: signal.Signals
) -> None:
    fakes.ptxas("2.0", 'time.sleep(0.04)\nif "mul.lo" in text: ice("C1")')
    triage = fakes.triage
    words = [sys.executable, "-m", "harness", "minimize", "kernel.ptx", "--ptxas", "2.0"]
    folder = fakes.folder / "o"
    with subprocess.Popen(
        [*words, "--out", "o"],
        cwd=fakes.folder,
        env=triage.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        until = time.monotonic() + 60
        log = folder / "log.jsonl"
        while time.monotonic() < until:
            if log.exists() and log.read_text().count('"accepted"') >= 2:
                break
            time.sleep(0.01)
        process.send_signal(number)
        output = process.communicate(timeout=60)[0]
    assert "Traceback" not in output
    kept = (folder / "min.ptx").read_text()
    assert "mul.lo" in kept
    assert len(kept) < len((folder / "original.ptx").read_text())
    if number is not signal.SIGKILL:
        assert process.returncode == 130, output
        assert "until it was interrupted" in (folder / "README.md").read_text()
        assert (folder / "test.sh").exists()
    found = minimize(fakes, "--ptxas", "2.0", "--out", "o", "--resume")
    assert (found["ending"], found["instructions"]) == ("finished", 1)
