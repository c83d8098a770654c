"""What this machine, or the container that we run in, lets us use."""

from __future__ import annotations

import os
from pathlib import Path

from harness.io.processes.confinement import passed_names

# The environment of programs that are not ours: the user's variables that any program needs.

# A program that is run anywhere needs these, and none of them is a credential.
_PLAIN = frozenset(
    {
        *("PATH", "LD_LIBRARY_PATH", "LANG", "LANGUAGE", "TZ", "TERM", "USER", "LOGNAME", "SHELL"),
        *("CC", "CXX", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
    }
)
_LOCALE = "LC_"


def plain_environment() -> dict[str, str]:
    """The user's variables that a program needs wherever it runs, and those that are passed on."""
    passed = passed_names()
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PLAIN or name.startswith(_LOCALE) or name in passed
    }


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
