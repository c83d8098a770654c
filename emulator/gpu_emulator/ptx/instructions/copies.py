"""What single threads begin and wait for later: `cp.async`, `st.async`, `red.async`.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: Non-bulk copy", "st.async";
"Parallel Synchronization and Communication Instructions: red.async".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu_emulator.ptx.instructions.atomics import apply_to_memory, combine
from gpu_emulator.ptx.instructions.mbarriers import signal
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.accesses import gather, scatter
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.memory import CLUSTER_SHIFT
from gpu_emulator.state.semantics import semantics_of
from gpu_emulator.steps import MASK, Registers, Step
from gpu_emulator.types import BITS, Array
from gpu_emulator.values import Place

__all__: list[str] = []

_TITLE = "Data Movement and Conversion Instructions: cp.async"
_HINTS = "?{hint:L2::cache_hint}?{prefetch:L2::64B|L2::128B|L2::256B}"
KIND = "cp.async"
_SIGNALS = "shared::cluster.mbarrier::complete_tx::bytes"
_TYPES = "b32|b64|u32|u64|s32|s64|f32|f64"
_RED = f"red.async.relaxed.cluster.{_SIGNALS}"
_RANK = (1 << CLUSTER_SHIFT) - 1


@opcode(
    f"cp.async.ca.{{space:shared|shared::cta}}.global{_HINTS}",
    f"cp.async.cg.{{space:shared|shared::cta}}.global{_HINTS}",
    section=_TITLE,
)
def _copy(line: Binder) -> Step:
    """Operands: to, from, size, then how many bytes to read (or a predicate to read none)."""
    to, origin, place = line.address(0), line.address(1), line.line.place
    size = line.constant(2)
    if size not in (4, 8, 16):
        raise line.refuse("copies neither 4 nor 8 nor 16 bytes")
    extra = line.count - 3 - bool(line.parts["hint"])
    if extra not in (0, 1):
        raise line.refuse(f"has {line.count} operands")
    is_ignored = extra == 1 and line.is_predicate(3)
    limit = line.read(3, "pred" if is_ignored else "u32") if extra else None

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        target, source = to(registers), origin(registers)
        count: Array | None = None
        if limit is not None:
            count = np.where(limit(registers), 0, size) if is_ignored else limit(registers)

        def effect(_: Array | None) -> None:
            _transfer(registers, target, source, size, count, place)

        frame.batch.asynchrony.groups(frame, KIND).issue(effect, place)

    return Step(run, (), is_pure=False)


def _transfer(
    registers: Registers, target: Array, source: Array, size: int, count: Array | None, place: Place
) -> None:
    """Copy `count` bytes and zeros up to `size`; from where nothing is read, nothing is checked."""
    if count is None or (count == size).all():
        values, _ = gather(registers, "global", source, size, place)
    else:
        frame: Frame = registers[0]
        outer = registers[MASK]
        full = np.broadcast_to(np.asarray(count == size), frame.shape)
        registers[MASK] = full if outer is None else full & outer
        loaded, _ = gather(registers, "global", source, size, place)
        values = np.where(full, loaded, loaded.dtype.type(0))
        partial = np.broadcast_to((count > 0) & (count < size), frame.shape)
        partial = partial if outer is None else partial & outer
        if partial.any():
            values = _byte_by_byte(registers, values, source, size, count, partial, place)
        registers[MASK] = outer
    scatter(registers, "shared", target, values, size, place)


def _byte_by_byte(
    registers: Registers, values: Array, source: Array, size: int, count: Array, partial: Array,
    place: Place,
) -> Array:  # fmt: skip
    octets = (
        np.ascontiguousarray(np.broadcast_to(values, partial.shape))[..., None]
        .view(np.uint8)
        .copy()
    )
    for number in range(size):
        registers[MASK] = partial & (count > number)
        if registers[MASK].any():
            octet, _ = gather(registers, "global", source + number, 1, place)
            octets[..., number] = np.where(registers[MASK], octet, octets[..., number])
    kind = "c16" if size == 16 else f"u{size}"
    answer: Array = octets.view(kind)[..., 0]
    return answer


@opcode("cp.async.commit_group", section=_TITLE)
def _commit(line: Binder) -> Step:
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, KIND).commit()

    return Step(run, (), is_pure=False)


@opcode("cp.async.{what:wait_group|wait_all}", section=_TITLE)
def _wait(line: Binder) -> Step:
    pending = line.pending(0) if line.parts["what"] == "wait_group" else -1

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, KIND).wait(pending)

    return Step(run, (), is_pure=False)


@opcode(
    f"st.async?{{weak:weak}}.{_SIGNALS}?{{vec:v2|v4}}.{{type:{_TYPES}}}",
    section="Data Movement and Conversion Instructions: st.async",
)  # fmt: skip
def _store_and_signal(line: Binder) -> Step:
    bits = BITS[line.parts["type"]]
    to, barrier, place = line.address(0), line.address(2), line.line.place
    values = [line.source(each, f"b{bits}") for each in line.parts_of(1)]
    if len(values) != int((line.parts["vec"] or "v1")[1:]):
        raise line.refuse("has another number of registers than its type says")

    def begin(registers: Registers) -> tuple[Array, Callable[[], None], int]:
        at, taken = to(registers), [np.array(each(registers)) for each in values]

        def effect() -> None:
            for number, each in enumerate(taken):
                scatter(registers, "shared", at + number * (bits // 8), each, bits // 8, place)

        return np.array(barrier(registers)), effect, len(taken) * bits // 8

    return _flying(line, begin)


@opcode(
    f"{_RED}.{{op:inc|dec}}.{{type:u32}}", f"{_RED}.{{op:min|max|add}}.{{type:u32|s32}}",
    f"{_RED}.{{op:and|or|xor}}.{{type:b32}}", f"{_RED}.{{op:add}}.{{type:u64}}",
    section="Parallel Synchronization and Communication Instructions: red.async",
)  # fmt: skip
def _reduce_and_signal(line: Binder) -> Step:
    kind = line.parts["type"]
    size, change = BITS[kind] // 8, combine(line.parts["op"], kind)
    to, value, barrier = line.address(0), line.read(1, f"b{BITS[kind]}"), line.address(2)
    place, how = line.line.place, semantics_of({"scope": "cluster"}, is_atomic=True)

    def begin(registers: Registers) -> tuple[Array, Callable[[], None], int]:
        at, taken = to(registers), np.array(value(registers))

        def effect() -> None:
            values = [registers[0].full(taken)]
            apply_to_memory(registers, "shared", at, size, change, values, place, how)

        return np.array(barrier(registers)), effect, size

    return _flying(line, begin)


@opcode(
    "st.async.mmio.release.{scope:gpu|sys}.{space:global}.{type:b8|b16|b32|b64|u8|u16|u32|u64}",
    section="Data Movement and Conversion Instructions: st.async",
)  # fmt: skip
def _store_to_device(line: Binder) -> Step:
    """Nothing waits for it: it takes effect at once, as it may."""
    bits = BITS[line.parts["type"]]
    to, value, place = line.address(0), line.read(1, f"b{bits}"), line.line.place
    how = semantics_of({"sem": "release", "scope": line.parts["scope"]})

    def run(registers: Registers) -> None:
        scatter(registers, "global", to(registers), value(registers), bits // 8, place, how)

    return Step(run, (), is_pure=False)


@opcode(
    "red.async.mmio.release.{scope:gpu|sys}.{space:global}.{op:add}.{type:u32|s32|u64}",
    section="Parallel Synchronization and Communication Instructions: red.async",
)  # fmt: skip
def _reduce_in_device(line: Binder) -> Step:
    kind = line.parts["type"]
    to, value, change = line.address(0), line.read(1, f"b{BITS[kind]}"), combine("add", kind)
    place = line.line.place
    how = semantics_of({"sem": "release", "scope": line.parts["scope"]}, is_atomic=True)

    def run(registers: Registers) -> None:
        values = [registers[0].full(value(registers))]
        apply_to_memory(
            registers, "global", to(registers), BITS[kind] // 8, change, values, place, how
        )

    return Step(run, (), is_pure=False)


def _flying(
    line: Binder, begin: Callable[[Registers], tuple[Array, Callable[[], None], int]]
) -> Step:
    """An operation under way: it takes effect, and then so many bytes have come."""

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        active = frame.active()
        if not active.any():
            return
        barrier, effect, size = begin(registers)

        def whole(_: Array | None) -> None:
            effect()
            signal(registers, "shared", barrier, 0, 0, size)

        slot = int(frame.full(barrier)[active].flat[0]) & _RANK
        frame.batch.asynchrony.launch(frame, whole, line.line.place, slot=slot)

    return Step(run, (), is_pure=False)


@opcode(
    "st.bulk?{weak:weak}?{space:shared::cta}.size",
    section="Data Movement and Conversion Instructions: st.bulk",
)  # fmt: skip
def _fill(line: Binder) -> Step:
    """Zeros: the one value that the manual allows."""
    if line.constant(2) != 0:
        raise line.refuse("fills with another value than 0")
    to, count, place = line.address(0), line.read(1, "u64"), line.line.place
    space = "shared" if line.parts["space"] else "generic"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at, sizes = to(registers), frame.full(count(registers)).astype(np.int64)
        most = int(sizes[frame.active()].max(initial=0))
        outer = registers[MASK]
        for offset in range(0, most, 8):
            registers[MASK] = frame.active() if outer is None else frame.full(outer)
            registers[MASK] = registers[MASK] & (sizes > offset)
            scatter(registers, space, at + offset, np.zeros((1, 1), np.uint64), 8, place)
            registers[MASK] = outer

    return Step(run, (), is_pure=False)
