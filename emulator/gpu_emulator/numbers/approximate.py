"""Approximate instructions: the correctly rounded value, and the band that hardware may use.

PTX ISA 9.7.3.9 ff. (f32: div, rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh) and 9.7.4 (half
precision: tanh, ex2). No bit pattern is specified but those of special values: a result may lie
anywhere in the band. Each function takes and returns registers of one format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpu_emulator.numbers.arithmetic import flush, settle
from gpu_emulator.numbers.formats import Bits, Float64, from_float64, to_float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How far a result may be from the exact value: the largest of the bounds that are set.

    `ulp` counts units in the last place of the result, `relative` and `absolute` are errors.
    `section` names the place in the PTX ISA.
    """

    ulp: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0
    section: str


BANDS = {
    ("rcp", "f32"): Band(ulp=1.0, section="rcp"),
    ("sqrt", "f32"): Band(relative=2.0**-23, section="sqrt"),
    ("rsqrt", "f32"): Band(relative=2.0**-22.9, section="rsqrt"),
    # For sin and cos within 2 pi; further out nothing is promised.
    ("sin", "f32"): Band(absolute=2.0**-20.5, section="sin"),
    ("cos", "f32"): Band(absolute=2.0**-20.5, section="cos"),
    ("lg2", "f32"): Band(absolute=2.0**-22, relative=2.0**-22, section="lg2"),
    ("ex2", "f32"): Band(ulp=2.0, section="ex2"),
    ("tanh", "f32"): Band(relative=2.0**-11, section="tanh"),
    ("div", "f32"): Band(ulp=2.0, section="div"),
    ("tanh", "f16"): Band(absolute=2.0**-10.987, section="tanh (half)"),
    ("tanh", "bf16"): Band(absolute=2.0**-8, section="tanh (half)"),
    ("ex2", "f16"): Band(ulp=1.0, relative=2.0**-9.9, section="ex2 (half)"),
    ("ex2", "bf16"): Band(relative=2.0**-7, section="ex2 (half)"),
    ("rcp", "f64"): Band(relative=2.0**-20, section="rcp.approx.ftz.f64"),
    ("rsqrt", "f64"): Band(relative=2.0**-20, section="rsqrt.approx.ftz.f64"),
}
"""By function and format."""


def _root(x: Float64) -> Float64:
    return 1.0 / np.sqrt(x)


_FUNCTIONS: dict[str, Callable[[Float64], Float64]] = {
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": _root,
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def approximate(function: str, name: str, a: Bits, *, ftz: bool = False) -> Bits:
    """`function.approx{.ftz}.name`, rounded to nearest.

    Args:
        function: rcp, sqrt, rsqrt, sin, cos, lg2, ex2 or tanh.
        name: f32, f16, bf16; f64 for rcp and rsqrt, which look at the upper 32 bits alone and
            return 32 zeros below them.
        a: registers, any shape.
        ftz: subnormal sources and results become zero.

    Raises:
        KeyError: there is no such instruction.
    """
    if (function, name) not in BANDS:
        raise KeyError(f"{function}.approx.{name}")
    if name == "f64":
        return _upper_half(function, a)
    if ftz:
        a = flush(a, name)
    with np.errstate(all="ignore"):
        value = _FUNCTIONS[function](to_float64(a, name))
    return settle(value, name, "rn", ftz=ftz)


def _upper_half(function: str, a: Bits) -> Bits:
    upper = np.uint64(0xFFFF_FFFF_0000_0000)
    with np.errstate(all="ignore"):
        result = from_float64(
            _FUNCTIONS[function](to_float64(flush(a & upper, "f64"), "f64")), "f64"
        )
    return flush(result & upper, "f64")


def inverse_root(a: Bits) -> Bits:
    """`rsqrt.approx.f64`, within 2^-52 or so of the value; subnormal numbers count."""
    with np.errstate(all="ignore"):
        return from_float64(_root(to_float64(a, "f64")), "f64")


def approximate_divide(a: Bits, b: Bits, *, full: bool, ftz: bool = False) -> Bits:
    """`div.approx{.ftz}.f32`, or `div.full{.ftz}.f32`.

    `div.approx` multiplies by a reciprocal: for |b| over 2^126 it returns zero, or NaN where a is
    infinite. `div.full` scales and holds everywhere.
    """
    if ftz:
        a, b = flush(a, "f32"), flush(b, "f32")
    x, y = to_float64(a, "f32"), to_float64(b, "f32")
    with np.errstate(all="ignore"):
        quotient = x / y
        if not full:
            large = (np.abs(y) > 2.0**126) & np.isfinite(y)
            lost = np.where(np.isinf(x), np.nan, np.copysign(0.0, x) * np.sign(y))
            quotient = np.where(large & ~np.isnan(x), lost, quotient)
    return settle(quotient, "f32", "rn", ftz=ftz)
