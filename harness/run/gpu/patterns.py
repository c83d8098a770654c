"""What fills the buffers of a launch that is too large for its values to be computed. Pure.

The time of a kernel depends on where it reads and writes, and how long its loops are: on shapes and
integers, not on floating-point values. So these are a pattern, and integers are not made up.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

# A prime: rows of a tensor hold different values, whatever their length.
_ELEMENTS = 262_139
_SEED = 14
_FLOATS = {
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


@functools.cache
def pattern(dtype: str) -> bytes | None:
    """Numbers between -1 and 1, none of them zero; None where the type is none of floats."""
    kind = _FLOATS.get(dtype)
    if kind is None:
        return None
    random = np.random.default_rng(_SEED)
    signs = random.choice([-1.0, 1.0], _ELEMENTS)
    return (signs * random.uniform(0.0625, 1.0, _ELEMENTS)).astype(kind).tobytes()
