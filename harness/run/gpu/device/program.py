"""What a pack does when it is executed: `python3 PACK --out RESULTS`.

Results are lines of JSON, written as they come: a head with the GPU, each buffer once by its sha256
(zlib, base64), each run of each case, and a last line when all has been done. A run that is cut off
leaves what it had.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import sys
import time
import zlib
from contextlib import suppress
from typing import IO, Any

from harness.run.gpu.device.clocks import driver_version
from harness.run.gpu.device.contents import Contents, PackError
from harness.run.gpu.device.driver import DriverError
from harness.run.gpu.device.pool import GpuPool
from harness.run.gpu.device.sanitizing import check_cases, launch_alone

RESULTS = 1
"""Version of the lines."""

_MOST_PROCESSES = 8
# A case is a module to be loaded, or one entry of many.
_CASES_EACH, _ENTRIES_EACH = 4, 256
_NOT_RUN = 4


class _Results:
    """The file of results; `counts` are of cases by how they ended."""

    def __init__(self, file: IO[bytes], pack: Contents) -> None:
        self._file, self._pack = file, pack
        self._known = {
            buffer.get("file") for launch in pack.launches for buffer in launch["buffers"]
        }
        self.counts: dict[str, int] = {}

    def line(self, **words: object) -> None:
        self._file.write(json.dumps(words, separators=(",", ":")).encode() + b"\n")
        self._file.flush()

    def begin(self, gpu: dict[str, Any]) -> None:
        cases = len(self._pack.cases)
        day = time.strftime("%Y-%m-%d", time.gmtime())
        facts = {**gpu, "driver": driver_version(), "day": day}
        self.line(results=RESULTS, pack=self._pack.sha256, cases=cases, gpu=facts)

    def take(self, message: dict[str, Any], blobs: dict[str, bytes]) -> None:
        for sha256, data in blobs.items():
            if sha256 not in self._known:
                self._known.add(sha256)
                packed = base64.b64encode(zlib.compress(data, 1)).decode()
                self.line(blob=sha256, size=len(data), data=packed)
        self.line(**message)
        status = message["status"]
        if message.get("run") in (None, self._pack.repeats - 1):
            self.counts[status] = self.counts.get(status, 0) + 1


def main() -> None:
    """Execute the pack that this program lies in, or say what it holds."""
    parser = argparse.ArgumentParser(
        description="Executes cubins on the first GPU of this machine. Nothing else is run, and "
        "nothing is sent anywhere."
    )
    parser.add_argument("--out", metavar="RESULTS", help="where the results go; default: stdout")
    parser.add_argument("--inspect", action="store_true", help="say what the pack holds")
    parser.add_argument("--alone", type=int, metavar="N", help="launch case N once, and no more")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes at once")
    options = parser.parse_args()
    try:
        pack = Contents(sys.argv[0])
        if options.inspect:
            print("\n".join(pack.words))  # noqa: T201 - a program of its own
        elif options.alone is not None:
            launch_alone(pack, options.alone)
        else:
            sys.exit(_execute(pack, options.out, options.jobs))
    except (PackError, DriverError, IndexError, OSError) as error:
        print(f"pack: {error}", file=sys.stderr)  # noqa: T201 - a program of its own
        sys.exit(_NOT_RUN)


def _execute(pack: Contents, out: str | None, jobs: int | None) -> int:
    each = _ENTRIES_EACH if pack.keeps else _CASES_EACH
    size = jobs or min(os.cpu_count() or 1, _MOST_PROCESSES, 1 + len(pack.cases) // each)
    started = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(_NOT_RUN))
    with open(out, "wb") if out else os.fdopen(os.dup(1), "wb") as file:  # noqa: PTH123
        results = _Results(file, pack)
        pool = GpuPool(pack, max(1, size), results.take)
        try:
            pool.run(results.begin)
            if pack.sanitize:
                check_cases(pack, lambda answer: results.take(answer, {}))
        except KeyboardInterrupt:
            return _NOT_RUN
        seconds = time.monotonic() - started
        results.line(end=True, seconds=round(seconds, 3))
    with suppress(OSError):
        words = ", ".join(f"{count} {status}" for status, count in sorted(results.counts.items()))
        name = pool.facts.get("name", "no GPU")
        print(  # noqa: T201
            f"{len(pack.cases)} cases on {name} in {seconds:.1f} s: {words or 'none'}",
            file=sys.stderr,
        )
    return 0
