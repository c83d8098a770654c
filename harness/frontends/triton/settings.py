"""The user's settings of a Triton and of torch: part of the key of everything that they make."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from harness.frontends.triton.knobs import is_knob, listed_knobs
from harness.io.toolchains.bundled import installed_package
from harness.values.toolchain import Compiler


def knobs(triton: Compiler) -> dict[str, str]:
    """The user's Triton and LLVM settings that this Triton reads."""
    listed = _listed(triton.path)
    return {name: value for name, value in sorted(os.environ.items()) if is_knob(name, listed)}


def torch_settings() -> dict[str, str]:
    """The user's settings of torch, which reads some of them when it is imported."""
    prefixes = ("TORCH", "PYTORCH_")
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}


@functools.cache
def _listed(path: Path | None) -> frozenset[str]:
    """What its own `knobs.py` names; nothing before Triton 3.4, which has none."""
    package = path / "triton" if path else installed_package()
    try:
        return listed_knobs((package / "knobs.py").read_text()) if package else frozenset()
    except (OSError, UnicodeDecodeError):
        return frozenset()
