"""Numbers as bytes: types of elements by name, and scalars as kernel parameters. Pure."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_INTEGERS = {8: "int8", 16: "int16", 32: "int32", 64: "int64"}

ELEMENTS: dict[str, np.dtype[Any]] = {
    **{f"s{bits}": np.dtype(name) for bits, name in _INTEGERS.items()},
    **{f"{mark}{bits}": np.dtype(f"u{name}") for mark in "ub" for bits, name in _INTEGERS.items()},
    **{name: np.dtype(name) for name in _INTEGERS.values()},
    **{f"u{name}": np.dtype(f"u{name}") for name in _INTEGERS.values()},
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "bool": np.dtype(np.bool_),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
}
"""Types of elements, as PTX spells them and as torch does."""


def pack_integer(value: int, size: int) -> bytes:
    """Little-endian, in two's complement.

    Raises:
        ValueError: it does not fit into `size` bytes, signed or unsigned.
    """
    low, high = -(1 << (8 * size - 1)), 1 << (8 * size)
    if not low <= value < high:
        raise ValueError(f"{value} does not fit into {8 * size} bits")
    return (value % high).to_bytes(size, "little")


def pack_float(value: float, kind: str) -> bytes:
    """As an `f16`, `bf16`, `f32` or `f64`, rounded to nearest; what is out of range is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype=np.float64).astype(ELEMENTS[kind]).tobytes()
