"""What Triton's IR says: whether a kernel does anything, and which pass did it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from gpu_emulator.ptx.text.facts import opcodes, writes_outside
from harness.frontends.readings import Promises

_EFFECT_OPS = re.compile(
    r"\btt\.(?:store|atomic_(?:rmw|cas|store)|(?:experimental_)?descriptor_(?:store|reduce|scatter)"
    r"|print|assert)\b"
    r"|\b(?:ttng|triton_nvidia_gpu)\.async_tma_(?:copy_local_to_global|reduce|scatter)\b"
)
# Operations whose names speak of writing. Those of Triton 3.2 - 3.9 that are known to stay inside
# the block, to read only, or to wait, are harmless; the rest may be an effect.
_MAY_WRITE = re.compile(
    r"\b(?:tt|ttg|ttng|nvws|gluon|triton_gpu|triton_nvidia_gpu)"
    r"\.\w*(?:store|atomic|scatter|to_global)\w*"
)
_HARMLESS = re.compile(
    r"\.(?:local_\w+|tmem_store|async_shared_store|atomic_load|atomic_poll"
    r"|async_tma_store_(?:token_)?wait)$"
)
_INLINE_ASM = re.compile(r'\b(?:tt\.elementwise_|ttg\.)inline_asm "([^"]*)"')
_ESCAPED = re.compile(r"\\(?:0[9A-Da-d]|[nt])|//[^\n]*")
_ASM_IN_PTX = re.compile(r"// begin inline asm\n(.*?)// end inline asm", re.DOTALL)


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """What of a Triton IR module could be observed from outside.

    `count` operations write to global memory, print or assert, inline assembly among them;
    `has_trap`: its inline assembly holds a `trap`; `unknown` names operations that may write, for
    all that is known here.
    """

    count: int
    has_trap: bool = False
    unknown: tuple[str, ...] = ()


def read_effects(ttir: str) -> Effects:
    """What a Triton IR module does that could be observed."""
    known = [found[0] for found in _EFFECT_OPS.finditer(ttir)]
    writers = {found[0] for found in _MAY_WRITE.finditer(ttir)}
    count, has_trap = len(known), False
    for instructions in _assembly(ttir):
        has_trap |= "trap" in instructions
        count += any(map(writes_outside, instructions))
    unknown = {name for name in writers.difference(known) if not _HARMLESS.search(name)}
    return Effects(count=count, has_trap=has_trap, unknown=tuple(sorted(unknown)))


def lost_assembly(ttir: str, ptx: str) -> tuple[str, ...]:
    """Opcodes of the IR's inline assembly that no inline assembly of the PTX has."""
    wanted = {opcode for instructions in _assembly(ttir) for opcode in instructions}
    if not wanted:
        return ()
    blocks = _ASM_IN_PTX.finditer(ptx)
    left = {opcode for block in blocks for opcode, _ in opcodes(_ESCAPED.sub("\n", block[1]))}
    return tuple(sorted(wanted - left))


def _assembly(ttir: str) -> Iterator[list[str]]:
    """The opcodes of each piece of inline assembly."""
    for found in _INLINE_ASM.finditer(ttir):
        yield [opcode for opcode, _ in opcodes(_ESCAPED.sub("\n", found[1]))]


def promises(ir: str, ptx: str) -> Promises:
    """What a kernel's IR says that the kernel does, beside the PTX that it became."""
    effects = read_effects(ir)
    return Promises(
        effects=effects.count,
        has_trap=effects.has_trap,
        unknown_effects=effects.unknown,
        lost_assembly=lost_assembly(ir, ptx),
    )


# The lines that `MLIR_ENABLE_DUMP` makes Triton print; nothing is kept of them.
_HEADER = re.compile(r"// -----// IR Dump Before (\S+)(?: \(([\w.-]{1,200})\))?")
_TRAP = re.compile(r"^\s*(?:%\S+ = )?\"?(?:[a-z]\w*\.)*trap\b")


class PassTrail(msgspec.Struct, frozen=True, kw_only=True):
    """`last` is the pass that was entered last: where a compiler died, the one it died in.

    `trapping` is the pass whose output is the first to hold a trap; None where there is none, or
    where the kernel came with one.
    """

    last: str | None
    trapping: str | None


def follow_passes(lines: Iterable[str]) -> PassTrail:
    """Follow the passes through a dump."""
    before: str | None = None
    current: str | None = None
    trapping: str | None = None
    has_trap = False
    for line in lines:
        header = _HEADER.match(line)
        if header:
            before, current = current, header[2] or header[1].rstrip(":")
        elif not has_trap and _TRAP.match(line):
            # What is printed before `current` is what the pass before it made.
            trapping, has_trap = before, True
    return PassTrail(last=current, trapping=trapping)
