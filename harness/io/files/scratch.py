"""Scratch folders: each is locked while it is in use, and swept once the run that made it is gone.

A sweep deletes a folder only if this program made it: by its name, its mode, its user, and the
words in a file inside. The lock is an flock, which the kernel drops when a process is killed; a
process id would say nothing to containers that share a temporary folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness.values.errors import InfrastructureError

_PREFIX = "triage-"
DRAFT = ".draft-"
"""How names of drafts begin, which lie beside what they are going to replace."""

_RANDOM = re.compile(r"[a-z0-9_]{8}")
_OWNER = "owner"
_WORDS = b"A scratch folder of kernel-triage, deleted once nothing holds a lock on this file.\n"
_EMPTY_SECONDS = 3600.0


@contextlib.contextmanager
def scratch_disk() -> Iterator[None]:
    """Turn an error of the scratch disk into ours.

    Raises:
        InfrastructureError: in place of `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"cannot write scratch files in {tempfile.gettempdir()}: {error.strerror or error}; "
            "free some space or set TMPDIR to another disk"
        ) from error


class Scratch:
    """A new folder below `parent` (the temporary folder by default), with a lock on it.

    Those of runs that were killed, with the same `prefix`, are deleted there.
    """

    def __init__(self, parent: str | None = None, *, prefix: str = _PREFIX) -> None:
        sweep_scratch(parent, prefix=prefix)
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = os.open(self.folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Written once it is locked: without the words, no sweep touches the folder.
        os.write(self._lock, _WORDS)

    def remove(self) -> None:
        """Delete the folder and drop the lock."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.remove()


def sweep_scratch(parent: str | None = None, *, prefix: str = _PREFIX) -> None:
    """Delete the scratch folders of runs that were killed."""
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if _RANDOM.fullmatch(folder.name.removeprefix(prefix)) and _is_private(folder):
                _sweep_one(folder)


def _is_private(folder: Path) -> bool:
    """Whether it is a folder, no link to one, that this user made as `mkdtemp` does."""
    found = folder.lstat()
    return (
        stat.S_ISDIR(found.st_mode)
        and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
        and found.st_uid == os.geteuid()
    )


def _sweep_one(folder: Path) -> None:
    inside = [path.name for path in folder.iterdir()]
    if not inside and _is_old(folder):
        # Its run was killed before it could write whose folder it is.
        folder.rmdir()
        return
    owner = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        said = os.read(owner, len(_WORDS) + 1)
        if said == _WORDS:
            shutil.rmtree(folder, ignore_errors=True)
        elif not said and inside == [_OWNER] and _is_old(folder):
            (folder / _OWNER).unlink()
            folder.rmdir()
    finally:
        os.close(owner)


def _is_old(folder: Path) -> bool:
    return folder.stat().st_mtime < time.time() - _EMPTY_SECONDS
