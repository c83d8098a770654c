"""The reference of the tests: exact fractions rounded once, with integers alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gpu_emulator.numbers.formats import FORMATS, to_float64

__all__ = ["TOWARDS", "rounded"]

TOWARDS: dict[str, Callable[[Fraction | float], int]] = {
    "rn": round,
    "rz": math.trunc,
    "rm": math.floor,
    "rp": math.ceil,
}


def rounded(exact: Fraction, name: str, mode: str) -> float:
    """A fraction rounded once to a format, with integers alone."""
    form = FORMATS[name]
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, form.exponent_min) - form.mantissa)
    value = TOWARDS[mode](exact / unit) * unit
    largest = Fraction(float(to_float64(np.array(form.top), name)))
    if abs(value) > largest:
        kept = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
        return (float(largest) if kept else math.inf) * (1 if value > 0 else -1)
    return float(value)
