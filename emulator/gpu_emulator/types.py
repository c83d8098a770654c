"""PTX types as numpy types, and how one becomes another. Registers hold unsigned integers.

Source: PTX ISA, "State Spaces, Types, and Variables": fundamental types.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    **{f"{letter}{bits}": np.dtype(f"u{bits // 8}") for letter in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    **{name: np.dtype("u4") for name in ("f16x2", "bf16x2", "u16x2", "s16x2", "tf32")},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32x2": np.dtype("u8"),
    # A complex number is the one type of numpy with 16 bytes: only ever moved, never computed with.
    "b128": np.dtype("c16"),
    "pred": np.dtype(np.bool_),
}
BITS = {name: 1 if name == "pred" else dtype.itemsize * 8 for name, dtype in DTYPES.items()}
# What a register of so many bits is stored as.
CANONICAL = {
    1: np.dtype(np.bool_),
    **{bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    128: np.dtype("c16"),
}


def is_signed(kind: str) -> bool:
    """Whether a wider register gets copies of the sign."""
    return kind in ("s8", "s16", "s32", "s64")


def cast(value: Array, dtype: np.dtype[Any]) -> Array:
    """The same bits where the sizes are equal, else the low ones or zero- or sign-extended."""
    if value.dtype == dtype:
        return value
    if value.dtype.itemsize == dtype.itemsize:
        return value.view(dtype)
    size = dtype.itemsize
    if value.dtype.kind not in "ui":
        value = value.view(f"u{value.dtype.itemsize}")
    # Sign extension follows the type of the value.
    letter = value.dtype.kind if size > value.dtype.itemsize else "u"
    return value.astype(f"{letter}{size}").view(dtype)
