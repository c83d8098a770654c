"""How far a right result may be from what it is compared with: numbers, each with its source."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.runs.numbers.scalars import ELEMENTS

NOISE_FACTOR = 30.0
"""A value is wrong at this many times the noise that its arithmetic explains.

Measured (#13): miscompiled kernels are off by 25 - 100 % of their range.
"""

LARGEST_TOLERANCE = 0.25
"""However noisy the arithmetic, what is off by a quarter of its range is wrong: the least that a
miscompiled kernel showed (#13)."""

UNIT_ROUNDOFF: dict[str, float] = {
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e8m0fnu": 2.0**-1,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "tf32": 2.0**-11,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
"""Noise of one rounding, relative to the value: 2**-p for p bits of significand (IEEE 754; PTX ISA,
"Alternate Floating-Point Data Formats")."""

_SUMS = 2.0**9
"""Roundings of a wide type that may add up: sums of thousands of terms in another order, and the
errors of `ex2.approx` and its kin (PTX ISA, "Floating Point Instructions": about 2 units in the
last place), which a large argument makes larger."""

_WIDE = frozenset({"float32", "float64"})

_TYPES = {
    "bfloat16": re.compile(r"\.bf16"),
    "float16": re.compile(r"\.f16"),
    "tf32": re.compile(r"\.tf32"),
    "float8_e4m3fn": re.compile(r"\.e4m3"),
    "float8_e5m2": re.compile(r"\.e5m2"),
    "float32": re.compile(r"\.f32"),
}


def types_in(ptx: str) -> frozenset[str]:
    """The floating-point types that a program computes with, as torch spells them."""
    return frozenset(name for name, pattern in _TYPES.items() if pattern.search(ptx))


def tolerance_of(dtypes: Iterable[str]) -> float:
    """The largest `stable_max_rel` of a right result where these types meet; 0 for integers alone.

    The noise of the coarsest of them, `NOISE_FACTOR` times. Types are spelled as PTX or torch do.
    """
    names = {str(ELEMENTS.get(name, name)) for name in dtypes}
    noise = [
        UNIT_ROUNDOFF[name] * (_SUMS if name in _WIDE else 1.0)
        for name in names & UNIT_ROUNDOFF.keys()
    ]
    return min(max(noise, default=0.0) * NOISE_FACTOR, LARGEST_TOLERANCE)
