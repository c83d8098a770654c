"""A launch of PTX as one Python program: the driver by ctypes, ptxas, and nothing of `triage`.

It goes into reports: who reads one has a GPU and the toolkit, and not this program.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from harness.run.comparing import ELEMENTS
from harness.run.launch import Launch
from harness.tables.file_templates import render_template

PROGRAM = "repro.py"

# The letters of `struct` by numpy's kinds; what it does not know is compared by its bits.
_BITS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_SIGNED = {size: letter.lower() for size, letter in _BITS.items()}
_FORMS = {"u": _BITS, "b": _BITS, "i": _SIGNED, "f": {2: "e", 4: "f", 8: "d"}}


def standalone_program(
    launch: Launch,
    ptx: str,
    target: str,
    contents: Mapping[str, bytes],
    expected: Sequence[bytes],
    *,
    allowed: float,
    headline: str,
    get: Sequence[str] = (),
) -> str | None:
    """The program; None where it would need more than buffers and numbers.

    `contents` are the bytes of buffers by their sha256, `expected` those that the launch must leave
    in each, where floats may be off by `allowed`; `get` are lines that say how to get the ptxas.
    """
    emulation = launch.emulation
    has_maps = any(argument.tensor_map for argument in emulation.arguments)
    is_large = any(buffer.size > _LARGEST for buffer in emulation.buffers)
    if has_maps or is_large or emulation.cluster != (1, 1, 1) or '"""' in ptx:
        return None
    arguments: list[bytes | tuple[int, ...]] = []
    for argument in emulation.arguments:
        pointer = argument.pointer
        address = (pointer.allocation, pointer.offset) if pointer else ()
        arguments.append(address if argument.scalar is None else argument.scalar)
    outputs = {
        tensor.buffer: (tensor.name, tensor.buffer, *_form(tensor.dtype, allowed))
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
                "before": _packed(contents[buffer.file] if buffer.file else bytes(buffer.size)),
                "after": _packed(after),
            }
            for buffer, after in zip(emulation.buffers, expected, strict=True)
        ],
        outputs=list(outputs.values()),
    )


_LARGEST = 1 << 20
"""Bytes of a buffer that one still carries in a text."""


def _form(dtype: str, allowed: float) -> tuple[str, float]:
    kind = ELEMENTS[dtype]
    form = _FORMS.get(kind.kind, {}).get(kind.itemsize)
    if form is None or (allowed == 0 and kind.kind == "f"):
        # To the bit.
        return f"<{form or _BITS.get(kind.itemsize, 'B')}", 0.0
    # Neighbours in the type are alike, as where `compare` allows something.
    return f"<{form}", allowed + float(np.finfo(kind).eps) if kind.kind == "f" else 0.0


def _packed(data: bytes) -> str:
    return repr(base64.b64encode(zlib.compress(data, 9)).decode())
