"""What a confined program tries by system calls: other programs' memory, files' times, and memory.

Each attack is a program of its own, confined as compilers are; the same attack goes through where
it is not confined, or the test says nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.io.children import jobs
from harness.io.processes.hub import ResourceLimits, ToolResult, run_tool
from harness.io.processes.machine import confinement_words

ROOT = str(Path(harness.__file__).parent.parent)
LIMITS = ResourceLimits(timeout=60, memory=8 << 30, file_size=1 << 22)

# Calls of the kernel by their numbers on x86-64; what is negative is refused.
OBJECTS = """
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
own = 0  # IPC_PRIVATE
name = ctypes.c_char_p(b"triage-test")
calls = {
    "shmget": (29, own, 4096, 0o1600), "semget": (64, own, 1, 0o1600), "msgget": (68, own, 0o1600),
    "mq_open": (240, name, 0o102, 0o600, None), "memfd_create": (319, name, 0),
}
found = {}
for call, words in calls.items():
    got = libc.syscall(*words)
    found[call] = ctypes.get_errno() if got < 0 else 0
    if call == "shmget" and got >= 0: libc.syscall(31, got, 0, None)
    if call == "semget" and got >= 0: libc.syscall(66, got, 0, 0, None)
    if call == "msgget" and got >= 0: libc.syscall(71, got, 0, None)
    if call == "mq_open" and got >= 0: libc.syscall(241, name)
print(json.dumps(found))
"""


def attack(program: str, *words: str, writable: Path | None) -> ToolResult:
    """Run Python code, confined to write in a folder; not confined where there is none."""
    argv = [sys.executable, "-I", "-S", "-c", program, *words]
    return run_tool(
        argv, timeout=60, limits=LIMITS, writable=None if writable is None else [writable]
    )


def answer(done: ToolResult) -> Any:
    assert done.end.ok, done.stderr
    return json.loads(done.stdout)


def test_objects_that_outlive_a_program_and_files_in_memory_are_refused(tmp_path: Path) -> None:
    refused = answer(attack(OBJECTS, writable=tmp_path))
    assert set(refused.values()) == {1}, refused  # EPERM
    allowed = answer(attack(OBJECTS, writable=None))
    assert {name for name, error in allowed.items() if not error} >= {"shmget", "memfd_create"}


TIMES = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1].encode()
fd = os.open(path, os.O_RDONLY)
calls = {"utime": (132, path, None), "utimes": (235, path, None),
         "futimesat": (261, -100, path, None), "utimensat": (280, -100, path, None, 0),
         "futimens": (280, fd, None, None, 0)}
print(json.dumps({name: libc.syscall(*words) for name, words in calls.items()}))
"""


def test_times_of_files_are_not_set(tmp_path: Path) -> None:
    own, thesis = tmp_path / "own", tmp_path / "thesis.txt"
    own.mkdir()
    thesis.write_text("x")
    os.utime(thesis, (1000, 1000))
    refused = answer(attack(TIMES, str(thesis), writable=own))
    assert set(refused.values()) == {-1}
    assert thesis.stat().st_mtime == 1000
    assert set(answer(attack(TIMES, str(thesis), writable=None)).values()) == {0}
    assert thesis.stat().st_mtime > 1000


MANY_FILES = """
import os, sys, time
folder, kind = sys.argv[1:]
held = []
for number in range(100):
    path = os.path.join(folder, f"file-{number}")
    with open(path, "wb") as file: file.write(bytes(1 << 21))
    if kind == "deleted":
        held.append(open(path, "rb"))
        os.unlink(path)
time.sleep(50)
"""


@pytest.mark.parametrize("kind", ["kept", "deleted"])
def test_the_files_of_a_confined_program_are_limited_together(tmp_path: Path, kind: str) -> None:
    """A hundred files of 2 MiB, where one may have 4 MiB, and all together eight times that."""
    assert jobs.FILES * LIMITS.file_size < 100 << 21
    done = attack(MANY_FILES, str(tmp_path), kind, writable=tmp_path)
    assert done.end.flooded
    assert done.end.signal == 9
    assert done.end.wall < 45


# An ordinary user, with a token in the environment, on a kernel that has no Landlock.
UNPRIVILEGED = """
import ctypes, os, struct, sys
sys.path.insert(0, sys.argv[1])
import harness.io.processes.hub as hub
libc = ctypes.CDLL(None, use_errno=True)
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    libc.prctl(8, 1, 0, 0, 0)
    os.setuid(65534)
    # Such a user, who may still read the interpreter in root's home (CAP_DAC_READ_SEARCH).
    header, rights = struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", 4, 4, 4, 0, 0, 0)
    assert libc.syscall(126, header, rights) == 0
    assert libc.prctl(47, 2, 2, 0, 0) == 0
libc.prctl(4, 1, 0, 0, 0)  # as a program is that such a user starts
libc.prctl(38, 1, 0, 0, 0)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (6, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("=HBBI", *step) for step in steps)
buffer = ctypes.create_string_buffer(program, len(program))
assert libc.syscall(317, 1, 0, struct.pack("@HP", len(steps), ctypes.addressof(buffer))) == 0
if sys.argv[3] == "seen":
    hub.hide = lambda: None
start = hub._start_supervisor
def start_and_drop(*given):
    begun = start(*given)
    libc.syscall(126, struct.pack("=Ii", 0x20080522, 0), bytes(24))
    return begun
hub._start_supervisor = start_and_drop
done = hub.run_tool([sys.executable, "-I", "-S", "-c", sys.argv[2], str(os.getpid())],
                    timeout=60, writable=["/nonexistent"])
print(done.stdout, done.stderr)
"""
REACHING = """
import json, os, sys
found = {}
# Files of a process that hides belong to root.
for who, pid in (("parent", os.getppid()), ("caller", int(sys.argv[1]))):
    found[f"{who} hides"] = os.stat(f"/proc/{pid}/environ").st_uid != os.getuid()
for who, pid in (("parent", os.getppid()), ("caller", int(sys.argv[1]))):
    for name, flags in (("environ", os.O_RDONLY), ("mem", os.O_RDWR), ("maps", os.O_RDONLY)):
        try:
            file = os.open(f"/proc/{pid}/{name}", flags)
            found[f"{who} {name}"] = len(os.read(file, 9)) if name != "mem" else 1
        except OSError as error:
            found[f"{who} {name}"] = -error.errno
print(json.dumps(found))
"""


@pytest.mark.parametrize("how", ["hidden", "seen"])
def test_without_landlock_what_runs_a_confined_program_is_out_of_its_reach(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, ROOT, REACHING, how],
        env={**os.environ, "GITHUB_TOKEN": "ghp_0123456789"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout.splitlines()[0])
    parents = {found[f"parent {name}"] for name in ("environ", "mem", "maps")}
    assert parents <= {-1, -13}, done.stderr
    assert found["parent hides"]
    assert found["caller hides"] == (how == "hidden")
    callers = {found[f"caller {name}"] for name in ("environ", "mem", "maps")}
    if how == "hidden":
        assert callers <= {-1, -13}
    else:
        assert found["caller environ"] == 9, "the attack does nothing where nothing hides"


def test_words_without_landlock_say_what_is_within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.io.processes.machine.held_parts", lambda: ("network",))
    monkeypatch.delenv("TRIAGE_CONFINE", raising=False)
    is_whole, words = confinement_words()
    assert not is_whole
    assert "into the memory of your other programs, and so use their network" in words
