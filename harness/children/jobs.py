"""A job of a supervisor, and the limits that it runs under."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Job", "JobLimits", "is_full", "open_pidfd"]


@dataclass(frozen=True)
class JobLimits:
    """Wall clock in seconds; resident memory and size of any written file in bytes.

    The memory is that of the job and all its descendants, or of the job alone.
    """

    timeout: float | None = None
    memory: int | None = None
    file_size: int | None = None
    with_descendants: bool = True


@dataclass
class Job:
    """One running child; without a `pidfd` (kernels before 5.3) its end is polled for."""

    job_id: int
    pid: int
    pidfd: int | None
    started: float
    limits: JobLimits
    start_error: int
    streams: Sequence[str]
    timed_out: bool = False
    over_memory: bool = False
    peak_memory: int = 0


def is_full(job: Job) -> bool:
    """Whether a stream reached the limit: a job may ignore the signal, and die of the error."""
    limit = job.limits.file_size
    if limit is None:
        return False
    for path in job.streams:
        with contextlib.suppress(OSError):
            if os.stat(path).st_size >= limit:  # noqa: PTH116 - pathlib would double the start-up time
                return True
    return False


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
