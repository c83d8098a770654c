"""From PTX to cubin, log, SASS and live registers, kept by content; and what GPUs timed of a cubin.

A reduction assembles thousands of programs, of which nothing is kept.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from harness.frontends.bench import Kept, Workbench, content_key
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import Hub, ResourceLimits
from harness.judging.ptxas.cubin import Cubin, CubinError, read_cubin
from harness.judging.ptxas.sass import (
    InstructionMix,
    LiveRegisters,
    can_be_annotated,
    live_registers,
    mixes,
)
from harness.store.artifacts import UnusableArtifactError
from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.values.errors import UsageError
from harness.values.outcome import Assembly, ProcessEnd
from harness.values.row import Row
from harness.values.timing import TimeMs
from harness.values.toolchain import GPU, Tool

# Goes up when a reader learns something, so that stored inspections are computed again.
_RULE = 5

_MAX_TEXT = 1 << 20
_ELF = b"\x7fELF"


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A cubin's own account, and instruction counts by function.

    Without an nvdisasm that can read it, `mixes` is empty and `problem` says why.
    """

    cubin: Cubin
    mixes: dict[str, InstructionMix] = {}
    problem: str | None = None


CODE = "kernel.cubin"
"""What an assembler is to leave in its working folder."""

PROGRAMS = "programs"
"""Where in its working folder the scripts lie that it calls."""


class AssemblerRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an assembler: the program as a file of this name, and the command that takes it.

    The command leaves machine code in the file `CODE`, and `is_code` says whether that is whole.
    `check` raises where the assembler is not what was installed: its failure is not believed then.
    `programs` are scripts that it calls, written into a folder of that name, and `env` replaces the
    environment that it is started in. `leaves` names files that are kept besides the code, each as
    an artifact; `log` is the one that other programs wrote: it is read after its own errors.
    `notes` reads off those files, by their names, what is kept as the run's metadata.
    """

    program: Callable[[], bytes]
    name: str
    argv: tuple[str | Path, ...]
    flags: tuple[str, ...]
    is_code: Callable[[Path], bool]
    check: Callable[[], None]
    programs: Mapping[str, str] = {}
    env: Mapping[str, str] | None = None
    leaves: Mapping[str, str] = {}
    log: str | None = None
    notes: Callable[[Mapping[str, Path]], Mapping[str, object]] = lambda _: {}

    async def attempt(self, bench: Workbench, number: int) -> tuple[Assembly, dict[str, str]]:
        """Run it under the limits of a bench; the second time alone, with what it left.

        Raises:
            InfrastructureError: it cannot be started, or is damaged.
        """
        folder = bench.hub.new_folder("assemble")
        async with bench.slot(alone=number > 1, is_tool=True):
            assembly = await self.execute(bench.hub, folder, bench.limits)
        bench.cpu_seconds += assembly.end.cpu
        files = {name: folder / name for name in ("stdout", "stderr")} | self._left(folder)
        if assembly.has_cubin:
            files["cubin"] = folder / CODE
        else:
            self.check()
        artifacts = {name: bench.store.artifacts.put_file(file) for name, file in files.items()}
        bench.hub.drop_folder(folder)
        return structs.replace(assembly, attempts=number), artifacts

    async def execute(self, hub: Hub, folder: Path, limits: ResourceLimits) -> Assembly:
        """Run it in a folder, which holds afterwards what it left.

        Raises:
            InfrastructureError: it cannot be started, or the disk is full.
        """
        data = self.program()
        with scratch_disk():
            (folder / self.name).write_bytes(data)
            for name, text in self.programs.items():
                (folder / PROGRAMS).mkdir(exist_ok=True)
                (folder / PROGRAMS / name).write_text(text)
                (folder / PROGRAMS / name).chmod(0o755)
        process = await hub.execute(self.argv, folder=folder, limits=limits, env=self.env)
        files = self._left(folder)
        log = files.get(self.log or "")
        return Assembly(
            end=process,
            flags=self.flags,
            stdout=read_stream(folder / "stdout"),
            stderr=read_stream(folder / "stderr") + (f"\n{read_stream(log)}" if log else ""),
            has_cubin=self.is_code(folder / CODE),
            metadata=dict(self.notes(files)),
        )

    def _left(self, folder: Path) -> dict[str, Path]:
        files = {name: folder / file for name, file in self.leaves.items()}
        return {name: file for name, file in files.items() if file.is_file()}


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
        if stored := bench.find("inspect", key, Inspection):
            return stored
        data = bench.store.artifacts.get(cubin)
        inspection = Inspection(cubin=read_cubin(data))
        # Without a stack there are no spills to mark: the fast way will most often do.
        has_stack = any(entry.stack or entry.max_stack for entry in inspection.cubin.entries)
        ways = (["-c"],) if has_stack else (["-ndf", "-c"], ["-c"])
        artifacts: dict[str, str] = {}
        is_final = True
        folder = bench.hub.new_folder("inspect")
        for nvdisasm in nvdisasms:
            for words in ways:
                process, text = await _disassemble(bench, folder, data, nvdisasm, words)
                if not (process.ok and can_be_annotated(text)):
                    break
            is_final = not (process.killed_by_us or process.signal is not None)
            if process.ok:
                artifacts = {"sass": bench.store.artifacts.put_file(folder / "stdout")}
                inspection = structs.replace(inspection, mixes=mixes(text), problem=None)
                if inspection.mixes:
                    break
            else:
                artifacts = {}
                inspection = structs.replace(inspection, problem=f"{nvdisasm.label}: {text}")
        bench.hub.drop_folder(folder)
        if is_final:
            return bench.keep("inspect", key, inspection, artifacts)
        return Kept(value=inspection, key=key, artifacts=artifacts)


async def _disassemble(
    bench: Workbench, folder: Path, data: bytes, nvdisasm: Tool, words: Sequence[str]
) -> tuple[ProcessEnd, str]:
    """Run a nvdisasm in a folder; with its SASS, or with its last word where it failed."""
    with scratch_disk():
        (folder / "kernel.cubin").write_bytes(data)
    argv: list[str | Path] = [nvdisasm.path, *words, "kernel.cubin"]
    async with bench.slot(is_tool=True):
        process = await bench.hub.execute(argv, folder=folder, limits=bench.limits)
    bench.cpu_seconds += process.cpu
    if process.ok:
        return process, (folder / "stdout").read_text(errors="replace")
    lines = read_stream(folder / "stderr").strip().splitlines() or [process.words]
    return process, lines[-1][:300]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a cubin was disassembled: `problem` says why not."""

    problem: str | None = None


async def list_cubin(bench: Workbench, cubin: str, nvdisasms: Sequence[Tool]) -> Kept[Listing]:
    """Have a stored cubin disassembled for the emulator, by the first nvdisasm that can read it.

    The artifact `listing` is what `nvdisasm -c -hex` prints.

    Raises:
        UnusableArtifactError: the cubin is damaged and has to be made again.
        InfrastructureError: nvdisasm cannot be started.
    """
    versions = [tool.version for tool in nvdisasms]
    key = content_key(cubin=cubin, nvdisasms=versions, words=_LISTED)
    async with bench.once(key):
        if stored := bench.find("listing", key, Listing):
            return stored
        data = bench.store.artifacts.get(cubin)
        folder = bench.hub.new_folder("listing")
        listing, artifacts, is_final = Listing(problem="no nvdisasm is installed"), {}, True
        for nvdisasm in nvdisasms:
            process, text = await _disassemble(bench, folder, data, nvdisasm, _LISTED)
            if process.ok:
                listing = Listing()
                artifacts = {"listing": bench.store.artifacts.put_file(folder / "stdout")}
                break
            is_final = is_final and not (process.killed_by_us or process.signal is not None)
            listing = Listing(problem=f"{nvdisasm.label}: {text}")
        bench.hub.drop_folder(folder)
        if artifacts or is_final:
            return bench.keep("listing", key, listing, artifacts)
        return Kept(value=listing, key=key)


# Without its dataflow analysis, which needs the most of its time and adds nothing to the code.
_LISTED = ("-ndf", "-c", "-hex")


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """How the assembler ended, what it printed, and the cubin where a whole one came out."""

    assembly: Assembly
    cubin: Cubin | None = None


def script_words(command: str) -> tuple[str, ...]:
    """The words of the user's predicate, its program by its absolute path.

    Raises:
        UsageError: there is no such program, or the words cannot be split.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--script {command!r}: {error}") from error
    program = shutil.which(words[0]) if words else None
    if not program:
        raise UsageError(f"--script {command!r}: no such program, or it cannot be executed")
    return (os.path.abspath(program), *words[1:])  # noqa: PTH100 - a link stays what it is


async def run_predicate(
    hub: Hub, text: str, *, name: str, words: Sequence[str], limits: ResourceLimits
) -> ProcessEnd:
    """Run the user's predicate in a fresh folder that holds the text as a file of that name.

    Raises:
        InfrastructureError: it cannot be started, or the disk is full.
    """
    with hub.folder("predicate") as folder:
        work = folder / "work"
        with scratch_disk():
            work.mkdir()
            (work / name).write_text(text, encoding="utf-8", newline="")
        # The streams lie beside the file's folder: a predicate may look at all that is there.
        enter = ["/bin/sh", "-c", 'cd work && exec "$@"', "sh", *words]
        return await hub.execute(enter, folder=folder, limits=limits)


# Goes up when the reader learns something.
_LIVE_RULE = 1
_NOT_COUNTED = "live registers are not counted"


class CountedLive(msgspec.Struct, frozen=True, kw_only=True):
    """The live registers of each kernel of a cubin, and which nvdisasm counted them.

    Where none could, `kernels` is empty and `problem` says why.
    """

    kernels: Mapping[str, LiveRegisters] = {}
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
    key = content_key(cubin=cubin, nvdisasms=[tool.version for tool in nvdisasms], rule=_LIVE_RULE)
    async with bench.once(key):
        if stored := bench.find("live", key, CountedLive):
            return stored.value
        if not is_new:
            return CountedLive(problem=f"{_NOT_COUNTED} yet")
        try:
            data = bench.store.artifacts.get(cubin)
        except UnusableArtifactError:
            return None
        folder = bench.hub.new_folder("live")
        counted = CountedLive()
        is_final = True
        for tool in nvdisasms:
            words = ("-c", "-lrm", "count")
            process, text = await _disassemble(bench, folder, data, tool, words)
            if process.ok:
                counted = CountedLive(kernels=live_registers(text), tool=tool.label)
                break
            is_final = is_final and not process.killed_by_us
            counted = CountedLive(problem=f"{_NOT_COUNTED}: {tool.label}: {text}")
        bench.hub.drop_folder(folder)
        if counted.problem and not is_final:
            return counted
        return bench.keep("live", key, counted, {}).value


_KIND = "times"
_Times = dict[str, dict[str, TimeMs]]
"""By the name of the GPU, and by the sha256 of the cubin."""


def keep_times(store: Store, device: str, timed: Sequence[tuple[Row, TimeMs]]) -> None:
    """Keep what a GPU measured of these cubins, beside what is kept of other cubins and GPUs.

    Raises:
        StorageError: the store cannot be read or written.
    """
    places: dict[str, dict[str, TimeMs]] = {}
    for row, time in timed:
        if row.cubin_sha256:
            places.setdefault(_key(row), {})[row.cubin_sha256] = time
    for key, times in places.items():
        stored = _read(store, key)
        stored[device] = {**stored.get(device, {}), **times}
        store.put_evidence(_KIND, key, msgspec.json.encode(stored), {})


def kept_times(store: Store, like: Row) -> Mapping[str, Mapping[str, TimeMs]]:
    """By GPU and cubin, what was measured of the kernel, launch and target of a row.

    Raises:
        StorageError: the store cannot be read.
    """
    times = _read(store, _key(like))
    for cell in store.cells_from(f"{like.kernel}/{like.launch}/"):
        if f"@{like.target}/" not in cell or f"/{GPU}:" not in cell:
            continue
        for run in store.executions(cell):
            cubin = run.compiled.cubin_sha256 if run.compiled else None
            if run.device and run.time_ms and cubin:
                times.setdefault(run.device, {}).setdefault(cubin, run.time_ms)
    return times


def _key(row: Row) -> str:
    return f"{row.kernel}\n{row.launch}\n{row.target}"


def _read(store: Store, key: str) -> _Times:
    evidence = store.get_evidence(_KIND, key)
    if evidence is None:
        return {}
    try:
        return msgspec.json.decode(evidence.body, type=_Times)
    except msgspec.MsgspecError:
        return {}  # written by another version of this program
