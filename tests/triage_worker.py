"""Runs `triage` for one case after another: loaded once, forked for each.

Reads a `Wanted` as a line of JSON from stdin, writes an `Ended` as a line to stdout. What a case
runs is `harness.cli.main.main`, in a process of its own, with the descriptors, the environment and
the limits of the case; only that Python was already started.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from harness.cli.main import cli, main
from harness.frontends import registry

MEMORY = 4 << 30
LONGEST = 400_000
"""What is kept of a case's output, in bytes."""


def load() -> None:
    """Import what all commands import."""

    def visit(command: click.Command) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found
                visit(found)

    visit(cli)
    others = ("harness.cli.output", "click._textwrap", "libcst", "numpy", "pypi_simple")
    for name in (*others, "requests", "rich.status"):
        importlib.import_module(name)
    # Those of ours alone: what is registered is asked for under the environment of a case.
    for kind in registry._OURS:
        registry.front_end(kind)
    # A collection in a fork would look at, and so copy, all of it.
    gc.collect()
    gc.freeze()


def descriptor(how: str, fd: int, path: str) -> None:
    """Make `fd` what the case wants: a file, a full disk, a pipe without a reader, or nothing."""
    if how == "closed":
        os.close(fd)
        return
    if how == "gone":
        read, write = os.pipe()
        os.close(read)
        os.dup2(write, fd)
        os.close(write)
        return
    name = "/dev/full" if how == "full" else path
    opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(opened, fd)
    os.close(opened)


def obey_modes() -> None:
    """Give up root's right to read and write what a file's mode forbids (capabilities(7))."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    dac_override, dac_read_search = 1, 2
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    data[0] &= ~(1 << dac_override | 1 << dac_read_search)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def become(wanted: dict[str, Any]) -> None:
    """Everything of the case but its command."""
    os.setsid()
    # As the shell that Python starts under: `python` itself ignores SIGPIPE.
    os.umask(0o022)
    memory = wanted["memory"] or MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if wanted["only_this_env"]:
        os.environ.clear()
    for name, value in wanted["env"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.chdir(wanted["folder"])
    if wanted["folder_is_gone"]:
        Path(wanted["folder"]).rmdir()
    descriptor("null" if wanted["stdin"] == "null" else wanted["stdin"], 0, os.devnull)
    descriptor(wanted["stdout"], 1, wanted["out"])
    descriptor(wanted["stderr"], 2, wanted["err"])
    for name, fd, how in (("stdout", 1, wanted["stdout"]), ("stderr", 2, wanted["stderr"])):
        # As Python starts with them.
        stream = None
        if how != "closed":
            errors = "strict" if name == "stdout" else "backslashreplace"
            stream = open(  # noqa: SIM115
                fd, "w", encoding=wanted["encoding"], errors=errors, closefd=False
            )
        setattr(sys, name, stream)
    if wanted["plain"]:
        obey_modes()


def run(wanted: dict[str, Any]) -> None:
    """In the fork: never returns."""
    code = 70
    try:
        become(wanted)
        sys.argv = ["triage", *wanted["words"]]
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 0
        except BaseException:  # noqa: BLE001 - as Python itself
            traceback.print_exc()
            code = 1
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def wait(pid: int, seconds: float, *, leaves_nobody: bool) -> tuple[str, int]:
    """How it ended; killed with all that it started when the time is up.

    With `leaves_nobody`, what it started is killed when it has ended, too.
    """
    process = os.pidfd_open(pid)
    has_ended, _, _ = select.select([process], [], [], seconds)
    os.close(process)
    how = ("hung", 0)
    if has_ended:
        how = ("exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    if leaves_nobody or how[0] == "hung":
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    if how[0] == "hung":
        os.waitpid(pid, 0)
    return how


def read(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read(LONGEST).decode("utf-8", "backslashreplace")


def serve() -> None:
    load()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        wanted = json.loads(line)
        for name in ("out", "err"):
            with suppress(FileNotFoundError):
                os.unlink(wanted[name])  # noqa: PTH108
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            run(wanted)
        how, code = wait(pid, wanted["seconds"], leaves_nobody=wanted["leaves_nobody"])
        answer = {
            "how": how,
            "code": code,
            "seconds": time.monotonic() - begun,
            "out": read(wanted["out"]) if wanted["stdout"] == "file" else "",
            "err": read(wanted["err"]) if wanted["stderr"] == "file" else "",
        }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
