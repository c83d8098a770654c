"""A launch of PTX as one Python program: the driver by ctypes, ptxas, and nothing of `triage`.

It goes into reports: who reads one has a GPU and the toolkit, and not this program.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.run.comparing import ELEMENTS
from harness.run.launch import Launch
from harness.tables.templates import render_template

PROGRAM = "repro.py"

# Of numpy's kinds; what `struct` does not know is compared by its bits.
_FORMS = {
    **{
        (kind, size): letter
        for kind in "uib"
        for size, letter in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
    },
    **{("i", size): letter for size, letter in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))},
    **{("f", size): letter for size, letter in ((2, "e"), (4, "f"), (8, "d"))},
}
_BITS = {1: "B", 2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a launch must leave: each buffer's bytes, and how far floats may be off."""

    buffers: Sequence[bytes]
    allowed: float


def standalone_program(
    launch: Launch,
    ptx: str,
    target: str,
    contents: Mapping[str, bytes],
    expected: Expected,
    *,
    headline: str,
    get: Sequence[str] = (),
) -> str | None:
    """The program; None where it would need more than buffers and numbers.

    `contents` are the bytes of buffers by their sha256; `get` are lines that say how to get
    the ptxas.
    """
    emulation = launch.emulation
    if any(each.tensor_map for each in emulation.arguments) or emulation.cluster != (1, 1, 1):
        return None
    if '"""' in ptx or any(each.size > _LARGEST for each in emulation.buffers):
        return None
    arguments: list[bytes | tuple[int, ...]] = []
    for each in emulation.arguments:
        if each.scalar is not None:
            arguments.append(each.scalar)
        else:
            pointer = each.pointer
            arguments.append((pointer.allocation, pointer.offset) if pointer else ())
    outputs = {
        tensor.buffer: (tensor.name, tensor.buffer, *_form(tensor.dtype, expected.allowed))
        for tensor in launch.tensors
    }
    return render_template(
        "gpu/repro.py.j2",
        headline=headline,
        get=get,
        target=repr(target),
        entry=repr(emulation.entry),
        grid=emulation.grid,
        block=emulation.block,
        shared=emulation.dynamic_shared,
        arguments=arguments,
        ptx=ptx,
        buffers=[
            {
                "before": _packed(contents[each.file] if each.file else bytes(each.size)),
                "after": _packed(after),
            }
            for each, after in zip(emulation.buffers, expected.buffers, strict=True)
        ],
        outputs=list(outputs.values()),
    )


_LARGEST = 1 << 20
"""Bytes of a buffer that one still carries in a text."""


def _form(dtype: str, allowed: float) -> tuple[str, float]:
    kind = ELEMENTS[dtype]
    form = _FORMS.get((kind.kind, kind.itemsize))
    if form is None or (allowed == 0 and kind.kind == "f"):
        # To the bit.
        return f"<{form or _BITS.get(kind.itemsize, 'B')}", 0.0
    # Neighbours in the type are alike, as where `compare` allows something.
    return f"<{form}", allowed + float(np.finfo(kind).eps) if kind.kind == "f" else 0.0


def _packed(data: bytes) -> str:
    return repr(base64.b64encode(zlib.compress(data, 9)).decode())
