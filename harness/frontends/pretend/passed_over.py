"""Kernels of Triton beside those of another compiler: they are passed over.

Launch code often has both. Where there is no Triton, the launch code says so itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from harness.frontends.pretend import gpu

_KINDS: list[Any] = []
pretend = gpu.pretend_cuda
"""Shows torch, and Triton where there is one, a GPU that is not there."""
with contextlib.suppress(ImportError):
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    from harness.frontends.pretend.pretend_driver import pretend_triton

    _KINDS += [JITFunction, Autotuner, Heuristics]
    pretend = pretend_triton


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
