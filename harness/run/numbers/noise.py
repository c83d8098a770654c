"""How far a right result may be from what it is compared with: numbers, each with its source.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.run.numbers.scalars import ELEMENTS

NOISE_FACTOR = 30.0
"""A value is wrong at this many times the noise that its sums explain.

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

_INNER = 6 * (2 / 6) ** 0.5
"""Of a narrow type: six standard deviations of a rounding on the way to a value, in each of two
results. One has `u / sqrt(6)`: even over a unit, and over a binade. The last one, to the type of
the tensor, is apart (`comparing.py`)."""

_TYPES = {
    # Rounded to it, or computed in it: not what is only read.
    name: re.compile(
        rf"\bcvt\.\S+\.{ptx}(?:x[24])?\.f\S+\s|^(?!.*\bcvt\.).*\.{ptx}(?:x[24])?\s", re.MULTILINE
    )
    for name, ptx in {
        "bfloat16": "bf16",
        "float16": "f16",
        "float8_e4m3fn": "e4m3",
        "float8_e5m2": "e5m2",
    }.items()
} | {"tf32": re.compile(r"\.tf32"), "float32": re.compile(r"\.f32")}


def types_in(ptx: str) -> frozenset[str]:
    """The floating-point types that a program computes with, as torch spells them."""
    return frozenset(name for name, pattern in _TYPES.items() if pattern.search(ptx))


def tolerance_of(dtypes: Iterable[str]) -> float:
    """The largest `stable_max_rel` of a right result where these types meet; 0 for integers alone.

    That of the coarsest: `NOISE_FACTOR sqrt(n) u` for sums of n terms in a wide one (Higham and
    Mary, SIAM J. Sci. Comput. 41(5), 2019, theorem 3.1), `_INNER u` for a narrow one. Factors
    in tf32 are cut off when they are read. Types are spelled as PTX or torch do.
    """
    noise = [
        rounding_of([name]) * (NOISE_FACTOR if name in {*_WIDE, "tf32"} else _INNER)
        for name in {str(ELEMENTS.get(name, name)) for name in dtypes}
    ]
    return min(max(noise, default=0.0), LARGEST_TOLERANCE)


def rounding_of(dtypes: Iterable[str]) -> float:
    """The noise of a few roundings in the coarsest of these types, relative to the value."""
    names = {str(ELEMENTS.get(name, name)) for name in dtypes} & UNIT_ROUNDOFF.keys()
    return max((UNIT_ROUNDOFF[n] * (_SUMS if n in _WIDE else 1) for n in names), default=0.0)
