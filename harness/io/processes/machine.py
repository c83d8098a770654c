"""What this machine, or the container that we run in, lets us use."""

from __future__ import annotations

import os
from pathlib import Path


def cores() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def memory() -> int:
    """Bytes: the machine's, or the container's (cgroup v2) where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        allowed = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(allowed)) if allowed.isdigit() else total
