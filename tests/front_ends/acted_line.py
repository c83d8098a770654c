"""The command line in this process, beside an acted compiler, named by `pytest_plugins`."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
from acted_front_end import Stage
from printed_commands import printed_commands

from harness.cli import main as command_line
from harness.store.store import Store

OLD, BAD, NEW = "12.0", "13.0", "13.1"


class Line:
    """The command line in this process: exit code, what it printed, and the cells that it ran."""

    def __init__(
        self, stage: Stage, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.stage, self._capsys, self._patch = stage, capsys, patch
        self.out = self.err = ""

    def __call__(self, *words: str) -> int:
        self._capsys.readouterr()
        # A command changes what launch code gets; the next one starts as a shell starts it.
        with self._patch.context() as patch:
            patch.setenv("TRIAGE_PASS_ENV", "")
            patch.setattr(sys, "argv", ["triage", *words])
            code = command_line._run()
        self.out, self.err = self._capsys.readouterr()
        return code

    def lead_on(self, text: str | None = None) -> dict[str, set[str]]:
        """Run each printed command: to the cells that it ran."""
        commands = printed_commands(self.out if text is None else text)
        return {command: self._run(command) for command in commands}

    def _run(self, command: str) -> set[str]:
        with Store.open(self.stage.folder / "results") as store:
            before = max((run.id for run in store.runs(1)), default=0)
            code = self(*shlex.split(command)[1:])
            # A wrong usage, an empty selection, or what could not tell, is not an answer.
            assert code in (0, 1), f"{command}: {code}\n{self.err}"
            runs = [run.id for run in store.runs(100) if run.id > before]
            rows = [json.loads(each.row) for run in runs for each in store.run_bodies(run)]
            return {row["cell"] for row in rows}
