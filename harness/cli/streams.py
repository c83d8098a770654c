"""Standard output and standard error, whatever they are: closed, full, a pipe that is gone, ASCII.

Results go to stdout. One that cannot be written is an `OutputError`; a reader that has seen enough
(`| head`) is none: the rest is dropped in silence and the exit code stays what it would have been.
Notes go to stderr, and what it cannot take is dropped: no result depends on it.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from harness.values.errors import OutputError

if TYPE_CHECKING:
    from typing_extensions import Buffer


_MAX_COLUMNS = 10_000


class _Descriptor(io.RawIOBase):
    """A file descriptor to write to, that fails at most once and takes everything from then on.

    `failure` is what the first failed write said; None where it may be lost.
    """

    def __init__(self, fd: int, *, is_open: bool, name: str | None) -> None:
        super().__init__()
        self._fd = fd
        self._is_open = is_open
        self._name = name
        self._is_lost = False
        self.reader_is_gone = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return self._is_open and os.isatty(self._fd)

    def write(self, data: Buffer, /) -> int:
        size = memoryview(data).nbytes
        if self._is_lost:
            return size
        try:
            if not self._is_open:
                raise OSError("it is closed")
            return self._write(data)
        except BrokenPipeError:
            self._is_lost = self.reader_is_gone = True
        except OSError as error:
            self._is_lost = True
            if self._name:
                complaint = f"cannot write to {self._name}: {error.strerror or error}"
                raise OutputError(complaint) from error
        return size

    def _write(self, data: Buffer) -> int:
        while True:
            try:
                return os.write(self._fd, data)
            except BlockingIOError:
                # Another process that shares the pipe has made it non-blocking.
                select.select([], [self._fd], [])


def take_over() -> None:
    r"""Put streams in the place of `sys.stdout` and `sys.stderr` that behave as this module says.

    What their encoding has no character for is spelled out (`\xb7`). A closed descriptor is held
    by /dev/null, so that no file that is opened later gets its number.
    """
    is_open = {fd: _is_open(fd) for fd in (0, 1, 2)}
    while not all(map(_is_open, (0, 1, 2))):
        os.open(os.devnull, os.O_RDWR)
    sys.stdout = _stream(sys.stdout, 1, is_open=is_open[1], name="stdout")
    sys.stderr = _stream(sys.stderr, 2, is_open=is_open[2], name=None)
    for name in ("COLUMNS", "LINES"):
        text = os.environ.get(name, "")
        # Rich takes any digit for one that `int` takes.
        if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MAX_COLUMNS):
            os.environ.pop(name, None)


def finish() -> None:
    """Write what is still buffered.

    Raises:
        OutputError: stdout does not take it.
    """
    sys.stdout.flush()
    sys.stderr.flush()


def reader_is_gone() -> bool:
    """Whether the reader of our stdout has closed it: what is still written goes nowhere."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Descriptor) and raw.reader_is_gone


def _stream(old: TextIO | None, fd: int, *, is_open: bool, name: str | None) -> io.TextIOWrapper:
    raw = _Descriptor(fd, is_open=is_open, name=name)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=(old and old.encoding) or "utf-8",
        errors="backslashreplace",
        line_buffering=name is None or raw.isatty(),
    )


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
