"""A job of a supervisor, the limits that it runs under, and the processes that descend from it.

Where the kernel keeps a list of children (`/proc/PID/task/TID/children`), only that is read.
Otherwise every process of the machine has to be looked at.
"""

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


_PAGE = os.sysconf("SC_PAGE_SIZE")


class Families:
    """One look at the living processes: make a new one for each look."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._table: dict[int, list[int]] | None = None

    def children(self, pid: int) -> list[int]:
        """The children of a process, dead ones that are not yet reaped included."""
        tasks = f"{self._proc}/{pid}/task"
        pids: list[int] = []
        with contextlib.suppress(OSError):  # the process has just ended
            for task in os.listdir(tasks):  # noqa: PTH208 - a hot path in a tiny process
                try:
                    with open(f"{tasks}/{task}/children", "rb") as file:  # noqa: PTH123 - as above
                        pids += map(int, file.read().split())
                except OSError:
                    if os.path.exists(f"{tasks}/{task}"):  # noqa: PTH110 - as above
                        # Not a thread that has just ended: this kernel keeps no such list.
                        # The children of every process, from one pass over all of them.
                        if self._table is None:
                            self._table = {}
                            for name in os.listdir(self._proc):  # noqa: PTH208 - as above
                                if name.isdigit() and (parent := self._parent(name)):
                                    self._table.setdefault(parent, []).append(int(name))
                        return self._table.get(pid, [])
        return pids

    def descendants(self, pid: int) -> list[int]:
        """Children, their children, and so on."""
        pids: list[int] = []
        layer = [pid]
        while layer:
            layer = [child for parent in layer for child in self.children(parent)]
            pids += layer
        return pids

    def _parent(self, pid: str) -> int:
        try:
            with open(f"{self._proc}/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
                # The name of the executable may hold spaces and parentheses.
                return int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            return 0


def resident(pid: int) -> int:
    """Resident bytes of one process; 0 once it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - as above
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
