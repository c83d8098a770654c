"""Tensor memory of every CTA of a batch, who holds which of its columns, and what was written."""

from __future__ import annotations

import numpy as np

from gpu_emulator.engines.tensor_memory import COLUMNS, ROWS, Allocator
from gpu_emulator.types import Array


class TensorMemories:
    """128 x 512 words of each CTA: `words` is (CTAs, 128, 512), made when it is first asked for.

    Cells have numbers: (CTA * 128 + lane) * 512 + column.
    """

    def __init__(self, ctas: int, garbage: int, *, validity: bool) -> None:
        random = np.random.default_rng((garbage, 55))
        pattern = random.integers(0, 1 << 32, (1, ROWS, COLUMNS), dtype=np.uint32)
        self.words: Array = np.repeat(pattern, ctas, axis=0)
        self.allocators = [Allocator() for _ in range(ctas)]
        self._written = np.zeros(ctas * ROWS * COLUMNS, np.bool_) if validity else None

    @property
    def is_tracked(self) -> bool:
        """Whether it is remembered which cells were written."""
        return self._written is not None

    def mark(self, cells: Array) -> None:
        """Cells have been written."""
        if self._written is not None:
            self._written[cells] = True

    def unwritten(self, cells: Array) -> Array:
        """Those of the cells that nothing wrote, each once, where that is known."""
        return cells[:0] if self._written is None else np.unique(cells[~self._written[cells]])
