"""Numbers as bytes: types of elements by name, and scalars as kernel parameters. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from harness.values.execution import Argument

_INTEGERS = {8: "int8", 16: "int16", 32: "int32", 64: "int64"}
_NAMES = (
    *("bool", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex64", "complex128"),
)

ELEMENTS: dict[str, np.dtype[Any]] = {
    **{f"s{bits}": np.dtype(name) for bits, name in _INTEGERS.items()},
    **{f"{mark}{bits}": np.dtype(f"u{name}") for mark in "ub" for bits, name in _INTEGERS.items()},
    **{name: np.dtype(name) for name in _INTEGERS.values()},
    **{f"u{name}": np.dtype(f"u{name}") for name in _INTEGERS.values()},
    **{f"i{bits}": np.dtype(name) for bits, name in _INTEGERS.items()},
    **{f"{mark}{bits}": np.dtype(f"float{bits}") for mark in ("fp", "f") for bits in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **{name: np.dtype(getattr(ml_dtypes, name, name)) for name in _NAMES},
}
"""Types of elements, as PTX, torch and Triton spell them."""


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
    """As a type of `ELEMENTS`, rounded to nearest; what is out of range is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype=np.float64).astype(ELEMENTS[kind]).tobytes()


# How far a right result may be from what it is compared with: numbers, each with its source.

NOISE_FACTOR = 30.0
"""A value is wrong at this many times the noise that its sums explain.

Measured (#13): miscompiled kernels are off by 25 - 100 % of their range.
"""

LARGEST_TOLERANCE = 0.25
"""However noisy the arithmetic, what is off by a quarter of its range is wrong: the least that a
miscompiled kernel showed (#13)."""

UNIT_ROUNDOFF: dict[str, float] = {"tf32": 2.0**-11} | {
    name: 2.0 ** -(int(ml_dtypes.finfo(ELEMENTS[name]).nmant) + 1)  # type: ignore[no-untyped-call]
    for name in _NAMES
    if "float" in name
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


# Two results of one computation, element by element.
#
# The measures (those of `harness.values.execution`): `rel_err` is `||a - b|| / ||b||` (Euclidean
# norms), the error as a whole; `stable_max_rel` is `max |a - b| / (|b| + rms(b))`, the worst
# element against the tensor's own scale, so that values near zero do not count for more than they
# are. A NaN or an infinity agrees with the same one at the same place, and with nothing else.
# Neighbours in the type of the tensor agree wherever anything is allowed: each of the two was
# rounded to it once.

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far a result is from what it must be.

    `differing` counts the elements that are farther than what is allowed; `first` is the place of
    the first of them (else of the farthest), with the two values there. Infinite measures come from
    a NaN or an infinity at a place where there must be none, or the other way round. `unequal` is
    the share of the elements that differ at all; `within_1e_3` and `within_1_percent` are the
    shares that are off by no more than 0.001, and than a hundredth of what they must be: what
    people quote of kernels that compute in narrower types.
    """

    elements: int
    differing: int = 0
    max_abs: float = 0.0
    rel_err: float = 0.0
    stable_max_rel: float = 0.0
    unequal: float = 0.0
    within_1e_3: float = 1.0
    within_1_percent: float = 1.0
    first: tuple[int, ...] | None = None
    actual: float | None = None
    expected: float | None = None


def as_tensor(argument: Argument, data: bytes) -> Array:
    """The elements of a tensor, a view of its buffer's bytes; of bytes where its type is unknown.

    What a descriptor reaches beyond the buffer is cut off with its first dimension.
    """
    kind = ELEMENTS.get(argument.dtype, np.dtype(np.uint8))
    usable = (len(data) - argument.offset) // kind.itemsize
    flat = np.frombuffer(data, kind, count=max(usable, 0), offset=min(argument.offset, len(data)))
    shape = argument.shape
    if argument.dtype not in ELEMENTS or not _fits(shape, argument.strides, len(flat)):
        return flat
    if 0 in shape:
        return np.empty(shape, kind)
    strides = tuple(stride * kind.itemsize for stride in argument.strides)
    # numpy's own views go by the name of a type, which is not a name of all that ml_dtypes adds.
    view: Array = np.ndarray(shape, kind, buffer=data, offset=argument.offset, strides=strides)
    return view


def _fits(shape: tuple[int, ...], strides: tuple[int, ...], count: int) -> bool:
    if 0 in shape:
        return True
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return min(strides, default=0) >= 0 and last < count


def compare(actual: Array, expected: Array, allowed: float) -> Difference:
    """How far `actual` is from `expected`, of the same shape; `allowed` is of `stable_max_rel`."""
    if actual.size == 0:
        return Difference(elements=0)
    if actual.dtype.kind == "c":
        actual, expected = (np.stack([side.real, side.imag], -1) for side in (actual, expected))
    error, size, scale = _apart(actual, expected)
    if actual.dtype.kind in "iub":
        bad = actual != expected
        if not bad.any():
            return Difference(elements=actual.size)
        # Large integers that differ by little are one number in double precision.
        error = np.where(bad, np.maximum(error, 1), 0)
        relative = np.where(bad, np.inf, 0)
    else:
        with np.errstate(over="ignore"):
            relative, bad = error / scale, ~near(actual, expected, allowed)
    norm, whole = (math.sqrt(float(np.sum(np.square(values)))) for values in (size, error))
    worst = bad if bad.any() else relative
    # Of several, the first.
    place = tuple(int(n) for n in np.unravel_index(int(np.argmax(worst)), worst.shape))
    return Difference(
        elements=actual.size,
        differing=int(bad.sum()),
        max_abs=float(error.max()),
        rel_err=whole / norm if norm else (math.inf if whole else 0.0),
        stable_max_rel=float(relative.max()),
        unequal=float(np.mean(error > 0)),
        within_1e_3=float(np.mean(error <= 1e-3)),
        within_1_percent=float(np.mean(error <= 1e-2 * size)),
        first=place,
        actual=float(actual[place]),
        expected=float(expected[place]),
    )


def near(actual: Array, expected: Array, allowed: float) -> npt.NDArray[np.bool_]:
    """Which elements of floating-point tensors are as near as `compare` wants them."""
    error, _, scale = _apart(actual, expected)
    if allowed:
        # A unit in the last place of the larger one.
        info: Any = ml_dtypes.finfo(actual.dtype)  # type: ignore[no-untyped-call]
        with np.errstate(invalid="ignore"):  # A NaN of ml_dtypes' own types.
            larger = np.fmax(np.abs(actual), np.abs(expected)).astype(np.float64)
        larger = np.fmax(np.where(np.isfinite(larger), larger, 0), float(info.smallest_normal))
        error = error - np.ldexp(float(info.eps), np.frexp(larger)[1] - 1)
    return np.asarray(error <= allowed * scale)


def _apart(actual: Array, expected: Array) -> tuple[Array, Array, Array]:
    """Of each element: how far it is off, how large it must be, and the scale for both."""
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        finite = np.isfinite(left) & np.isfinite(right)
        error = np.where(same, 0.0, np.where(finite, np.abs(left - right), np.inf))
        size = np.where(finite, np.abs(right), 0.0)
        rms = math.sqrt(float(np.mean(np.square(size)))) if size.size else 0.0
    return error, size, np.maximum(size + rms, np.finfo(np.float64).tiny)
