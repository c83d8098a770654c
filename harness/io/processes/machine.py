"""What this machine lets us use, and how launch code is confined on it.

Environment: `TRIAGE_CONFINE` (auto, require or off), and `TRIAGE_PASS_ENV` (names of variables).
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import msgspec

from harness.io.processes.hub import bare_python, run_tool
from harness.values.errors import InfrastructureError, UsageError

CONFINE = "TRIAGE_CONFINE"
PASS_ENV = "TRIAGE_PASS_ENV"  # noqa: S105 - to pass on, no password
MODES = ("auto", "require", "off")
_PROBE_SECONDS = 60.0
# What launch code does where a part does not hold.
_ELSE = {
    "files": "may write wherever you may and, where this machine lets programs of one user trace "
    "each other, into the memory of your other programs, and so use their network",
    "network": "has the network",
    "signals": "may end your other processes",
}
_NEEDED = ("files", "network")
_GPUS = Path("/proc/driver/nvidia/gpus")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _mode() -> str:
    chosen = os.environ.get(CONFINE) or MODES[0]
    if chosen not in MODES:
        raise UsageError(f"{CONFINE}={chosen}: expected one of {', '.join(MODES)}")
    return chosen


def is_confined() -> bool:
    """Whether launch code is confined, as far as this machine is able to.

    Raises:
        UsageError: the environment asks for something else than `MODES`.
    """
    return _mode() != "off"


def passed_names() -> frozenset[str]:
    """The variables that launch code gets beside those that everything gets.

    Raises:
        UsageError: one of them cannot be the name of a variable.
    """
    listed = os.environ.get(PASS_ENV, "").split(",")
    names = frozenset(name.strip() for name in listed if name.strip())
    for name in sorted(names):
        if not is_variable(name):
            raise UsageError(f"{PASS_ENV}: {name!r} is not the name of a variable")
    return names


def is_variable(name: str) -> bool:
    """Whether a shell can set a variable of this name."""
    return _VARIABLE.fullmatch(name) is not None


@functools.cache
def held_parts() -> tuple[str, ...]:
    """The parts of the confinement that hold on this machine, tried in a process of its own."""
    result = run_tool(bare_python("confine"), timeout=_PROBE_SECONDS)
    try:
        return msgspec.json.decode(result.stdout, type=tuple[str, ...])
    except msgspec.MsgspecError:
        return ()


def require_confinement() -> None:
    """Refuse to run launch code where it has to be confined and cannot be.

    Raises:
        InfrastructureError: that is so here.
    """
    if _mode() == "require" and not set(_NEEDED) <= set(held_parts()):
        raise InfrastructureError(
            f"launch code cannot be confined here: it {_lacks()}; "
            "use another machine or kernel (Linux 6.2 or newer with Landlock), or --confine=auto"
        )


def confinement_words() -> tuple[bool, str]:
    """Whether launch code is confined in full, and how it is, as half a sentence."""
    if not is_confined():
        return False, "not confined: --confine=off gives launch code all your rights"
    missing = _lacks()
    if missing:
        return False, f"confined in part: launch code {missing}"
    return True, "writes only in folders of its own, no network, no signals to other processes"


def _lacks() -> str:
    parts = held_parts()
    return " and ".join(words for part, words in _ELSE.items() if part not in parts)


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


def gpus() -> tuple[str, ...]:
    """The names of this machine's NVIDIA GPUs, each once, as their driver has them."""
    texts = [path.read_text() for path in sorted(_GPUS.glob("*/information"))]
    return tuple(dict.fromkeys(re.findall(r"Model:\s*(.+)", "\n".join(texts))))


def memory() -> int:
    """Bytes: the machine's, or the container's (cgroup v2) where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        allowed = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(allowed)) if allowed.isdigit() else total


def memory_of_children() -> int:
    """Bytes that all children take at most, without an option that says how many: half of `memory`.

    The rest is for this process, which holds what they made, and for other programs.
    """
    return memory() // 2
