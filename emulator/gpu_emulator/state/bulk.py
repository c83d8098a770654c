"""Bulk copies, of plain bytes and of the tiles of tensor maps, by an engine of their own.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy". Loads signal an mbarrier.
Stores belong to groups and have two times: when their source has been read, and when what they
wrote can be seen. Which elements a tile has and where they go is in `gpu_emulator.engines`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpu_emulator.engines import tiles
from gpu_emulator.engines.tiles import MAP_BYTES, TileMap
from gpu_emulator.numbers.arithmetic import Change
from gpu_emulator.state.barriers import complete_bytes
from gpu_emulator.state.frame import CLUSTER_SHIFT, Frame, Memory, Trouble, as_trouble, issuers
from gpu_emulator.steps import WARP, Array, Registers

RANK = (1 << CLUSTER_SHIFT) - 1
READ, SEEN = "bulk.read", "bulk.seen"
"""The kinds of groups of stores."""


@dataclass(frozen=True, slots=True)
class Issue:
    """What the threads in one column, of the CTAs in some rows, issue by one instruction."""

    frame: Frame
    column: int
    rows: Array

    def of(self, chosen: Array) -> Issue:
        """Some of the CTAs: a mask, or numbers of them."""
        return replace(self, rows=self.rows[chosen])

    def taken(self, value: Array) -> Array:
        """What each of the threads has, as int64."""
        taken = np.broadcast_to(value, self.frame.shape)[self.rows, self.column]
        return taken.astype(np.int64, copy=False)

    def in_shared(self, address: Array, size: int, noun: str) -> Array:
        """Offsets into shared memory's data of `size` bytes at addresses, (n, size)."""
        batch = self.frame.batch
        memory, window = batch.memories["shared"], batch.windows["shared"]
        address = np.where(address >= window, address - window, address)
        owner = batch.owners(self.rows, address)
        start = address & RANK
        memory.check(start, 1, noun)
        memory.check(start + size - 1, 1, noun)
        return (owner * memory.stride + start)[:, None] + np.arange(size)[None, :]

    def in_global(self, address: Array, size: int, noun: str) -> Array:
        """Offsets into global memory's data of `size` bytes at addresses, (n, size)."""
        memory: Memory = self.frame.batch.memories["global"]
        start = address - memory.base
        memory.check(start, 1, noun)
        memory.check(start + size - 1, 1, noun)
        return start[:, None] + np.arange(size)[None, :]

    def watched(self, space: str, spots: Array, size: int, *, writes: bool) -> None:
        """Tell the checks of `size` bytes each at offsets (n, m) into shared or global memory."""
        batch, warp = self.frame.batch, (self.frame.first + self.column) // WARP
        if not writes and spots.size:
            batch.note_unwritten(self.frame, batch.memories[space], spots, size, None)
        if batch.watch is not None:
            # In shared memory it is the CTA whose memory it is that counts.
            stride, flat = batch.memories[space].stride, spots.reshape(-1)
            rows = flat // stride if stride else np.repeat(self.rows, spots.shape[1])
            batch.watch.engine(space, warp, rows, flat, size, self.frame.place, writes=writes)

    def signalled(self, address: Array, count: int) -> None:
        """Tell the mbarriers of the CTAs that so many bytes have come."""
        index = self.in_shared(address, 8, "the mbarrier of a bulk copy")[:, 0]
        complete_bytes(self.frame, self.rows, index, count, self.column)

    def targets(self, ranks: Array | None) -> Iterator[tuple[Issue, Array, int | None]]:
        """The CTAs that a copy goes to: its own (None), or each rank of the mask of one CTA."""
        if ranks is None:
            yield self, np.arange(len(self.rows)), None
            return
        for rank in range(self.frame.batch.launch.cluster_size):
            members = np.nonzero(ranks >> rank & 1)[0]
            if len(members):
                yield self.of(members), members, rank


def issues(registers: Registers) -> Iterator[Issue]:
    """Column by column what the active threads issue."""
    for column, rows in issuers(registers[0]):
        yield Issue(registers[0], column, rows)


def copied(target: Memory, to: Array, source: Memory, origin: Array) -> None:
    """Copy byte by byte, from offsets to offsets."""
    target.store(to, source.load(origin, 1), 1)


def _by_size(target: Array, source: Array, sizes: Array) -> Iterator[tuple[int, Array]]:
    for values in (target, source, sizes):
        if (values & 15).any():
            raise Trouble("an address or the size of a bulk copy is no multiple of 16")
    for size in np.unique(sizes).tolist():
        yield size, sizes == size


def begin_load(
    registers: Registers,
    values: Sequence[Array],
    ranks: Array | None,
    space: str,
    unit: int = 1,
    change: Change | None = None,
) -> None:
    """Each active thread begins a load from a space into shared memory.

    `values`: where to, where from, how many bytes, the mbarrier. `ranks`: a mask of the CTAs of the
    cluster that get it (None: that of the address). A reduction changes elements of `unit` bytes.
    """
    batch, noun = registers[0].batch, "a bulk copy"
    memories = batch.memories

    def load(
        issue: Issue, taken: Sequence[Array], masks: Array | None, size: int, _: object
    ) -> None:
        target, source, signal = taken
        for own, members, rank in issue.targets(masks):
            locate = own.in_global if space == "global" else own.in_shared
            where = locate(source[members], size, noun)
            index = own.in_shared(batch.at_rank(target[members], rank), size, noun)
            if change is None:
                copied(memories["shared"], index, memories[space], where)
                own.watched("shared", index[:, ::4], 4, writes=True)
            else:
                values = memories[space].load(where[:, ::unit], unit)
                _changed(memories["shared"], index[:, ::unit], values, unit, change)
            own.watched(space, where[:, ::4], 4, writes=False)
            own.signalled(batch.at_rank(signal[members], rank), size)

    for issue in issues(registers):
        target, source, sizes, signal = map(issue.taken, values)
        masks = None if ranks is None else issue.taken(ranks)
        for size, same in _by_size(target, source, sizes):
            taken = (target[same], source[same], signal[same])
            chosen = None if masks is None else masks[same]
            effect = partial(load, issue.of(same), taken, chosen, size)
            batch.asynchrony.launch(registers[0], effect, slot=int(signal[same][0]) & RANK)


def begin_store(
    registers: Registers, values: Sequence[Array], unit: int, change: Change | None
) -> None:
    """Each active thread begins a store to global memory: where to, where from, how many bytes.

    A reduction changes elements of `unit` bytes.
    """
    memories, noun = registers[0].batch.memories, "a bulk store"

    def read(issue: Issue, source: Array, size: int) -> Array:
        index = issue.in_shared(source, size, noun)
        issue.watched("shared", index[:, ::4], 4, writes=False)
        return memories["shared"].load(index[:, ::unit], unit)

    def write(issue: Issue, target: Array, size: int, values: Array) -> None:
        whole = issue.in_global(target, size, noun)
        if change is None:
            issue.watched("global", whole[:, ::4], 4, writes=True)
        _changed(memories["global"], whole[:, ::unit], values, unit, change)

    for issue in issues(registers):
        target, source, sizes = map(issue.taken, values)
        for size, same in _by_size(target, source, sizes):
            own = issue.of(same)
            _stored(
                own, partial(read, own, source[same], size), partial(write, own, target[same], size)
            )


def _changed(memory: Memory, index: Array, values: Array, unit: int, change: Change | None) -> None:
    """Store or reduce row after row, of which several may have the same place."""
    for row, data in zip(index, values, strict=True):
        memory.store(row, data if change is None else change(memory.load(row, unit), data), unit)


def _stored(issue: Issue, read: Callable[[], Array], write: Callable[[Array], None]) -> None:
    """A store in its two halves: what waits for the first lets the source be overwritten."""
    taken: list[Array] = []
    asynchrony = issue.frame.batch.asynchrony

    is_written = False

    # CTAs may wait at different times; the first does it for all, who issued it together.
    def source(_: Array | None) -> None:
        if not taken:
            taken.append(read())

    def visible(_: Array | None) -> None:
        nonlocal is_written
        source(None)
        if not is_written:
            is_written = True
            write(taken[0])

    asynchrony.groups(issue.frame, READ).issue(source)
    asynchrony.groups(issue.frame, SEEN).issue(visible)


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
    with as_trouble(f"the tensor map at {hex(address)}: "):
        tile = TileMap.decode(raw)
    if problem := tile.problem():
        raise Trouble(f"the tensor map at {hex(address)}: {problem}")
    return tile


def begin_tile_load(
    registers: Registers, values: Sequence[Array], ranks: Array | None, *, is_gather: bool = False
) -> None:
    """Each active thread begins the load of a tile.

    `values`: where to, the mbarrier, the address of the tensor map, and coordinates. `ranks` as of
    `begin_load`. `is_gather`: of four rows.
    """
    frame: Frame = registers[0]
    batch, memories = frame.batch, frame.batch.memories

    def load(
        issue: Issue, tile: TileMap, taken: Sequence[Array], masks: Array | None, _: object
    ) -> None:
        corners, target, signal = taken
        size = tile.element_bytes
        address, inside = _elements(tile, corners, is_gather=is_gather)
        offset = address - memories["global"].base
        if inside.any():
            memories["global"].check(offset[inside], size, "a tensor copy")
            for number, (spots, here) in enumerate(zip(offset, inside, strict=True)):
                one = issue.of(np.array([number]))
                one.watched("global", spots[here][None], size, writes=False)
        elements = memories["global"].load(np.where(inside, offset, 0), size)
        data = tiles.loaded(tile, elements, inside)
        for own, members, rank in issue.targets(masks):
            index = _tile_places(own, tile, batch.at_rank(target[members], rank), data.shape[1])
            own.watched("shared", index, size, writes=True)
            memories["shared"].store(index, data[members], size)
            count = tiles.tile_bytes(tile, rows=4 if is_gather else 1)
            own.signalled(batch.at_rank(signal[members], rank), count)

    for issue in issues(registers):
        target, signal, maps, *axes = map(issue.taken, values)
        masks = None if ranks is None else issue.taken(ranks)
        corners = np.stack(axes, axis=1)
        for tile, same in _by_tile(frame, maps):
            taken = (corners[same], target[same], signal[same])
            effect = partial(
                load, issue.of(same), tile, taken, None if masks is None else masks[same]
            )
            batch.asynchrony.launch(frame, effect, slot=int(signal[same][0]) & RANK)


def _elements(tile: TileMap, corners: Array, *, is_gather: bool) -> tuple[Array, Array]:
    with as_trouble("a tensor copy: "):
        if is_gather:
            return tiles.gathered(tile, corners[:, 0], corners[:, 1:])
        if corners.shape[1] != tile.rank:
            raise ValueError(f"{corners.shape[1]} coordinates for {tile.rank} dimensions")
        return tiles.tile_elements(tile, corners)


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


def begin_tile_store(
    registers: Registers, values: Sequence[Array], operation: str = "", *, is_scatter: bool = False
) -> None:
    """Each active thread begins the store of a tile, or its reduction by an operation.

    `values`: where from, the address of the tensor map, and coordinates. `is_scatter`: of four
    rows.
    """
    frame: Frame = registers[0]
    memories = frame.batch.memories

    def read(issue: Issue, tile: TileMap, start: Array) -> Array:
        size = tile.element_bytes
        count = tiles.tile_bytes(tile, rows=4 if is_scatter else 1) // size
        places = _tile_places(issue, tile, start, count)
        issue.watched("shared", places, size, writes=False)
        return memories["shared"].load(places, size)

    def write(issue: Issue, tile: TileMap, corners: Array, data: Array) -> None:
        memory: Memory = memories["global"]
        address, inside = _elements(tile, corners, is_gather=is_scatter)
        size, offset = tile.element_bytes, address - memory.base
        for number, (where, valid, values) in enumerate(zip(offset, inside, data, strict=True)):
            if not valid.any():
                continue
            places, new = where[valid], values[valid]
            memory.check(places, size, "a tensor copy")
            if operation:
                new = tiles.reduced(tile, operation, memory.load(places, size), new)
            else:
                issue.of(np.array([number])).watched("global", places[None], size, writes=True)
            memory.store(places, new, size)

    for issue in issues(registers):
        source, maps, *axes = map(issue.taken, values)
        corners = np.stack(axes, axis=1)
        for tile, same in _by_tile(frame, maps):
            own = issue.of(same)
            _stored(
                own,
                partial(read, own, tile, source[same]),
                partial(write, own, tile, corners[same]),
            )
