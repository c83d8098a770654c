"""The environment of programs that are not ours: the user's variables that any program needs."""

from __future__ import annotations

import os

from harness.io.processes.confinement import passed_names

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
