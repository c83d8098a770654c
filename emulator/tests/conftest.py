"""Fixtures of the emulator's tests, which run without those of kernel-triage."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest
from hypothesis import HealthCheck, settings

# As in tests/conftest.py: on a busy machine any example may take long, and a commit's runs agree.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", untimed, derandomize=True)
settings.register_profile("searching", untimed)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _processes_and_sockets_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a test of the emulator must not start processes or open sockets")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
