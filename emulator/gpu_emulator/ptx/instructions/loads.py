"""Loads and stores, and what only touches caches. PTX ISA, "Data Movement: ld, st, ...".

`atom` and `red`: thread after thread, in the order of their numbers. PTX ISA, "Parallel
Synchronization and Communication Instructions: atom, red".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_emulator.numbers.arithmetic import combine
from gpu_emulator.ptx.program.binder import Binder, opcode, without_effect
from gpu_emulator.state.atomics import apply_to_memory
from gpu_emulator.state.frame import Frame, Trouble, gather, joined_words, scatter, semantics_of
from gpu_emulator.steps import BITS, Array, Registers, Step

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


def vector_size(line: Binder, number: int) -> int:
    """How many registers an operand has: as many as the opcode says."""
    count = int((line.parts["vec"] or "v1")[1:])
    if len(line.parts_of(number)) != count:
        raise line.refuse("has another number of registers than its type says")
    return count


@opcode(*_templates("ld", "relaxed|acquire"))
@opcode(f"ldu?{{space:global}}?{{vec:v2|v4}}.{{type:{_TYPES}}}")
def _load(line: Binder) -> Step:
    kind = line.parts["type"]
    size = BITS[kind] // 8
    total = size * vector_size(line, 0)
    targets = line.targets(0, kind)
    address, wide = line.address(1), min(total, 16)
    space, how = space_of(line, 1), semantics_of(line.parts)

    def run(registers: Registers) -> None:
        frame = registers[0]
        at = address(registers)
        pieces: list[Array] = []
        for offset in range(0, total, wide):
            if total > wide and offset == 0:
                _aligned(at, total)
            value = gather(registers, space, wide, at + offset if offset else at, how)
            if wide == size:
                pieces.append(value)
                continue
            parts = value[..., None].view("c16" if size == 16 else f"u{size}")
            pieces += [parts[..., number] for number in range(wide // size)]
        for (slot, convert), value in zip(targets, pieces, strict=True):
            frame.write(slot, value if convert is None else convert(value))

    return Step(run, tuple(slot for slot, _ in targets))


def _aligned(at: Array, total: int) -> None:
    if (at & (total - 1)).any():
        bad = int(at[(at & (total - 1)) != 0].flat[0])
        raise Trouble(f"an access of {total} bytes at {hex(bad)}, which is not a multiple")


@opcode(*_templates("st", "relaxed|release"))
def _store(line: Binder) -> Step:
    kind = line.parts["type"]
    size = BITS[kind] // 8
    total = size * vector_size(line, 1)
    readers = line.sources(1, f"b{BITS[kind]}")
    address, wide = line.address(0), min(total, 16)
    space, how = space_of(line, 0), semantics_of(line.parts)

    def run(registers: Registers) -> None:
        at = address(registers)
        values = [reader(registers) for reader in readers]
        if total > wide:
            _aligned(at, total)
        many = wide // size
        for first in range(0, len(values), many):
            chosen = values[first : first + many]
            joined = chosen[0] if many == 1 else joined_words(chosen)
            scatter(registers, space, at + first * size if first else at, joined, how)

    return Step(run)


_LEVELS = "L1|L2|L2::evict_last|L2::evict_normal"


without_effect(
    f"prefetch?{{space:global|local}}.{{level:{_LEVELS}}}", "prefetch?{tensor:tensormap}",
    "prefetch.{space:param|const}.tensormap", "prefetchu.L1",
    "applypriority?{space:global}.L2::evict_normal", "discard?{space:global}.L2",
    "cp.async.bulk.prefetch.L2.global?{hint:L2::cache_hint}",
    "cp.async.bulk.prefetch.tensor.{dim:1d|2d|3d|4d|5d}.L2.global?{mode:tile|im2col}"
    "?{hint:L2::cache_hint}",
)  # fmt: skip


@opcode(
    "createpolicy.fractional.{primary:L2::evict_last|L2::evict_normal"
    "|L2::evict_first|L2::evict_unchanged}"
    "?{secondary:L2::evict_first|L2::evict_unchanged}.b64",
    "createpolicy.cvt.L2.b64",
    "createpolicy.range?{space:global}"
    ".{primary:L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged}"
    "?{secondary:L2::evict_first|L2::evict_unchanged}.b64",
)  # fmt: skip
def _policy(line: Binder) -> Step:
    """A policy changes no value: any number will do."""
    return line.gives("b64", lambda _: np.ones((1, 1), dtype=np.uint64))


_SEM = "{sem:relaxed|acquire|release|acq_rel}"
_ATOMICS_SCOPE = "{scope:cta|cluster|gpu|sys}"
_SPACE = "{space:global|shared|shared::cta|shared::cluster}"
_HINT = "?{hint:L2::cache_hint}"

_OPERATIONS = (
    "{op:and|or|xor}%s.{type:b32|b64}", "{op:add}%s.{type:u32|s32|u64|s64}",
    "{op:inc|dec}%s.{type:u32}", "{op:min|max}%s.{type:u32|s32|u64|s64}",
    "{op:add}%s.{type:f32|f64}", "{op:add}.noftz%s.{type:f16|f16x2|bf16|bf16x2}",
)  # fmt: skip
_VECTORS = (
    "{op:add}%s.{vec:v2|v4}.{type:f32}",
    "{op:add|min|max}.noftz%s.{vec:v2|v4|v8}.{type:f16|bf16}",
    "{op:add|min|max}.noftz%s.{vec:v2|v4}.{type:f16x2|bf16x2}",
)
_EXCHANGES = (
    "{op:exch}%s.{type:b32|b64}", "{op:exch}%s.{type:b128}", "{op:cas}.{type:b16|b32|b64|b128}",
    "{op:cas}%s.{type:b32|b64}",
)  # fmt: skip


def _atomics_templates(base: str, operations: Sequence[str]) -> list[str]:
    # Semantics, scope and space in the manual's order, or in that of older compilers.
    heads = (
        f"{base}?{_SEM}?{_ATOMICS_SCOPE}?{_SPACE}", f"{base}.{_SPACE}.{_ATOMICS_SCOPE}.{_SEM}",
        f"{base}.{_SPACE}.{_SEM}.{_ATOMICS_SCOPE}", f"{base}.{_SPACE}.{_ATOMICS_SCOPE}",
    )  # fmt: skip
    return [f"{head}.{tail.replace('%s', _HINT)}" for head in heads for tail in operations]


@opcode(*_atomics_templates("atom|red", (*_OPERATIONS, *_VECTORS)))
@opcode(*_atomics_templates("atom", _EXCHANGES))
def _atomic(line: Binder) -> Step:
    kind = line.parts["type"]
    bits, size = f"b{BITS[kind]}", BITS[kind] // 8
    first = int(line.base == "atom")
    targets = line.targets(0, bits) if first else []
    address = line.address(first)
    count = 2 if line.parts["op"] == "cas" else 1
    operands = [line.sources(first + 1 + number, bits) for number in range(count)]
    space = line.parts.get("space", "").split("::")[0] or "generic"
    change = combine(line.parts["op"], kind)
    how = semantics_of(line.parts, is_atomic=True)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at = address(registers)
        for number in range(len(operands[0])):
            values = [frame.full(readers[number](registers)) for readers in operands]
            old = apply_to_memory(registers, space, at + number * size, change, values, how)
            if targets:
                slot, convert = targets[number]
                frame.write(slot, old if convert is None else convert(old))

    return Step(run, tuple(slot for slot, _ in targets))
