"""The error tree: what goes wrong on our side, each with its exit code.

A compiler that fails is data (see `harness.values.outcome`), never one of these. Every message is
one line that says what is wrong, where, and what to do. They are caught in `harness.cli` only.

Exit codes: 2 wrong usage or configuration, 3 the selection is empty, 4 infrastructure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.values.outcome import TestFacts


class ProgramError(Exception):
    """Base of all errors that the program raises on purpose."""

    exit_code = 2


class TriageError(ProgramError):
    """One thing cannot be done: what catches it may go on with the next thing."""


class CannotGoOnError(ProgramError):
    """Nothing else can be done, either: the time is up, or the machines are gone."""

    exit_code = 4


class UsageError(TriageError):
    """The command line asks for something that does not exist or makes no sense.

    `advice` is text to copy, of several lines.
    """

    def __init__(self, message: str = "", advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class ConfigurationError(UsageError):
    """A file that the user wrote is malformed; the message names file, line and key."""


class CaptureError(UsageError):
    """The launch code raised, hung, or never launched the kernel that was asked for.

    `tests` are what is known of the tests of its file.
    """

    tests: Sequence[TestFacts] = ()


class EmptySelectionError(TriageError):
    """The selection is well-formed and matches nothing."""

    exit_code = 3


class InfrastructureError(TriageError):
    """This machine could not do its part: says nothing about any kernel."""

    exit_code = 4


class OfflineError(InfrastructureError):
    """The package index cannot be reached and the cache does not hold what is needed."""


class OutputError(InfrastructureError):
    """Standard output does not take the results: it is full or closed."""


class StorageError(InfrastructureError):
    """The results folder or the cache cannot be read or written (full, read-only, corrupt)."""


class FullDiskError(StorageError):
    """There is no space left for the results folder or the cache."""


class IntegrityError(UsageError):
    """A download does not have the sha256 that was asked for."""
