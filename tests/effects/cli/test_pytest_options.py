"""Options of `pytest --triage` that nothing can come of: one line, before any test is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "1e9"])
def test_a_timeout_is_a_time(tmp_path: Path, seconds: str) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    words = ["--triage", "--sm", "90a", f"--triage-timeout={seconds}", "test_it.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.strip() == "ERROR: --triage-timeout: name seconds, from 1 to 86400"
