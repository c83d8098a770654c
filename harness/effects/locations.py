"""Where files go: the cache (can be made again), the results home (cannot), and the offline switch.

Environment: `TRIAGE_CACHE_DIR`, `TRIAGE_HOME`, `TRIAGE_OFFLINE`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from platformdirs import user_cache_path

from harness.values.errors import StorageError

__all__ = ["cache_dir", "create_folder", "home_dir", "offline", "storage_error"]

_CACHE = "TRIAGE_CACHE_DIR"
_HOME = "TRIAGE_HOME"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


def cache_dir() -> Path:
    """The absolute cache folder, made if it is missing; it may be read-only.

    Raises:
        StorageError: it does not exist and cannot be made.
    """
    chosen = os.environ.get(_CACHE)
    path = Path(chosen).expanduser() if chosen else user_cache_path("kernel-triage")
    return create_folder(path.absolute(), variable=_CACHE)


def home_dir() -> Path:
    """The absolute folder of the results, `./.triage` by default, made if it is missing.

    Raises:
        StorageError: it does not exist and cannot be made.
    """
    chosen = os.environ.get(_HOME)
    path = Path(chosen).expanduser() if chosen else Path(".triage")
    return create_folder(path.absolute(), variable=_HOME)


def offline() -> bool:
    """Whether `TRIAGE_OFFLINE` forbids the network."""
    return os.environ.get("TRIAGE_OFFLINE", "").lower() not in {"", "0", "false", "no"}


def create_folder(path: Path, *, variable: str = _CACHE) -> Path:
    """Make `path` and its parents, and return it; one that exists is left as it is.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, path, "create", variable=variable) from error
    return path


def storage_error(error: OSError, path: Path, deed: str, *, variable: str = _CACHE) -> StorageError:
    """Say in one line what the system refused: `deed` is the verb, `path` its object."""
    if error.errno in _FULL:
        reason, remedy = "the disk is full", f"free some space or set {variable} to another disk"
    elif error.errno in _FORBIDDEN:
        reason, remedy = "it is read-only for this user", f"set {variable} to a writable folder"
    else:
        reason, remedy = error.strerror or str(error), f"check it or set {variable}"
    return StorageError(f"cannot {deed} {path}: {reason}; {remedy}")
