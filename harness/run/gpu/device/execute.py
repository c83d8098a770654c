"""One case on the GPU: its cubin is loaded, launched on its inputs so many times, and read back.

Every buffer lies between guard zones; what a run writes into them is reported. Guards, and memory
that the launch leaves unwritten, hold other bytes in each run: two runs that agree did not read
them.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness.run.gpu.device.contents import Contents, PackError
from harness.run.gpu.device.driver import DriverError, FaultError, GpuDriver

GUARD = 1 << 12
"""Bytes before and behind each buffer. Alignment of the buffer stays that of the allocation."""
WINDOW, WINDOWS = 1 << 16, 64
"""Bytes of a window of a large buffer, and how many of them are looked at."""
GLIMPSE = 16
"""Bytes of each window that come back."""
_CHUNK = 1 << 26

Answer = tuple[dict[str, Any], dict[str, bytes]]
"""What one run left, and the bytes that it names by their sha256."""


def execute_case(
    gpu: GpuDriver,
    pack: Contents,
    number: int,
    begin: Callable[[], None],
    loaded: dict[str, ctypes.c_void_p],
) -> Iterator[Answer]:
    """Execute one case of a pack; an answer for each run. A fault is the last of them.

    `begin` is called before each launch. `loaded` has the module of the last case by its cubin,
    where the pack says that modules are kept: entries of one module need it loaded once.
    """
    case = pack.cases[number]
    launch = pack.launches[case["launch"]]
    needs: dict[str, int] = {}
    try:
        if case["cubin"] not in loaded:
            while loaded:
                gpu.unload(loaded.popitem()[1])
            loaded[case["cubin"]] = gpu.load(pack.blob(case["cubin"]))
        function = gpu.function(loaded[case["cubin"]], case["entry"])
        needs = {**gpu.needs(function), "dynamic_shared": launch["shared"]}
        for run in range(pack.repeats):
            result, blobs = _execute(gpu, pack, launch, function, run, begin)
            yield {"case": number, "run": run, "status": "ended", "needs": needs, **result}, blobs
        if not pack.keeps:
            gpu.unload(loaded.popitem()[1])
    except PackError as error:
        facts = {"call": "the pack", "code": 0, "name": "damaged", "words": str(error)}
        yield {"case": number, "run": None, "status": "refused", "needs": needs, **facts}, {}
    except DriverError as error:
        status = "fault" if isinstance(error, FaultError) else "refused"
        facts = {"call": error.call, "code": error.code, "name": error.name, "words": error.words}
        yield {"case": number, "run": None, "status": status, "needs": needs, **facts}, {}


def _execute(
    gpu: GpuDriver,
    pack: Contents,
    launch: dict[str, Any],
    function: ctypes.c_void_p,
    run: int,
    begin: Callable[[], None],
) -> tuple[dict[str, Any], dict[str, bytes]]:
    guard = bytes([(0xC3 + 0x11 * run) & 0xFF]) * GUARD
    addresses: list[int] = []
    try:
        allocate_buffers(gpu, pack, launch, guard[0], addresses)
        arguments = arguments_of(gpu, launch, addresses)
        begin()
        started = time.perf_counter()
        gpu.launch(function, launch, launch["shared"], arguments)
        seconds = time.perf_counter() - started
        result: dict[str, Any] = {"buffers": [], "guards": [], "seconds": seconds}
        blobs: dict[str, bytes] = {}
        for index, (buffer, address) in enumerate(zip(launch["buffers"], addresses)):  # noqa: B905
            sha256, zones = _read_back(gpu, address, buffer["size"], launch, blobs)
            result["buffers"].append(sha256)
            if launch.get("digest") and not run:
                places = glimpse_places(buffer["size"])
                glimpse = b"".join(gpu.read(address + GUARD + at, GLIMPSE) for at in places)
                result.setdefault("glimpses", []).append(glimpse.hex())
            for side, zone in zip(("before", "behind"), zones):  # noqa: B905
                if zone != guard:
                    changed = [at for at, byte in enumerate(zone) if byte != guard[0]]
                    write = {"buffer": index, "side": side, "bytes": len(changed)}
                    result["guards"].append({**write, "first": changed[0], "last": changed[-1]})
    except FaultError:
        # Nothing can be given back: the context is lost, and goes with the process.
        raise
    except DriverError:
        for address in addresses:
            gpu.free(address)
        raise
    for address in addresses:
        gpu.free(address)
    return result, blobs


def _read_back(
    gpu: GpuDriver, address: int, size: int, launch: dict[str, Any], blobs: dict[str, bytes]
) -> tuple[str, tuple[bytes, bytes]]:
    """The sha256 of a buffer and its guard zones; its bytes are put into `blobs`.

    Where only a digest is wanted, no bytes are kept; it is of all of them, or of windows of the
    buffer, evenly spread.
    """
    kind = launch.get("digest")
    if not kind:
        data = gpu.read(address, size + 2 * GUARD)
        inner = data[GUARD:-GUARD]
        sha256 = hashlib.sha256(inner).hexdigest()
        blobs[sha256] = inner
        return sha256, (data[:GUARD], data[-GUARD:])
    digest = hashlib.sha256()
    step = _CHUNK if kind == "whole" else WINDOW
    starts = range(0, size, step) if kind == "whole" else window_starts(size)
    for start in starts:
        digest.update(gpu.read(address + GUARD + start, min(step, size - start)))
    zones = gpu.read(address, GUARD), gpu.read(address + GUARD + size, GUARD)
    return digest.hexdigest(), zones


def window_starts(size: int) -> list[int]:
    """Where the windows of a buffer of so many bytes begin."""
    return sorted({max(0, (size - WINDOW) * n // (WINDOWS - 1)) for n in range(WINDOWS)})


def glimpse_places(size: int) -> list[int]:
    """Where the few bytes begin, of a buffer of so many, that come back of it."""
    last = (size - GLIMPSE) // GLIMPSE
    return [GLIMPSE * (last * n // (WINDOWS - 1)) for n in range(WINDOWS)] if last >= 0 else []


def allocate_buffers(
    gpu: GpuDriver, pack: Contents, launch: dict[str, Any], guard: int, addresses: list[int]
) -> None:
    """Allocate the buffers of a launch and fill them; `addresses` gets those of their guard zones.

    Bytes that are fewer than a buffer's are repeated until it is full.

    Raises:
        RefusedError: there is not so much memory; what was allocated is in `addresses`.
        PackError: the bytes of a buffer are damaged, or more than it holds.
    """
    # All of it first: what does not fit is refused before anything is copied. One by one: what
    # was given is freed when the next is refused.
    for buffer in launch["buffers"]:
        addresses.append(gpu.allocate(buffer["size"] + 2 * GUARD))  # noqa: PERF401
    for buffer, address in zip(launch["buffers"], addresses):  # noqa: B905
        size = buffer["size"]
        gpu.fill(address, guard, size + 2 * GUARD)
        if not buffer.get("file") or not size:
            continue
        data = pack.blob(buffer["file"])
        if len(data) > size or not data:
            raise PackError(f"{len(data)} bytes for a buffer of {size}")
        gpu.write(address + GUARD, data)
        filled = len(data)
        while filled < size:
            more = min(filled, size - filled)
            gpu.copy(address + GUARD + filled, address + GUARD, more)
            filled += more


def arguments_of(gpu: GpuDriver, launch: dict[str, Any], addresses: list[int]) -> list[bytes]:
    """The bytes of the parameters of a launch whose buffers lie there."""
    return [_argument(gpu, argument, addresses) for argument in launch["arguments"]]


def _argument(gpu: GpuDriver, argument: dict[str, Any], addresses: list[int]) -> bytes:
    """The bytes of a parameter; of a null pointer where it is nothing else."""
    if "map" in argument:
        tensor_map = argument["map"]
        buffer, offset = tensor_map["pointer"]
        return gpu.tensor_map(addresses[buffer] + GUARD + offset, tensor_map)
    if argument.get("pointer") is not None:
        buffer, offset = argument["pointer"]
        return int(addresses[buffer] + GUARD + offset).to_bytes(8, "little")
    if argument.get("scalar") is not None:
        return bytes.fromhex(str(argument["scalar"]))
    return bytes(8)
