"""Where a trip goes: a GPU of this machine, or whatever the user's own command reaches.

Both are a command that takes `PACK --out RESULTS`. Here that is Python itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.frontends.bench.bench import Workbench
from harness.io.files.regular_files import open_regular
from harness.io.processes.hub import ResourceLimits
from harness.io.processes.machine import memory
from harness.run.gpu.answers import Answers, AnswersError, head_of, read_answers
from harness.run.gpu.packing import manifest_bytes, write_pack
from harness.run.gpu.trip import Trip
from harness.store.store import Store
from harness.values.errors import InfrastructureError, UsageError

_LIBRARY = "libcuda.so.1"
_STARTING = 900.0
_LARGEST_RESULTS = 1 << 34
_LARGEST_HEAD = 1 << 20
_LARGEST_LINE = 1 << 31
_SAID = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where cubins are launched: the words of a command, to which `PACK --out RESULTS` is added."""

    words: tuple[str, ...]
    name: str


def place_of(runner: str | None) -> Destination:
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
        return Destination(words=words, name=f"--runner {words[0]}")
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise InfrastructureError(
            f"--on gpu: no NVIDIA driver ({_LIBRARY}) on this machine; --pack FILE writes what a "
            "machine with a GPU executes, --runner CMD has a command take it there"
        ) from error
    return Destination(words=(sys.executable,), name="this machine's GPU")


async def travel(bench: Workbench, trip: Trip, place: Destination) -> Answers:
    """Take a trip there and read what comes back, as far as it came.

    Raises:
        InfrastructureError: the command cannot be started, or gives no results.
    """
    folder = bench.hub.new_folder("trip")
    pack, results = folder / "pack.py", folder / "results.jsonl"
    try:
        write_pack(trip, bench.store, pack)
        limits = ResourceLimits(
            timeout=_STARTING + 2 * len(trip.carried) * trip.repeats * trip.limit,
            memory=memory(),
            file_size=_LARGEST_RESULTS,
        )
        argv = [*place.words, str(pack), "--out", str(results)]
        end = await bench.hub.execute(argv, folder=folder, limits=limits)
        found = results if results.is_file() and results.stat().st_size else folder / "stdout"
        if not found.stat().st_size:
            said = (folder / "stderr").read_text(errors="replace").strip().splitlines()
            last = f": {said[-1][:_SAID]}" if said else ""
            raise InfrastructureError(f"{place.name} gave no results: {end.words}{last}")
        return read_results(found, trip, bench.store)
    except UsageError as error:
        raise InfrastructureError(f"{place.name}: {error}") from error
    finally:
        bench.hub.drop_folder(folder)


def read_results(path: Path, trip: Trip, store: Store) -> Answers:
    """Read the results of a trip.

    Raises:
        UsageError: the file cannot be read, or holds no results of this trip.
    """
    pack = hashlib.sha256(manifest_bytes(trip)).hexdigest()
    known = {
        each.file: len(store.artifacts.get(each.file))
        for launch in trip.launches
        for each in launch.emulation.buffers
        if each.file
    }
    try:
        return read_answers(_lines(path), trip, pack, known)
    except AnswersError as error:
        raise UsageError(f"{path}: {error}") from error


def head_of_file(path: Path) -> str:
    """The sha256 of the pack that results are of.

    Raises:
        UsageError: the file cannot be read, or begins otherwise.
    """
    try:
        return head_of(next(_lines(path), b""))
    except AnswersError as error:
        raise UsageError(f"{path}: not the results of a pack: {error}") from error


def _lines(path: Path) -> Iterator[bytes]:
    with open_regular(path, _LARGEST_RESULTS) as file:
        yield file.readline(_LARGEST_HEAD)
        while line := file.readline(_LARGEST_LINE):
            yield line
