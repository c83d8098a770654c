"""Takes rights away from this process, for good, and from all that it starts.

Launch code is somebody else's program. Confined, it writes below the folders that it is given and
nowhere else, reaches no other process by a socket, and sends no signal to what runs outside. It may
read what the user may read. Nothing here needs root: files and signals are Landlock's part (Linux
6.2, 6.12), sockets that of a seccomp filter. Landlock also keeps it from the memory of other
processes, in `/proc/PID/mem`, and so from what they may do: without it, only those that hide are
out of reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import struct
import sys
import tempfile
from collections.abc import Sequence

from harness.io.children.system_calls import DENIED, LIMITED, MISSING, NEWEST
from harness.io.children.writes import keep_writes

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_PR_SET_DUMPABLE = 4
_CAPSET, _CAPABILITIES_VERSION, _CAPABILITIES = 126, 0x20080522, 64
# Root goes on reading what others may not, and loses all else that sets it apart.
_KEPT_CAPABILITIES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

# Landlock: numbers of its calls on every architecture, and bits of its rights on files.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _TRUNCATE, _IOCTL_DEV = 1 << 1, 1 << 14, 1 << 15
_CHANGE_FOLDERS = sum(1 << bit for bit in range(4, 14))
# Devices, sockets, FIFOs and links: a program that reads what is left could hang, or be misled.
_STRANGE_FILES = sum(1 << bit for bit in (6, 9, 10, 11, 12))
_TRUNCATE_SINCE, _IOCTL_SINCE, _SCOPES_SINCE = 3, 5, 6
_SCOPES = 0b11  # abstract sockets, signals
_O_PATH = 0o10000000
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")

# seccomp: a filter of the classic BPF machine over `struct seccomp_data`.
_SECCOMP, _SET_FILTER, _ALL_THREADS, _SPEC_ALLOW = 317, 1, 1 << 0, 1 << 2
_LOAD, _AND, _IF_EQUAL, _IF_ABOVE, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_X86_64, _OTHER_TABLE = 0xC000003E, 0x40000000
_ALLOW, _REFUSE, _IS_MISSING = 0x7FFF0000, 0x00050001, 0x00050026  # EPERM, ENOSYS


def hide(*, from_others: bool = True) -> None:
    """Keep the user's other processes from this one's memory and environment, until it executes.

    Forks inherit that. Nor do debuggers and profilers of an ordinary user reach it any more.
    """
    _LIBC.prctl(_PR_SET_DUMPABLE, int(not from_others), 0, 0, 0)


def confine(writable: Sequence[str]) -> list[str]:
    """Leave this process, which has one thread, only the folders `writable` to write in.

    Gives the parts that hold from now on, of "files", "network" and "signals".
    """
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return []
    parts = []
    with contextlib.suppress(OSError):
        parts += _confine_files(writable)
        if parts:
            # What is confined beside it has no way to it now, and what supervises it has one.
            hide(from_others=False)
    if platform.machine() == "x86_64":  # elsewhere the calls have other numbers
        with contextlib.suppress(OSError):
            for number in range(_CAPABILITIES):
                if number not in _KEPT_CAPABILITIES:
                    _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # refused to all but root
            header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
            with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - a fork of a tiny process
                lines = [line for line in file if line.startswith(b"CapPrm:")]
            permitted = int(lines[0].split()[1], 16) & sum(
                1 << number for number in _KEPT_CAPABILITIES
            )
            _call(_CAPSET, header, struct.pack("=6I", permitted, permitted, 0, 0, 0, 0))
            program = b"".join(struct.pack("=HBBI", *instruction) for instruction in _filter())
            buffer = ctypes.create_string_buffer(program, len(program))
            pointer = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
            # Without the flag, kernels before 5.16 slow every branch of the process down.
            _call(_SECCOMP, _SET_FILTER, _ALL_THREADS | _SPEC_ALLOW, pointer)
            parts.append("network")
    return parts


def _confine_files(writable: Sequence[str]) -> list[str]:
    version = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    if version < _TRUNCATE_SINCE:
        # Before that a file could still be emptied, or no file moved between two folders.
        return []
    changes = _WRITE_FILE | _TRUNCATE | _CHANGE_FOLDERS
    rights = changes | (_IOCTL_DEV if version >= _IOCTL_SINCE else 0)
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", rights, 0, scopes)[: 24 if scopes else 8]
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for path in writable:
            _allow(ruleset, path, rights & ~_STRANGE_FILES)
        for path in _DEVICES:
            _allow(ruleset, path, rights & ~_CHANGE_FOLDERS)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return ["files", "signals"] if scopes else ["files"]


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, _O_PATH | os.O_CLOEXEC)
    try:
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _filter() -> list[tuple[int, int, int, int]]:
    """Instructions `(code, to skip if true, to skip if false, operand)`."""
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_ABOVE, 0, 1, _OTHER_TABLE - 1),
        (_RETURN, 0, 0, _REFUSE),
        (_IF_ABOVE, 1, 0, NEWEST),
        (_IF_EQUAL, 0, 1, MISSING),
        (_RETURN, 0, 0, _IS_MISSING),
    ]
    for number in DENIED:
        program += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    for number, rules in LIMITED.items():
        checks: list[tuple[int, int, int, int]] = []
        for argument, mask, values in rules:
            # The kernel reads 32 bits of each: pid, flags, a request.
            checks += [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT + 8 * argument), (_AND, 0, 0, mask)]
            left = len(values)
            checks += [(_IF_EQUAL, left - at, 0, value) for at, value in enumerate(values)]
            checks.append((_RETURN, 0, 0, _REFUSE))
        checks.append((_RETURN, 0, 0, _ALLOW))
        program += [(_IF_EQUAL, 0, len(checks), number), *checks]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _call(number: int, *arguments: object) -> int:
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def settle(folder: str) -> None:
    """Make `folder` (absolute) the home of this process, and all that it can write in."""
    # Make a home and a temporary folder in `folder`, and have this process use them.
    for variable, name in (("HOME", "home"), ("TMPDIR", "tmp")):
        place = os.path.join(folder, name)  # noqa: PTH118 - a fork of a tiny process
        os.makedirs(place, 0o700, exist_ok=True)  # noqa: PTH103 - as above
        os.environ[variable] = place
    tempfile.tempdir = None
    if "files" in confine([folder]):
        keep_writes(os.path.join(folder, "written"))  # noqa: PTH118 - as above


def main() -> None:
    """Print what holds on this machine, as JSON."""
    sys.stdout.write(json.dumps(confine([])))
