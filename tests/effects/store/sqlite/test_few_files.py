"""A process that may open too few files says that, and not that the results are read-only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, resource, sys
from pathlib import Path
from harness.store.store import Store
from harness.values.errors import StorageError
used = len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(resource.RLIMIT_NOFILE, (used + int(sys.argv[2]), 4096))
try:
    Store.open(Path(sys.argv[1])).close()
except StorageError as error:
    print(error)
"""


@pytest.mark.parametrize("more", [0, 1, 2])
def test_too_few_open_files_are_named_as_such(tmp_path: Path, more: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(more)], capture_output=True, text=True
    )
    assert "Too many open files; raise the limit (ulimit -n)" in done.stdout, done.stderr
    assert "permission" not in done.stdout
