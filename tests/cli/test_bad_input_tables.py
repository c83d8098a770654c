"""Bad input over all commands: one clear line, the right exit code, no traceback, no hang."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bad_input_cases import Case
from bad_input_documents import document_cases
from bad_input_files import file_cases
from bad_input_options import commands, option_cases
from bad_input_surroundings import surrounding_cases
from nights import night, row
from preloaded import preloaded_triage

from harness.cli.main import cli

HERE = Path(__file__).parent
SECONDS = 60.0
CASES = [*option_cases(), *file_cases(), *document_cases(), *surrounding_cases()]
# Line breaks and tabs are ours; the rest of these would steer a terminal.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COMPLAINT = re.compile(r"^(?:triage|Error): ", re.MULTILINE)
# Where the cases have results and toolchains.
OURS = {"results", "cache"}
# 0 to 5 are those that the help names.
CODES = range(6)


def run(case: Case, folder: Path, env: dict[str, str | None]) -> dict[str, Any]:
    return preloaded_triage().ask(
        {
            "words": case.words,
            "folder": str(folder),
            "folder_is_gone": case.folder_is_gone,
            "env": env,
            "only_this_env": False,
            "seconds": SECONDS,
            "leaves_nobody": True,
            **{
                name: getattr(case, name)
                for name in ("stdin", "stdout", "stderr", "encoding", "memory", "plain")
            },
        }
    )


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two nights, with a bug."""
    home = tmp_path_factory.mktemp("nights") / "results"
    home.mkdir()
    night(home, [row(), row("ok", warps=8)])
    night(home, [row(), row("ptxas_ice", "s1", warps=8)])
    return home


def _in_turn(case: Case) -> Any:
    """Half of the cases are run each time, the other half with the long tests."""
    is_long = zlib.crc32(case.id.encode(errors="surrogateescape")) % 2
    return pytest.param(case, id=ascii(case.id), marks=[pytest.mark.long] if is_long else [])


@pytest.mark.parametrize("case", [_in_turn(case) for case in CASES])
def test_bad_input(case: Case, results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    if case.store:
        shutil.copytree(results, folder / "results")
    before = Path.cwd()
    os.chdir(folder)
    try:
        case.prepare(folder)
    finally:
        os.chdir(before)
    env: dict[str, str | None] = {
        "TRIAGE_HOME": "results",
        "TRIAGE_CACHE_DIR": "cache",
        "TRIAGE_OFFLINE": "1",
        **case.env,
    }
    there = _entries(folder)
    _judge(case, run(case, folder, env))
    if case.code:
        assert _entries(folder) <= there | OURS


def _entries(folder: Path) -> set[str]:
    """What lies in the working folder; nothing where that is gone."""
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def _judge(case: Case, answer: dict[str, Any]) -> None:
    shown = json.dumps({"words": case.words, **answer}, indent=1)[:6000]
    assert answer["how"] == "exit", shown
    out, err = answer["out"], answer["err"]
    assert "Traceback" not in out + err, shown
    assert not CONTROL.search(err), shown
    if case.encoding != "utf-16":
        assert not CONTROL.search(out), shown
    assert answer["code"] == case.code, shown
    assert answer["code"] in CODES, shown
    complaints = [line for line in err.splitlines() if COMPLAINT.match(line)]
    if case.lines is not None:
        assert len(complaints) == case.lines, shown
    if case.says:
        assert any(case.says in line for line in complaints), shown
    assert case.out in out, shown


def test_the_tables_are_over_all_commands_and_large() -> None:
    assert len(CASES) >= 2400
    assert max(Counter(case.id for case in CASES).values()) == 1
    tried = {case.words[: len(path)] for path, _ in commands(cli) for case in CASES}
    assert {path for path, _ in commands(cli)} <= tried
