"""What a confined program tries by system calls: other programs' memory, files' times, and memory.

Each attack is a program of its own, confined as compilers are; the same attack goes through where
it is not confined, or the test says nothing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
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


# A datagram socket of a pair reaches any listener that has a path.
DATAGRAMS = """
import array, json, os, socket, sys
path, kept = sys.argv[1:]
found = {}
def attempt(name, deed):
    try:
        deed()
        found[name] = 0
    except OSError as error:
        found[name] = error.errno
def pair(kind):
    return socket.socketpair(socket.AF_UNIX, kind)[0]
def handed():
    rights = array.array("i", [os.open(kept, os.O_RDONLY)]).tobytes()
    data = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
    pair(socket.SOCK_DGRAM).sendmsg([b"x"], data, 0, path)
attempt("sendto", lambda: pair(socket.SOCK_DGRAM).sendto(b"x", path))
attempt("connect", lambda: pair(socket.SOCK_DGRAM).connect(path))
attempt("sendmsg", handed)
attempt("raw", lambda: pair(socket.SOCK_RAW).sendto(b"x", path))
attempt("seqpacket", lambda: pair(socket.SOCK_SEQPACKET))
attempt("bind", lambda: pair(socket.SOCK_STREAM).bind(kept + ".socket"))
attempt("stream", lambda: pair(socket.SOCK_STREAM))
print(json.dumps(found))
"""


def test_no_datagram_and_no_open_file_leaves_a_confined_program(tmp_path: Path) -> None:
    own, kept = tmp_path / "own", tmp_path / "kept"
    own.mkdir()
    kept.write_text("x")
    # A path below 108 bytes, as sockets have them.
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX, 2) as listener:
        listener.bind(f"{place}/s")
        listener.setblocking(False)
        refused = answer(attack(DATAGRAMS, f"{place}/s", str(kept), writable=own))
        with pytest.raises(BlockingIOError):
            listener.recv(1)
        assert refused.pop("stream") == 0, "asyncio and multiprocessing need it"
        assert set(refused.values()) == {1}, refused
        assert not any(answer(attack(DATAGRAMS, f"{place}/s", str(kept), writable=None)).values())
        assert len([listener.recv(1) for _ in range(3)]) == 3


SCHEDULING = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
who, kind = int(sys.argv[1]), int(sys.argv[2])
zero, first = ctypes.byref(ctypes.c_int(0)), ctypes.byref(ctypes.c_ulong(1))
attributes = (ctypes.c_uint32 * 12)(48, 3)  # SCHED_BATCH
calls = {"setpriority": (141, kind, who, 1), "sched_setparam": (142, who, zero),
         "sched_setscheduler": (144, who, 3, zero), "sched_setaffinity": (203, who, 8, first),
         "ioprio_set": (251, kind + 1, who, 3 << 13), "sched_setattr": (314, who, attributes, 0),
         "migrate_pages": (256, who, 2, first, first), "move_pages": (279, who, 0, 0, 0, 0, 0)}
print(json.dumps({call: ctypes.get_errno() if libc.syscall(*words) < 0 else 0
                  for call, words in calls.items()}))
"""
SCHEDULED = {"setpriority", "sched_setaffinity", "sched_setattr", "ioprio_set"}
EPERM, ENOSYS = 1, 38
# As a process of an ordinary user is: without the capabilities that the attacker has not either.
VICTIM = """
import ctypes, os, struct
ctypes.CDLL(None).syscall(126, struct.pack("=Ii", 0x20080522, 0), bytes(24))
print(flush=True)
os.read(0, 1)
"""


def test_how_other_processes_are_scheduled_is_not_set(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", VICTIM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as victim:
        assert victim.stdout
        victim.stdout.readline()
        pid = str(victim.pid)
        processors = os.sched_getaffinity(victim.pid)
        for kind in ("0", "1"):  # a process, and the group that it leads
            refused = answer(attack(SCHEDULING, pid, kind, writable=tmp_path))
            assert set(refused.values()) == {EPERM}, refused
        assert os.getpriority(os.PRIO_PROCESS, victim.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert os.sched_getaffinity(victim.pid) == processors
        assert os.sched_getscheduler(victim.pid) == os.SCHED_OTHER
        through = answer(attack(SCHEDULING, pid, "0", writable=None))
        assert {name for name, error in through.items() if not error} >= SCHEDULED
        assert os.sched_getscheduler(victim.pid) == os.SCHED_BATCH
        assert os.sched_getaffinity(victim.pid) == {0}
        victim.communicate()
    # Its own scheduling is its own affair, that of its process group is not.
    own = answer(attack(SCHEDULING, "0", "0", writable=tmp_path))
    assert not {own["sched_setscheduler"], own["sched_setaffinity"], own["ioprio_set"]} - {0}
    assert own["setpriority"] != EPERM, "the kernel says EACCES to who is nice already"
    group = answer(attack(SCHEDULING, "0", "1", writable=tmp_path))
    assert (group["setpriority"], group["ioprio_set"]) == (EPERM, EPERM)


ATTRIBUTES = """
import ctypes, fcntl, json, os, sys, termios
file = os.open(sys.argv[1], os.O_RDONLY)
found = {}
for name, request in (("flags", 0x40086602), ("32-bit flags", 0x40046602), ("version", 0x40087602),
                      ("project", 0x401c5820), ("verity", 0x40806685), ("snapshot", 0x50009401),
                      ("typed", termios.TIOCSTI), ("read flags", 0x80086601),
                      ("waiting", termios.FIONREAD), ("terminal", termios.TCGETS)):
    try:
        if name == "flags":
            words = bytearray(fcntl.ioctl(file, 0x80086601, bytes(8)))
            words[0] |= 0x40  # not dumped
            fcntl.ioctl(file, request, bytes(words))
        else:
            fcntl.ioctl(file, request, bytes(128))
        found[name] = 0
    except OSError as error:
        found[name] = error.errno
libc = ctypes.CDLL(None, use_errno=True)
found["file_setattr"] = ctypes.get_errno() if libc.syscall(469, -100, b".", bytes(24), 24, 0) else 0
print(json.dumps(found))
"""


def test_attributes_of_files_are_not_set(tmp_path: Path) -> None:
    own, thesis = tmp_path / "own", tmp_path / "thesis.txt"
    own.mkdir()
    thesis.write_text("x")
    refused = answer(attack(ATTRIBUTES, str(thesis), writable=own))
    reads = {name: refused.pop(name) for name in ("read flags", "waiting", "terminal")}
    assert 1 not in reads.values(), reads
    assert set(refused.values()) == {1}, refused
    allowed = answer(attack(ATTRIBUTES, str(thesis), writable=None))
    if reads["read flags"]:
        pytest.skip("this file system has no attributes")
    assert allowed["flags"] == 0


NAMESPACES = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
user, own = 0x10000000, os.open("/proc/self/ns/ipc", os.O_RDONLY)
calls = {"setns": (308, own, 0), "clone": (56, user | 17, 0, 0, 0, 0), "clone3": (435, 0, 0),
         "unshare": (272, user | 0x20000), "of a new kernel": (1000,)}
found = {}
for name, words in calls.items():
    got = libc.syscall(*words)
    if got == 0 and name == "clone": os._exit(0)
    found[name] = ctypes.get_errno() if got < 0 else 0
print(json.dumps(found))
"""


def test_no_namespace_of_its_own(tmp_path: Path) -> None:
    """In one a program has all capabilities; where a call is new, `glibc` has another way."""
    assert answer(attack(NAMESPACES, writable=tmp_path)) == {
        "setns": EPERM,
        "clone": EPERM,
        "clone3": ENOSYS,
        "unshare": EPERM,
        "of a new kernel": ENOSYS,
    }
    allowed = answer(attack(NAMESPACES, writable=None))
    assert allowed["clone3"] not in (EPERM, ENOSYS)
    if os.getuid() == 0:
        assert (allowed["setns"], allowed["unshare"]) == (0, 0)


ORDINARY = """
import asyncio, concurrent.futures, json, multiprocessing, os, subprocess, sys, threading
async def pipes():
    program = await asyncio.create_subprocess_exec("true", stdin=-1)
    await program.communicate(b"")
    return await asyncio.to_thread(lambda: 1) + program.returncode
def child(end):
    end.send(os.getpid())
ours, theirs = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
process.start()
is_child = ours.recv() == process.pid
process.join()
os.sched_setaffinity(0, os.sched_getaffinity(0))
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    total = sum(pool.map(int, range(9)))
is_nice = os.nice(0) == os.getpriority(os.PRIO_PROCESS, 0)
print(json.dumps([asyncio.run(pipes()), is_child, is_nice, total, os.isatty(0),
                  subprocess.run(["sh", "-c", "exit 3"]).returncode]))
"""


def test_what_ordinary_programs_do_is_left_to_them(tmp_path: Path) -> None:
    assert answer(attack(ORDINARY, writable=tmp_path)) == [1, True, True, 36, False, 3]


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
