"""Commands that are printed, given as they are printed, with the real Triton and the real ptxas."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import HERE, Triage
from printed_commands import parse, printed_commands

from harness.store.store import Store

pytestmark = pytest.mark.tools

PTXAS = "12.9.86"
# A file in a folder, a variable that is passed, a config, a chosen Triton and a chosen ptxas: a
# command that lacks one of them compiles other cells.
CASE = (
    *("--kernel", "leading.py", "--sm", "90a", "--triton", "3.7.1", "--ptxas", PTXAS),
    *("--pass-env", "DIVISOR"),
)
WIDE = ("--config", "WIDE=1")
# The kernel is right where ptxas does not divide.
IS_RIGHT = (*CASE[:6], *WIDE)


class LeadOn:
    """Commands in a folder of their own; of each it knows the rows that came to the store."""

    def __init__(self, triage: Triage) -> None:
        self._triage = replace(triage, env={**triage.env, "DIVISOR": "-1"})
        shutil.copy(HERE / "kernels" / "leading.py", triage.folder)

    def __call__(self, *words: str, codes: tuple[int, ...] = (0, 1)) -> str:
        """What a command prints."""
        process = self._triage(*words)
        # A wrong usage, an empty selection, or what could not tell, is not an answer.
        assert process.returncode in codes, (words, process.stdout, process.stderr)
        return process.stdout + process.stderr

    def follow(self, *texts: str) -> dict[str, list[dict[str, object]]]:
        """Give each printed command: to the rows of what it ran, or of the cell that it shows."""
        commands = dict.fromkeys(command for text in texts for command in printed_commands(text))
        assert commands, texts
        return {command: self._rows_of(shlex.split(command)[1:]) for command in commands}

    def _rows_of(self, words: list[str]) -> list[dict[str, object]]:
        with Store.open(self._triage.folder / "results") as store:
            before = max((run.id for run in store.runs(1)), default=0)
            printed = self(*words)
            if words[0] == "show":
                assert printed.strip()
                return [json.loads(record.row) for record in store.find_cells(words[1])]
            runs = [run.id for run in store.runs(100) if run.id > before]
            return [json.loads(body.row) for run in runs for body in store.run_bodies(run)]

    @property
    def folder(self) -> Path:
        return self._triage.folder


@pytest.fixture(scope="module")
def lead_on(module_triage: Triage) -> LeadOn:
    return LeadOn(module_triage)


def is_the_case(row: dict[str, object]) -> bool:
    """Whether it is the config that fails, with the variable; elsewhere ptxas has no fault."""
    return row["config"]["WIDE"] == 1 and row["verdict"] == "compiler_crash"  # type: ignore[index]


def check_selected(followed: dict[str, list[dict[str, object]]]) -> None:
    """Every command ran the case, on the toolchain that it names."""
    for command, rows in followed.items():
        assert any(map(is_the_case, rows)), (command, rows)
        options = parse(command).params
        # A report shows every config, and a workaround may be another one.
        others = ("triage report", "triage workaround")
        if options.get("config") and not command.startswith(others):
            assert all(row["config"]["WIDE"] == 1 for row in rows), command  # type: ignore[index]
        if command.startswith(("triage compile", "triage bisect")) and options["triton"]:
            assert {row["triton"] for row in rows} == set(options["triton"]), command
        if command.startswith("triage compile") and "latest" not in options["ptxas"]:
            assert {row["ptxas"] for row in rows} == set(options["ptxas"]), command


@pytest.mark.long
def test_a_compile_a_bisection_and_the_lists(lead_on: LeadOn) -> None:
    followed = lead_on.follow(lead_on("compile", *CASE, *WIDE))
    assert [command.split()[1] for command in followed] == ["show", "compile"]
    check_selected(followed)
    axis = ("--axis", "triton", "--good", "3.6.0", "--max-tries", "2", "--repeat", "1")
    followed = lead_on.follow(lead_on("bisect", *CASE, *axis))
    verbs = [command.split()[1] for command in followed]
    assert verbs == ["compile", "compile", "workaround", "blame"]
    for command, version in zip([*followed][:2], ("3.6.0", "3.7.1"), strict=True):
        rows = followed[command]
        assert [(row["triton"], row["ptxas"]) for row in rows] == [(version, PTXAS)]
        assert is_the_case(rows[0]) == (version == "3.7.1")
    bugs = [lead_on(*words) for words in (("bugs", "--json"), ("bugs", "show", "1"))]
    # A command that was given once has nothing to be compared with; it says how it is given again.
    first = lead_on("diff", "1", codes=(3,))
    check_selected(lead_on.follow(*bugs, first))
    assert "compiler_crash" in lead_on("history", "--kernel", "leading.py::divide")


def test_a_quick_report_and_a_run(lead_on: LeadOn) -> None:
    out = lead_on("report", *CASE, *WIDE, "--for", "nvidia", "--quick", "--out", "r")
    issue = (lead_on.folder / "r" / "issue.md").read_text()
    commands = printed_commands(issue)
    assert set(printed_commands(out)) < set(commands)
    (compiled,) = [command for command in commands if command.startswith("triage compile")]
    check_selected(lead_on.follow(compiled))
    assert "1 right" in lead_on("run", *IS_RIGHT)


def test_what_works_leads_to_a_run_and_from_there_to_its_sass(lead_on: LeadOn) -> None:
    compiled = lead_on("compile", *IS_RIGHT)
    followed = lead_on.follow(compiled)
    assert [command.split()[1] for command in followed] == ["run", "compile"]
    assert all(rows for rows in followed.values())
    (sass,) = lead_on.follow(lead_on("run", *IS_RIGHT))
    assert sass.endswith("--on sass")


@pytest.mark.long
@pytest.mark.parametrize("verb", ["blame", "minimize"])
def test_what_takes_long(lead_on: LeadOn, verb: str) -> None:
    check_selected(lead_on.follow(lead_on(verb, *CASE, *WIDE)))


@pytest.mark.long
def test_all_commands_of_a_report(lead_on: LeadOn) -> None:
    # What another test made there is refused, not written over.
    shutil.rmtree(lead_on.folder / "minimized", ignore_errors=True)
    lead_on("report", *CASE, *WIDE, "--for", "nvidia", "--quick", "--out", "r")
    followed = lead_on.follow((lead_on.folder / "r" / "issue.md").read_text())
    assert {command.split()[1] for command in followed} >= {"blame", "bisect", "workaround"}
    for command, rows in followed.items():
        if not command.startswith("triage report"):
            assert any(map(is_the_case, rows)), command
