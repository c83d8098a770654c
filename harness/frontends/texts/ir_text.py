"""Reads what Triton's own IR (`.ttir`, `.ttgir`) says of itself. No parser: its header only.

Pure.
"""

from __future__ import annotations

import re

import msgspec

MAX_BYTES = 32 << 20

# Up to Triton 3.2 the dialect of `.ttgir` was called triton_gpu.
_KERNEL = re.compile(r'tt\.func public @(?:"([^"\n]{1,500})"|([\w.$-]{1,500}))\s{0,9}\(')
_NUMBER = re.compile(
    r'"?(?:ttg|triton_gpu)\.(num-warps|num-ctas|maxnreg)"?\s{0,9}=\s{0,9}(\d{1,4})\b'
)
_TARGET = re.compile(r'"?(?:ttg|triton_gpu)\.target"?\s{0,9}=\s{0,9}"cuda:(\d{2,3})"')


class IrError(ValueError):
    """The text is not what it should be; the message is for the user."""


class IrFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's name, and what the module fixes; `.ttir` fixes nothing."""

    kernel: str
    num_warps: int | None = None
    num_ctas: int | None = None
    maxnreg: int | None = None
    capability: int | None = None


def read_triton_ir(text: str) -> IrFacts:
    """Read a module of Triton's IR.

    Raises:
        IrError: binary data, or no public function that could be launched.
    """
    if "\0" in text:
        raise IrError("not Triton's IR: it holds binary data")
    kernel = _KERNEL.search(text)
    if kernel is None:
        raise IrError("not Triton's IR: no `tt.func public`, nothing that can be launched")
    # The attributes of a module stand before its first function, public or not.
    head = text[: text.index("tt.func")]
    numbers = {name.replace("-", "_"): int(value) for name, value in _NUMBER.findall(head)}
    target = _TARGET.search(head)
    return IrFacts(
        kernel=kernel[1] or kernel[2],
        capability=int(target[1]) if target else None,
        num_warps=numbers.get("num_warps"),
        num_ctas=numbers.get("num_ctas"),
        maxnreg=numbers.get("maxnreg"),
    )
