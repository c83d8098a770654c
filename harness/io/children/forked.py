"""Starts a tool once, and forks it for each input, at the place where it opens that.

What the tool does before that is done once: nvdisasm builds its tables for 0.3 s, and then reads a
file in 0.02 s. This process traces the tool. At the system call that would open the input, the
tool clones itself instead; the clone goes on, and the tool waits there for the next input. If the
clone opens the input again later, the tool is taken there, and the next clone begins there.
The input, and the streams of the tool, are files of the same names in one folder.

Linux on x86-64; numbers of requests and events are those of `sys/ptrace.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from json import dumps, loads
from typing import Any

from harness.io.children.supervisor import connect

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long
_TRACE_ME, _PEEK, _GET_REGISTERS, _SET_REGISTERS, _TO_SYSTEM_CALL = 0, 2, 12, 13, 24
_SET_OPTIONS, _GET_EVENT = 0x4200, 0x4201
# Stops at system calls look unlike others; clones are traced; all that is traced dies with us.
_OPTIONS = 0x1 | 0x8 | 0x100000
_AT_SYSTEM_CALL, _AT_CLONE = signal.SIGTRAP | 0x80, signal.SIGTRAP | 3 << 8
_CLONE, _OPENAT, _CLONE_PARENT = 56, 257, 0x8000
_ANY_KIND = 0x40000000
# Those of a thread, as `sys/user.h` orders them.
_NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
)


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in _NAMES.split()]


_ENDED = "the tool ended before it opened its input"


class TracedTool:
    """A tool that waits where it opens its input, for one folder: the current one.

    Raises:
        OSError: the tool cannot be started, may not be traced, or did not open its input.
    """

    def __init__(self, argv: list[str], name: str, memory: int) -> None:
        assert len(name) < 8  # a word of memory is compared
        self._name = name.encode() + b"\0"
        self._pid = os.fork()
        if not self._pid:
            self._become(argv, memory)
        self._wait(self._pid)
        _trace(_SET_OPTIONS, self._pid, _OPTIONS)
        # How many opens of its input lie before the tool; and the seconds of CPU that it took.
        self._opens, self._cpu = 1, 0.0

    def _become(self, argv: list[str], memory: int) -> None:
        """The side of the tool; never returns."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number, stream in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(stream, flags, 0o644), number)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            _trace(_TRACE_ME, 0)
            os.execv(argv[0], argv)  # noqa: S606 - no shell is meant
        finally:
            os._exit(70)

    def run(self, timeout: float) -> dict[str, Any]:
        """Let a clone read the input that is there now; how it ended."""
        before = self._cpu
        while self._opens:
            self._go_to_open()
        clone = self._clone()
        timed_out = False

        def kill(*_: object) -> None:
            nonlocal timed_out
            timed_out = True
            os.kill(clone, signal.SIGKILL)

        signal.signal(signal.SIGALRM, kill)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        self._opens = -1  # the first is where it begins
        status, usage = self._step(clone)
        while os.WIFSTOPPED(status):
            self._opens += self._is_at_open(clone, status)
            status, usage = self._step(clone, status)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._opens = max(0, self._opens)
        code = os.waitstatus_to_exitcode(status)
        return {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "timed_out": timed_out,
            "cpu": self._cpu - before + usage.ru_utime + usage.ru_stime,
            "peak_rss": usage.ru_maxrss * 1024,
        }

    def end(self) -> None:
        """Kill the tool, and see it gone."""
        os.kill(self._pid, signal.SIGKILL)
        self._wait(self._pid)

    def _clone(self) -> int:
        """A clone that is about to open the input, as the tool is again."""
        registers = _registers(self._pid)
        at_clone = _Registers.from_buffer_copy(registers)
        at_clone.orig_rax, at_clone.rdi = _CLONE, _CLONE_PARENT
        at_clone.rsi = at_clone.rdx = at_clone.r10 = at_clone.r8 = 0
        _trace(_SET_REGISTERS, self._pid, ctypes.addressof(at_clone))
        status, _ = self._step(self._pid)
        if status >> 8 != _AT_CLONE:
            raise OSError(_ENDED)
        clone = ctypes.c_ulong()
        _trace(_GET_EVENT, self._pid, ctypes.addressof(clone))
        self._step(self._pid)  # the end of the call
        self._wait(clone.value)
        # The instruction of a system call has two bytes.
        registers.rip -= 2
        registers.rax, registers.orig_rax = _OPENAT, -1
        for pid in (self._pid, clone.value):
            _trace(_SET_REGISTERS, pid, ctypes.addressof(registers))
        self._step(self._pid)
        return clone.value

    def _go_to_open(self) -> None:
        """Let the tool go on to the next place where it opens the input."""
        status, usage = self._step(self._pid)
        while not self._is_at_open(self._pid, status):
            status, usage = self._step(self._pid, status)
        self._cpu = usage.ru_utime + usage.ru_stime
        self._opens -= 1

    def _is_at_open(self, pid: int, status: int) -> bool:
        if not os.WIFSTOPPED(status):
            raise OSError(_ENDED)
        if os.WSTOPSIG(status) != _AT_SYSTEM_CALL:
            return False
        registers = _registers(pid)
        # Before a call its result is "no such call".
        is_before = ctypes.c_longlong(registers.rax).value == -38
        if not is_before or registers.orig_rax != _OPENAT:
            return False
        word = _trace(_PEEK, pid, 0, registers.rsi) & (1 << 64) - 1
        return word.to_bytes(8, "little").startswith(self._name)

    def _step(self, pid: int, status: int = 0) -> tuple[int, resource.struct_rusage]:
        """Let a process go on to its next stop or its end; it gets the signal that stopped it."""
        number = os.WSTOPSIG(status) if status else 0
        ours = (_AT_SYSTEM_CALL, signal.SIGTRAP, signal.SIGSTOP)
        _trace(_TO_SYSTEM_CALL, pid, 0 if number in ours else number)
        return self._wait(pid)

    def _wait(self, pid: int) -> tuple[int, resource.struct_rusage]:
        return os.wait4(pid, _ANY_KIND)[1:]


def _trace(request: int, pid: int, data: int = 0, address: int = 0) -> int:
    ctypes.set_errno(0)
    result = int(_LIBC.ptrace(request, pid, address, data))
    if result == -1 and (number := ctypes.get_errno()):
        raise OSError(number, os.strerror(number))
    return result


def _registers(pid: int) -> _Registers:
    registers = _Registers()
    _trace(_GET_REGISTERS, pid, ctypes.addressof(registers))
    return registers


def main() -> None:
    """Serve `fork` requests until the caller hangs up: `main() FOLDER NAME TOOL... SOCKET NAME`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder, name, *argv, path, hello = sys.argv[1:]
    os.chdir(folder)
    tool = None
    with connect(path, hello) as channel, channel.makefile("rb") as requests:
        for message in map(loads, requests):
            if message["op"] != "fork":
                continue
            answer = {"id": message["id"], "end": {"exit_code": 70}, "start_error": None}
            try:
                tool = tool or TracedTool(argv, name, message["limits"]["memory"])
                answer["end"] = tool.run(message["limits"]["timeout"])
            except OSError as error:
                answer["start_error"] = repr(error)
            channel.sendall(dumps(answer).encode() + b"\n")
    if tool:
        with contextlib.suppress(OSError):  # it ended before
            tool.end()
