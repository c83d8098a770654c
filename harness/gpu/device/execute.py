"""One case on the GPU: its cubin is loaded, launched on its inputs so many times, and read back.

Every buffer lies between guard zones; what a run writes into them is reported. Guards, and memory
that the launch leaves unwritten, hold other bytes in each run: two runs that agree did not read
them.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

from harness.gpu.device.contents import PackError
from harness.gpu.device.driver import DriverError, FaultError, GpuDriver

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Iterator

    from harness.gpu.device.contents import Contents

__all__ = ["GUARD", "Answer", "execute_case"]

GUARD = 1 << 12
"""Bytes before and behind each buffer. Alignment of the buffer stays that of the allocation."""

Answer = tuple[dict[str, Any], dict[str, bytes]]
"""What one run left, and the bytes that it names by their sha256."""


def execute_case(
    gpu: GpuDriver, pack: Contents, number: int, begin: Callable[[], None]
) -> Iterator[Answer]:
    """Execute one case of a pack; an answer for each run. A fault is the last of them.

    `begin` is called before each launch.
    """
    case = pack.cases[number]
    launch = pack.launches[case["launch"]]
    needs: dict[str, int] = {}
    try:
        module = gpu.load(pack.blob(case["cubin"]))
        function = gpu.function(module, case["entry"])
        needs = gpu.needs(function)
        for run in range(pack.repeats):
            found, blobs = _execute(gpu, pack, launch, function, run, begin)
            yield {"case": number, "run": run, "status": "ended", "needs": needs, **found}, blobs
        gpu.unload(module)
    except PackError as error:
        said = {"call": "the pack", "code": 0, "name": "damaged", "words": str(error)}
        yield {"case": number, "run": None, "status": "refused", "needs": needs, **said}, {}
    except DriverError as error:
        status = "fault" if isinstance(error, FaultError) else "refused"
        said = {"call": error.call, "code": error.code, "name": error.name, "words": error.words}
        yield {"case": number, "run": None, "status": status, "needs": needs, **said}, {}


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
        # All of it first: what does not fit is refused before anything is copied. One by one: what
        # was given is freed when the next is refused.
        for buffer in launch["buffers"]:
            addresses.append(gpu.allocate(buffer["size"] + 2 * GUARD))  # noqa: PERF401
        for buffer, address in zip(launch["buffers"], addresses):  # noqa: B905
            gpu.fill(address, guard[0], buffer["size"] + 2 * GUARD)
            if buffer.get("file"):
                gpu.write(address + GUARD, pack.blob(buffer["file"]))
        arguments = [_argument(gpu, each, addresses) for each in launch["arguments"]]
        begin()
        started = time.perf_counter()
        gpu.launch(function, launch, launch["shared"], arguments)
        seconds = time.perf_counter() - started
        found: dict[str, Any] = {"buffers": [], "guards": [], "seconds": seconds}
        blobs = {}
        for index, (buffer, address) in enumerate(zip(launch["buffers"], addresses)):  # noqa: B905
            data = gpu.read(address, buffer["size"] + 2 * GUARD)
            inner = data[GUARD:-GUARD]
            sha256 = hashlib.sha256(inner).hexdigest()
            found["buffers"].append(sha256)
            blobs[sha256] = inner
            for side, zone in (("before", data[:GUARD]), ("behind", data[-GUARD:])):
                if zone != guard:
                    changed = [at for at, byte in enumerate(zone) if byte != guard[0]]
                    said = {"buffer": index, "side": side, "bytes": len(changed)}
                    found["guards"].append({**said, "first": changed[0], "last": changed[-1]})
    except FaultError:
        # Nothing can be given back: the context is lost, and goes with the process.
        raise
    except DriverError:
        for address in addresses:
            gpu.free(address)
        raise
    for address in addresses:
        gpu.free(address)
    return found, blobs


def _argument(gpu: GpuDriver, argument: dict[str, Any], addresses: list[int]) -> bytes:
    """The bytes of a parameter; of a null pointer where it is nothing else."""
    if "map" in argument:
        wanted = argument["map"]
        buffer, offset = wanted["pointer"]
        return gpu.tensor_map(addresses[buffer] + GUARD + offset, wanted)
    if argument.get("pointer") is not None:
        buffer, offset = argument["pointer"]
        return int(addresses[buffer] + GUARD + offset).to_bytes(8, "little")
    if argument.get("scalar") is not None:
        return bytes.fromhex(str(argument["scalar"]))
    return bytes(8)
