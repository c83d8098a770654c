"""Launch code runs in the process that compiles later: what it may not change there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.io.children.launch_code import run_launch

PATCHES = """\
import json

json.dumps = lambda *words, **more: '{"exit_code": 0}'

def launch():
    json.loads = None
"""


@pytest.mark.parametrize("tail", ["", "    raise ValueError\n"])
def test_what_launch_code_does_to_json_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: str
) -> None:
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", [])
    (tmp_path / "patches.py").write_text(PATCHES + tail)
    for name in ("dumps", "loads"):
        monkeypatch.setattr(json, name, getattr(json, name))  # put back where the test fails
    own = json.dumps, json.loads
    try:
        run_launch(str(tmp_path / "patches.py"), "launch", {})
    except ValueError:
        assert tail
    assert (json.dumps, json.loads) == own
