"""How far the results of approximate instructions may be from the exact value, by the PTX ISA."""

from __future__ import annotations

from dataclasses import dataclass


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
