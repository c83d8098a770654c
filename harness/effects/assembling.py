"""Assemble and inspect, each kept by content: from PTX to cubin, log and SASS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.effects.process import scratch_disk
from harness.effects.tool_damage import check_ptxas
from harness.effects.workbench import Kept, content_key, has_died, still_valid
from harness.logic.cubin import Cubin, CubinError, read_cubin
from harness.logic.ptx import PtxError, PtxFacts, body_sha256, read_ptx, retarget
from harness.logic.sass import InstructionMix, mixes
from harness.logic.ttir import lost_assembly, read_effects
from harness.values.outcome import Assembly

if TYPE_CHECKING:
    from pathlib import Path

    from harness.effects.workbench import Workbench
    from harness.values.toolchain import Ptxas, Tool

__all__ = [
    "Inspection",
    "PtxInput",
    "PtxReading",
    "assemble",
    "inspect_cubin",
    "is_cubin",
    "read_stored_ptx",
    "read_stream",
    "read_texts",
]

# Goes up when a reader learns something, so that stored readings are made again.
_RULE = 4

_MAX_TEXT = 1 << 20
_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxReading:
    """What the parent reads off one PTX, and off the IR it came from.

    `ttir_effects` counts the IR's operations that can be observed, None without IR; `has_trap`,
    `unknown_effects` and `lost_assembly` are as in `harness.logic.ttir`. `problem` says why the PTX
    could not be read.
    """

    facts: PtxFacts | None
    body_sha256: str
    ttir_effects: int | None = None
    has_trap: bool = False
    unknown_effects: tuple[str, ...] = ()
    lost_assembly: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A cubin's own account, and instruction counts by function.

    Without an nvdisasm that can read it, `mixes` is empty and `problem` says why.
    """

    cubin: Cubin
    mixes: dict[str, InstructionMix] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxInput:
    """A stored PTX to assemble; `target` replaces its `.target` where that is not None."""

    sha256: str
    body_sha256: str
    version: str
    target: str | None = None


def read_stored_ptx(
    bench: Workbench, ptx: str, ttir: str | None, entry: str | None = None
) -> Kept[PtxReading]:
    """Read a stored PTX, by sha256, beside the stored TTIR that it was made from.

    Raises:
        UnusableArtifactError: one of them is damaged and has to be made again.
    """
    key = content_key(ptx=ptx, ttir=ttir, entry=entry, rule=_RULE)
    kept = bench.find("ptx", key, PtxReading)
    if kept:
        return kept
    text = bench.store.artifacts.get(ptx).decode(errors="replace")
    source = bench.store.artifacts.get(ttir).decode(errors="replace") if ttir else None
    return bench.keep("ptx", key, read_texts(text, source, entry), {})


def read_texts(ptx: str, ttir: str | None, entry: str | None = None) -> PtxReading:
    """Read a PTX beside the TTIR that it was made from."""
    try:
        facts, problem = read_ptx(ptx, entry), None
    except PtxError as error:
        facts, problem = None, str(error)
    effects = read_effects(ttir) if ttir else None
    return PtxReading(
        facts=facts,
        body_sha256=body_sha256(ptx),
        ttir_effects=effects.count if effects else None,
        has_trap=effects.has_trap if effects else False,
        unknown_effects=effects.unknown if effects else (),
        lost_assembly=lost_assembly(ttir, ptx) if ttir else (),
        problem=problem,
    )


async def assemble(
    bench: Workbench, ptx: PtxInput, *, ptxas: Ptxas, flags: tuple[str, ...]
) -> Kept[Assembly]:
    """Run one ptxas on one stored PTX under limits; `flags` name the target.

    PTX that differs in debug information only is assembled once. A ptxas that dies by a signal is
    run once more, alone. What a damaged one says is not kept.

    Raises:
        InfrastructureError: ptxas cannot be started, or is damaged.
    """
    key = content_key(
        body=ptx.body_sha256,
        version=ptx.version,
        target=ptx.target,
        ptxas=ptxas.sha256,
        flags=flags,
    )
    async with bench.once(key):
        kept = bench.find("assemble", key, Assembly)
        if kept and still_valid(kept.value.end, bench.limits):
            return kept
        assembly, artifacts = await _assemble_once(bench, ptx, ptxas, flags, alone=False)
        if has_died(assembly.end):
            again, artifacts = await _assemble_once(bench, ptx, ptxas, flags, alone=True)
            assembly = replace(again, attempts=2)
        if not assembly.has_cubin:
            check_ptxas(ptxas)
        return bench.keep("assemble", key, assembly, artifacts)


async def _assemble_once(
    bench: Workbench, ptx: PtxInput, ptxas: Ptxas, flags: tuple[str, ...], *, alone: bool
) -> tuple[Assembly, dict[str, str]]:
    folder = bench.hub.new_folder("assemble")
    data = bench.store.artifacts.get(ptx.sha256)
    if ptx.target:
        data = retarget(data.decode(errors="replace"), target=ptx.target).encode()
    with scratch_disk():
        (folder / "kernel.ptx").write_bytes(data)
    argv: list[str | Path] = [ptxas.path, *flags, "kernel.ptx", "-o", "kernel.cubin"]
    async with bench.slot(alone=alone):
        end = await bench.hub.execute(argv, folder=folder, limits=bench.limits)
    bench.cpu_seconds += end.cpu
    store = bench.store.artifacts
    artifacts = {name: store.put_file(folder / name) for name in ("stdout", "stderr")}
    has_cubin = is_cubin(folder / "kernel.cubin")
    if has_cubin:
        artifacts["cubin"] = store.put_file(folder / "kernel.cubin")
    assembly = Assembly(
        end=end,
        flags=flags,
        stdout=read_stream(folder / "stdout"),
        stderr=read_stream(folder / "stderr"),
        has_cubin=has_cubin,
    )
    bench.hub.drop_folder(folder)
    return assembly, artifacts


def is_cubin(path: Path) -> bool:
    """Whether a whole cubin was written; a truncated one has the magic but cannot be read."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    if not data.startswith(_ELF):
        return False
    try:
        return bool(read_cubin(data).entries)
    except CubinError:
        return False


def read_stream(path: Path) -> str:
    """The head and tail of a stream; the whole of it is kept as an artifact."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= 2 * _MAX_TEXT:
            data = file.read()
        else:
            data = file.read(_MAX_TEXT) + b"\n[...]\n"
            file.seek(size - _MAX_TEXT)
            data += file.read()
    return data.decode(errors="replace")


async def inspect_cubin(
    bench: Workbench, cubin: str, nvdisasms: Sequence[Tool]
) -> Kept[Inspection]:
    """Read a stored cubin, and count its instructions with the first nvdisasm that can read it.

    Raises:
        UnusableArtifactError: the cubin is damaged and has to be made again.
        InfrastructureError: nvdisasm cannot be started.
    """
    versions = [tool.version for tool in nvdisasms]
    key = content_key(cubin=cubin, nvdisasms=versions, rule=_RULE)
    async with bench.once(key):
        kept = bench.find("inspect", key, Inspection)
        if kept:
            return kept
        data = bench.store.artifacts.get(cubin)
        inspection = Inspection(cubin=read_cubin(data))
        artifacts: dict[str, str] = {}
        again = False
        for nvdisasm in nvdisasms:
            inspection, artifacts, again = await _disassemble(bench, data, nvdisasm, inspection)
            if inspection.mixes:
                break
        if again:
            return Kept(value=inspection, key=key, artifacts=artifacts, cached=False)
        return bench.keep("inspect", key, inspection, artifacts)


async def _disassemble(
    bench: Workbench, data: bytes, nvdisasm: Tool, inspection: Inspection
) -> tuple[Inspection, dict[str, str], bool]:
    """The inspection with SASS, its artifacts, and whether another time might tell more."""
    folder = bench.hub.new_folder("inspect")
    with scratch_disk():
        (folder / "kernel.cubin").write_bytes(data)
    async with bench.slot():
        end = await bench.hub.execute(
            [nvdisasm.path, "-c", "kernel.cubin"], folder=folder, limits=bench.limits
        )
    bench.cpu_seconds += end.cpu
    if end.ok:
        counts = mixes((folder / "stdout").read_text(errors="replace"))
        artifacts = {"sass": bench.store.artifacts.put_file(folder / "stdout")}
        inspection = replace(inspection, mixes=counts, problem=None)
    else:
        artifacts = {}
        said = read_stream(folder / "stderr").strip().splitlines() or [end.words]
        inspection = replace(inspection, problem=f"{nvdisasm.label}: {said[-1][:300]}")
    bench.hub.drop_folder(folder)
    return inspection, artifacts, end.killed_by_us or end.signal is not None
