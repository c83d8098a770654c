"""Which processes descend from another one, and how much memory they hold.

Where the kernel keeps a list of children (`/proc/PID/task/TID/children`), only that is read.
Otherwise every process of the machine has to be looked at.
"""

from __future__ import annotations

import contextlib
import os

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
