"""Toolchains: a pinned Triton and a pinned ptxas, each with version, origin and sha256."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUNDLED", "INSTALLED", "Ptxas", "Tool", "Triton"]

BUNDLED = "bundled"
"""The ptxas that this Triton picks for this target."""

INSTALLED = "installed"
"""The Triton that lies beside `triage` in its own environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triton:
    """One Triton that a child can import.

    `path` goes first on the child's module path; None for the installed one.
    `sha256` is that of the wheel, None when it was not installed by us; then `fingerprint` changes
    whenever its files do. `variables` are set in the environment of its processes, as a user would
    set them.
    """

    version: str
    origin: str
    path: Path | None = None
    sha256: str | None = None
    fingerprint: str | None = None
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ptxas:
    """One ptxas executable.

    `origin` is `bundled` or the distribution that carried it; `sha256` is that of the
    executable; `build` is the Build line of its `--version`.
    """

    version: str
    origin: str
    path: Path
    sha256: str
    build: str = ""

    @property
    def label(self) -> str:
        """How cells spell it: bundled binaries are told from wheels of the same version."""
        return f"{self.version}-bundled" if self.origin == BUNDLED else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Another executable that we run: nvdisasm, cuobjdump.

    A `version` of several words tells two files apart; the first one is for people.
    """

    name: str
    version: str
    path: Path

    @property
    def label(self) -> str:
        """`nvdisasm 13.5.37`, or `nvdisasm bundled`: the one inside Triton."""
        return f"{self.name} {self.version.partition(' ')[0]}"
