"""The one way in which files that others wrote are read: regular ones only, and not without end.

A pipe would make us wait for its writer, a device such as /dev/zero never ends, and a sparse
file of a few bytes on disk can be larger than the memory.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from harness.values.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_regular"]

_WORDS = {
    errno.ENOENT: "no such file",
    errno.EISDIR: "a folder; name a file in it",
    errno.ENXIO: "not a regular file",  # a socket
}


def read_regular(path: Path, limit: int, *, follow_links: bool = True) -> bytes:
    """A regular file's content, without waiting for a pipe; at most `limit` bytes.

    `follow_links` is about the file itself: the folders on the way to it may be links.

    Raises:
        ConfigurationError: it is something else, cannot be read, or is larger; one line.
    """
    # Without NONBLOCK, opening a pipe waits for its writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        with open(os.open(path, flags | (0 if follow_links else os.O_NOFOLLOW)), "rb") as file:  # noqa: PTH123
            facts = os.fstat(file.fileno())
            if stat.S_ISREG(facts.st_mode):
                # Not read up to the limit first: of a sparse file that would be all memory.
                data = file.read(limit + 1) if facts.st_size <= limit else None
            elif stat.S_ISDIR(facts.st_mode):
                raise ConfigurationError(f"{path}: {_WORDS[errno.EISDIR]}")
            else:
                raise ConfigurationError(f"{path}: not a regular file")
    except OSError as error:
        if not follow_links and error.errno == errno.ELOOP:
            raise ConfigurationError(f"{path}: a symbolic link: not followed") from error
        said = _WORDS.get(error.errno or 0) or f"cannot be read: {error.strerror}"
        raise ConfigurationError(f"{path}: {said}") from error
    except ValueError as error:
        raise ConfigurationError(f"{str(path)!r}: cannot be read: {error}") from error
    if data is None or len(data) > limit:
        raise ConfigurationError(f"{path}: more than {limit:,} bytes: it is not read")
    return data
