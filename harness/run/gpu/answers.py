"""Results that a GPU's machine gave, read from their lines. Anyone may have written them.

What is not as a runner writes it is refused with the line's number: a file that lies says nothing.
A last line that is cut off is what a killed run leaves, and is passed over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from harness.run.gpu.device.sanitizing import TOOLS
from harness.run.gpu.measured import GpuCheck, GpuFacts, GpuRun, GpuTimes
from harness.run.gpu.trip import Trip, TripLaunch

_VERSION = 1
_TIMES = ("timed", "untimed")
_SANITIZED = "sanitized"
_LONGEST_WORDS = 1000
# Milliseconds and megahertz that no run and no GPU has.
_LONGEST, _FASTEST = 1e8, 1e5
_DIGITS = re.compile(r"(?:[0-9a-f]{2}){0,65536}")


class AnswersError(ValueError):
    """The lines are not results of this pack; the message says which line, and why."""


class _Head(msgspec.Struct, frozen=True):
    results: int
    pack: str
    cases: int
    gpu: GpuFacts


class _Blob(msgspec.Struct, frozen=True):
    blob: str
    size: int
    data: str


class _Line(msgspec.Struct, frozen=True):
    """Which kind of line it is."""

    blob: str | None = None
    case: int | None = None
    status: str = ""
    end: bool = False


@dataclass(slots=True, kw_only=True)
class Answers:
    """The runs and times of each case, what sanitizers say of it, and bytes by sha256.

    `is_whole`: everything has been executed.
    """

    gpu: GpuFacts
    runs: dict[int, list[GpuRun]] = field(default_factory=dict)
    times: dict[int, GpuTimes] = field(default_factory=dict)
    checks: dict[int, list[GpuCheck]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    is_whole: bool = False


def read_answers(
    lines: Iterable[bytes], trip: Trip, pack: str, known: Mapping[str, int]
) -> Answers:
    """Read the results of a trip; `pack` is the sha256 of its manifest.

    `known` are the sizes of bytes that need not be sent, by sha256.

    Raises:
        AnswersError: they are not of this pack, or not as a runner writes them.
    """
    reader = _Reader(trip=trip, pack=pack, known=known)
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            reader.take(line)
        except (AnswersError, msgspec.MsgspecError, binascii.Error, zlib.error) as error:
            raise AnswersError(f"line {number}: {error}") from error
    if reader.answers is None:
        raise AnswersError("no results: the first line must say which pack and GPU they are of")
    return reader.answers


def head_of(line: bytes) -> str:
    """The pack that results are of, by their first line.

    Raises:
        AnswersError: it is not such a line.
    """
    try:
        head = msgspec.json.decode(line, type=_Head)
    except msgspec.MsgspecError as error:
        raise AnswersError(f"line 1: {error}") from error
    if head.results != _VERSION:
        raise AnswersError(f"line 1: results of version {head.results}; this reads {_VERSION}")
    return head.pack


@dataclass(slots=True, kw_only=True)
class _Reader:
    trip: Trip
    pack: str
    known: Mapping[str, int]
    answers: Answers | None = None

    def take(self, line: bytes) -> None:
        if self.answers is None:
            self._head(line)
            return
        kind = msgspec.json.decode(line, type=_Line)
        if self.answers.is_whole:
            raise AnswersError("something follows the last line")
        if kind.blob is not None:
            self._blob(msgspec.json.decode(line, type=_Blob))
        elif kind.case is not None and kind.status in _TIMES:
            self._time(msgspec.json.decode(line, type=GpuTimes))
        elif kind.case is not None and kind.status == _SANITIZED:
            self._checked(msgspec.json.decode(line, type=GpuCheck))
        elif kind.case is not None:
            self._run(msgspec.json.decode(line, type=GpuRun))
        elif kind.end:
            self.answers.is_whole = True
        else:
            raise AnswersError("neither bytes nor a run")

    def _head(self, line: bytes) -> None:
        if head_of(line) != self.pack:
            raise AnswersError("the results are of another pack")
        head = msgspec.json.decode(line, type=_Head)
        if head.cases != len(self.trip.carried):
            raise AnswersError(f"{head.cases} cases; the pack has {len(self.trip.carried)}")
        self.answers = Answers(gpu=head.gpu)

    def _blob(self, blob: _Blob) -> None:
        assert self.answers is not None
        most = max((n for each in self.trip.launches for n in _sent_sizes(each)), default=0)
        if not 0 <= blob.size <= most:
            raise AnswersError(f"{blob.size} bytes; the largest buffer has {most}")
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(blob.data, validate=True), blob.size + 1)
        if len(data) != blob.size or hashlib.sha256(data).hexdigest() != blob.blob:
            raise AnswersError("the bytes are not those that the line names")
        self.answers.blobs[blob.blob] = data

    def _time(self, times: GpuTimes) -> None:
        assert self.answers is not None
        case = times.case
        if not 0 <= case < len(self.trip.carried):
            raise AnswersError(f"no case {case}")
        if case in self.answers.times:
            raise AnswersError(f"case {case} has been timed already")
        if len(times.ms) > self.trip.samples or not all(0 <= each < _LONGEST for each in times.ms):
            raise AnswersError(f"case {case}: no times of {self.trip.samples} runs")
        if not all(0 < each < _FASTEST for each in times.sm_mhz):
            raise AnswersError(f"case {case}: no clock has these frequencies")
        self.answers.times[case] = times

    def _checked(self, check: GpuCheck) -> None:
        assert self.answers is not None
        if not 0 <= check.case < len(self.trip.carried):
            raise AnswersError(f"no case {check.case}")
        before = self.answers.checks.setdefault(check.case, [])
        if check.tool not in TOOLS or any(each.tool == check.tool for each in before):
            raise AnswersError(f"case {check.case}: no answer of one tool: {check.tool[:20]!r}")
        if (check.errors or 0) < 0 or len(check.words) > _LONGEST_WORDS:
            raise AnswersError(f"case {check.case}: {check.tool} says no such thing")
        before.append(check)

    def _run(self, run: GpuRun) -> None:
        assert self.answers is not None
        if not 0 <= run.case < len(self.trip.carried):
            raise AnswersError(f"no case {run.case}")
        launch = self.trip.launches[self.trip.carried[run.case].launch or 0]
        before = self.answers.runs.setdefault(run.case, [])
        if any(each.run is None or each.run == run.run for each in before):
            raise AnswersError(f"case {run.case} has come to its end already")
        if (run.run is None) == (run.status == "ended"):
            raise AnswersError(f"case {run.case}: {run.status}, and which run it was does not fit")
        if run.status == "ended":
            self._check(run, launch)
        before.append(run)

    def _check(self, run: GpuRun, launch: TripLaunch) -> None:
        assert self.answers is not None
        sizes = _sizes(launch)
        if run.run is None or not 0 <= run.run < self.trip.repeats:
            raise AnswersError(f"case {run.case} has no run {run.run}")
        if len(run.buffers) != len(sizes):
            raise AnswersError(f"{len(run.buffers)} buffers; the launch has {len(sizes)}")
        if any(not 0 <= guard.buffer < len(sizes) for guard in run.guards):
            raise AnswersError("a guard of no buffer")
        if len(run.glimpses) > len(sizes) or not all(map(_DIGITS.fullmatch, run.glimpses)):
            raise AnswersError(f"case {run.case}: no hexadecimal digits of each buffer")
        if launch.digest:
            return
        for sha256, size in zip(run.buffers, sizes, strict=True):
            data = self.answers.blobs.get(sha256)
            found = self.known.get(sha256) if data is None else len(data)
            if found != size:
                raise AnswersError(f"a buffer of {size} bytes holds what was never given")


def _sizes(launch: TripLaunch) -> list[int]:
    return [each.size for each in launch.emulation.buffers]


def _sent_sizes(launch: TripLaunch) -> list[int]:
    """Of the buffers whose bytes come back."""
    return [] if launch.digest else _sizes(launch)
