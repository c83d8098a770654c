"""A store that the version before front ends wrote is read without loss.

`tests/data/stores` holds its tables (of `small.py` and two PTX files, on 4 toolchains; without
evidence, which names folders) and what that version printed of it.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from conftest import HERE

if TYPE_CHECKING:
    from conftest import Triage

STORES = HERE / "data" / "stores"


@pytest.fixture
def older(triage: Triage) -> Triage:
    """The command line on a copy of that store."""
    home = triage.folder / "older"
    home.mkdir()
    with sqlite3.connect(home / "triage.db") as db:
        db.executescript((STORES / "before_front_ends.sql").read_text())
    triage.env["TRIAGE_HOME"] = str(home)
    return triage


def printed(triage: Triage, *words: str) -> str:
    done = triage(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rows_are_those_of_then_and_name_their_compiler(older: Triage) -> None:
    then = [json.loads(line) for line in (STORES / "before_front_ends.rows.jsonl").open()]
    now = [
        json.loads(line)
        for line in printed(older, "export", "--format", "jsonl", "--all").splitlines()
    ]
    assert len(then) == len(now) == 5
    for old, new in zip(then, now, strict=True):
        assert {name: new[name] for name in old} == old
    history = json.loads(printed(older, "history", "--kernel", "*", "--json"))["cells"]
    compilers = {(row["compiler"], row["compiler_version"], row["triton"]) for row in history}
    assert compilers == {
        (None, None, None),
        ("triton", "3.4.0", "3.4.0"),
        ("triton", "3.6.0", "3.6.0"),
    }


def test_bugs_are_those_of_then(older: Triage) -> None:
    then: dict[str, Any] = json.loads((STORES / "before_front_ends.bugs.json").read_text())
    now = json.loads(printed(older, "bugs", "--json"))
    for old, new in zip(then["bugs"], now["bugs"], strict=True):
        example = old.pop("example"), new.pop("example")
        assert {name: example[1][name] for name in example[0]} == example[0]
        for known, found in zip(old.pop("ranges"), new["ranges"], strict=True):
            assert {name: found[name] for name in known} == known
        assert {name: new[name] for name in old} == old


def test_a_shard_of_then_is_merged_whole(older: Triage) -> None:
    before = printed(older, "export", "--format", "jsonl", "--all")
    bugs = json.loads(printed(older, "bugs", "--json"))
    shard, older.env["TRIAGE_HOME"] = older.env["TRIAGE_HOME"], str(older.folder / "now")
    done = json.loads(printed(older, "matrix", "merge", shard, "--json"))
    assert (done["results"], done["refused"], done["evidence"]) == (5, [], 0)
    assert printed(older, "export", "--format", "jsonl", "--all") == before
    assert json.loads(printed(older, "bugs", "--json")) == bugs
    assert json.loads(printed(older, "matrix", "merge", shard, "--json"))["results"] == 0
