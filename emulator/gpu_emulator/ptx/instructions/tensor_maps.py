"""Tensor maps that a program changes, and addresses in other CTAs of a cluster.

PTX ISA, "Data Movement and Conversion Instructions: tensormap.replace, tensormap.cp_fenceproxy,
mapa, getctarank".
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.engines.tensor_maps import MAP_BYTES, replace
from gpu_emulator.ptx.instructions.bulk import copied, in_global, in_shared, taken_by
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.issuers import issuers
from gpu_emulator.state.memory import CLUSTER_SHIFT, Memory, Trouble
from gpu_emulator.steps import MASK, Registers, Step

__all__: list[str] = []

_TITLE = "Data Movement and Conversion Instructions"
_RANK = (1 << CLUSTER_SHIFT) - 1


_FIELDS = "global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype"
_LAYOUTS = "interleave_layout|swizzle_mode|fill_mode|swizzle_atomicity"


@opcode(
    f"tensormap.replace.tile.{{field:{_FIELDS}|{_LAYOUTS}}}?{{space:global|shared::cta}}"
    ".b1024.{type:b32|b64}",
    section=f"{_TITLE}: tensormap.replace",
)  # fmt: skip
def _replace(line: Binder) -> Step:
    field = line.parts["field"]
    has_ordinal = field in ("box_dim", "global_dim", "global_stride", "element_stride")
    address = line.address(0)
    ordinal = line.constant(1) if has_ordinal else 0
    value = line.read(2 if has_ordinal else 1, line.parts["type"])
    space = line.parts["space"].split("::")[0] or "generic"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        where, number = address(registers), value(registers)
        for column, rows in issuers(frame):
            places, values = (taken_by(each, frame, rows, column) for each in (where, number))
            for row, place, new in zip(rows, places, values, strict=True):
                memory, start = _bytes_of_map(frame, space, row, int(place))
                raw = memory.data[start : start + MAP_BYTES].tobytes()
                try:
                    changed = replace(raw, field, int(new) % (1 << 64), ordinal or 0)
                except ValueError as error:
                    raise Trouble("memory_fault", str(error)) from None
                memory.store(
                    np.arange(start, start + MAP_BYTES), np.frombuffer(changed, dtype=np.uint8), 1
                )

    return Step(run, (), is_pure=False)


def _bytes_of_map(frame: Frame, space: str, row: int, place: int) -> tuple[Memory, int]:
    """The memory and the offset of a tensor map that is changed in place."""
    windows = frame.batch.windows
    if space == "generic":
        space = "shared" if windows["shared"] <= place < windows["local"] else "global"
    if space == "shared":
        index = in_shared(frame, np.array([row]), np.array([place]), MAP_BYTES, "a tensor map")
        return frame.batch.memories["shared"], int(index[0, 0])
    index = in_global(frame, np.array([place]), MAP_BYTES, "a tensor map")
    return frame.batch.memories["global"], int(index[0, 0])


@opcode(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope:cta|cluster|gpu|sys}"
    ".sync.aligned",
    section=f"{_TITLE}: tensormap.cp_fenceproxy",
)  # fmt: skip
def _copy_map(line: Binder) -> Step:
    to, origin = line.address(0), line.address(1)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = [to(registers), origin(registers)]
        lead = frame.active() & (frame.threads % 32 == 0)
        outer = registers[MASK]
        registers[MASK] = lead
        for column, rows in list(issuers(frame)):
            target, source = (taken_by(each, frame, rows, column) for each in values)
            index = in_shared(frame, rows, source, MAP_BYTES, "a tensor map")
            place = in_global(frame, target, MAP_BYTES, "a tensor map")
            copied(frame.batch.memories["global"], place, frame.batch.memories["shared"], index)
        registers[MASK] = outer

    return Step(run, (), is_pure=False)


@opcode("mapa?{space:shared::cluster}.{type:u32|u64}", section=f"{_TITLE}: mapa", pure=True)
def _map_address(line: Binder) -> Step:
    """The address of the same place in another CTA of the cluster."""
    kind, is_shared = line.parts["type"], bool(line.parts["space"])
    slot, convert = line.target(line.operand(0), kind)
    address = line.address_of(f"[{line.operand(1).strip('[]')}]")
    rank = line.read(2, "u32")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        window = 0 if is_shared else frame.batch.windows["shared"]
        offset = (address(registers) - window) & _RANK
        ranks = rank(registers).astype(np.int64)
        beyond = frame.full(ranks >= frame.batch.geometry.cluster_size) & frame.active()
        if beyond.any():
            raise Trouble(
                "memory_fault",
                f"mapa to rank {int(frame.full(ranks)[beyond][0])} of a cluster of"
                f" {frame.batch.geometry.cluster_size}: there is no such CTA",
            )
        mapped = (offset | (ranks + 1 << CLUSTER_SHIFT)) + window
        value = mapped.astype(np.uint32 if kind == "u32" else np.uint64)
        registers[slot] = value if convert is None else convert(value)

    return Step(run, (slot,), is_pure=True)


@opcode(
    "getctarank?{space:shared::cluster}.{type:u32|u64}", section=f"{_TITLE}: getctarank", pure=True
)
def _rank_of(line: Binder) -> Step:
    slot, _ = line.target(line.operand(0), "u32")
    address = line.address_of(f"[{line.operand(1).strip('[]')}]")

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        window = frame.batch.windows["shared"]
        at = address(registers)
        at = np.where(at >= window, at - window, at)
        own = frame.rows % frame.batch.geometry.cluster_size
        rank = np.where(at >> CLUSTER_SHIFT > 0, (at >> CLUSTER_SHIFT) - 1, own)
        registers[slot] = rank.astype(np.uint32)

    return Step(run, (slot,), is_pure=True)
