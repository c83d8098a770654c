"""Fixtures that all tests share."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from documents import check_document
from hypothesis import HealthCheck, settings
from preloaded import preloaded_triage
from printed_commands import check_printed

HERE = Path(__file__).parent

# A shell starts what it leaves in the background with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A `python3` that is a shim (pyenv's is a shell script) makes of each fake compiler ten processes.
BARE_PYTHON = Path(sys._base_executable).parent  # type: ignore[attr-defined]
os.environ["PATH"] = f"{BARE_PYTHON}{os.pathsep}{os.environ['PATH']}"

# On a busy machine any example may take long; how long says nothing of the code.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A run of one commit ends like the last run of it; the long lane looks for new examples.
settings.register_profile("repeatable", untimed, derandomize=True)
settings.register_profile("searching", untimed)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _unit_tests_touch_nothing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tests/unit, starting a process or opening a socket is an error."""
    if HERE / "unit" not in request.path.parents:
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a unit test must not start processes or open sockets")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of 1 MiB, or of the size that a test names: `parametrize(..., indirect=True)`."""
    size = getattr(request, "param", "1m")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = (
        shutil.which("mount")
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="session")
def toolchain_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache of toolchains for all workers; TRIAGE_TEST_CACHE names one that stays."""
    kept = os.environ.get("TRIAGE_TEST_CACHE")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    cache = Path(kept) if kept else shared / "toolchains"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIAGE_CACHE_DIR", str(cache))
        yield cache


@dataclass(frozen=True)
class Triage:
    """Runs the command line as a user does: a process, in a folder, with its own results.

    Its Python has started already, with `python_path`, unless `env` holds what Python reads at its
    start.
    """

    folder: Path
    env: dict[str, str]
    python_path: str = str(HERE.parent)

    def __call__(self, *words: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        done = self._run(words, timeout)
        # Whatever a command tells its reader to type next has to be a command.
        check_printed(done.stdout, self.folder)
        check_printed(done.stderr, self.folder)
        check_document(words, done.stdout)
        # How far a busy machine has come after five seconds is no part of the answer.
        done.stderr = re.sub(r"^triage: .*; \d+ s\n", "", done.stderr, flags=re.MULTILINE)
        return done

    def _run(self, words: tuple[str, ...], timeout: float) -> subprocess.CompletedProcess[str]:
        started = preloaded_triage(self.python_path)
        if started.is_as_with(self.env):
            return started.run(words, folder=self.folder, env=self.env, timeout=timeout)
        return subprocess.run(
            [sys.executable, "-m", "harness", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def compile(self, *words: str, code: int, timeout: float = 600) -> dict[str, Any]:
        """The document of `triage compile --json`, after checking the exit code."""
        done = self("compile", "--json", *words, timeout=timeout)
        assert done.returncode == code, done.stderr + done.stdout[-2000:]
        document: dict[str, Any] = msgspec.json.decode(done.stdout)
        return document


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """How wide tables are must not depend on who runs the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


def _environment(home: Path, cache: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "COLUMNS"},
        "TRIAGE_HOME": str(home),
        "TRIAGE_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parent / "emulator")]),
    }


@pytest.fixture
def triage(tmp_path: Path, toolchain_cache: Path) -> Triage:
    """The command line in an empty folder, with results of its own and shared toolchains."""
    return Triage(tmp_path, _environment(tmp_path / "results", toolchain_cache))


@pytest.fixture(scope="module")
def module_triage(tmp_path_factory: pytest.TempPathFactory, toolchain_cache: Path) -> Triage:
    """As `triage`, but the results are shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("module")
    return Triage(folder, _environment(folder / "results", toolchain_cache))
