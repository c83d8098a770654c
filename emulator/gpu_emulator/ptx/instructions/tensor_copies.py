"""Tensor copies: tiles that tensor maps describe; changes of these maps; addresses in a cluster.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: Tensor copy",
"tensormap.replace", "tensormap.cp_fenceproxy", "mapa", "getctarank". Which elements a tile has and
where they go is in `gpu_emulator.engines`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from gpu_emulator.engines import tiles
from gpu_emulator.engines.tiles import MAP_BYTES, TileMap
from gpu_emulator.ptx.instructions.copies import RANK, Issue, at_rank, copied, issues, stored
from gpu_emulator.ptx.program.binder import Binder, opcode
from gpu_emulator.state.frame import CLUSTER_SHIFT, Frame, Memory, Trouble
from gpu_emulator.steps import DTYPES, WARP, Array, Reader, Registers, Step

_HINT = "?{hint:L2::cache_hint}"

_DIM = "{dim:1d|2d|3d|4d|5d}"
_MODE = "?{mode:tile|tile::gather4}"
_STORE_MODE = "?{mode:tile|tile::scatter4}"


class _Tensor:
    """`[map, {coordinates}]`."""

    def __init__(self, line: Binder, number: int) -> None:
        text = line.operand(number).strip("[] ")
        name, _, vector = text.partition(",")
        self._map = line.address_of(f"[{name.strip()}]")
        self._coordinates: list[Reader] = [
            line.source(axis.strip(), "s32") for axis in vector.strip(" {}").split(",")
        ]
        self._is_generic = line.is_register(name.strip())

    def read(self, registers: Registers) -> tuple[Array, list[Array]]:
        frame: Frame = registers[0]
        where = self._map(registers)
        if not self._is_generic:
            where = where + frame.batch.windows["param"]
        return where, [reader(registers) for reader in self._coordinates]


def _by_tile(frame: Frame, addresses: Array) -> Iterator[tuple[TileMap, Array]]:
    maps = {address: _map_at(frame, address) for address in np.unique(addresses).tolist()}
    tiles_of = [maps[address] for address in addresses.tolist()]
    for tile in dict.fromkeys(tiles_of):
        yield tile, np.array([own == tile for own in tiles_of])


def _map_at(frame: Frame, address: int) -> TileMap:
    is_parameter = frame.batch.windows["param"] <= address < 0x4000_0000_0000
    space = "param" if is_parameter else "global"
    memory: Memory = frame.batch.memories[space]
    offset = address - frame.batch.windows[space] - memory.base
    where = np.array([[offset]])
    memory.check(where, 1, "a tensor map")
    memory.check(where + MAP_BYTES - 1, 1, "a tensor map")
    raw = memory.data[offset : offset + MAP_BYTES].tobytes()
    try:
        tile = TileMap.decode(raw)
    except ValueError as error:
        raise Trouble(f"the tensor map at {hex(address)}: {error}") from None
    if problem := tile.problem():
        raise Trouble(f"the tensor map at {hex(address)}: {problem}")
    return tile


@opcode(
    f"cp.async.bulk.tensor.{_DIM}.{{to:shared::cluster|shared::cta}}.global{_MODE}"
    f".mbarrier::complete_tx::bytes?{{multicast:multicast::cluster}}"
    f"?{{group:cta_group::1|cta_group::2}}{_HINT}",
)  # fmt: skip
def _tensor_load(line: Binder) -> Step:
    to, tensor, barrier = line.address(0), _Tensor(line, 1), line.address(2)
    ranks = line.read(3, "u16") if line.parts["multicast"] else None
    is_gather, place = line.parts["mode"] == "tile::gather4", line.place

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        where, coordinates = tensor.read(registers)
        values = [to(registers), barrier(registers), where, *coordinates]
        mask = None if ranks is None else ranks(registers)
        for issue in issues(registers, place):
            target, signal, maps, *axes = map(issue.taken, values)
            masks = None if mask is None else issue.taken(mask)
            corners = np.stack(axes, axis=1)
            for tile, same in _by_tile(frame, maps):
                effect = partial(
                    _load_tile, issue.of(same), tile, (corners[same], target[same], signal[same]),
                    None if masks is None else masks[same], is_gather=is_gather,
                )  # fmt: skip
                slot = int(signal[same][0]) & RANK
                frame.batch.asynchrony.launch(frame, effect, place, slot=slot)

    return Step(run)


def _load_tile(
    issue: Issue,
    tile: TileMap,
    taken: Sequence[Array],
    ranks: Array | None,
    _: object,
    *,
    is_gather: bool,
) -> None:
    corners, target, signal = taken
    memories, size = issue.frame.batch.memories, tile.element_bytes
    address, inside = _elements(tile, corners, is_gather=is_gather)
    offset = address - memories["global"].base
    if inside.any():
        memories["global"].check(offset[inside], size, "a tensor copy")
        for number, (spots, here) in enumerate(zip(offset, inside, strict=True)):
            issue.of(np.array([number])).watched("global", spots[here][None], size, writes=False)
    data = tiles.loaded(tile, memories["global"].load(np.where(inside, offset, 0), size), inside)
    for own, members, rank in issue.targets(ranks):
        index = _tile_places(own, tile, at_rank(target[members], rank), data.shape[1])
        own.watched("shared", index, size, writes=True)
        memories["shared"].store(index, data[members], size)
        count = tiles.tile_bytes(tile, rows=4 if is_gather else 1)
        own.signalled(at_rank(signal[members], rank), count)


def _elements(tile: TileMap, corners: Array, *, is_gather: bool) -> tuple[Array, Array]:
    try:
        if is_gather:
            return tiles.gathered(tile, corners[:, 0], corners[:, 1:])
        if corners.shape[1] != tile.rank:
            raise ValueError(f"{corners.shape[1]} coordinates for {tile.rank} dimensions")
        return tiles.tile_elements(tile, corners)
    except ValueError as error:
        raise Trouble(f"a tensor copy: {error}") from None


def _tile_places(issue: Issue, tile: TileMap, start: Array, count: int) -> Array:
    """Offsets of the elements of tiles in shared memory, (n, elements)."""
    memory: Memory = issue.frame.batch.memories["shared"]
    size = tile.element_bytes
    first = issue.in_shared(start, count * size, "a tensor copy")[:, 0]
    many = count * size // tiles.tile_bytes(tile)
    if (first % 128).any() and not tile.swizzle and (first % 16).any():
        raise Trouble("the shared address of a tensor copy is no multiple of 16")
    rowed = first // memory.stride * memory.stride
    places = np.empty((len(first), count), dtype=np.int64)
    for start_in_row in np.unique(first - rowed).tolist():
        same = first - rowed == start_in_row
        inside = tiles.shared_addresses(tile, start_in_row, rows=many)
        memory.check(inside, size, "a tensor copy")
        places[same] = rowed[same, None] + inside[None, :]
    return places


@opcode(
    f"cp.async.bulk.tensor.{_DIM}.global.shared::cta{_STORE_MODE}.bulk_group{_HINT}",
    f"cp.reduce.async.bulk.tensor.{_DIM}.global.shared::cta"
    f".{{op:add|min|max|inc|dec|and|or|xor}}?{{mode:tile}}.bulk_group{_HINT}",
)  # fmt: skip
def _tensor_store(line: Binder) -> Step:
    tensor, origin = _Tensor(line, 0), line.address(1)
    is_scatter = line.parts["mode"] == "tile::scatter4"
    operation, place = line.parts.get("op") or "", line.place

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        where, coordinates = tensor.read(registers)
        values = [origin(registers), where, *coordinates]
        for issue in issues(registers, place):
            source, maps, *axes = map(issue.taken, values)
            corners = np.stack(axes, axis=1)
            for tile, same in _by_tile(frame, maps):
                own = issue.of(same)
                read = partial(_read_tile, own, tile, source[same], 4 if is_scatter else 1)
                write = partial(_write_tile, own, tile, corners[same], operation)
                stored(own, read, partial(write, is_scatter=is_scatter))

    return Step(run)


def _read_tile(issue: Issue, tile: TileMap, start: Array, rows: int) -> Array:
    count = tiles.tile_bytes(tile, rows=rows) // tile.element_bytes
    places = _tile_places(issue, tile, start, count)
    issue.watched("shared", places, tile.element_bytes, writes=False)
    return issue.frame.batch.memories["shared"].load(places, tile.element_bytes)


def _write_tile(
    issue: Issue, tile: TileMap, corners: Array, operation: str, data: Array, *, is_scatter: bool
) -> None:
    memory: Memory = issue.frame.batch.memories["global"]
    address, inside = _elements(tile, corners, is_gather=is_scatter)
    size = tile.element_bytes
    offset = address - memory.base
    for number, (where, valid, values) in enumerate(zip(offset, inside, data, strict=True)):
        if not valid.any():
            continue
        places = where[valid]
        memory.check(places, size, "a tensor copy")
        new = values[valid]
        if operation:
            new = tiles.reduced(tile, operation, memory.load(places, size), new)
        else:
            issue.of(np.array([number])).watched("global", places[None], size, writes=True)
        memory.store(places, new, size)


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
        for issue in issues(registers, line.place):
            places, values = map(issue.taken, (where, number))
            for row, new in enumerate(values):
                memory, start = _bytes_of_map(issue.of(np.array([row])), space, places[[row]])
                raw = memory.data[start : start + MAP_BYTES].tobytes()
                try:
                    changed = tiles.replace(raw, field, int(new) % (1 << 64), ordinal or 0)
                except ValueError as error:
                    raise Trouble(str(error)) from None
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
            for issue in issues(registers, line.place):
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
