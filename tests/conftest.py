"""Fixtures that all tests share."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _unit_tests_touch_nothing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tests/unit, starting a process or opening a socket is an error."""
    if HERE / "unit" not in request.path.parents:
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a unit test must not start processes or open sockets")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="session")
def toolchain_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One toolchain cache for the whole run, all workers; TRIAGE_TEST_CACHE names one that stays."""
    kept = os.environ.get("TRIAGE_TEST_CACHE")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    cache = Path(kept) if kept else shared / "toolchains"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIAGE_CACHE_DIR", str(cache))
        yield cache
