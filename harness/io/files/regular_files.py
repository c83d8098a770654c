"""The one way in which files that others wrote are read: regular ones only, and not without end.

A pipe would make us wait for its writer, a device such as /dev/zero never ends, and a sparse
file of a few bytes on disk can be larger than the memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.values.errors import ConfigurationError

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
    with open_regular(path, limit, follow_links=follow_links) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(path, limit)
    return data


@contextlib.contextmanager
def open_regular(path: Path, limit: int, *, follow_links: bool = True) -> Iterator[BinaryIO]:
    """As `read_regular`, for what is read bit by bit.

    Raises:
        ConfigurationError: as `read_regular`; also where it cannot be read later on.
    """
    # Without NONBLOCK, opening a pipe waits for its writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        with open(os.open(path, flags | (0 if follow_links else os.O_NOFOLLOW)), "rb") as file:  # noqa: PTH123
            facts = os.fstat(file.fileno())
            if stat.S_ISDIR(facts.st_mode):
                raise ConfigurationError(f"{path}: {_WORDS[errno.EISDIR]}")
            if not stat.S_ISREG(facts.st_mode):
                raise ConfigurationError(f"{path}: not a regular file")
            # Not read up to the limit first: of a sparse file that would be all memory.
            if facts.st_size > limit:
                raise _too_large(path, limit)
            yield file
    except OSError as error:
        if not follow_links and error.errno == errno.ELOOP:
            raise ConfigurationError(f"{path}: a symbolic link: not followed") from error
        reason = _WORDS.get(error.errno or 0) or f"cannot be read: {error.strerror}"
        raise ConfigurationError(f"{path}: {reason}") from error
    except ValueError as error:
        raise ConfigurationError(f"{str(path)!r}: cannot be read: {error}") from error


def _too_large(path: Path, limit: int) -> ConfigurationError:
    return ConfigurationError(f"{path}: more than {limit:,} bytes: it is not read")
