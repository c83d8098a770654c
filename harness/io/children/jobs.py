"""A job of a supervisor, and the limits that it runs under."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FILES = 8
"""All files below the folders of a job may be as large as so many of the largest size."""


@dataclass(frozen=True)
class JobLimits:
    """Wall clock in seconds; resident memory and size of any written file in bytes.

    The memory is that of the job and all its descendants, or of the job alone. `folders` are those
    that a confined job writes in: all files there together are limited, too.
    """

    timeout: float | None = None
    memory: int | None = None
    file_size: int | None = None
    with_descendants: bool = True
    folders: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: dict[str, Any]) -> JobLimits:
        """Those of a job that is asked for: with the folders that it may write in, or the one."""
        own = [message["folder"]] if "folder" in message else message.get("writable")
        return cls(**message["limits"], folders=tuple(own or ()))


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
    over_disk: bool = False
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


def written(folders: Sequence[str], family: Sequence[int]) -> int:
    """Bytes on disk below folders, and in files that these processes have open and deleted."""
    blocks: dict[tuple[int, int], int] = {}
    pending = list(folders)
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    _add(blocks, entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    for pid in family:
        # Of another user's process, or one that hides, nothing is seen.
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    facts = entry.stat()
                    if not facts.st_nlink and stat.S_ISREG(facts.st_mode):
                        _add(blocks, facts)
    return sum(blocks.values())


def _add(blocks: dict[tuple[int, int], int], facts: os.stat_result) -> None:
    blocks[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
