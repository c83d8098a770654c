"""Kernels of Triton beside those of another compiler: they are passed over.

Launch code often has both. Where there is no Triton, the launch code says so itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from harness.frontends.pretend.gpu import pretend_cuda

__all__ = ["passing_over_triton", "pretend_cuda"]

_KINDS: list[Any] = []
with contextlib.suppress(ImportError):
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    _KINDS += [JITFunction, Autotuner, Heuristics]


@contextlib.contextmanager
def passing_over_triton() -> Iterator[None]:
    """Launch no kernel of Triton: what it would write has a shape already."""
    saved = [(kind, kind.run) for kind in _KINDS]
    for kind, _ in saved:
        kind.run = lambda *_, **__: None
    try:
        yield
    finally:
        for kind, run in saved:
            kind.run = run
