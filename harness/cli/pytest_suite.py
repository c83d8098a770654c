"""`pytest --triage`: stands in for pytest's own collection and running of tests.

As where tests run on other machines, nothing of the suite is imported here: each file is captured
in a child, and what comes of its tests is reported as of tests that ran here.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions
from harness.cells.repros.find import file_of_tests
from harness.cells.selection import select_repros
from harness.cells.spelling import SelectionOptions, spell_command
from harness.cells.suite import (
    TO_THE_END,
    Execute,
    FileResult,
    TestOnTarget,
    compile_suite,
    suite_document,
    suite_said,
)
from harness.cli.output import command_line, json_text, said_text
from harness.cli.results import open_results
from harness.cli.running import surroundings
from harness.frontends.plan import Selection
from harness.io.processes.machine import CONFINE, MODES, gpus
from harness.run.executors import run_selections
from harness.run.schedules import INSTRUCTIONS, default_trials
from harness.values.errors import TriageError
from harness.values.target import EXAMPLES


class _File(pytest.File):
    """A file of tests: what tests it has, its capture says."""

    def collect(self) -> Iterator[_Item]:
        yield _Item.from_parent(self, name="tests")


class _Item(pytest.Item):
    """All tests of a file."""

    def runtest(self) -> None:
        raise NotImplementedError


class SuitePlugin:
    """Takes over from pytest where `--triage` is given."""

    def __init__(self, config: Any) -> None:
        option = config.option
        option.triage_sm = option.triage_sm or list(gpus())
        if not option.triage_sm:
            raise pytest.UsageError(f"--triage: name a GPU, for example --sm 90a; GPUs: {EXAMPLES}")
        if not 1 <= option.triage_timeout <= 86_400:  # nor is `nan`
            raise pytest.UsageError("--triage-timeout: name seconds, from 1 to 86400")
        if getattr(option, "numprocesses", None):
            raise pytest.UsageError("--triage works on all cores by itself: leave out -n")
        self.option = option
        self.results: list[FileResult] = []
        # It is for the pytest that runs here, and heard; and the suite runs as pytest runs it.
        os.environ.pop("PYTEST_ADDOPTS", None)
        os.environ.setdefault(CONFINE, MODES[-1])
        if {str(Path.cwd()), ""} & {*sys.path}:
            # `python -m pytest` imports from here.
            paths = [os.environ.get("PYTHONPATH", ""), str(Path.cwd())]
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        words = [("-k", option.keyword), ("-m", option.markexpr)]
        words += [("-c", option.inifilename and str(Path(option.inifilename).resolve()))]
        self.words = [word for pair in words if pair[1] for word in pair]
        self.deselected = [name.partition("::") for name in option.deselect or ()]
        # What they leave out, the pytest of the child leaves out.
        option.keyword, option.markexpr, option.deselect = "", "", None
        self.named: dict[Path, list[str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Remember the tests that are named: here there are but files."""
        arguments = []
        for argument in session.config.args:
            name, colons, test = argument.partition("::")
            arguments.append(name)
            path = (session.config.invocation_params.dir / name).resolve()
            self.named.setdefault(path, []).extend([f"::{test}"] if colons else [])
        session.config.args = list(dict.fromkeys(arguments))

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Collector:
        """In place of a module, which would be imported."""
        return _File.from_parent(parent, path=module_path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Capture and compile all files, and report each test of theirs."""
        items = [item for item in session.items if isinstance(item, _Item)]
        if session.config.option.collectonly or not items:
            return True
        by_file = {item.path.resolve(): item for item in items}
        refusals: list[tuple[Path, TriageError]] = []
        selections = []
        options = CompileOptions(
            timeout=self.option.triage_timeout,
            command=command_line(["pytest", *session.config.invocation_params.args]),
        )
        try:
            for path in by_file:
                try:
                    selections.append(self._select(path))
                except TriageError as error:
                    refusals.append((path, error))
            if not selections:
                raise refusals[0][1]
            for path, refusal in refusals:
                self._heard(session, by_file, FileResult(file=path, problems=(str(refusal),)))
            with open_results() as store:
                execute: Execute | None = None
                if self.option.triage_run:
                    budget = Budget(max_instructions=INSTRUCTIONS)
                    execute = lambda chosen: run_selections(  # noqa: E731 - typed where it is named
                        chosen, store, options, default_trials(), budget, lambda _: None
                    )
                heard = partial(self._heard, session, by_file)
                asyncio.run(compile_suite(selections, store, options, heard, execute))
        except TriageError as error:
            raise pytest.UsageError(str(error)) from error
        return True

    def _select(self, path: Path) -> Sequence[Selection]:
        words = [*self.words, *self.named.get(path.resolve(), ())]
        for name, _, test in self.deselected:
            if Path(name).resolve() == path.resolve():
                words += ["--deselect", f"{path.name}::{test}"]
        options = SelectionOptions(
            kernel=os.path.relpath(path),
            sm=self.option.triage_sm,
            set=[f"pytest={shlex.join(words)}"] if words else (),
            surroundings=surroundings(),
        )
        return select_repros(options, [file_of_tests(Path(options.kernel))])

    def _heard(
        self, session: pytest.Session, by_file: dict[Path, _Item], result: FileResult
    ) -> None:
        """Report the tests of a file, each once, whatever targets saw it."""
        self.results.append(result)
        item = by_file[result.file.resolve()]
        file = item.nodeid.rpartition("::")[0]
        by_name: dict[str, list[TestOnTarget]] = {}
        for test in result.tests:
            by_name.setdefault(test.facts.name, []).append(test)
        session.testscollected += len(by_name) - 1
        for name, tests in by_name.items():
            line = (tests[0].facts.line or 1) - 1
            self._report(session, item, f"{file}::{name}", line, tests)
        if not by_name:
            self._report(session, item, file, 0, (), "; ".join(result.problems))
        if session.shouldfail:
            raise session.Failed(session.shouldfail)

    def _report(
        self,
        session: pytest.Session,
        item: _Item,
        name: str,
        line: int,
        tests: Sequence[TestOnTarget],
        problem: str = "",
    ) -> None:
        place = (str(item.location[0]), line, name.partition("::")[2])
        words: list[str] = []
        for test in tests:
            for row in test.failing:
                words.append(f"{row.cell}: {row.verdict.value}: {row.reason}")
                words.append(f"  {spell_command('show', None, row.short, '--stage', 'log')}")
            words += [f"{run.cell}: {run.run.value}: {run.run_reason}" for run in test.wrong]
        # As pytest wants it: the outcome, what it shows of it, and how it counts that.
        said: tuple[Any, ...] = ("passed", None, ("captured", ".", "CAPTURED"))
        if self.option.triage_fail and (words or problem):
            said = ("failed", "\n".join(words) or problem, None)
        elif not any(test.facts.outcome == TO_THE_END for test in tests):
            reason = problem or "; ".join(dict.fromkeys(test.words for test in tests))
            is_part = any(test.captured for test in tests)
            shown = ("captured in part", "p", "CAPTURED IN PART") if is_part else None
            said = ("skipped", (str(item.path), line + 1, reason), shown)
        hook = session.config.hook
        hook.pytest_runtest_logstart(nodeid=name, location=place)
        report = pytest.TestReport(name, place, {}, said[0], said[1], "call", triage=said[2])
        hook.pytest_runtest_logreport(report=report)
        # What writes JUnit XML waits for the last of three.
        last = pytest.TestReport(name, place, {}, "passed", None, "teardown")
        hook.pytest_runtest_logreport(report=last)
        hook.pytest_runtest_logfinish(nodeid=name, location=place)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """A test that was captured has not passed: nothing was computed."""
        return getattr(report, "triage", None)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """As a report of coverage."""
        if not self.results:
            return
        terminalreporter.section(f"triage: {', '.join(self.option.triage_sm)}")
        width = terminalreporter._tw.fullwidth  # noqa: SLF001 - as plugins do
        text = said_text(suite_said(self.results), width, in_colour=terminalreporter.hasmarkup)
        terminalreporter.write(text)
        if path := self.option.triage_json:
            try:
                Path(path).write_text(json_text(suite_document(self.results)))
            except OSError as error:
                words = f"triage: --triage-json {path}: {error.strerror or error}"
                terminalreporter.write_line(words, red=True)
