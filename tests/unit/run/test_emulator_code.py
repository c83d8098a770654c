"""The code that is part of the key of what the emulator made: all that executes, and no more."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import harness
from harness.run import emulating

PACKAGE = Path(harness.__file__).parent
WORKER = "run/child/worker.py"


def imported_by(place: str) -> set[str]:
    """The modules of ours that a module imports, and those that they import, as paths."""
    modules: set[str] = set()
    pending = [place]
    while pending:
        module = pending.pop()
        if module in modules:
            continue
        modules.add(module)
        for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness."):
                assert node.module
                pending.append(node.module.removeprefix("harness.").replace(".", "/") + ".py")
    return modules


def test_what_the_worker_executes_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulating, "code_sha256", lambda *places: " ".join(sorted(places)))
    places = set(emulating.emulator_sha256.__wrapped__().split())
    assert places == {"gpu_emulator", *imported_by(WORKER)}
