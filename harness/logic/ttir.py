"""What Triton's IR before optimisation says of a kernel: whether it does anything."""

from __future__ import annotations

import re

from harness.logic.ptx import opcodes, writes_outside

__all__ = ["count_effects"]

_EFFECT_OPS = re.compile(
    r"\btt\.(?:store|atomic_(?:rmw|cas|store)|(?:experimental_)?descriptor_(?:store|reduce|scatter)"
    r"|print|assert)\b"
    r"|\bttng\.async_tma_(?:copy_local_to_global|reduce|scatter)\b"
)
_INLINE_ASM = re.compile(r'\b(?:tt\.elementwise_|ttg\.)inline_asm "([^"]*)"')
_ESCAPED = re.compile(r"\\(?:0[9A-Da-d]|[nt])|//[^\n]*")


def count_effects(ttir: str) -> int | None:
    """Operations of a Triton IR module that could be observed from outside.

    Inline assembly counts where it holds an instruction that writes to global memory. None when
    the kernel itself asks for a trap in inline assembly: a trap is then no surprise.
    """
    effects = len(_EFFECT_OPS.findall(ttir))
    for found in _INLINE_ASM.finditer(ttir):
        instructions = [opcode for opcode, _ in opcodes(_ESCAPED.sub("\n", found[1]))]
        if "trap" in instructions:
            return None
        effects += any(writes_outside(opcode) for opcode in instructions)
    return effects
