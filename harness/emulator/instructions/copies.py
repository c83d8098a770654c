"""`cp.async`: copies of each thread from global to shared memory, in groups.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: Non-bulk copy".
"""

from __future__ import annotations

import numpy as np

from harness.emulator.program.binder import Binder
from harness.emulator.program.steps import MASK, Registers, Step
from harness.emulator.program.table import opcode
from harness.emulator.program.types import Array
from harness.emulator.state.accesses import gather, scatter
from harness.emulator.state.frame import Frame
from harness.emulator.values import Place

__all__: list[str] = []

_TITLE = "Data Movement and Conversion Instructions: cp.async"
_HINTS = "?{hint:L2::cache_hint}?{prefetch:L2::64B|L2::128B|L2::256B}"
KIND = "cp.async"


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
