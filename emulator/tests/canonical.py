"""Matrices stored by the canonical layouts as atoms of (T, m, n), apart from the code under test.

From the tables of the PTX ISA ("Canonical layouts"): an atom is 8 rows of `span` bytes (K-major)
or 8 steps of K of `span` bytes (MN-major); atoms are tiled one after the other, rows first. What is
stored is then permuted 16 bytes at a time by the pictures of the swizzles: in row i of 128 bytes,
piece j goes to j xor (i mod 8), and so on for the narrower ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SPANS", "permuted", "stored"]

SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}


def permuted(plain: np.ndarray[Any, Any], swizzle: str) -> np.ndarray[Any, Any]:
    """Bytes with the pieces of 16 bytes permuted, row of 128 bytes by row of 128 bytes."""
    if swizzle == "none":
        return plain
    out = np.zeros_like(plain)
    pieces = SPANS[swizzle] // 16
    for start in range(0, plain.size, 16):
        row, piece = start // 128, start % 128 // 16
        # Rows of the pattern: 8 of 128 bytes, 4 of 64 (in pairs), 2 of 32 (in fours).
        turn = {8: row % 8, 4: row % 4, 2: row % 2}[pieces]
        within = (piece % pieces) ^ turn
        target = row * 128 + (piece // pieces * pieces + within) * 16
        out[target : target + 16] = plain[start : start + 16]
    return out


def stored(
    matrix: np.ndarray[Any, Any], swizzle: str, *, mn_major: bool
) -> tuple[np.ndarray[Any, Any], int, int]:
    """A matrix (rows, k) of codes as bytes of shared memory, with the leading and stride offsets.

    Returns:
        Bytes that start at a multiple of 1024, and the two offsets of the descriptor in bytes.
    """
    size = matrix.itemsize
    contiguous = np.ascontiguousarray(matrix.T if mn_major else matrix)  # (down, across)
    raw = contiguous.view(np.uint8).reshape(contiguous.shape[0], -1)
    span = SPANS[swizzle]
    down, across = raw.shape[0] // 8, raw.shape[1] // span
    # Atoms of 8 x span bytes, one after the other: first those across, then those down.
    atoms = raw.reshape(down, 8, across, span).transpose(0, 2, 1, 3)
    plain = np.ascontiguousarray(atoms).reshape(-1)
    step_across, step_down = 8 * span, 8 * span * across
    assert size * matrix.size == plain.size
    if swizzle == "none" and mn_major:
        return plain, step_down, step_across
    if swizzle == "none":
        return plain, step_across, step_down
    return permuted(plain, swizzle), step_across, step_down
