"""The Python environment that a compiler lives in, as data: what a front end declares of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagePin:
    """One package of the package index, in exactly one version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """All packages of one version of a compiler, and the Python that imports them.

    `kind` and `version` are the compiler's. `pins` are its packages, its own first, then its
    partners: nothing else is installed, whatever they ask for. `python` is a version of Python
    (`3.12`); empty for that of triage. `shared` are packages that are linked from triage's own
    environment, with all that they need, in place of hundreds of megabytes of another copy: torch,
    numpy. `imports` are the modules whose import proves that the packages go together.
    """

    kind: str
    version: str
    pins: tuple[PackagePin, ...]
    python: str = ""
    shared: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
