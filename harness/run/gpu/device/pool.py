"""Processes that execute cases, several at once: a fault, a hang or a crash costs its case only.

Each has a context of its own on the GPU and takes one case after the other. One that faulted is
replaced; a case that went wrong in a process that had done others before is tried once more in a
fresh one, and that counts. This process never touches the GPU.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.run.gpu.device.contents import Contents, PackError
from harness.run.gpu.device.driver import DriverError, GpuDriver
from harness.run.gpu.device.execute import execute_case
from harness.run.gpu.device.timing import time_cases

_START_SECONDS = 120.0
# For loading a cubin, and copying what it gets: beside the limit, which is the kernel's.
_PREPARING_SECONDS = 120.0
_PR_SET_PDEATHSIG = 1


class _Worker:
    """A process as its parent sees it; `done` counts the cases that it has finished."""

    def __init__(self, path: str) -> None:
        self.pipe, theirs = Pipe()
        given = (path, theirs, os.getpid())
        self.process = get_context("fork").Process(target=_serve, args=given, daemon=True)
        self.process.start()
        theirs.close()
        # What it is at: a case, or the cases that it times.
        self.case: int | None = None
        self.timed: list[int] = []
        self.ready = False
        self.done = 0
        self.until = time.monotonic() + _START_SECONDS
        self.finished: list[tuple[dict[str, Any], dict[str, bytes]]] = []


class GpuPool:
    """Executes cases of a pack in `size` processes; `tell` gets each answer as it comes."""

    def __init__(
        self, pack: Contents, size: int, tell: Callable[[dict[str, Any], dict[str, bytes]], None]
    ) -> None:
        self._pack, self._size, self._tell = pack, size, tell
        self._waiting: deque[int] = deque(range(len(pack.cases)))
        self._again: set[int] = set()
        # In the end, one after the other, with nothing else on the GPU.
        self._timings: deque[list[int]] = deque(pack.timings)
        self._troubled: set[int] = set()
        self._workers: list[_Worker] = []
        self.facts: dict[str, Any] = {}

    def run(self, begin: Callable[[dict[str, Any]], None]) -> None:
        """Execute all cases; `begin` hears of the GPU first.

        Raises:
            PackError: there is no GPU here, or it stopped working.
        """
        self._begin = begin
        try:
            while self._waiting or any(worker.case is not None for worker in self._workers):
                self._fill()
                self._listen()
            while self._timings and self.facts:
                self._time(self._timings.popleft())
        finally:
            for worker in list(self._workers):
                self._end(worker)

    def _fill(self) -> None:
        """As many processes as there is work for, but one until the GPU is known to be there."""
        busy = sum(worker.case is not None for worker in self._workers)
        count = min(self._size, busy + len(self._waiting)) if self.facts else 1
        while len(self._workers) < count:
            self._workers.append(_Worker(self._pack.path))
        for worker in list(self._workers):
            if self._is_idle(worker):
                self._give(worker)

    def _time(self, group: list[int]) -> None:
        """Time cases in a fresh process, alone; those that went wrong before are left out."""
        for worker in list(self._workers):
            self._end(worker)
        numbers = [number for number in group if number not in self._troubled]
        if not numbers:
            return
        worker = _Worker(self._pack.path)
        self._workers.append(worker)
        worker.timed, worker.case = numbers, numbers[0]
        worker.pipe.send(numbers)
        while worker in self._workers and worker.case is not None:
            self._listen()

    def _give(self, worker: _Worker) -> None:
        """The next case; one that is tried again only where nothing was done before."""
        for _ in range(len(self._waiting)):
            number = self._waiting.popleft()
            if worker.done and number in self._again:
                self._waiting.append(number)
                continue
            worker.case, worker.until = number, time.monotonic() + _PREPARING_SECONDS
            worker.pipe.send(number)
            return
        if self._waiting:
            # All that is left wants a fresh process.
            self._end(worker)

    def _listen(self) -> None:
        deadlines = [worker.until for worker in self._workers if not self._is_idle(worker)]
        if not deadlines:
            return
        pipes = [worker.pipe for worker in self._workers]
        ready = wait(pipes, max(0.0, min(deadlines) - time.monotonic()))
        for worker in list(self._workers):
            if worker.pipe in ready:
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    self._lost(worker)
                else:
                    self._take(worker, *answer)
            elif not self._is_idle(worker) and time.monotonic() > worker.until:
                self._late(worker)

    @staticmethod
    def _is_idle(worker: _Worker) -> bool:
        return worker.ready and worker.case is None

    def _take(self, worker: _Worker, message: dict[str, Any], blobs: dict[str, bytes]) -> None:
        if "broken" in message:
            self._end(worker)
            if not self._workers:
                raise PackError(message["broken"])
            # Others work: the GPU takes no more processes than these.
            self._size = len(self._workers)
        elif "gpu" in message:
            worker.ready = True
            if not self.facts:
                self.facts = message["gpu"]
                self._begin(self.facts)
        elif message["status"] == "next":
            self._finish(worker)
        elif message["status"] == "launched":
            worker.until = time.monotonic() + self._pack.limit
        else:
            worker.until = time.monotonic() + _PREPARING_SECONDS
            worker.finished.append((message, blobs))

    def _finish(self, worker: _Worker) -> None:
        """A case has come to its end; where it went wrong, its process is of no more use."""
        number, answers = worker.case, worker.finished
        assert number is not None
        if worker.timed:
            self._finish_timing(worker)
            return
        has_trouble = any(
            message["status"] in ("fault", "hang", "died") or message.get("guards")
            for message, _ in answers
        )
        if has_trouble and worker.done and number not in self._again:
            self._again.add(number)
            self._waiting.append(number)
        else:
            if any(message["status"] != "ended" for message, _ in answers):
                self._troubled.add(number)
            for message, blobs in answers:
                self._tell(message, blobs)
        worker.case, worker.finished, worker.done = None, [], worker.done + 1
        if has_trouble:
            self._end(worker)

    def _finish_timing(self, worker: _Worker) -> None:
        """Times came, or the process ended before: then no time is known of the rest."""
        timed = set()
        words = "the process that timed it did not come to its end"
        for message, blobs in worker.finished:
            if message["status"] in ("timed", "untimed"):
                timed.add(message["case"])
                self._tell(message, blobs)
            elif message["status"] == "failed":
                words = message["words"]
        for number in worker.timed:
            if number not in timed:
                self._tell({"case": number, "status": "untimed", "words": words}, {})
        worker.case, worker.finished = None, []
        self._end(worker)

    def _lost(self, worker: _Worker) -> None:
        """A process is gone: what it was at is its case's doing."""
        if worker.case is None:
            self._end(worker)
            if not self.facts:
                raise PackError("the process that asks for a GPU ended without an answer")
            return
        code = self._end(worker)
        number = -code if code < 0 else None
        died = {"case": worker.case, "run": None, "status": "died", "signal": number}
        worker.finished.append((died, {}))
        self._finish(worker)

    def _late(self, worker: _Worker) -> None:
        """A process took longer than its case may."""
        self._end(worker)
        if worker.case is None:
            raise PackError(f"the driver did not answer in {_START_SECONDS:.0f} s")
        hang = {"case": worker.case, "run": None, "status": "hang", "seconds": self._pack.limit}
        worker.finished.append((hang, {}))
        self._finish(worker)

    def _end(self, worker: _Worker) -> int:
        """Kill a process, if it is there still; its exit code, negative for a signal."""
        if worker in self._workers:
            self._workers.remove(worker)
            worker.pipe.close()
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        return worker.process.exitcode or 0


def _serve(path: str, pipe: Connection, parent: int) -> None:
    """What a process does: one case after the other, until it is ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        gpu = GpuDriver()
        pipe.send(({"gpu": gpu.facts()}, {}))
    except DriverError as error:
        pipe.send(({"broken": str(error)}, {}))
        return
    # A file of its own: a position in a shared one would be everybody's.
    pack = Contents(path)
    sent: set[str] = set()
    loaded: dict[str, ctypes.c_void_p] = {}

    def begin() -> None:
        pipe.send(({"status": "launched"}, {}))

    while True:
        number = pipe.recv()
        if isinstance(number, list):
            # What the driver says where it times none is said for all that have no time.
            try:
                for message in time_cases(gpu, pack, number, begin):
                    pipe.send((message, {}))
            except (DriverError, PackError) as error:
                pipe.send(({"status": "failed", "words": str(error)}, {}))
        else:
            for message, blobs in execute_case(gpu, pack, number, begin, loaded):
                fresh = {name: data for name, data in blobs.items() if name not in sent}
                sent.update(fresh)
                pipe.send((message, fresh))
        pipe.send(({"status": "next"}, {}))
