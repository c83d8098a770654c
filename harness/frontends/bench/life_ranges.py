"""Live registers of a stored cell, counted by nvdisasm and kept by content.

Compiling does not count them, since it takes up to three times as long as disassembling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.frontends.bench.assemble import read_stream
from harness.frontends.bench.bench import Kept, content_key
from harness.io.files.whole_folders import scratch_disk
from harness.judging.ptxas.sass import LiveRegisters, live_registers
from harness.store.files.artifacts import UnusableArtifactError
from harness.values.toolchain import Tool

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.store.sqlite.records import ResultRecord


# Goes up when the reader learns something.
_RULE = 1
_NOT_COUNTED = "live registers are not counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLive:
    """The live registers of each kernel of a cubin, and which nvdisasm counted them.

    Where none could, `kernels` is empty and `problem` says why.
    """

    kernels: Mapping[str, LiveRegisters] = field(default_factory=dict)
    tool: str = ""
    problem: str = ""


async def count_live(
    bench: Workbench, record: ResultRecord, nvdisasms: Sequence[Tool], *, is_new: bool = True
) -> CountedLive | None:
    """Count the live registers of a stored cell with the first nvdisasm that can.

    None of them can for all: from 13 on they refuse what ptxas 12 and older make below sm_100, and
    12.8 refuses a kernel with all 255 registers. None where the store has no cubin. Without
    `is_new` nothing is counted that is not stored.

    Raises:
        InfrastructureError: nvdisasm cannot be started.
        StorageError: the store cannot be read or written.
    """
    assembly = bench.store.get_evidence("assemble", record.evidence.get("assemble", ""))
    cubin = assembly.artifacts.get("cubin") if assembly else None
    if cubin is None:
        return None
    if not nvdisasms:
        return CountedLive(problem=f"{_NOT_COUNTED}: no nvdisasm is installed")
    key = content_key(cubin=cubin, nvdisasms=[tool.version for tool in nvdisasms], rule=_RULE)
    async with bench.once(key):
        kept = bench.find("live", key, CountedLive)
        if kept:
            return kept.value
        if not is_new:
            return CountedLive(problem=f"{_NOT_COUNTED} yet")
        try:
            data = bench.store.artifacts.get(cubin)
        except UnusableArtifactError:
            return None
        return (await _count(bench, key, data, nvdisasms)).value


async def _count(
    bench: Workbench, key: str, data: bytes, nvdisasms: Sequence[Tool]
) -> Kept[CountedLive]:
    folder = bench.hub.new_folder("live")
    with scratch_disk():
        (folder / "kernel.cubin").write_bytes(data)
    found = CountedLive()
    again = False
    for tool in nvdisasms:
        async with bench.slot(is_tool=True):
            end = await bench.hub.execute(
                [tool.path, "-c", "-lrm", "count", "kernel.cubin"],
                folder=folder,
                limits=bench.limits,
            )
        if end.ok:
            text = (folder / "stdout").read_text(errors="replace")
            found = CountedLive(kernels=live_registers(text), tool=tool.label)
            break
        again = again or end.killed_by_us
        said = read_stream(folder / "stderr").strip().splitlines() or [end.words]
        found = CountedLive(problem=f"{_NOT_COUNTED}: {tool.label}: {said[-1][:300]}")
    bench.hub.drop_folder(folder)
    if again and found.problem:
        return Kept(value=found, key=key, artifacts={}, cached=False)
    return bench.keep("live", key, found, {})
