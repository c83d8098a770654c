"""`dp4a` and `dp2a`: dot products with a 32-bit accumulator (PTX ISA 9.7.1.23, 9.7.1.24)."""

from __future__ import annotations

import numpy as np

from gpu_emulator.numbers.formats import Bits


def _parts(register: Bits, width: int, *, signed: bool) -> Bits:
    """The parts of 32-bit registers in one more dimension, least significant first, as int64."""
    kind = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    words = np.ascontiguousarray(register.astype(np.uint32))[..., None]
    parts: Bits = words.view(kind).astype(np.int64)
    return parts


def _wrapped(values: Bits) -> Bits:
    return (values & 0xFFFF_FFFF).astype(np.uint32)


def dp4a(a: Bits, b: Bits, c: Bits, *, a_signed: bool, b_signed: bool) -> Bits:
    """C plus the four products of bytes; wraps at 32 bits. uint32 registers, any shape."""
    products = _parts(a, 8, signed=a_signed) * _parts(b, 8, signed=b_signed)
    return _wrapped(c.astype(np.int64) + products.sum(axis=-1))


def dp2a(a: Bits, b: Bits, c: Bits, *, a_signed: bool, b_signed: bool, high: bool) -> Bits:
    """C plus two products: 16-bit halves of a, two bytes of b (the upper two where `high`)."""
    halves = _parts(a, 16, signed=a_signed)
    own = (
        _parts(b, 8, signed=b_signed)[..., 2:4] if high else _parts(b, 8, signed=b_signed)[..., 0:2]
    )
    return _wrapped(c.astype(np.int64) + (halves * own).sum(axis=-1))
