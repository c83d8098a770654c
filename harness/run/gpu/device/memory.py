"""Buffers of launches on the GPU, each between guard zones."""

from __future__ import annotations

from typing import Any

from harness.run.gpu.device.contents import Contents, PackError
from harness.run.gpu.device.driver import GpuDriver

GUARD = 1 << 12
"""Bytes before and behind each buffer. Alignment of the buffer stays that of the allocation."""


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
