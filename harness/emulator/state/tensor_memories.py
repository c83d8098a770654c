"""Tensor memory of every CTA of a batch, and who holds which of its columns."""

from __future__ import annotations

import numpy as np

from harness.emulator.engines.tensor_memory import COLUMNS, ROWS, Allocator
from harness.emulator.program.types import Array

__all__ = ["TensorMemories"]


class TensorMemories:
    """128 x 512 words of each CTA: `words` is (CTAs, 128, 512), made when it is first asked for."""

    def __init__(self, ctas: int, garbage: int) -> None:
        random = np.random.default_rng((garbage, 55))
        pattern = random.integers(0, 1 << 32, (1, ROWS, COLUMNS), dtype=np.uint32)
        self.words: Array = np.repeat(pattern, ctas, axis=0)
        self.allocators = [Allocator() for _ in range(ctas)]
