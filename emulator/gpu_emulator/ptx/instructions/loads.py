"""Loads and stores, and what only touches caches. PTX ISA, "Data Movement: ld, st, ..."."""

from __future__ import annotations

import numpy as np

from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.accesses import gather, scatter
from gpu_emulator.state.memory import Trouble
from gpu_emulator.state.semantics import Semantics, semantics_of
from gpu_emulator.steps import Registers, Step
from gpu_emulator.types import BITS, Array
from gpu_emulator.values import Place

_TITLE = "Data Movement and Conversion Instructions"
_TYPES = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f32|f64"
_SPACES = "global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func"
_CACHE = (
    "?{cop:ca|cg|cs|lu|cv|wb|wt}?{nc:nc}"
    "?{l1:L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate}"
    "?{l2:L2::evict_normal|L2::evict_first|L2::evict_last}"
    "?{hint:L2::cache_hint}?{prefetch:L2::64B|L2::128B|L2::256B}"
)
_END = f"{_CACHE}?{{vec:v2|v4|v8}}.{{type:{_TYPES}}}"
_SCOPE = "cta|cluster|gpu|sys"


def _templates(base: str, strong: str) -> list[str]:
    """With the space behind the semantics, as the manual has it, or before, as ptxas takes too."""
    return [
        f"{base}?{{sem:weak|volatile}}?{{space:{_SPACES}}}{_END}",
        f"{base}.{{sem:{strong}}}.{{scope:{_SCOPE}}}?{{space:{_SPACES}}}{_END}",
        f"{base}.{{space:{_SPACES}}}.{{sem:{strong}}}.{{scope:{_SCOPE}}}{_END}",
        f"{base}.{{space:{_SPACES}}}.{{scope:{_SCOPE}}}.{{sem:{strong}}}{_END}",
        f"{base}.{{space:{_SPACES}}}.{{sem:volatile}}{_END}",
        f"{base}.mmio.{{sem:relaxed}}.{{scope:sys}}?{{space:global}}{_END}",
    ]


def space_of(line: Binder, number: int) -> str:
    """The space that an access is to: that of its opcode, or of the variable that it names."""
    name = line.parts.get("space", "").split("::")[0] or "generic"
    if name == "param" and line.names_a_variable(number):
        # A parameter of a device function: this thread's memory.
        return "local"
    return "global" if name == "const" else name


@opcode(*_templates("ld", "relaxed|acquire"), section=f"{_TITLE}: ld")
@opcode(f"ldu?{{space:global}}?{{vec:v2|v4}}.{{type:{_TYPES}}}", section=f"{_TITLE}: ldu")
def _load(line: Binder) -> Step:
    kind = line.parts["type"]
    size = BITS[kind] // 8
    names = line.parts_of(0)
    total = size * len(names)
    if len(names) != int((line.parts["vec"] or "v1")[1:]):
        raise line.refuse("has another number of registers than its type says")
    targets = [line.target(name, kind) for name in names]
    address, space, place = line.address(1), space_of(line, 1), line.line.place
    how = semantics_of(line.parts)

    def run(registers: Registers) -> None:
        frame = registers[0]
        at = address(registers)
        pieces = _pieces(registers, space, at, total, size, place, how)
        for (slot, convert), value in zip(targets, pieces, strict=True):
            frame.write(slot, value if convert is None else convert(value))

    return Step(run, tuple(slot for slot, _ in targets), is_pure=False)


def _pieces(
    registers: Registers, space: str, at: Array, total: int, size: int, place: Place,
    how: Semantics,
) -> list[Array]:  # fmt: skip
    """The elements of a vector, each as an unsigned array."""
    wide = min(total, 16)
    pieces: list[Array] = []
    for offset in range(0, total, wide):
        if total > wide and offset == 0:
            _aligned(at, total)
        value, _ = gather(registers, space, at + offset if offset else at, wide, place, how)
        if wide == size:
            pieces.append(value)
            continue
        parts = value[..., None].view("c16" if size == 16 else f"u{size}")
        pieces += [parts[..., number] for number in range(wide // size)]
    return pieces


def _aligned(at: Array, total: int) -> None:
    if (at & (total - 1)).any():
        bad = int(at[(at & (total - 1)) != 0].flat[0])
        raise Trouble(
            "memory_fault", f"an access of {total} bytes at {hex(bad)}, which is not a multiple"
        )


@opcode(*_templates("st", "relaxed|release"), section=f"{_TITLE}: st")
def _store(line: Binder) -> Step:
    kind = line.parts["type"]
    size = BITS[kind] // 8
    names = line.parts_of(1)
    if len(names) != int((line.parts["vec"] or "v1")[1:]):
        raise line.refuse("has another number of registers than its type says")
    readers = [line.source(name, kind if kind == "b128" else f"b{BITS[kind]}") for name in names]
    total = size * len(names)
    wide = min(total, 16)
    address, space, place = line.address(0), space_of(line, 0), line.line.place
    how = semantics_of(line.parts)

    def run(registers: Registers) -> None:
        at = address(registers)
        values = [each(registers) for each in readers]
        if total > wide:
            _aligned(at, total)
        many = wide // size
        for first in range(0, len(values), many):
            chosen = values[first : first + many]
            joined = chosen[0] if many == 1 else _joined(chosen, wide)
            where = at + first * size if first else at
            scatter(registers, space, where, joined, wide, place, how)

    return Step(run, (), is_pure=False)


def _joined(values: list[Array], wide: int) -> Array:
    """Elements side by side as one of `wide` bytes."""
    shape = np.broadcast_shapes(*[each.shape for each in values])
    joined = np.empty((*shape, len(values)), dtype=values[0].dtype)
    for number, each in enumerate(values):
        joined[..., number] = each
    return joined.view("c16" if wide == 16 else f"u{wide}")[..., 0]


_LEVELS = "L1|L2|L2::evict_last|L2::evict_normal"


@opcode(
    f"prefetch?{{space:global|local}}.{{level:{_LEVELS}}}",
    "prefetch?{tensor:tensormap}", "prefetch.{space:param|const}.tensormap", "prefetchu.L1",
    "applypriority?{space:global}.L2::evict_normal", "discard?{space:global}.L2",
    "cp.async.bulk.prefetch.L2.global?{hint:L2::cache_hint}",
    "cp.async.bulk.prefetch.tensor.{dim:1d|2d|3d|4d|5d}.L2.global?{mode:tile|im2col}?{hint:L2::cache_hint}",
    section=f"{_TITLE}: prefetch, applypriority, discard", pure=True,
)  # fmt: skip
def _nothing(line: Binder) -> Step:
    del line
    return Step(lambda _: None, (), is_pure=True)


@opcode(
    "createpolicy.fractional.{primary:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged}"
    "?{secondary:L2::evict_first|L2::evict_unchanged}.b64",
    "createpolicy.cvt.L2.b64",
    "createpolicy.range?{space:global}"
    ".{primary:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged}"
    "?{secondary:L2::evict_first|L2::evict_unchanged}.b64",
    section=f"{_TITLE}: createpolicy", pure=True,
)  # fmt: skip
def _policy(line: Binder) -> Step:
    """A policy changes no value: any number will do."""
    slot, _ = line.target(line.operand(0), "b64")

    def run(registers: Registers) -> None:
        registers[slot] = np.ones((1, 1), dtype=np.uint64)

    return Step(run, (slot,), is_pure=True)
