"""Configs against one another in the real interpreter of a real Triton."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

FILE = HERE / "kernels" / "checkable.py"
PLACE = ("kernel", "config", "suspect")
TRITON = ["--triton", "3.6.0", "--sm", "90a"]


def check(triage: Triage, *words: str, code: int, kernel: str = "") -> list[dict[str, Any]]:
    name = f"{FILE}::{kernel}" if kernel else str(FILE)
    done = triage("run", "--kernel", name, *TRITON, *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    return checks_of(done.stdout)


def checks_of(text: str) -> list[dict[str, Any]]:
    """What was compared, with what it was compared of."""
    return [
        {**(row["check"] or {"status": None}), **{name: row[name] for name in PLACE}}
        for row in msgspec.json.decode(text)["runs"]
    ]


def by_block(rows: list[dict[str, Any]], kernel: str) -> dict[int, tuple[str, str]]:
    return {
        row["config"]["BLOCK"]: (row["status"], row["reason"])
        for row in rows
        if row["kernel"].endswith(f"::{kernel}")
    }


def test_configs_that_differ_are_named_and_no_others(module_triage: Triage) -> None:
    rows = check(module_triage, code=1)
    wrong = [row for row in rows if row["status"] == "differs"]
    assert {row["kernel"].rpartition("::")[2] for row in wrong} == {"partly"}
    assert {row["config"]["BLOCK"] for row in wrong} == {16, 32}
    for row in wrong:
        assert row["tensor"] == "returned.0"
        assert row["rel_err"] > 0.1
        assert row["stable_max_rel"] > 0.1
        assert row["bad_frac"] > 0
        assert row["unequal"] >= row["bad_frac"]
        assert row["within_1_percent"] <= 1 - row["bad_frac"]
        assert 1 - row["unequal"] <= row["within_1e_3"] < 1
        block = row["config"]["BLOCK"]
        assert row["suspect"] == (
            f"BLOCK={block} covers {block} of n=64, and the kernel does not loop over it"
        )
    assert by_block(rows, "partly")[64] == ("agrees", "interpreted: the reference for the others")
    assert not any(row["suspect"] for row in rows if row not in wrong)
    written = ("agrees", "interpreted: all that it writes agrees")
    assert by_block(rows, "looping") == dict.fromkeys((16, 32, 64), written)
    assert by_block(rows, "adding") == dict.fromkeys((16, 32, 64), written)
    # Its buffers differ, as they should; what becomes of them does not.
    returned = ("agrees", "interpreted: all that is returned agrees")
    assert by_block(rows, "partial_sums") == dict.fromkeys((16, 32, 64), returned)
    [first, second] = [row for row in rows if row["kernel"].endswith("::same_source")]
    assert first["status"] == second["status"] == "agrees"
    assert "the configs differ in nothing that the source reads" in first["reason"]
    [single] = [row for row in rows if row["kernel"].endswith("::alone")]
    assert single["status"] is None


def test_where_a_block_covers_everything_all_agree(module_triage: Triage) -> None:
    rows = check(module_triage, "--set", "n=16", kernel="partly", code=0)
    assert {row["status"] for row in rows} == {"agrees"}
    assert {row["suspect"] for row in rows} == {None}


@pytest.mark.long
def test_what_the_interpreter_cannot_run_is_not_checked(module_triage: Triage) -> None:
    rows = check(module_triage, "--set", "assembly=true", kernel="assembling", code=0)
    assert {row["status"] for row in rows} == {"not checked"}
    assert all("NotImplementedError: inline_asm" in row["reason"] for row in rows)
    # Others of the same launch are checked all the same, as far as nothing depends on it.
    rows = check(module_triage, "--set", "assembly=true", code=0)
    assert {status for status, _ in by_block(rows, "looping").values()} == {"agrees"}
    statuses = by_block(rows, "partly")
    assert statuses[16][0] == "not checked"
    assert "the interpreter cannot run assembling" in statuses[16][1]


def test_a_config_that_reads_far_outside_takes_nothing_with_it(module_triage: Triage) -> None:
    rows = by_block(check(module_triage, "--set", "stray=true", kernel="astray", code=1), "astray")
    assert {rows[16][0], rows[32][0]} == {"agrees"}
    status, reason = rows[64]
    assert status == "not checked"
    assert "SIGSEGV: it reads or writes outside its tensors" in reason


@pytest.mark.long
def test_a_limit_in_time_is_one(module_triage: Triage) -> None:
    words = ["--set", "n=2000000", "--timeout", "6"]
    rows = check(module_triage, *words, kernel="looping", code=4)
    assert {row["status"] for row in rows} == {"not checked"}


def test_the_words_for_people(module_triage: Triage) -> None:
    done = module_triage("run", "--kernel", f"{FILE}::partly", *TRITON, "--config", "BLOCK=16|64")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert "partly · launch · sm_90a · Triton 3.6.0, emulated PTX: " in lines[0]
    [differs] = [line for line in lines if "differs from other configs" in line]
    assert differs.startswith(
        "    1 differs from other configs [BLOCK=16]: interpreted: returned.0"
    )
    assert any("1 statically suspect: BLOCK=16 covers 16 of n=64" in line for line in lines)
    assert not any("BLOCK=16" in line and " right" in line for line in lines)


def test_a_launch_that_needs_a_gpus_values_is_run_with_values(triage: Triage) -> None:
    (triage.folder / "values.py").write_text(
        FILE.read_text() + "\n_launch = launch\n"
        "def launch(n=64):\n    if torch.ones(3, device='cuda').sum().item() == 3:\n"
        "        return _launch(n)\n"
    )
    done = triage("run", "--kernel", "values.py", *TRITON)
    assert done.returncode == 1
    assert "differs from other configs [BLOCK=16]" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.7.1", "3.8.0", "3.9.0"])
def test_newer_interpreters_say_the_same(module_triage: Triage, version: str) -> None:
    done = module_triage("run", "--kernel", str(FILE), "--triton", version, "--sm", "90a", "--json")
    rows = checks_of(done.stdout)
    wrong = {
        (row["kernel"].rpartition("::")[2], row["config"]["BLOCK"])
        for row in rows
        if row["status"] == "differs"
    }
    assert wrong == {("partly", 16), ("partly", 32)}
