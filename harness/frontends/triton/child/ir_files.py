"""Compiles Triton's own IR from a file, as a record beside those of captured launches."""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, ClassVar

import triton
from triton.backends.compiler import GPUTarget

_SUFFIXES = (".ttir", ".ttgir")
_KERNEL = re.compile(r'tt\.func public @(?:"([^"\n]{1,500})"|([\w.$-]{1,500}))\s{0,9}\(')


@dataclass
class IrRecord:
    """A file of IR, the options to compile it with, and the target."""

    # Triton reads it before any stage begins.
    first_stage: ClassVar[str] = "capture"
    path: str
    kernel: str
    key: str
    options: dict[str, Any]
    capability: int

    def describe(self) -> dict[str, Any]:
        """As a capture tells of a launch; a file has no arguments and no grid."""
        default = {"num_ctas": 1}
        return {
            "key": self.key,
            "kernel": self.kernel,
            "config": {n: v for n, v in self.options.items() if default.get(n) != v},
            "autotuned": False,
            "arguments": [],
            "grid": None,
            "file": self.path,
        }

    def compile(self, run: Any) -> Any:
        """Go on from the file to the end."""
        target = GPUTarget("cuda", self.capability, 32)
        return triton.compile(self.path, target=target, options=dict(self.options))


def is_ir(file: str) -> bool:
    """Whether this is a file of Triton's IR, by its name."""
    return file.endswith(_SUFFIXES)


def read_ir(file: str, options: dict[str, Any], capability: int) -> IrRecord:
    """The record of a file; what it is good for, Triton will say."""
    data = Path(file).read_bytes()
    named = _KERNEL.search(data.decode(errors="replace"))
    body = [hashlib.sha256(data).hexdigest(), Path(file).suffix, sorted(options.items())]
    return IrRecord(
        path=file,
        kernel=(named[1] or named[2]) if named else "",
        key=hashlib.sha256(dumps(body).encode()).hexdigest(),
        options=options,
        capability=capability,
    )
