"""What is begun and waited for later: `cp.async`, `st.async`, `red.async`, and bulk copies.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy", "st.async"; "Parallel
Synchronization and Communication Instructions: red.async". Bulk copies are in
`gpu_emulator.state.bulk`.
"""

from __future__ import annotations

import numpy as np

from gpu_emulator.numbers.arithmetic import Change, combine
from gpu_emulator.ptx.instructions.loads import vector_size
from gpu_emulator.ptx.program.binder import Binder, Parts, acts, opcode
from gpu_emulator.state.atomics import apply_to_memory
from gpu_emulator.state.barriers import COPIES, await_groups, commit_groups
from gpu_emulator.state.bulk import READ, SEEN, begin_load, begin_store
from gpu_emulator.state.copies import begin_copy, begin_reduction, begin_stores
from gpu_emulator.state.frame import Frame, scatter, semantics_of
from gpu_emulator.steps import BITS, Array, Registers, Step

_HINTS = "?{hint:L2::cache_hint}?{prefetch:L2::64B|L2::128B|L2::256B}"
_SIGNALS = "shared::cluster.mbarrier::complete_tx::bytes"
_TYPES = "b32|b64|u32|u64|s32|s64|f32|f64"
_RED = f"red.async.relaxed.cluster.{_SIGNALS}"


@opcode(
    f"cp.async.ca.{{space:shared|shared::cta}}.global{_HINTS}",
    f"cp.async.cg.{{space:shared|shared::cta}}.global{_HINTS}",
)  # fmt: skip
def _copy(line: Binder) -> Step:
    """Operands: to, from, size, then how many bytes to read (or a predicate to read none)."""
    to, origin, size = line.address(0), line.address(1), line.constant(2)
    if size not in (4, 8, 16):
        raise line.refuse("copies neither 4 nor 8 nor 16 bytes")
    extra = line.count - 3 - bool(line.parts["hint"])
    if extra not in (0, 1):
        raise line.refuse(f"has {line.count} operands")
    name = line.operand(3).lstrip("!").strip() if extra else ""
    is_ignored = line.slots.listing.registers.get(name) == "pred"
    limit = line.read(3, "pred" if is_ignored else "u32") if extra else None

    def run(registers: Registers) -> None:
        count: Array | None = None
        if limit is not None:
            count = np.where(limit(registers), 0, size) if is_ignored else limit(registers)
        begin_copy(registers, size, to(registers), origin(registers), count)

    return Step(run)


def commits(template: str, *kinds: str) -> None:
    """A row that ends the current group of operations of each kind."""
    opcode(template)(lambda _: Step(lambda registers: commit_groups(registers, *kinds)))


def waits(template: str, *kinds: str) -> None:
    """A row that waits until few groups are pending; for the first kind alone if it says `read`."""

    @opcode(template)
    def make(line: Binder) -> Step:
        pending = -1 if line.parts.get("what") == "wait_all" else line.constant(0)
        if pending is None:
            raise line.refuse("waits for a count that is no number")
        chosen = kinds[:1] if line.parts.get("read") else kinds
        return Step(lambda registers: await_groups(registers, pending, *chosen))


commits("cp.async.commit_group", COPIES)
waits("cp.async.{what:wait_group|wait_all}", COPIES)


@opcode(f"st.async?{{weak:weak}}.{_SIGNALS}?{{vec:v2|v4}}.{{type:{_TYPES}}}")
def _store_and_signal(line: Binder) -> Step:
    vector_size(line, 1)
    to, barrier = line.address(0), line.address(2)
    readers = line.sources(1, f"b{BITS[line.parts['type']]}")

    def run(registers: Registers) -> None:
        values = [reader(registers) for reader in readers]
        begin_stores(registers, to(registers), values, barrier(registers))

    return Step(run)


@opcode(
    f"{_RED}.{{op:inc|dec}}.{{type:u32}}", f"{_RED}.{{op:min|max|add}}.{{type:u32|s32}}",
    f"{_RED}.{{op:and|or|xor}}.{{type:b32}}", f"{_RED}.{{op:add}}.{{type:u64}}",
)  # fmt: skip
def _reduce_and_signal(line: Binder) -> Step:
    kind = line.parts["type"]
    change = combine(line.parts["op"], kind)

    def reduce(registers: Registers, to: Array, value: Array, barrier: Array) -> None:
        begin_reduction(registers, to, change, value, barrier)

    return line.acting(reduce, ["address", f"b{BITS[kind]}", "address"])


@acts(
    "st.async.mmio.release.{scope:gpu|sys}.{space:global}.{type:b8|b16|b32|b64|u8|u16|u32|u64}",
    takes="address type",
)
def _store_to_device(registers: Registers, parts: Parts, to: Array, value: Array) -> None:
    """Nothing waits for it: it takes effect at once, as it may."""
    scatter(registers, "global", to, value, semantics_of({**parts, "sem": "release"}))


@opcode("red.async.mmio.release.{scope:gpu|sys}.{space:global}.{op:add}.{type:u32|s32|u64}")
def _reduce_in_device(line: Binder) -> Step:
    kind = line.parts["type"]
    change = combine("add", kind)
    how = semantics_of({**line.parts, "sem": "release"}, is_atomic=True)

    def reduce(registers: Registers, to: Array, value: Array) -> None:
        apply_to_memory(registers, "global", to, change, [registers[0].full(value)], how)

    return line.acting(reduce, ["address", f"b{BITS[kind]}"])


@opcode("st.bulk?{weak:weak}?{space:shared::cta}.size")
def _fill(line: Binder) -> Step:
    """Zeros: the one value that the manual allows."""
    if line.constant(2) != 0:
        raise line.refuse("fills with another value than 0")
    to, count = line.address(0), line.read(1, "u64")
    space = "shared" if line.parts["space"] else "generic"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at, sizes = to(registers), frame.full(count(registers)).astype(np.int64)
        most = int(sizes[frame.active()].max(initial=0))
        for offset in range(0, most, 8):
            with frame.only(frame.active() & (sizes > offset)):
                scatter(registers, space, at + offset, np.zeros((1, 1), np.uint64))

    return Step(run)


_HINT = "?{hint:L2::cache_hint}"


@opcode(
    "cp.async.bulk.{to:shared::cluster|shared::cta}.{source:global}.mbarrier::complete_tx::bytes"
    f"?{{multicast:multicast::cluster}}{_HINT}",
    "cp.async.bulk.{to:shared::cluster}.{source:shared::cta}.mbarrier::complete_tx::bytes",
    *(
        f"cp.reduce.async.bulk.{{to:shared::cluster}}.{{source:shared::cta}}"
        f".mbarrier::complete_tx::bytes.{tail}"
        for tail in (
            "{op:and|or|xor}.{type:b32}", "{op:add}.{type:u32|s32|u64}",
            "{op:min|max}.{type:u32|s32}", "{op:inc|dec}.{type:u32}",
        )
    ),
)  # fmt: skip
def _bulk_load(line: Binder) -> Step:
    to, origin, count, barrier = (
        line.address(0), line.address(1), line.read(2, "u32"), line.address(3),
    )  # fmt: skip
    ranks = line.read(4, "u16") if line.parts.get("multicast") else None
    space = line.parts["source"].split("::")[0]
    unit, change = _reduction(line)

    def run(registers: Registers) -> None:
        values = [to(registers), origin(registers), count(registers), barrier(registers)]
        chosen = None if ranks is None else ranks(registers)
        begin_load(registers, values, chosen, space, unit, change)

    return Step(run)


@opcode(
    f"cp.async.bulk.global.shared::cta.bulk_group{_HINT}",
    *(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}.{tail}"
        for tail in (
            "{op:and|or|xor}.{type:b32|b64}", "{op:add|min|max}.{type:u32|s32|u64}",
            "{op:min|max}.{type:s64}", "{op:inc|dec}.{type:u32}", "{op:add}.{type:f32|f64}",
            "{op:add}.noftz.{type:f16|bf16}", "{op:min|max}.{type:f16|bf16}",
        )
    ),
)  # fmt: skip
def _bulk_store(line: Binder) -> Step:
    to, origin, count = line.address(0), line.address(1), line.read(2, "u32")
    unit, change = _reduction(line)

    def run(registers: Registers) -> None:
        values = [to(registers), origin(registers), count(registers)]
        begin_store(registers, values, unit, change)

    return Step(run)


def _reduction(line: Binder) -> tuple[int, Change | None]:
    """The size of the elements that a bulk copy changes, and how; a byte, where it copies."""
    kind = line.parts.get("type")
    return (BITS[kind] // 8, combine(line.parts["op"], kind)) if kind else (1, None)


commits("cp.async.bulk.commit_group", READ, SEEN)
waits("cp.async.bulk.wait_group?{read:read}", READ, SEEN)
