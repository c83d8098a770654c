"""`triage export`, as a user runs it, on nights that were replayed."""

from __future__ import annotations

import csv
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Triage
from nights import as_json, night, row

from harness.values.row import Row

ODD = 'a "quoted", <b>|*\\ reason\nof two lines, in Hebrew: שלום'
FIRST = [row(), row("ptxas_ice", "s1", warps=8, signal=11)]
SECOND = [
    row(instructions={"tensor": 4, "total": 9}, seconds=1.5, tmem_size=0, frozen=True),
    row("ptxas_ice", "s1", warps=8, reason=ODD),
]
NAMES = ["run", "created", *Row.__struct_fields__]
TEXTS = ("config", "instructions", "partners", "ptxas_flags")


@pytest.fixture
def home(triage: Triage) -> Path:
    home = Path(triage.env["TRIAGE_HOME"])
    night(home, FIRST)
    night(home, SECOND)
    return home


def written(triage: Triage, form: str, *words: str) -> Path:
    path = triage.folder / f"out.{form}"
    done = triage("export", "--format", form, "--out", str(path), *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == f"written to {path}\n"
    assert [each.name for each in triage.folder.iterdir() if each.name[0] == "."] == []
    return path


def from_jsonl(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def from_csv(path: Path) -> list[dict[str, Any]]:
    """With the types that CSV has not; nothing is None, for both are empty."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    truths = {"True": True, "False": False}
    found = []
    for each in rows:
        values: dict[str, Any] = {name: value or None for name, value in each.items()}
        for name, value in values.items():
            if value in truths:
                values[name] = truths[value]
        found.append(values)
    return found


def from_sqlite(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return [dict(each) for each in db.execute("SELECT * FROM results ORDER BY run, cell")]


def flat(row: Row) -> dict[str, Any]:
    values = as_json(row)
    for name in TEXTS:
        if values[name] is not None:
            values[name] = json.dumps(values[name], separators=(",", ":"))
    return values


READERS = {"csv": from_csv, "sqlite": from_sqlite}


@pytest.mark.parametrize("form", READERS)
def test_every_column_of_every_run(triage: Triage, home: Path, form: str) -> None:
    found = READERS[form](written(triage, form, "--all"))
    assert [list(each) for each in found] == [NAMES] * 4
    assert [int(each["run"]) for each in found] == [1, 1, 2, 2]
    for each, expected in zip(found, [*FIRST, *SECOND], strict=True):
        for name, value in flat(expected).items():
            if form == "csv" and isinstance(value, int | float) and not isinstance(value, bool):
                assert float(each[name]) == value, name
            else:
                assert each[name] == value, name


def test_json_lines_are_the_rows_themselves(triage: Triage, home: Path) -> None:
    found = from_jsonl(written(triage, "jsonl", "--run", "1"))
    assert [list(each) for each in found] == [NAMES] * 2
    for each, expected in zip(found, FIRST, strict=True):
        assert each.pop("run") == 1
        assert each.pop("created") > 1e9
        assert each == as_json(expected)


def test_the_default_is_the_last_run_as_text_on_stdout(triage: Triage, home: Path) -> None:
    done = triage("export", "--format", "csv")
    assert done.returncode == 0
    assert [each["run"] for each in csv.DictReader(done.stdout.splitlines())][:1] == ["2"]
    done = triage("export", "--format", "jsonl", "--run", "last~1")
    assert [msgspec.json.decode(line)["run"] for line in done.stdout.splitlines()] == [1, 1]


def test_a_spreadsheet_computes_nothing_and_a_terminal_obeys_nothing(triage: Triage) -> None:
    rows = [row(kernel="=cmd|calc.py", reason="\x1b]0;title\x07"), row(kernel="@sum(1)")]
    night(Path(triage.env["TRIAGE_HOME"]), rows)
    found = from_csv(written(triage, "csv"))
    assert {each["kernel"] for each in found} == {"'=cmd|calc.py", "'@sum(1)"}
    assert all(str(each["cell"]).startswith("'") for each in found)
    assert {each["reason"] for each in found} == {"\ufffd]0;title\ufffd", rows[1].reason}
    assert [each["kernel"] for each in from_jsonl(written(triage, "jsonl"))] == sorted(
        each.kernel for each in rows
    )


def test_markdown_is_a_table_that_nothing_breaks(triage: Triage, home: Path) -> None:
    head, rule, first, second = triage("export", "--format", "markdown").stdout.splitlines()
    assert rule == "|" + "---|" * head.count(" | ") + "---|"
    assert "| num_warps=4, maxnreg=128 |" in first
    assert 'a "quoted", &lt;b>\\|\\*\\\\ reason of two lines, in Hebrew: שלום' in second
    assert second.replace("\\|", "").count("|") == head.count("|")


def test_a_file_is_never_overwritten_unasked(triage: Triage, home: Path) -> None:
    path = written(triage, "csv")
    path.write_text("mine")
    done = triage("export", "--format", "csv", "--out", str(path))
    assert done.returncode == 2
    assert f"{path} exists: name another file, or add --force" in done.stderr
    assert path.read_text() == "mine"
    assert triage("export", "--format", "csv", "--out", str(path), "--force").returncode == 0
    assert len(from_csv(path)) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--format", "sqlite"], 2, "say where it goes with --out FILE"),
        (["--format", "csv", "--run", "1", "--all"], 2, "which one is meant?"),
        (["--format", "csv", "--run", "9"], 2, "there is no run 9"),
        (["--format", "csv", "--out", "no/such/file"], 4, "cannot write no/such/file"),
        (["--format", "csv", "--out", "."], 2, "is a folder"),
        (["--format", "xml"], 2, "'xml' is not one of"),
    ],
)
def test_what_cannot_be_exported(
    triage: Triage, home: Path, words: list[str], code: int, said: str
) -> None:
    done = triage("export", *words)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""


def test_a_reader_that_has_seen_enough_is_no_error(triage: Triage, home: Path) -> None:
    night(home, [row(warps=warps) for warps in range(1, 3000)])
    command = f"{sys.executable} -m harness export --format jsonl | head -1"
    done = subprocess.run(
        ["bash", "-c", command], env=triage.env, cwd=triage.folder, capture_output=True, check=False
    )
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1
