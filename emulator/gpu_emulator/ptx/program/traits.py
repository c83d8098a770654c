"""What single instructions say about how a whole program may run."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_emulator.ptx.program.binder import CLOCKS
from gpu_emulator.ptx.program.flow import Block
from gpu_emulator.ptx.program.lines import PtxLine
from gpu_emulator.ptx.program.variables import SIZES

_WIDEST = 16
_ENGINES = ("cp", "mbarrier", "tcgen05", "multimem", "tensormap")
# What may make the order of warps matter though every access is ordered.
_STRONG = frozenset(("volatile", "mmio", "relaxed", "acquire", "release", "async"))
_NOT_PLAIN = frozenset(("atom", "red", "multimem", "tensormap", "activemask", "membar", "mapa"))
_PLAIN_MBARRIER = ("init", "inval", "arrive", "try_wait")


def is_plain(line: PtxLine) -> bool:
    """Whether the order of warps cannot matter for it where every access is ordered."""
    base, *rest = [word.split("::")[0] for word in line.opcode.split(".")]
    among = set(rest)
    if base in _NOT_PLAIN or any(each in CLOCKS for each in line.operands):
        return False
    if base in ("bar", "barrier"):
        return "warp" in among or (rest[0] in ("sync", "cta") and len(line.operands) == 1)
    plain = {
        "ld": not _STRONG & among, "st": not _STRONG & among,
        "fence": "proxy" in among or "mbarrier_init" in among,
        "cp": not {"bulk", "reduce", "mbarrier"} & among,
        "mbarrier": rest[:1] and rest[0] in _PLAIN_MBARRIER and "cluster" not in among,
        "tcgen05": "cta_group::2" not in line.opcode and "multicast" not in among,
    }  # fmt: skip
    return bool(plain.get(base, True))


def grain(blocks: Sequence[Block], besides: str) -> int:
    """The smallest access to what may not be in that space; no access is cut by its multiples."""
    sizes = [_WIDEST]
    for block in blocks:
        sizes += (_size(line, besides) for line in block.lines)
    return min(sizes)


def _size(line: PtxLine, besides: str) -> int:
    """How many bytes a thread accesses at once, `_WIDEST` if none."""
    words = [word.split("::")[0] for word in line.opcode.split(".")]
    if words[0] in ("ld", "st", "atom", "red"):
        if {besides, "param"} & set(words):
            return _WIDEST
        many = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
        return min(_WIDEST, many * SIZES.get(words[-1], 4))
    if words[:2] == ["cp", "async"] and words[2] in ("ca", "cg"):
        return {"4": 4, "8": 8}.get(line.operands[2].strip(), _WIDEST)
    if words[0] in ("ldmatrix", "stmatrix", "wgmma", "fence"):
        return _WIDEST
    return 4 if words[0] in _ENGINES or {"shared", "global"} & set(words) else _WIDEST
