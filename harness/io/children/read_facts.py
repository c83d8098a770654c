"""What a capture read, as facts that can be compared later: one definition for both sides.

The child writes them down, the caller looks them up again. A fact is a short text; None says that
the thing was not there. Standard library only.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import stat
from collections.abc import Iterable, Mapping, Sequence

# Larger files (weights, tables of data) are known by size and time, not by content.
_LARGE = 64 << 20


def value_fact(value: str | None) -> str | None:
    """The hash of a variable's value: the value itself may be a secret."""
    if value is None:
        return None
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()


def environment_fact(variables: Mapping[str, str]) -> str:
    """The hash of all variables."""
    lines = "\0".join(f"{name}={value}" for name, value in sorted(variables.items()))
    return str(value_fact(lines))


def file_fact(path: str) -> str | None:
    """The sha256 of a regular file's content, or what stands for it."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - paths are text here, as the launch code gave them
        if not stat.S_ISREG(facts.st_mode):
            return _kind(facts)
        if facts.st_size > _LARGE:
            return f"file of {facts.st_size} bytes, {facts.st_mtime_ns}"
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return hashlib.sha256(file.read()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return f"unreadable: {type(error).__name__}"


def kind_fact(path: str) -> str | None:
    """What is there, and the size of a file: what `exists`, `is_file` and `getsize` tell."""
    try:
        return _kind(os.stat(path))  # noqa: PTH116 - as above
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return f"unreadable: {type(error).__name__}"


def _kind(facts: os.stat_result) -> str:
    if stat.S_ISREG(facts.st_mode):
        return f"file of {facts.st_size} bytes"
    return "folder" if stat.S_ISDIR(facts.st_mode) else "special file"


def folder_fact(path: str) -> str | None:
    """The hash of the names in a folder."""
    try:
        names: Iterable[str] = sorted(os.listdir(path))  # noqa: PTH208 - as above
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return f"unreadable: {type(error).__name__}"
    return value_fact("\0".join(names))


def module_origin(name: str, path: Sequence[str]) -> str | None:
    """The file that the import of a module finds on a search path; None where it finds nothing.

    A namespace package is its folders. Nothing is imported.
    """
    try:
        spec = importlib.machinery.PathFinder.find_spec(name, list(path))
    except Exception as error:  # noqa: BLE001 - a damaged archive on the path raises anything
        return f"unreadable: {type(error).__name__}"
    if spec is None:
        return None
    return spec.origin or os.pathsep.join(spec.submodule_search_locations or ())
