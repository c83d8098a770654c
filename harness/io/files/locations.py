"""Where files go: the cache (can be filled again), the results home (cannot), the offline switch.

Environment: `TRIAGE_CACHE_DIR`, `TRIAGE_HOME`, `TRIAGE_OFFLINE`.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from harness.values.errors import StorageError, UsageError

_CACHE = "TRIAGE_CACHE_DIR"
_HOME = "TRIAGE_HOME"
_OFFLINE = "TRIAGE_OFFLINE"
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


def cache_dir() -> Path:
    """The absolute cache folder, created if it is missing; it may be read-only.

    Raises:
        StorageError: it does not exist and cannot be created.
    """
    return create_folder(cache_path())


def home_dir() -> Path:
    """The absolute folder of the results, `./.triage` by default; as `cache_dir`."""
    return create_folder(home_path())


def home_path() -> Path:
    """As `home_dir`; nothing is created."""
    return _place(_HOME, Path(".triage"))


def cache_path() -> Path:
    """As `cache_dir`; nothing is created."""
    root = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    return _place(_CACHE, Path(root, "kernel-triage"))


def _place(variable: str, default: Path) -> Path:
    path = Path(os.environ.get(variable) or default)
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise StorageError(f"{variable}={path}: there is no such user; name a folder") from error
    except OSError as error:
        raise StorageError(
            f"the working folder is gone ({error.strerror}): change to another one, or set "
            f"{variable} to an absolute path"
        ) from error


def offline() -> bool:
    """Whether `TRIAGE_OFFLINE` forbids the network.

    Raises:
        UsageError: it says neither yes nor no.
    """
    chosen = os.environ.get(_OFFLINE, "").lower()
    if chosen not in _YES | _NO:
        raise UsageError(f"{_OFFLINE}={chosen}: write 1 to stay off the network, or 0")
    return chosen in _YES


def create_folder(path: Path) -> Path:
    """Create `path` and its parents, and return it; one that exists is left as it is.

    Raises:
        StorageError: it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise storage_error(error, path, "create") from error
    return path


def storage_error(
    error: OSError | ValueError, path: Path, deed: str, *, option: str | None = None
) -> StorageError:
    """Say in one line what the system refused: `deed` is the verb, `path` its object.

    `option` is what names the path on the command line; that of the cache and the results is known.
    """
    name = option or _variable_of(path)
    number = error.errno if isinstance(error, OSError) else None
    if number in _FULL:
        elsewhere = f" or set {name} to another disk" if name else ""
        reason, remedy = "the disk is full", f"free some space{elsewhere}"
    elif number in _FORBIDDEN:
        elsewhere = f"set {name} to a writable folder" if name else "name a writable folder"
        reason, remedy = "it is read-only for this user", elsewhere
    else:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        remedy = f"check it or set {name}" if name else "name another one"
    return StorageError(f"cannot {deed} {path}: {reason}; {remedy}")


def _variable_of(path: Path) -> str | None:
    with suppress(StorageError, OSError):
        for variable, root in ((_CACHE, cache_path()), (_HOME, home_path())):
            if path.absolute().is_relative_to(root):
                return variable
    return None
