"""A launch that was captured: what every front end lowers its kernels from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.io.processes.confinement import is_confined
from harness.values.kernel import Scalar
from harness.values.limits import Limits
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """What a session runs: `function(**overrides)` of `file`, or the file as `__main__`.

    `paths` go onto the module path, and `beside` after them; packages below `bare`, which are among
    `paths`, are imported without their `__init__`. What lies below `paths` never changes.
    `injected` are configs in place of those that the tuner of a kernel (a name or pattern) lists.
    `settings` are what only this front end's child understands.
    """

    file: Path
    function: str | None
    overrides: Mapping[str, object]
    capability: int
    limits: Limits
    paths: tuple[Path, ...] = ()
    bare: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    injected: Mapping[str, Sequence[Mapping[str, Scalar]]] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    def message(self) -> dict[str, Any]:
        """As the session wants it."""
        return {
            "file": str(self.file.resolve()),
            "function": self.function,
            "confined": is_confined(),
            "overrides": dict(self.overrides),
            "paths": [str(path) for path in self.paths],
            "user_paths": [*map(str, self.beside), *_user_paths()],
            "bare": [str(path) for path in self.bare],
            "injected": {name: list(configs) for name, configs in self.injected.items()},
            "settings": dict(self.settings),
            "device": {
                "capability": self.capability,
                "name": f"NVIDIA {self.limits.product or 'GPU'}",
                "multiprocessors": self.limits.multiprocessors,
                "max_shared": self.limits.max_shared_per_block,
                "shared_per_sm": self.limits.shared_per_sm,
                "registers_per_sm": self.limits.registers_per_sm,
                "threads_per_sm": self.limits.max_threads_per_sm,
                "memory": self.limits.memory,
                "l2_cache": self.limits.l2_cache,
                "integrated": self.limits.integrated,
            },
        }


def _user_paths() -> list[str]:
    """The user's PYTHONPATH: for the launch code, not for what runs it."""
    return [
        str(Path(entry).absolute())
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry
    ]
