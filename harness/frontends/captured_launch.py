"""A launch that was captured: what every front end lowers its kernels from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.values.outcome import Capture
from harness.values.toolchain import Compiler

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedLaunch:
    """A capture, and what it takes to open its session again; `request` is the front end's own."""

    capture: Kept[Capture]
    compiler: Compiler
    request: Any
