"""Where buffers, variables and parameters of a launch are; special registers of its threads."""

from __future__ import annotations

import numpy as np

from gpu_emulator.engines.tensor_maps import MAP_BYTES, TileMap
from gpu_emulator.ptx.program.binder import Slots
from gpu_emulator.ptx.program.decoding import Program
from gpu_emulator.ptx.program.lines import EntryListing
from gpu_emulator.ptx.program.variables import MOST_BYTES
from gpu_emulator.refusal import NotExecutable
from gpu_emulator.regions import SHARED_BASE, Region
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.memory import GLOBAL_BASE, Memory
from gpu_emulator.steps import WARP, Registers
from gpu_emulator.types import CANONICAL, Array
from gpu_emulator.values import (
    Allocation,
    Launch,
    Null,
    Pointer,
    Scalar,
    TensorMap,
    TensorMapArgument,
)

_ALIGN = 256
_GUARD = 4096


class Arena:
    """Global memory: the buffers of the launch, the module's variables, and tensor maps."""

    def __init__(
        self, launch: Launch, listing: EntryListing, garbage: int, *, validity: bool
    ) -> None:
        self._launch = launch
        variables = [each for each in listing.variables if each.space in ("global", "const")]
        sizes = [(each.name, len(each.data), _ALIGN) for each in launch.allocations]
        sizes += [(each.name, each.size, max(each.align, 16)) for each in variables]
        maps = [each for each in launch.arguments if isinstance(each, TensorMapArgument)]
        sizes += [(f"tensor map {number}", MAP_BYTES, 128) for number in range(len(maps))]
        self.regions: list[Region] = []
        at = _GUARD
        for name, size, align in sizes:
            at = -(-at // align) * align
            self.regions.append(Region(name, at, at + size))
            at += size + _GUARD
        if at - sum(len(each.data) for each in launch.allocations) > MOST_BYTES:
            raise NotExecutable(f"variables that take {at:,} bytes: at most {MOST_BYTES:,} are run")
        total = -(-(at + _GUARD) // 32) * 32
        random = np.random.default_rng((garbage, 99))
        data = np.resize(random.integers(0, 256, 4096, dtype=np.uint8), total)
        written = np.zeros(total, dtype=np.bool_)
        count = len(launch.allocations)
        for one, region in zip(launch.allocations, self.regions, strict=False):
            data[region.start : region.end] = one.data
            known = True if one.written is None else one.written
            written[region.start : region.end] = known
        self.addresses: dict[str, int] = {}
        for variable, region in zip(variables, self.regions[count:], strict=False):
            self.addresses[variable.name] = GLOBAL_BASE + region.start
            if variable.data is not None or variable.space == "const":
                content = variable.data or bytes(variable.size)
                data[region.start : region.end] = np.frombuffer(content, dtype=np.uint8)
            else:
                # Variables without an initial value are zero.
                data[region.start : region.end] = 0
            written[region.start : region.end] = True
        for variable, region in zip(variables, self.regions[count:], strict=False):
            for offset, name, addend in variable.relocations:
                address = self.addresses.get(name, listing.functions.get(name, 0)) + addend
                spot = region.start + offset
                data[spot : spot + 8] = np.frombuffer(address.to_bytes(8, "little"), dtype=np.uint8)
        self.map_regions = self.regions[count + len(variables) :]
        self.map_bytes = [self._encoded(each.tensor_map) for each in maps]
        for region, raw in zip(self.map_regions, self.map_bytes, strict=True):
            data[region.start : region.end] = np.frombuffer(raw, dtype=np.uint8)
            written[region.start : region.end] = True
        self.memory = Memory("global", data, GLOBAL_BASE, 0, self.regions)
        if validity:
            self.memory.track(written)

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
        """The address of a byte of a buffer."""
        if not 0 <= pointer.allocation < len(self._launch.allocations):
            raise NotExecutable(f"the launch has no allocation {pointer.allocation}")
        return GLOBAL_BASE + self.regions[pointer.allocation].start + pointer.offset

    def allocations(self) -> tuple[Allocation, ...]:
        """The buffers as they are now."""
        result = []
        for one, region in zip(self._launch.allocations, self.regions, strict=False):
            written = self.memory.written
            result.append(
                Allocation(
                    name=one.name,
                    data=self.memory.data[region.start : region.end].copy(),
                    written=None if written is None else written[region.start : region.end].copy(),
                )
            )
        return tuple(result)


def parameter_memory(launch: Launch, listing: EntryListing, arena: Arena) -> Memory:
    """The parameters as bytes, at their offsets; NotExecutable where an argument does not fit."""
    parameters = listing.parameters
    if len(launch.arguments) > len(parameters):
        raise NotExecutable(
            f"{len(launch.arguments)} arguments for {len(parameters)} parameters of {listing.name}"
        )
    regions: list[Region] = []
    at = 0
    for each in parameters:
        at = -(-at // max(each.align, 1)) * max(each.align, 1)
        regions.append(Region(each.name, at, at + each.size))
        at += each.size
    data = np.zeros(-(-max(at, 1) // 32) * 32, dtype=np.uint8)
    maps = iter(zip(arena.map_regions, arena.map_bytes, strict=True))
    for number, (each, region) in enumerate(zip(parameters, regions, strict=True)):
        argument = launch.arguments[number] if number < len(launch.arguments) else Null()
        if number >= len(launch.arguments) and each.size != 8:
            raise NotExecutable(f"no argument for the parameter {each.name}")
        if isinstance(argument, Scalar):
            raw = argument.raw
        elif isinstance(argument, Pointer):
            raw = arena.address(argument).to_bytes(8, "little")
        elif isinstance(argument, TensorMapArgument):
            where, content = next(maps)
            address = (GLOBAL_BASE + where.start).to_bytes(8, "little")
            raw = content if each.size == MAP_BYTES else address
        else:
            raw = bytes(each.size)
        if len(raw) != each.size:
            raise NotExecutable(
                f"the argument of {each.name} has {len(raw)} bytes, the parameter {each.size}"
            )
        data[region.start : region.end] = np.frombuffer(raw, dtype=np.uint8)
    return Memory("param", data, 0, 0, regions)


def place_symbols(registers: Registers, program: Program, arena: Arena, launch: Launch) -> None:
    """The addresses of variables and parameters, each in its own space."""
    del launch
    places = {one.name: one.start for one in (*program.shared, *program.local)}
    if program.dynamic is not None:
        align = max(program.dynamic.align, 16)
        places[program.dynamic.name] = -(-program.shared_end // align) * align
    at = 0
    for each in program.listing.parameters:
        at = -(-at // max(each.align, 1)) * max(each.align, 1)
        places.setdefault(each.name, at)
        at += each.size
    places.update(arena.addresses)
    for (name, addend), slot in program.slots.symbols.items():
        registers[slot] = np.array([[(places[name] + addend) % (1 << 64)]], dtype=np.uint64)


def thread_registers(registers: Registers, slots: Slots, frame: Frame, launch: Launch) -> None:
    """Special registers: PTX ISA, "Special Registers"."""
    geometry = frame.batch.geometry
    where = frame.batch.coordinates
    cluster = np.array(geometry.cluster)
    inside = where % cluster
    rank = inside[:, 0] + cluster[0] * (inside[:, 1] + cluster[1] * inside[:, 2])
    lane = frame.threads % WARP
    bx, by, _ = geometry.block
    values: dict[str, Array | int] = {
        "%tid.x": frame.threads % bx, "%tid.y": frame.threads // bx % by,
        "%tid.z": frame.threads // (bx * by), "%laneid": lane, "%warpid": frame.threads // WARP,
        "%nwarpid": -(-geometry.threads // WARP), "%smid": 0, "%nsmid": 1, "%gridid": 1,
        "%cluster_ctarank": rank[:, None], "%cluster_nctarank": geometry.cluster_size,
        "%is_explicit_cluster": int(geometry.cluster_size > 1),
        "%dynamic_smem_size": launch.dynamic_shared, "%total_smem_size": launch.dynamic_shared,
        "%aggr_smem_size": launch.dynamic_shared, "%reserved_smem_offset_end": SHARED_BASE,
        "%reserved_smem_offset_cap": SHARED_BASE,
        "%lanemask_eq": 1 << lane, "%lanemask_lt": (1 << lane) - 1,
        "%lanemask_le": (2 << lane) - 1, "%lanemask_gt": ~((2 << lane) - 1),
        "%lanemask_ge": ~((1 << lane) - 1),
    }  # fmt: skip
    for number, axis in enumerate("xyz"):
        values[f"%ntid.{axis}"] = geometry.block[number]
        values[f"%nctaid.{axis}"] = geometry.grid[number]
        values[f"%ctaid.{axis}"] = where[:, number, None]
        values[f"%clusterid.{axis}"] = (where // cluster)[:, number, None]
        values[f"%nclusterid.{axis}"] = geometry.grid[number] // geometry.cluster[number]
        values[f"%cluster_ctaid.{axis}"] = inside[:, number, None]
        values[f"%cluster_nctaid.{axis}"] = geometry.cluster[number]
    for name, slot in slots.special.items():
        if name in values:
            dtype = CANONICAL[slots.bits[slot]]
            registers[slot] = (
                np.asarray(values[name]).reshape(np.shape(values[name]) or (1, 1)).astype(dtype)
            )
        else:
            registers[slot] = np.zeros((1, 1), dtype=CANONICAL[slots.bits[slot]])
