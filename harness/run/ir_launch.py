"""What a file of Triton's IR is launched with: by the types of its arguments.

A pointer gets memory that is larger than what small kernels reach. It holds small whole numbers, so
that little is rounded; wide integers are all different, since they may be places. One program runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from harness.run.comparing import ELEMENTS
from harness.run.launching import NotRunError
from harness.values.execution import Argument, ArgumentKind, Buffer, LaunchVariant

_FUNCTION = re.compile(r"\btt\.func public @[^(]+\((.*)")
_NAME = re.compile(r"%[\w$.-]+(?=: )")
_ARGUMENT = re.compile(r"%([\w$.-]+): (?:!tt\.ptr<(\w+)>|(i\d+|f32))(?: \{([^}]*)\})?")
_HINT = re.compile(r"tt\.divisibility = (\d{1,18})")
_DTYPES = {
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    "i1": "bool",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
}
_COUNT = 1 << 16
# Numbers that say how often a loop runs, or how far a mask reaches; and those that are said
# to be multiples: of sizes and strides.
_COUNTS, _MULTIPLE = (4, 3, 2), 64
_SEED = 20_261_127


def guessed_launch(text: str, keep: Callable[[bytes], str]) -> LaunchVariant:
    """The launch of a module; `keep` keeps the bytes of a buffer, and says what they are kept by.

    Raises:
        NotRunError: nothing is known to go with a type.
    """
    match = _FUNCTION.search(text)
    header = match[1] if match else ""
    found = list(_ARGUMENT.finditer(header))
    if len(found) != len(_NAME.findall(header)):
        raise NotRunError("an argument of this module is neither a number nor a plain pointer")
    arguments: list[Argument] = []
    buffers: list[Buffer] = []
    for name, element, number, facts in (part.groups() for part in found):
        if element:
            dtype = _DTYPES.get(element)
            if dtype is None or "tma_desc" in (facts or ""):
                raise NotRunError(f"{name}: what a pointer to {element} leads to is not known")
            data = _values(dtype, len(buffers))
            arguments.append(
                Argument(
                    name=name,
                    kind=ArgumentKind.TENSOR,
                    buffer=len(buffers),
                    dtype=dtype,
                    shape=(_COUNT,),
                    strides=(1,),
                )
            )
            buffers.append(Buffer(sha256=keep(data), size=len(data)))
            continue
        hint = _HINT.search(facts or "")
        counts = sum(one.kind is ArgumentKind.SCALAR for one in arguments)
        value = str(_COUNTS[counts % len(_COUNTS)])
        if hint:
            value = str(max(_MULTIPLE // int(hint[1]), 1) * int(hint[1]))
        kind = "float" if number == "f32" else "int"
        value = {"i1": "1", "f32": (0.5).hex()}.get(number, value)
        arguments.append(Argument(name=name, kind=ArgumentKind.SCALAR, type=kind, value=value))
    return LaunchVariant(
        config={}, grid=(1,), arguments=tuple(arguments), buffers=tuple(buffers), described=[]
    )


def _values(dtype: str, number: int) -> bytes:
    draw, kind = np.random.default_rng(_SEED + number), ELEMENTS[dtype]
    if kind.kind == "b":
        return draw.integers(0, 2, _COUNT).astype(kind).tobytes()
    if kind.kind == "i" and kind.itemsize > 2:
        return draw.permutation(_COUNT).astype(kind).tobytes()
    return draw.integers(-2, 3, _COUNT).astype(kind).tobytes()
