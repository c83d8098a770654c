"""Packs as files: one Python program that has cubins, inputs and a runner in it."""

from __future__ import annotations

import base64
import binascii
import ctypes
import hashlib
import itertools
import json
import re
import shlex
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import harness
from harness.frontends.bench import Workbench
from harness.io.files.locations import storage_error
from harness.io.files.reading import open_regular
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.processes.machine import memory
from harness.run.gpu.device.contents import MANIFEST, Contents, PackError, blob_name
from harness.run.gpu.device.sanitizing import TOOLS
from harness.run.gpu.gpu_batch import BatchCase, GpuBatch, manifest
from harness.run.gpu.measured import GpuFacts, GpuRun, GpuTimes, Measured
from harness.run.launch import Launch
from harness.store.store import Store
from harness.values.errors import InfrastructureError, UsageError
from harness.values.execution import SanitizerFacts
from harness.values.toolchain import GPU

_FIRST_LINE = b"#!/usr/bin/env python3\n"
_MAIN = b"from harness.run.gpu.device.program import main\n\nmain()\n"
_ROOM = "harness/run/gpu/device"
T = TypeVar("T")

# The earliest that the format knows: a pack depends on what is in it alone.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def runner_files() -> dict[str, bytes]:
    """The program of every pack: names in the archive and their bytes."""
    root = Path(harness.__file__).parent.parent
    files = {"__main__.py": _MAIN}
    files |= {
        f"{above}/__init__.py": b"" for above in ("harness", "harness/run", "harness/run/gpu")
    }
    for path in sorted((root / _ROOM).glob("*.py")):
        files[f"{_ROOM}/{path.name}"] = path.read_bytes()
    return files


def manifest_bytes(gpu_batch: GpuBatch) -> bytes:
    """`pack.json`; its sha256 names the pack."""
    return json.dumps(manifest(gpu_batch), sort_keys=True, indent=1).encode()


def write_pack(gpu_batch: GpuBatch, get: Callable[[str], bytes], path: Path) -> None:
    """Write a pack; `get` has bytes by their sha256.

    Raises:
        StorageError: the file cannot be written, or an artifact cannot be read.
    """
    members = {**runner_files(), MANIFEST: manifest_bytes(gpu_batch)}
    try:
        with path.open("wb") as file:
            file.write(_FIRST_LINE)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in members.items():
                    archive.writestr(_member(name), data)
                for sha256 in gpu_batch.blobs:
                    archive.writestr(_member(blob_name(sha256)), get(sha256))
        path.chmod(0o755)
    except OSError as error:
        raise storage_error(error, path, "write", option="--pack") from error


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


# What a pack holds, before anyone executes it, and whether its program is ours.

_LARGEST = 1 << 34
_OURS = "that of this triage"
_FOREIGN = "another version's, or a changed one: read it before you execute it"


def inspect_pack(path: Path) -> tuple[list[str], dict[str, Any]]:
    """A pack for people and for JSON; nothing of it is run.

    `is_ours`: its program is the one of this version.

    Raises:
        UsageError: it is none, or damaged.
    """
    try:
        with open_regular(path, _LARGEST) as file:
            pack = Contents(str(path), file)
            code = pack.members()
            for case in pack.cases:
                pack.blob(case["cubin"])
    except PackError as error:
        raise UsageError(str(error)) from error
    is_ours = code == runner_files()
    first, *lines = pack.words
    lines = [f"{path}: {first}", f"program: {_OURS if is_ours else _FOREIGN}", *lines]
    facts = {"pack": pack.sha256, "is_ours": is_ours}
    return lines, {**facts, "launches": pack.launches, "cases": pack.cases}


# Results that a GPU's machine gave, read from their lines. Anyone may have written them.
#
# What is not as a runner writes it is refused with the line's number: a file that lies says
# nothing. A last line that is cut off is what a killed run leaves, and is passed over.

_VERSION = 1
_TIMES = ("timed", "untimed")
_SANITIZED = "sanitized"
_LONGEST_WORDS = 1000
# Milliseconds and megahertz that no run and no GPU has.
_LONGEST, _FASTEST = 1e8, 1e5
_DIGITS = re.compile(r"(?:[0-9a-f]{2}){0,65536}")


class ResultsHead(msgspec.Struct, frozen=True):
    """The first line: its version, the sha256 of the pack's manifest, how many cases that has."""

    results: int
    pack: str
    cases: int
    gpu: GpuFacts


class _Line(msgspec.Struct, frozen=True):
    """Any other: bytes, something of a case, or the last one."""

    blob: str | None = None
    size: int = -1
    data: str = ""
    case: int | None = None
    status: str = ""
    end: bool = False


@dataclass(slots=True, kw_only=True)
class Answers:
    """What was measured of each case that a batch carries, and bytes by sha256.

    `is_whole`: everything has been executed. `cpu` are the seconds that the command took.
    """

    gpu: GpuFacts
    measured: list[Measured]
    blobs: dict[str, bytes] = field(default_factory=dict)
    is_whole: bool = False
    cpu: float = 0.0

    @classmethod
    def of(cls, gpu_batch: GpuBatch, gpu: GpuFacts, on: str = GPU) -> Answers:
        """Of a batch that is executed `on` this, before anything is known of it."""
        measured = [Measured(words=case.words, on=on) for case in gpu_batch.carried]
        return cls(gpu=gpu, measured=measured)


def read_answers(
    lines: Iterable[bytes], gpu_batch: GpuBatch, pack: str, sizes: Mapping[str, int]
) -> Answers:
    """Read the results of a batch; `pack` is the sha256 of its manifest.

    `sizes` are those of bytes that need not be sent, by sha256.

    Raises:
        UsageError: they are not of this pack, or not as a runner writes them.
    """
    whole = itertools.takewhile(lambda line: line.endswith(b"\n"), lines)
    first, carried = next(whole, None), gpu_batch.carried
    if first is None:
        raise UsageError("no results: the first line must say which pack and GPU they are of")
    head, cases = read_head(first), len(carried)
    if head.pack != pack:
        raise UsageError("line 1: the results are of another pack")
    if head.cases != cases:
        raise UsageError(f"line 1: {head.cases} cases; the pack has {cases}")
    answers = Answers.of(gpu_batch, head.gpu)
    reader = _Reader(gpu_batch=gpu_batch, carried=carried, sizes=sizes, answers=answers)
    for number, line in enumerate(whole, start=2):
        try:
            reader.take(line)
        except (UsageError, msgspec.MsgspecError, binascii.Error, zlib.error) as error:
            raise UsageError(f"line {number}: {error}") from error
    return reader.answers


def read_head(line: bytes) -> ResultsHead:
    """The first line of results: which pack and GPU they are of.

    Raises:
        UsageError: it is not such a line.
    """
    try:
        head = msgspec.json.decode(line, type=ResultsHead)
    except msgspec.MsgspecError as error:
        raise UsageError(f"line 1: {error}") from error
    if head.results != _VERSION:
        raise UsageError(f"line 1: results of version {head.results}; this reads {_VERSION}")
    return head


@dataclass(slots=True, kw_only=True)
class _Reader:
    gpu_batch: GpuBatch
    carried: Sequence[BatchCase]
    sizes: Mapping[str, int]
    answers: Answers

    def take(self, line: bytes) -> None:
        kind = msgspec.json.decode(line, type=_Line)
        if self.answers.is_whole:
            raise UsageError("something follows the last line")
        if kind.blob is not None:
            self._blob(kind)
        elif kind.case is None:
            if not kind.end:
                raise UsageError("neither bytes nor a run")
            self.answers.is_whole = True
        elif not 0 <= kind.case < len(self.carried):
            raise UsageError(f"no case {kind.case}")
        elif kind.status in _TIMES:
            self._time(msgspec.json.decode(line, type=GpuTimes))
        elif kind.status == _SANITIZED:
            self._check(kind.case, msgspec.json.decode(line, type=SanitizerFacts))
        else:
            self._run(msgspec.json.decode(line, type=GpuRun))

    def _blob(self, blob: _Line) -> None:
        launches = [launch for launch in self.gpu_batch.launches if not launch.digest]
        sizes = [buffer.size for launch in launches for buffer in launch.emulation.buffers]
        most = max(sizes, default=0)
        if not 0 <= blob.size <= most:
            raise UsageError(f"{blob.size} bytes; the largest buffer has {most}")
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(blob.data, validate=True), blob.size + 1)
        if len(data) != blob.size or hashlib.sha256(data).hexdigest() != blob.blob:
            raise UsageError("the bytes are not those that the line names")
        self.answers.blobs[str(blob.blob)] = data

    def _time(self, times: GpuTimes) -> None:
        case = times.case
        measured = self.answers.measured[case]
        if measured.times:
            raise UsageError(f"case {case} has been timed already")
        if len(times.ms) > self.gpu_batch.samples or not all(0 <= ms < _LONGEST for ms in times.ms):
            raise UsageError(f"case {case}: no times of {self.gpu_batch.samples} runs")
        if not all(0 < mhz < _FASTEST for mhz in times.sm_mhz):
            raise UsageError(f"case {case}: no clock has these frequencies")
        measured.times = times

    def _check(self, case: int, check: SanitizerFacts) -> None:
        measured = self.answers.measured[case]
        earlier = [one.tool for one in measured.checks]
        if check.tool not in TOOLS or check.tool in earlier:
            raise UsageError(f"case {case}: no answer of one tool: {check.tool[:20]!r}")
        if (check.errors or 0) < 0 or len(check.words) > _LONGEST_WORDS:
            raise UsageError(f"case {case}: {check.tool} says no such thing")
        measured.checks = (*measured.checks, check)

    def _run(self, run: GpuRun) -> None:
        launch = self.gpu_batch.launches[self.carried[run.case].launch or 0]
        measured = self.answers.measured[run.case]
        if any(earlier.run is None or earlier.run == run.run for earlier in measured.runs):
            raise UsageError(f"case {run.case} has come to its end already")
        if (run.run is None) == (run.status == "ended"):
            raise UsageError(f"case {run.case}: {run.status}, and which run it was does not fit")
        if run.status == "ended":
            self._buffers(run, launch)
        measured.runs = (*measured.runs, run)

    def _buffers(self, run: GpuRun, launch: Launch) -> None:
        sizes = [buffer.size for buffer in launch.emulation.buffers]
        if run.run is None or not 0 <= run.run < self.gpu_batch.repeats:
            raise UsageError(f"case {run.case} has no run {run.run}")
        if len(run.buffers) != len(sizes):
            raise UsageError(f"{len(run.buffers)} buffers; the launch has {len(sizes)}")
        if any(not 0 <= guard.buffer < len(sizes) for guard in run.guards):
            raise UsageError("a guard of no buffer")
        if len(run.glimpses) > len(sizes) or not all(map(_DIGITS.fullmatch, run.glimpses)):
            raise UsageError(f"case {run.case}: no hexadecimal digits of each buffer")
        if launch.digest:
            return
        for sha256, size in zip(run.buffers, sizes, strict=True):
            data = self.answers.blobs.get(sha256)
            if size != (self.sizes.get(sha256) if data is None else len(data)):
                raise UsageError(f"a buffer of {size} bytes holds what was never given")


# Where a batch goes: a GPU of this machine, or whatever the user's own command reaches.
#
# Both are a command that takes `PACK --out RESULTS`. Here that is Python itself.

_LIBRARY = "libcuda.so.1"
_STARTING = 900.0
_LARGEST_RESULTS = 1 << 34
_LARGEST_HEAD = 1 << 20
_LARGEST_LINE = 1 << 31
_LONGEST_ERROR = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinRunner:
    """Where cubins are executed: the words of a command, to which `PACK --out RESULTS` is added.

    `on` names the executor, as `--on` does.
    """

    words: tuple[str, ...] = ()
    name: str
    on: str = GPU

    async def answers(self, bench: Workbench, gpu_batch: GpuBatch) -> Answers:
        """Take a batch there and read what comes back, as far as it came.

        Raises:
            InfrastructureError: the command cannot be started, or gives no results.
        """
        return await self.fetch(bench.hub, gpu_batch, bench.store.artifacts.get)

    async def fetch(self, hub: Hub, gpu_batch: GpuBatch, get: Callable[[str], bytes]) -> Answers:
        """As `answers`, of a batch that no store knows; `get` has its bytes by their sha256."""
        folder = hub.new_folder("batch")
        pack, results = folder / "pack.py", folder / "results.jsonl"
        try:
            write_pack(gpu_batch, get, pack)
            limits = ResourceLimits(
                timeout=_STARTING
                + 2 * len(gpu_batch.carried) * gpu_batch.repeats * gpu_batch.limit,
                memory=memory(),
                file_size=_LARGEST_RESULTS,
            )
            argv = [*self.words, str(pack), "--out", str(results)]
            process = await hub.execute(argv, folder=folder, limits=limits)
            path = results if results.is_file() and results.stat().st_size else folder / "stdout"
            if not path.stat().st_size:
                errors = (folder / "stderr").read_text(errors="replace").strip().splitlines()
                last = f": {errors[-1][:_LONGEST_ERROR]}" if errors else ""
                raise InfrastructureError(f"{self.name} gave no results: {process.words}{last}")
            answers = read_results(path, gpu_batch, get)
        except UsageError as error:
            raise InfrastructureError(f"{self.name}: {error}") from error
        finally:
            hub.drop_folder(folder)
        answers.cpu = process.cpu
        return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWay:
    """How a GPU is reached: a place, a pack that goes there, or the results of such packs."""

    place: CubinRunner | None = None
    pack: Path | None = None
    results: tuple[Path, ...] = ()


def place_of(runner: str | None) -> CubinRunner:
    """The user's runner, else the driver of this machine.

    Raises:
        UsageError: the runner is not a command.
        InfrastructureError: there is neither.
    """
    if runner is not None:
        try:
            words = tuple(shlex.split(runner))
        except ValueError as error:
            raise UsageError(f"--runner {runner}: {error}") from error
        if not words:
            raise UsageError("--runner is empty: give the command that takes a pack")
        # It runs in a folder of its own.
        found = tuple(
            str(Path(word).absolute()) if "/" in word and Path(word).exists() else word
            for word in words
        )
        return CubinRunner(words=found, name=f"--runner {words[0]}")
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise InfrastructureError(
            f"--on gpu: no NVIDIA driver ({_LIBRARY}) on this machine; --pack FILE writes what a "
            "machine with a GPU executes, --runner CMD has a command take it there"
        ) from error
    return CubinRunner(words=(sys.executable,), name="this machine's GPU")


def read_results(path: Path, gpu_batch: GpuBatch, get: Callable[[str], bytes]) -> Answers:
    """Read the results of a batch; `get` has the bytes that it took there, by their sha256.

    Raises:
        UsageError: the file cannot be read, or holds no results of this batch.
    """
    pack = hashlib.sha256(manifest_bytes(gpu_batch)).hexdigest()
    names = {sha256 for launch in gpu_batch.launches for sha256 in launch.before if sha256}
    sizes = {sha256: len(get(sha256)) for sha256 in names}
    try:
        return read_answers(_lines(path), gpu_batch, pack, sizes)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def head_of_file(path: Path) -> str:
    """The sha256 of the pack that results are of.

    Raises:
        UsageError: the file cannot be read, or begins otherwise.
    """
    try:
        return read_head(next(_lines(path), b"")).pack
    except UsageError as error:
        raise UsageError(f"{path}: not the results of a pack: {error}") from error


def read_kept(store: Store, kind: str, pack: str, type_: type[T], otherwise: str) -> T:
    """What the store has of a kind for a pack, by the sha256 of its manifest.

    Raises:
        UsageError: it has none, which `otherwise` explains; or of another version of this program.
    """
    record = store.records(kind, msgspec.Raw, [pack]).get(pack)
    if record is None:
        raise UsageError(f"the results are of the pack {pack[:12]}, {otherwise}")
    try:
        return msgspec.json.decode(record, type=type_)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the pack {pack[:12]} was written by another version of this program: {error}"
        ) from error


def _lines(path: Path) -> Iterator[bytes]:
    with open_regular(path, _LARGEST_RESULTS) as file:
        yield file.readline(_LARGEST_HEAD)
        while line := file.readline(_LARGEST_LINE):
            yield line
