"""A capture that goes on: launch code runs once, and what it launched is compiled job by job.

The child of a front end imports its compiler, then serves: each capture is a fork of it, and each
job a fork of that. What a front end does there is a subclass of `RecordedSession`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from json import dumps
from pathlib import Path
from typing import Any

from harness.io.children.confine import settle
from harness.io.children.jobs import JobLimits
from harness.io.children.launch_code import TimeUpError, describe_error, run_launch
from harness.io.children.supervisor import Message, Supervisor, connect


def waited() -> float:
    """Seconds for which this process could have run, and others did; 0 where that is not known."""
    try:
        with open("/proc/self/schedstat", "rb") as file:  # noqa: PTH123 - in a handler of signals
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


MOST_TIMES = 4
"""How many times its time launch code may take where others have the machine's cores."""


@contextlib.contextmanager
def time_limit(left: float, seconds: float, where: Path) -> Iterator[None]:
    """Raise `TimeUpError` in the `with` block once what is `left` of its seconds is over.

    0: never. Raised again every few seconds: code may swallow it, or be called by C, which does.
    The file `where` gets the stack of code that does not hear of it, in a call of C, or does not
    end of it. Seconds in which the block waits for a core do not count, three times as many as are
    `left` at most: on a machine that does much else, a capture comes to the same. A file beside
    `where` tells of the end (as of `monotonic()`), and of those seconds.
    """
    began, already = time.monotonic(), waited()
    ends = began + left

    def tell() -> None:
        words = f"{ends} {waited() - already:.3f}".ljust(64)
        with contextlib.suppress(OSError):
            os.pwrite(teller, words.encode(), 0)

    def ring(*_: object) -> None:
        nonlocal ends
        due = began + left + min(waited() - already, (MOST_TIMES - 1) * left)
        if (more := due - time.monotonic()) > _LEAST_MORE:
            ends = due
            tell()
            faulthandler.dump_traceback_later(more + _DEAF_SECONDS, file=stream)
            signal.setitimer(signal.ITIMER_REAL, more, _AGAIN_SECONDS)
            return
        faulthandler.dump_traceback_later(_AGAIN_SECONDS, file=stream)
        words = f"the launch code did not end within {seconds:.0f} s"
        raise TimeUpError(f"{words}; it may compute on real values (see --timeout)")

    signal.signal(signal.SIGALRM, ring)
    teller = os.open(where.with_suffix(".time"), os.O_WRONLY | os.O_CREAT, 0o600)
    with where.open("w") as stream:
        if left:
            faulthandler.dump_traceback_later(left + _DEAF_SECONDS, file=stream)
        signal.setitimer(signal.ITIMER_REAL, left, _AGAIN_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
            tell()
            with contextlib.suppress(OSError):
                os.close(teller)


_DEAF_SECONDS, _AGAIN_SECONDS, _LEAST_MORE = 4, 20, 1.0


def leave(result: Mapping[str, Any], folder: Path, name: str = "result.json") -> None:
    """Write what came of a job, whole: a reader finds all of it or nothing."""
    partial = folder / f"{name}.tmp"
    partial.write_text(dumps(result))
    partial.rename(folder / name)


def run_for_error(ask: Message, log: Path) -> dict[str, Any] | None:
    """Run launch code; what it raised, described, or None. `log` has what it said to stderr."""
    try:
        run_launch(ask["file"], ask["function"], ask["overrides"])
    except (Exception, SystemExit, TimeUpError) as raised:  # noqa: BLE001 - it raises anything
        if isinstance(raised, SystemExit) and not raised.code:
            return None
        error = describe_error(raised, ask["file"])
        if isinstance(raised, SystemExit):
            # What a program says before it exits by itself (argparse does).
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.flush()
            lines = log.read_text(errors="replace").strip().splitlines()
            error["message"] += f" ({lines[-1][:300]})" if lines else ""
        return error
    return None


def serve_captures(
    session: Callable[[Message], Callable[[], None]],
    ready: Message,
    compile_file: Callable[[Message, Path], None],
) -> None:
    """Say hello to the socket and by the name in `sys.argv`; fork sessions until it is closed.

    `compile_file` runs a file that stands alone, as the `capture` in a message asks for it, and
    compiles its first kernel, all in one fork.
    """
    path, name = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = Supervisor(connect(path, name))

    def open_session(message: Message) -> None:
        body = session({**message, "socket": path})
        supervisor.fork(message["id"], body, JobLimits.of(message))

    def compile_alone(message: Message) -> None:
        folder = Path(message["folder"])

        def body() -> None:
            if message["capture"]["confined"]:
                settle(str(folder))
            compile_file(message, folder)

        streams = (str(folder / "stdout"), str(folder / "stderr"))
        supervisor.fork(message["id"], body, JobLimits.of(message), streams)

    supervisor.handle("open", open_session)
    supervisor.handle("compile", compile_alone)
    supervisor.send({"ready": ready})
    supervisor.serve()
