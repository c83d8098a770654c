"""How the tensor cores of one architecture add, bit for bit, where that is known.

The PTX ISA leaves it open. On an H200 (sm_90) every one of our sums of random numbers came out as
follows, the only error of each product is here: the addends, products and accumulator, are aligned
to the largest exponent among them (that of a product is the sum of the exponents of its factors,
without normalizing) and cut off `fraction` bits below it; they are added exactly; the sum is
rounded once. That costs tens of times the matrix product: it is for measuring what rounding alone
can do, not for every day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from gpu_emulator.engines import products
from gpu_emulator.numbers import arithmetic
from gpu_emulator.numbers.formats import Bits, Float64, from_float64, to_float64

# How (..., m, k) values, (..., k, n) values and (..., m, n) bits of a format add up.
Adding = Callable[[Float64, Float64, Bits | None, str], Bits]


@contextmanager
def added_by(add: Adding | None) -> Iterator[None]:
    """Meanwhile matrix products are added so; None: as always."""

    def product(a: Float64, b: Float64, c: Bits | None, *, c_type: str, d_type: str) -> Bits:
        assert add is not None
        return add(a, b, c, d_type)

    with patch.object(products, "product", product if add else products.product):
        yield


_NARROW = ("e4m3", "e5m2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """A way of adding.

    `fraction`: bits kept below the largest exponent. `rounding`: of the result, rn or rz.
    `mantissa`: bits of the result's significand after the point, where fewer than its format has.
    `in_halves`: two sums of half of K each, chained from zero, and the accumulator added at the
    end, to nearest: how sm_90 does `mma.sync` on 8-bit numbers, with its 16-bit tensor cores; of
    each four neighbours in K the first two belong to the first half.
    """

    fraction: int
    rounding: str
    mantissa: int | None = None
    in_halves: bool = False

    def add(self, a: Float64, b: Float64, c: Bits | None, name: str) -> Bits:
        """A @ B + C.

        `a`: (..., m, k) values. `b`: (..., k, n) values. `c`: (..., m, n) bits, or None for zero.
        `name`: format of c and of the result, f32 or f16. Returns (..., m, n) bits.
        """
        with np.errstate(all="ignore"):
            start = np.zeros((1, 1)) if c is None else to_float64(c, name)
            if not self.in_halves:
                return self._sum(a, b, start, name)
            first = np.arange(a.shape[-1]) % 4 < 2
            running = self._sum(a[..., first], b[..., first, :], np.zeros((1, 1)), name)
            middle = to_float64(running, name)
            running = self._sum(a[..., ~first], b[..., ~first, :], middle, name)
            return running if c is None else arithmetic.add(name, running, c)

    def _sum(self, a: Float64, b: Float64, c: Float64, name: str) -> Bits:
        exact = np.matmul(a, b) + c
        exponents = _exponent(a)[..., :, :, None] + _exponent(b)[..., None, :, :]
        largest = np.maximum(exponents.max(axis=-2), _exponent(c))
        unit = largest - self.fraction
        products = a[..., :, :, None] * b[..., None, :, :]
        cut = np.trunc(np.ldexp(products, -unit[..., :, None, :])).sum(axis=-2)
        total = np.ldexp(cut + np.trunc(np.ldexp(c, -unit)), unit)
        if self.mantissa is not None:
            own = _exponent(total) - self.mantissa
            total = np.ldexp(np.trunc(np.ldexp(total, -own)), own)
        return from_float64(np.where(np.isfinite(exact), total, exact), name, self.rounding)


def _exponent(values: Float64) -> Bits:
    """The exponent of each number; that of zero is below all others."""
    _, exponent = np.frexp(values)
    return np.where(values == 0, -2000, exponent - 1)


def hopper(instruction: str, a_type: str, d_type: str) -> Accumulation | None:
    """The sum of an instruction of sm_90, or None where there is nothing to choose.

    `instruction`: `mma.sync` or `wgmma`. `a_type`: f16, bf16, tf32, e4m3 or e5m2; integers and f64
    are exact. `d_type`: f32 or f16.
    """
    if d_type not in ("f32", "f16"):
        return None
    rounding = "rz" if d_type == "f32" else "rn"
    if a_type not in _NARROW:
        return Accumulation(fraction=25, rounding=rounding)
    if instruction == "mma.sync":
        return Accumulation(fraction=25, rounding="rz", in_halves=True)
    return Accumulation(fraction=13, rounding=rounding, mantissa=13 if d_type == "f32" else None)


def in_order(order: NDArray[np.intp]) -> Adding:
    """Sums in float32 in an order of K, rounded at each step: two orders differ by noise alone."""

    def add(a: Float64, b: Float64, c: Bits | None, name: str) -> Bits:
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        running = np.zeros((*shape, a.shape[-2], b.shape[-1]), dtype=np.float32)
        if c is not None:
            running = running + to_float64(c, name).astype(np.float32)
        for k in order:
            running = (running + a[..., :, k, None] * b[..., None, k, :]).astype(np.float32)
        return from_float64(running.astype(np.float64), name)

    return add
