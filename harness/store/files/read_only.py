"""Results that can be read and not written: on a read-only disk, or another user's."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.store.files.artifacts import disk_failure
from harness.values.errors import StorageError

DATABASE = "triage.db"
_BESIDE = ("", "-wal")
"""What belongs to a database: itself, and the log that a process which was killed leaves."""


def is_writable(home: Path) -> bool:
    """Whether the results in `home` can be used in place."""
    places = (home, home / DATABASE, home / "triage.lock", home / "artifacts")
    return all(os.access(path, os.W_OK, effective_ids=True) for path in places if path.exists())


@contextmanager
def database_copy(home: Path) -> Iterator[Path]:
    """A folder with a copy of the database in `home`, or without one where there is none.

    Raises:
        StorageError: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="triage-read-") as folder:
        for ending in _BESIDE:
            source = home / f"{DATABASE}{ending}"
            try:
                if source.is_file():
                    shutil.copyfile(source, Path(folder) / source.name)
                elif source.exists():
                    raise StorageError(f"{source} is not a file: it cannot be read")
            except OSError as error:
                raise disk_failure(source, error) from error
        yield Path(folder)
