"""Runs a launch of a program: lays out memory, runs the grid batch by batch.

The result is what the program computes for one order of warps and of asynchronous completions
(`Schedule`). Which launches a driver takes: CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability"; PTX ISA, "Performance-Tuning Directives: .maxntid, .reqntid", "Cluster
Dimension Directives".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpu_emulator.engines.tiles import MAP_BYTES, TileMap
from gpu_emulator.machine.running import OutOfBudget, digest, run_batch
from gpu_emulator.state.batch import WINDOWS, Batch, Findings
from gpu_emulator.state.frame import GLOBAL_BASE, Frame, Memory, Trouble
from gpu_emulator.state.happens_before import Agents, Races, Releases, Unordered
from gpu_emulator.state.recording import Recording
from gpu_emulator.state.shadows import GlobalShadow
from gpu_emulator.state.watching import Watched
from gpu_emulator.steps import (
    CANONICAL,
    FRAME,
    MASK,
    MOST_BYTES,
    SHARED_BASE,
    WARP,
    Array,
    Entry,
    Program,
    Region,
    Registers,
    Slots,
    laid_out,
)
from gpu_emulator.values import (
    LARGEST_SIZES,
    MOST_THREADS,
    Allocation,
    Budget,
    Checks,
    Fault,
    Launch,
    NotExecutable,
    Null,
    Outcome,
    Pointer,
    Scalar,
    Schedule,
    TensorMap,
    TensorMapArgument,
)

Read = Callable[[Launch], Program]
"""What makes of a launch its program; NotExecutable where it cannot."""
_Sizes = tuple[int, int, int]
_MOST_CLUSTER = 16


def as_declared(launch: Launch, directives: Sequence[str]) -> Launch:
    """The launch with the cluster that its entry declares; NotExecutable if a driver refuses it."""
    cluster = _cluster(launch, directives)
    for name, sizes in (("block", launch.block), ("grid", launch.grid)):
        most = LARGEST_SIZES[name]
        if any(not 1 <= size <= limit for size, limit in zip(sizes, most, strict=True)):
            raise _refused(name, sizes, f"each size is from 1 to {_words(most)}")
    threads = launch.threads
    if threads > MOST_THREADS:
        why = f"{threads:,} threads, and a block has at most {MOST_THREADS:,}"
        raise _refused("block", launch.block, why)
    declared, most_threads = _sizes(directives, "reqntid"), _sizes(directives, "maxntid")
    if declared and declared != launch.block:
        raise _refused("block", launch.block, f"the entry declares .reqntid {_words(declared)}")
    if most_threads and threads > math.prod(most_threads):
        why = f"{threads:,} threads, and the entry declares .maxntid {_words(most_threads)}"
        raise _refused("block", launch.block, why)
    if any(count % size for count, size in zip(launch.grid, cluster, strict=True)):
        why = f"each size has to be a multiple of the cluster's, {_words(cluster)}"
        raise _refused("grid", launch.grid, why)
    return replace(launch, cluster=cluster)


def _cluster(launch: Launch, directives: Sequence[str]) -> _Sizes:
    declared = _sizes(directives, "reqnctapercluster")
    is_given = launch.cluster != (1, 1, 1)
    if declared and is_given and declared != launch.cluster:
        why = f"the entry declares .reqnctapercluster {_words(declared)}"
        raise _refused("cluster", launch.cluster, why)
    if not declared and not is_given and ".explicitcluster" in directives:
        raise NotExecutable(
            "the entry declares .explicitcluster: its launch has to say how large a cluster is, "
            "and this one does not; a .reqnctapercluster in the PTX says it too"
        )
    cluster = declared or launch.cluster
    count = math.prod(cluster)
    if count < 1:
        raise NotExecutable(f"the driver refuses a cluster of {_words(cluster)}")
    rank = _sizes(directives, "maxclusterrank")
    most = min(rank[0], _MOST_CLUSTER) if rank else _MOST_CLUSTER
    if count > most:
        why = f"{count} blocks, and it may have at most {most}"
        raise _refused("cluster", cluster, f"{why}{' (.maxclusterrank)' if rank else ''}")
    return cluster


def _sizes(directives: Sequence[str], name: str) -> _Sizes | None:
    """The numbers of a directive, 1 for those that it leaves out; None if it is not there."""
    for directive in directives:
        word, *numbers = re.split(r"[\s,]+", directive.strip())
        if word == f".{name}":
            if not 1 <= len(numbers) <= 3 or not all(map(str.isdecimal, numbers)):
                raise NotExecutable(f"the directive {directive!r} cannot be read")
            x, y, z = (*map(int, numbers), 1, 1)[:3]
            return x, y, z
    return None


def _words(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def _refused(noun: str, sizes: Sequence[int], why: str) -> NotExecutable:
    return NotExecutable(f"the driver refuses a {noun} of {_words(sizes)}: {why}")


_ALIGN = 256
_GUARD = 4096


class Arena:
    """Global memory: the buffers of the launch, the module's variables, and tensor maps."""

    def __init__(self, launch: Launch, entry: Entry, garbage: int, *, validity: bool) -> None:
        self._launch = launch
        for buffer in launch.allocations:
            if buffer.data.dtype != np.uint8 or buffer.data.ndim != 1:
                raise NotExecutable(
                    f"allocation {buffer.name} is not one row of bytes (numpy's uint8)"
                )
            if buffer.written is not None and buffer.written.shape != buffer.data.shape:
                raise NotExecutable(f"allocation {buffer.name}: `written` does not fit its bytes")
        variables = [v for v in entry.variables if v.space in ("global", "const")]
        sizes = [(buffer.name, len(buffer.data), _ALIGN) for buffer in launch.allocations]
        sizes += [(v.name, v.size, max(v.align, 16)) for v in variables]
        maps = [a.tensor_map for a in launch.arguments if isinstance(a, TensorMapArgument)]
        sizes += [(f"tensor map {number}", MAP_BYTES, 128) for number in range(len(maps))]
        self.regions, at = laid_out(sizes, _GUARD, apart=_GUARD)
        if at - sum(len(buffer.data) for buffer in launch.allocations) > MOST_BYTES:
            raise NotExecutable(f"variables that take {at:,} bytes: at most {MOST_BYTES:,} are run")
        total = -(-(at + _GUARD) // 32) * 32
        random = np.random.default_rng((garbage, 99))
        data = np.resize(random.integers(0, 256, 4096, dtype=np.uint8), total)
        written = np.zeros(total, dtype=np.bool_)
        self.memory = Memory("global", data, GLOBAL_BASE, 0, self.regions)
        if validity:
            self.memory.written = written

        def fill(region: Region, content: bytes | Array) -> None:
            data[region.start : region.end] = np.frombuffer(content, dtype=np.uint8)
            written[region.start : region.end] = True

        for buffer, region in zip(launch.allocations, self.regions, strict=False):
            fill(region, buffer.data)
            if buffer.written is not None:
                written[region.start : region.end] = buffer.written
        places = list(zip(variables, self.regions[len(launch.allocations) :], strict=False))
        self.addresses = {v.name: GLOBAL_BASE + region.start for v, region in places}
        for variable, region in places:
            # Variables without an initial value are zero.
            fill(region, variable.data or bytes(variable.size))
            for offset, name, addend in variable.relocations:
                address = self.addresses.get(name, entry.functions.get(name, 0)) + addend
                spot = region.start + offset
                data[spot : spot + 8] = np.frombuffer(address.to_bytes(8, "little"), dtype=np.uint8)
        self.map_regions = self.regions[len(self.regions) - len(maps) :]
        self.map_bytes = [self._encoded(tensor_map) for tensor_map in maps]
        for region, raw in zip(self.map_regions, self.map_bytes, strict=True):
            fill(region, raw)

    def _encoded(self, tensor: TensorMap) -> bytes:
        address = self.address(Pointer(allocation=tensor.allocation, offset=tensor.offset))
        tile = TileMap(
            address=address, element=tensor.element, sizes=tensor.sizes, strides=tensor.strides,
            box=tensor.box, element_strides=tensor.element_strides, interleave=tensor.interleave,
            swizzle=tensor.swizzle, nan_fill=tensor.nan_fill,
        )  # fmt: skip
        if problem := tile.problem():
            raise NotExecutable(f"a tensor map: {problem}")
        return tile.encode()

    def address(self, pointer: Pointer) -> int:
        if not 0 <= pointer.allocation < len(self._launch.allocations):
            raise NotExecutable(f"the launch has no allocation {pointer.allocation}")
        return GLOBAL_BASE + self.regions[pointer.allocation].start + pointer.offset

    def allocations(self) -> tuple[Allocation, ...]:
        data, written = self.memory.data, self.memory.written
        spans = [slice(region.start, region.end) for region in self.regions]
        return tuple(
            Allocation(
                name=buffer.name,
                data=data[span].copy(),
                written=None if written is None else written[span].copy(),
            )
            for buffer, span in zip(self._launch.allocations, spans, strict=False)
        )


def parameter_memory(launch: Launch, entry: Entry, arena: Arena) -> Memory:
    """The parameters as bytes, at their offsets; NotExecutable where an argument does not fit."""
    parameters = entry.parameters
    if len(launch.arguments) > len(parameters):
        raise NotExecutable(
            f"{len(launch.arguments)} arguments for {len(parameters)} parameters of {entry.name}"
        )
    regions, size = _parameter_regions(entry)
    data = np.zeros(-(-max(size, 1) // 32) * 32, dtype=np.uint8)
    maps = iter(zip(arena.map_regions, arena.map_bytes, strict=True))
    for number, (parameter, region) in enumerate(zip(parameters, regions, strict=True)):
        argument = launch.arguments[number] if number < len(launch.arguments) else Null()
        if number >= len(launch.arguments) and parameter.size != 8:
            raise NotExecutable(f"no argument for the parameter {parameter.name}")
        if isinstance(argument, Scalar):
            raw = argument.raw
        elif isinstance(argument, Pointer):
            raw = arena.address(argument).to_bytes(8, "little")
        elif isinstance(argument, TensorMapArgument):
            where, content = next(maps)
            address = (GLOBAL_BASE + where.start).to_bytes(8, "little")
            raw = content if parameter.size == MAP_BYTES else address
        else:
            raw = bytes(parameter.size)
        if len(raw) != parameter.size:
            sizes = f"{len(raw)} bytes, the parameter {parameter.size}"
            raise NotExecutable(f"the argument of {parameter.name} has {sizes}")
        data[region.start : region.end] = np.frombuffer(raw, dtype=np.uint8)
    return Memory("param", data, 0, 0, regions)


def _parameter_regions(entry: Entry) -> tuple[list[Region], int]:
    sizes = ((p.name, p.size, max(p.align, 1)) for p in entry.parameters)
    return laid_out(sizes, entry.parameters_from)


def place_symbols(registers: Registers, program: Program, arena: Arena) -> None:
    places = {region.name: region.start for region in (*program.shared, *program.local)}
    if program.dynamic is not None:
        places[program.dynamic.name] = program.dynamic_start
    for region in _parameter_regions(program.entry)[0]:
        places.setdefault(region.name, region.start)
    places.update(arena.addresses)
    for (name, addend), slot in program.slots.symbols.items():
        registers[slot] = np.array([[(places[name] + addend) % (1 << 64)]], dtype=np.uint64)


def thread_registers(registers: Registers, slots: Slots, frame: Frame, launch: Launch) -> None:
    where = frame.batch.coordinates
    cluster = np.array(launch.cluster)
    inside = where % cluster
    rank = inside[:, 0] + cluster[0] * (inside[:, 1] + cluster[1] * inside[:, 2])
    lane = frame.threads % WARP
    bx, by, _ = launch.block
    values: dict[str, Array | int] = {
        "%tid.x": frame.threads % bx, "%tid.y": frame.threads // bx % by,
        "%tid.z": frame.threads // (bx * by), "%laneid": lane, "%warpid": frame.threads // WARP,
        "%nwarpid": -(-launch.threads // WARP), "%smid": 0, "%nsmid": 1, "%gridid": 1,
        "%cluster_ctarank": rank[:, None], "%cluster_nctarank": launch.cluster_size,
        "%is_explicit_cluster": int(launch.cluster_size > 1),
        "%dynamic_smem_size": launch.dynamic_shared, "%total_smem_size": launch.dynamic_shared,
        "%aggr_smem_size": launch.dynamic_shared, "%reserved_smem_offset_end": SHARED_BASE,
        "%reserved_smem_offset_cap": SHARED_BASE,
        "%lanemask_eq": 1 << lane, "%lanemask_lt": (1 << lane) - 1,
        "%lanemask_le": (2 << lane) - 1, "%lanemask_gt": ~((2 << lane) - 1),
        "%lanemask_ge": ~((1 << lane) - 1), "%shared_window_high": WINDOWS["shared"] >> 32,
        "%stack_limit": 0, "%warp_of_virtual_id": frame.threads // WARP << 8,
    }  # fmt: skip
    for number, axis in enumerate("xyz"):
        values[f"%ntid.{axis}"] = launch.block[number]
        values[f"%nctaid.{axis}"] = launch.grid[number]
        values[f"%ctaid.{axis}"] = where[:, number, None]
        values[f"%clusterid.{axis}"] = (where // cluster)[:, number, None]
        values[f"%nclusterid.{axis}"] = launch.grid[number] // launch.cluster[number]
        values[f"%cluster_ctaid.{axis}"] = inside[:, number, None]
        values[f"%cluster_nctaid.{axis}"] = launch.cluster[number]
    for name, slot in slots.special.items():
        value = np.asarray(values.get(name, 0))
        registers[slot] = value.reshape(value.shape or (1, 1)).astype(CANONICAL[slots.bits[slot]])


_MOST_BATCH_CTAS = 256
_MOST_SHARED = 1 << 20
# Entries of which some order of warps mattered in this process, by their hash.
_UNORDERED: set[int] = set()
# With more CTAs a step of one warp of each is wide enough for numpy.
_FEW_CTAS = 64


def run(
    read: Read,
    launch: Launch,
    schedule: Schedule | None = None,
    limits: Budget | None = None,
    check: Checks | None = None,
    heard: Callable[[int], None] = lambda executed: None,  # noqa: ARG005
    recording: Recording | None = None,
) -> Outcome:
    """As `api.run`; a `recording` takes the place of the race check."""
    try:
        program = read(launch)
        launch = as_declared(launch, program.entry.directives)
        schedule = schedule or Schedule()
        machine = partial(_Machine, launch, program, schedule, limits or Budget())
        with np.errstate(all="ignore"):
            if recording is None and _may_run_abreast(launch, program, schedule):
                outcome = _abreast(machine, check or Checks(), heard)
                if outcome:
                    return outcome
                _UNORDERED.add(_number(launch))
            return machine(check or Checks(), recording=recording).run(heard)
    except NotExecutable as reason:
        return Outcome(not_run=str(reason), unknown=reason.unknown)
    except Exception as error:  # noqa: BLE001 - whatever it holds, it is not the end of the command
        return Outcome(not_run=f"the emulator cannot execute this program: {error!r}")


def _number(launch: Launch) -> int:
    return hash((launch.ptx, launch.cubin, launch.entry))


def _may_run_abreast(launch: Launch, program: Program, schedule: Schedule) -> bool:
    """Whether to try all warps of a CTA step by step together: it is quicker for few CTAs.

    Not where the program depends on more than memory and barriers.
    """
    is_worth_it = math.prod(launch.grid) <= _FEW_CTAS and launch.threads > WARP
    is_asked_for = schedule.warps != "lockstep" and schedule.completion != "random"
    is_alone = launch.cluster == (1, 1, 1) and _number(launch) not in _UNORDERED
    return program.is_plain and is_worth_it and is_asked_for and is_alone


def _abreast(
    machine: Callable[..., _Machine], check: Checks, heard: Callable[[int], None]
) -> Outcome | None:
    """The outcome of all warps together; None where they may not leave the same, or all goes wrong.

    Where every two accesses to the same bytes by two warps are ordered, each order of warps that
    the barriers allow leaves the same. The race check says whether they are.
    """
    try:
        together = machine(replace(check, races=True), is_abreast=True)
        outcome = together.run(heard)
    except (NotExecutable, Unordered):
        return None
    if outcome.is_out_of_budget:
        return outcome
    if outcome.faults or not together.is_whole:
        return None
    return replace(outcome, races=outcome.races if check.races else (), is_ordered=True)


class _Machine:
    """A launch that runs. `is_abreast`: all warps together, and the first race ends it."""

    def __init__(
        self,
        launch: Launch,
        program: Program,
        schedule: Schedule,
        limits: Budget,
        check: Checks,
        *,
        is_abreast: bool = False,
        recording: Recording | None = None,
    ) -> None:
        self._launch = launch
        self._program = program
        # In which order lanes that parted run where that is open.
        self._order = schedule.warps if program.is_free else "lockstep"
        self._schedule = replace(schedule, warps="lockstep") if is_abreast else schedule
        self._limits, self._check, self._recording = limits, check, recording
        self._lanes = -(-self._launch.threads // WARP) * WARP
        self._findings = Findings()
        self._arena = Arena(launch, program.entry, schedule.garbage, validity=check.validity)
        self._parameters = parameter_memory(launch, program.entry, self._arena)
        self._banks = program.banks(launch, self._parameters.data, self._arena.addresses, WINDOWS)
        is_watched = check.races or recording is not None
        self._watched = self._watch(Races(ends=is_abreast)) if is_watched else None
        if recording is not None:
            recording.locate(self._arena.regions)
        self._executed = 0
        if (shared := self._shared_size()) > _MOST_SHARED:
            raise NotExecutable(f"{shared:,} bytes of shared memory: no GPU has so much")
        if (size := self._one_cta()) > limits.max_memory:
            raise NotExecutable(f"one CTA needs {size:,} bytes, the limit is {limits.max_memory:,}")

    @property
    def is_whole(self) -> bool:
        """Whether the race check knows of every access."""
        return self._watched is None or self._watched.everywhere.is_whole

    def _watch(self, races: Races) -> Watched:
        memory, releases = self._arena.memory, Releases()
        agents = Agents(-(-self._launch.threads // WARP))
        shadow = GlobalShadow(memory, self._program.global_grain, agents, races, releases)
        return Watched(agents, self._program.grain, races, releases, shadow)

    def run(self, heard: Callable[[int], None]) -> Outcome:
        total, size = math.prod(self._launch.grid), self._launch.cluster_size
        places = self._places()
        resident = max(size, self._schedule.resident or total)
        fits = self._limits.max_memory // max(self._one_cta(), 1)
        step = max(size, min(_MOST_BATCH_CTAS, fits // 2))
        faults: list[Fault] = []
        # Those that repeat themselves until others write, and global memory as it was.
        turning: list[tuple[Batch, Trouble, bytes]] = []
        ran = 0
        is_proof = False
        while not faults:
            alive = sum(batch.alive for batch, _, _ in turning)
            ended = ran - alive
            room = min(step, resident - alive, len(places) - ran) // size * size
            again = next((one for one in turning if one[2] != self._global()), None)
            if again:
                turning.remove(again)
                batch = again[0]
            elif room:
                if alive + room > max(fits, step):
                    raise NotExecutable(f"{alive:,} blocks wait for others, and memory has no room")
                batch = self._batch(places[ran : ran + room], ran)
                ran += room
            elif turning:
                is_proof = ran == total or alive + size > resident
                faults.append(self._without_end(turning[0][1], alive))
                break
            else:
                break
            try:
                # What it read of the clock stays behind it.
                batch.ticks, batch.executed = batch.ticks + batch.executed, 0
                repeated = run_batch(
                    self._program.sections, batch, self._limits.max_instructions - self._executed,
                    lambda executed: heard(self._executed + executed),
                )  # fmt: skip
                if repeated:
                    turning.append((batch, repeated, self._global()))
            except Trouble as trouble:
                faults.append(Fault(kind=trouble.kind, what=trouble.what, place=trouble.place))
            except OutOfBudget as spent:
                if not spent.is_endless:
                    # Blocks that had ended stand for all; half more, since they are not all alike.
                    needs = 1.5 * self._executed / ended * len(places) if ended else None
                    ended = ran - batch.alive - sum(other.alive for other, _, _ in turning)
                    self._executed += batch.executed
                    return self._out_of_budget(spent, ended, len(places), needs)
                most = f"{self._limits.max_instructions:,} instructions of threads"
                words = f"no end within {most}, and no way leads out of the loop"
                faults.append(Fault(kind="hang", what=words, place=spent.place))
            self._executed += batch.executed
        return Outcome(
            allocations=self._arena.allocations(), faults=tuple(faults),
            races=self._watched.races.all() if self._watched else (),
            uninitialised=self._findings.uninitialised(), printed=self._findings.printed(),
            executed=self._executed, ctas=ran, ctas_of=total,
            is_sample=total > self._limits.max_ctas and not is_proof,
        )  # fmt: skip

    def _out_of_budget(
        self, spent: OutOfBudget, ended: int, total: int, needs: float | None
    ) -> Outcome:
        words = (
            f"its {self._limits.max_instructions:,} instructions of threads are used up, and "
            f"{ended:,} of {total:,} blocks came to their end"
        )
        if spent.turns and spent.place:
            words += f"; {spent.turns:,} turns of the loop at {spent.place.words}"
        return Outcome(
            not_run=words, executed=self._executed, ctas=ended,
            ctas_of=math.prod(self._launch.grid), is_out_of_budget=True,
            needs=None if needs is None else _rounded_up(needs),
        )  # fmt: skip

    def _global(self) -> bytes:
        return digest(self._arena.memory.data)

    def _without_end(self, trouble: Trouble, alive: int) -> Fault:
        verb, rest = trouble.what.split(" ", 1)
        what = f"1 block {verb}s {rest}" if alive == 1 else f"{alive:,} blocks {verb} {rest}"
        if resident := self._schedule.resident:
            last = ", the last ones first," if self._schedule.warps == "last" else ""
            total = math.prod(self._launch.grid)
            what = f"with {resident:,} of {total:,} blocks at once{last} {what}"
        return Fault(kind="hang", what=what, place=trouble.place)

    def _places(self) -> Array:
        """Coordinates of the CTAs that run, whole clusters, in the order in which they begin."""
        grid, cluster, size = self._launch.grid, self._launch.cluster, self._launch.cluster_size
        across = tuple(count // own for count, own in zip(grid, cluster, strict=True))
        total = math.prod(across)
        chosen = np.array(self._limits.sample(total, size))
        if self._schedule.resident:
            # Those that begin first.
            first = np.arange(len(chosen))
            chosen = total - 1 - first if self._schedule.warps == "last" else first
        # Cluster by cluster, and in a cluster by rank.
        clusters, ranks = _along(chosen, across), _along(np.arange(size), cluster)
        return (clusters[:, None] * cluster + ranks).reshape(-1, 3)

    def _one_cta(self) -> int:
        """Bytes that a CTA takes: its registers, shared and local memory."""
        lanes = self._lanes
        checks = 1 + self._check.validity
        spaces = self._shared_size() + self._program.local_end * lanes
        return self._program.live * lanes * 4 + checks * spaces

    def _shared_size(self) -> int:
        return -(-(self._program.dynamic_start + self._launch.dynamic_shared) // 128) * 128

    def _batch(self, coordinates: Array, first: int) -> Batch:
        lanes, rows = self._lanes, len(coordinates) * self._lanes
        stack = -(-self._program.local_end // 16) * 16
        memories = {
            "global": self._arena.memory,
            "param": self._parameters,
            "shared": self._shared(len(coordinates)),
            "local": self._own("local", rows, stack, self._program.local),
        }
        batch = Batch(self._launch, coordinates, memories, self._schedule, self._findings)
        batch.lanes = self._order
        batch.has_all_ranks = self._program.is_free and self._launch.cluster_size > 1
        if self._watched is not None:
            batch.watch_memory(first, self._watched, self._recording)
        outside = len(self._program.sections)
        width = lanes if self._schedule.warps == "lockstep" else WARP
        batch.frames = [Frame(batch, first, width, outside) for first in range(0, lanes, width)]
        batch.barriers.frames = batch.frames
        for frame in batch.frames:
            registers: Registers = self._program.initial(self._schedule.garbage, first, width)
            registers[FRAME], registers[MASK] = frame, None
            place_symbols(registers, self._program, self._arena)
            thread_registers(registers, self._program.slots, frame, self._launch)
            for slot, words in self._banks.items():
                registers[slot] = words
            frame.registers = registers
            if self._launch.threads < frame.first + width:
                # Threads that fill up the last warp have left before anything begins.
                frame.at = np.where(frame.threads < self._launch.threads, 0, outside)
        return batch

    def _own(self, name: str, rows: int, size: int, regions: Sequence[Region]) -> Memory:
        memory = Memory(name, _garbage(rows * size, self._schedule), 0, size, regions)
        if self._check.validity:
            memory.written = np.zeros(rows * size, dtype=np.bool_)
        return memory

    def _shared(self, ctas: int) -> Memory:
        size, regions = self._shared_size(), list(self._program.shared)
        start, dynamic = self._program.dynamic_start, self._launch.dynamic_shared
        if self._program.dynamic is not None:
            regions.append(Region(self._program.dynamic.name, start, start + dynamic))
        elif dynamic:
            regions.append(Region("shared memory", start, size))
        memory = self._own("shared", ctas, size, regions)
        for region in regions:
            if region.is_zero:
                memory.data.reshape(ctas, size)[:, region.start : region.end] = 0
                if memory.written is not None:
                    memory.written.reshape(ctas, size)[:, region.start : region.end] = True
        return memory


def _rounded_up(number: float) -> int:
    """To two digits."""
    unit = 10 ** (len(str(int(number))) - 2) if number >= 100 else 1
    return math.ceil(number / unit) * unit


def _along(numbers: Array, sizes: tuple[int, ...]) -> Array:
    """Numbers (n,) as places (n, 3), x fastest."""
    x, y, _ = sizes
    return np.stack([numbers % x, numbers // x % y, numbers // (x * y)], axis=1)


def _garbage(size: int, schedule: Schedule) -> Array:
    """Arbitrary bytes, others for each seed; never such that they look like small numbers."""
    random = np.random.default_rng((schedule.garbage, 77))
    block = random.integers(0, 256, 4096, dtype=np.uint8)
    return np.resize(block, -(-size // 32) * 32) if size else np.zeros(0, dtype=np.uint8)
