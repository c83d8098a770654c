"""How strong an access is: what its opcode says of order and scope.

PTX ISA, "Memory Consistency Model: Operation types, Scope". A missing `.sem` of an atomic
operation is `.relaxed`, a missing `.scope` is `.gpu`; `.volatile` counts as `.relaxed.sys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WITHIN_CTA, WITHIN_GPU = 1, 2
"""For whom an access is strong: threads of its CTA, or all. A cluster's counts as all."""


@dataclass(frozen=True, slots=True)
class Semantics:
    """`strength` 0 is a weak access; `acquires` and `releases` as `.acquire` and `.release`."""

    strength: int = 0
    acquires: bool = False
    releases: bool = False


WEAK = Semantics()


def semantics_of(parts: Mapping[str, str], *, is_atomic: bool = False) -> Semantics:
    """By the parts of an opcode that are named `sem` and `scope`."""
    word = parts.get("sem") or ("relaxed" if is_atomic else "weak")
    if word == "weak":
        return WEAK
    strength = WITHIN_CTA if parts.get("scope") == "cta" else WITHIN_GPU
    return Semantics(strength, word in ("acquire", "acq_rel"), word in ("release", "acq_rel"))
