"""Tensor copies: tiles that tensor maps describe; changes of these maps; addresses in a cluster.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: Tensor copy",
"tensormap.replace", "tensormap.cp_fenceproxy", "mapa", "getctarank". Which elements a tile has and
where they go is in `gpu_emulator.engines`, how they are begun in `gpu_emulator.state.bulk`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu_emulator.engines import tiles
from gpu_emulator.engines.tiles import MAP_BYTES
from gpu_emulator.ptx.program.binder import Binder, opcode
from gpu_emulator.state.bulk import RANK, Issue, begin_tile_load, begin_tile_store, copied, issues
from gpu_emulator.state.frame import CLUSTER_SHIFT, Frame, Memory, Trouble, as_trouble
from gpu_emulator.steps import DTYPES, WARP, Array, Registers, Step

_HINT = "?{hint:L2::cache_hint}"

_DIM = "{dim:1d|2d|3d|4d|5d}"
_MODE = "?{mode:tile|tile::gather4}"
_STORE_MODE = "?{mode:tile|tile::scatter4}"


def _tensor(line: Binder, number: int) -> Callable[[Registers], list[Array]]:
    """The address of the map and the coordinates of `[map, {coordinates}]`."""
    name, _, vector = line.operand(number).strip("[] ").partition(",")
    where, is_generic = line.address_of(f"[{name.strip()}]"), line.is_register(name.strip())
    axes = [line.source(axis.strip(), "s32") for axis in vector.strip(" {}").split(",")]

    def read(registers: Registers) -> list[Array]:
        window = 0 if is_generic else registers[0].batch.windows["param"]
        return [where(registers) + window, *(axis(registers) for axis in axes)]

    return read


@opcode(
    f"cp.async.bulk.tensor.{_DIM}.{{to:shared::cluster|shared::cta}}.global{_MODE}"
    f".mbarrier::complete_tx::bytes?{{multicast:multicast::cluster}}"
    f"?{{group:cta_group::1|cta_group::2}}{_HINT}",
)  # fmt: skip
def _tensor_load(line: Binder) -> Step:
    to, tensor, barrier = line.address(0), _tensor(line, 1), line.address(2)
    ranks = line.read(3, "u16") if line.parts["multicast"] else None
    is_gather = line.parts["mode"] == "tile::gather4"

    def run(registers: Registers) -> None:
        values = [to(registers), barrier(registers), *tensor(registers)]
        mask = None if ranks is None else ranks(registers)
        begin_tile_load(registers, values, mask, is_gather=is_gather)

    return Step(run)


@opcode(
    f"cp.async.bulk.tensor.{_DIM}.global.shared::cta{_STORE_MODE}.bulk_group{_HINT}",
    f"cp.reduce.async.bulk.tensor.{_DIM}.global.shared::cta"
    f".{{op:add|min|max|inc|dec|and|or|xor}}?{{mode:tile}}.bulk_group{_HINT}",
)  # fmt: skip
def _tensor_store(line: Binder) -> Step:
    tensor, origin, operation = _tensor(line, 0), line.address(1), line.parts.get("op") or ""
    is_scatter = line.parts["mode"] == "tile::scatter4"

    def run(registers: Registers) -> None:
        values = [origin(registers), *tensor(registers)]
        begin_tile_store(registers, values, operation, is_scatter=is_scatter)

    return Step(run)


_FIELDS = "global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype"
_LAYOUTS = "interleave_layout|swizzle_mode|fill_mode|swizzle_atomicity"


@opcode(
    f"tensormap.replace.tile.{{field:{_FIELDS}|{_LAYOUTS}}}?{{space:global|shared::cta}}"
    ".b1024.{type:b32|b64}",
)  # fmt: skip
def _replace(line: Binder) -> Step:
    field = line.parts["field"]
    has_ordinal = field in ("box_dim", "global_dim", "global_stride", "element_stride")
    address = line.address(0)
    ordinal = line.constant(1) if has_ordinal else 0
    value = line.read(2 if has_ordinal else 1, line.parts["type"])
    space = line.parts["space"].split("::")[0] or "generic"

    def run(registers: Registers) -> None:
        where, number = address(registers), value(registers)
        for issue in issues(registers):
            places, values = map(issue.taken, (where, number))
            for row, new in enumerate(values):
                memory, start = _bytes_of_map(issue.of(np.array([row])), space, places[[row]])
                raw = memory.data[start : start + MAP_BYTES].tobytes()
                with as_trouble():
                    changed = tiles.replace(raw, field, int(new) % (1 << 64), ordinal or 0)
                memory.store(
                    np.arange(start, start + MAP_BYTES), np.frombuffer(changed, dtype=np.uint8), 1
                )

    return Step(run)


def _bytes_of_map(issue: Issue, space: str, address: Array) -> tuple[Memory, int]:
    windows = issue.frame.batch.windows
    if space == "generic":
        is_shared = windows["shared"] <= int(address[0]) < windows["local"]
        space = "shared" if is_shared else "global"
    locate = issue.in_shared if space == "shared" else issue.in_global
    index = locate(address, MAP_BYTES, "a tensor map")
    return issue.frame.batch.memories[space], int(index[0, 0])


@opcode(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release"
    ".{scope:cta|cluster|gpu|sys}"
    ".sync.aligned",
)  # fmt: skip
def _copy_map(line: Binder) -> Step:
    to, origin = line.address(0), line.address(1)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = [to(registers), origin(registers)]
        with frame.only(frame.active() & (frame.threads % WARP == 0)):
            for issue in issues(registers):
                target, source = map(issue.taken, values)
                index = issue.in_shared(source, MAP_BYTES, "a tensor map")
                place = issue.in_global(target, MAP_BYTES, "a tensor map")
                copied(frame.batch.memories["global"], place, frame.batch.memories["shared"], index)

    return Step(run)


@opcode("mapa?{space:shared::cluster}.{type:u32|u64}")
def _map_address(line: Binder) -> Step:
    kind, is_shared = line.parts["type"], bool(line.parts["space"])
    address = line.address_of(f"[{line.operand(1).strip('[]')}]")
    rank = line.read(2, "u32")

    def read(registers: Registers) -> Array:
        frame: Frame = registers[0]
        window = 0 if is_shared else frame.batch.windows["shared"]
        offset = (address(registers) - window) & RANK
        ranks = rank(registers).astype(np.int64)
        beyond = frame.full(ranks >= frame.batch.launch.cluster_size) & frame.active()
        if beyond.any():
            raise Trouble(
                f"mapa to rank {int(frame.full(ranks)[beyond][0])} of a cluster of"
                f" {frame.batch.launch.cluster_size}: there is no such CTA"
            )
        mapped = (offset | (ranks + 1 << CLUSTER_SHIFT)) + window
        return mapped.astype(DTYPES[kind])

    return line.gives(kind, read)


@opcode("getctarank?{space:shared::cluster}.{type:u32|u64}")
def _rank_of(line: Binder) -> Step:
    address = line.address_of(f"[{line.operand(1).strip('[]')}]")

    def read(registers: Registers) -> Array:
        frame: Frame = registers[0]
        window = frame.batch.windows["shared"]
        at = address(registers)
        at = np.where(at >= window, at - window, at)
        own = frame.rows % frame.batch.launch.cluster_size
        rank = np.where(at >> CLUSTER_SHIFT > 0, (at >> CLUSTER_SHIFT) - 1, own)
        return rank.astype(np.uint32)

    return line.gives("u32", read)
