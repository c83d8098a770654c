"""The folder that a reduction leaves: the best so far at any moment, and a log of how it came.

What is written last is never half there, so that a reduction that was killed can be resumed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.io.files.locations import create_folder, storage_error
from harness.io.files.regular_files import read_regular
from harness.io.files.whole_folders import write_atomically
from harness.minimize.reduction.tests import PassCount
from harness.values.errors import UsageError

LOG = "log.jsonl"
_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizedFolder:
    """A folder that one original is reduced in.

    `suffix` is that of its two texts: `original` and `min`. `begun` is what an earlier run left as
    the best, `tests`, `calls` and `seconds` what it used, `passes` what each pass did.
    `finished_terms` are the terms on which it came to its end; None where it did not.
    `is_minimal` is what it found out then.
    """

    path: Path
    suffix: str = ".ptx"
    begun: str | None = None
    tests: int = 0
    calls: int = 0
    seconds: float = 0.0
    passes: Mapping[str, PassCount] = field(default_factory=dict)
    finished_terms: Mapping[str, object] | None = None
    is_minimal: bool | None = None

    @property
    def best(self) -> Path:
        """Where the best so far is."""
        return self.path / f"min{self.suffix}"

    @property
    def original(self) -> Path:
        """Where the text is that is reduced."""
        return self.path / f"original{self.suffix}"

    def check(self, *, resume: bool) -> None:
        """See early whether the folder can be used.

        Raises:
            UsageError: there is something else in it, or nothing to go on from.
            StorageError: it cannot be read.
        """
        path = self.path
        try:
            if resume and not (self.original.is_file() and self.best.is_file()):
                raise UsageError(f"--resume: {path} holds no reduction to go on from")
            if not resume and path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UsageError(
                    f"{path} is there already; --resume goes on from it, --out names another"
                )
        except OSError as error:
            raise storage_error(error, path, "read") from error

    def open(self, original: str, *, resume: bool) -> MinimizedFolder:
        """Begin in an empty folder, or go on in one that holds this original.

        Raises:
            UsageError: there is something else in it, or nothing to go on from.
            StorageError: it cannot be read or written.
        """
        self.check(resume=resume)
        if resume:
            return self._resumed(original)
        create_folder(self.path)
        self.write(self.original.name, original)
        self.keep(original)
        return self

    def _resumed(self, original: str) -> MinimizedFolder:
        try:
            kept = read_regular(self.original, _MAX_BYTES)
            begun = read_regular(self.best, _MAX_BYTES)
            records = _records(self.path / LOG)
        except OSError as error:
            raise storage_error(error, self.path, "read") from error
        if kept != original.encode():
            raise UsageError(
                f"--resume: {self.original} is not what would be reduced; "
                "leave --resume out and name another folder by --out"
            )
        last = records[-1] if records else _Record()
        terms = [record.terms for record in records if record.event == "begun"]
        return replace(
            self,
            begun=begun.decode(errors="replace"),
            tests=last.tests,
            calls=last.calls,
            seconds=last.seconds,
            passes=next((record.passes for record in reversed(records) if record.passes), {}),
            finished_terms=terms[-1] if terms and last.event == "finished" else None,
            is_minimal=last.is_minimal,
        )

    def keep(self, text: str) -> None:
        """This is the best so far.

        Raises:
            StorageError: the disk is full or read-only.
        """
        self.write(self.best.name, text)

    def write(self, name: str, text: str, *, executable: bool = False) -> None:
        """Write one file whole.

        Raises:
            StorageError: the disk is full or read-only.
        """
        self.write_bytes(name, text.encode())
        if executable:
            (self.path / name).chmod(0o755)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write one file whole.

        Raises:
            StorageError: the disk is full or read-only.
        """
        write_atomically(self.path / name, data)

    def log(self, record: Mapping[str, object]) -> None:
        """Add a line to the log.

        Raises:
            StorageError: the disk is full or read-only.
        """
        try:
            with (self.path / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise storage_error(error, self.path / LOG, "write") from error


class _Record(msgspec.Struct, frozen=True):
    """A line of the log, as far as a later run wants to know it."""

    event: str = ""
    tests: int = 0
    calls: int = 0
    seconds: float = 0.0
    terms: dict[str, Any] | None = None
    passes: dict[str, PassCount] = {}
    is_minimal: bool | None = None


def _records(path: Path) -> list[_Record]:
    """The whole lines of a log; a run that was killed may leave half a line."""
    text = read_regular(path, _MAX_BYTES) if path.exists() else b""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(line, type=_Record))
    return found
