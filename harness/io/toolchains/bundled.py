"""The Triton that lies beside triage in its own environment, and what a Triton carries along."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path

from harness.io.toolchains.marker import NVDISASM, TRITON
from harness.values.errors import InfrastructureError
from harness.values.toolchain import INSTALLED, Compiler, Tool


def package_of(triton: Compiler | None) -> Path | None:
    """The folder of a Triton's package (the installed one for None); None where there is none."""
    if triton is not None and triton.path is not None:
        return triton.path / TRITON
    return installed_package()


def bundled_nvdisasm(triton: Compiler | None) -> Tool | None:
    """The nvdisasm inside a Triton (the installed one for None); None where it carries none."""
    package = package_of(triton)
    path = package / "backends" / "nvidia" / "bin" / NVDISASM if package else None
    if path is None or not path.is_file():
        return None
    facts = path.stat()
    return Tool(name=NVDISASM, version=f"bundled {facts.st_size} {facts.st_mtime_ns}", path=path)


def _fingerprint() -> str | None:
    """A hash that changes when somebody rebuilds or edits the installed Triton in place."""
    package = installed_package()
    if package is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".so"):
            facts = path.stat()
            digest.update(f"{path}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def installed_package() -> Path | None:
    """The folder of the Triton beside triage; it is not imported."""
    found = importlib.util.find_spec(TRITON)
    return Path(found.origin).parent if found and found.origin else None


def installed_triton() -> Compiler:
    """The Triton that lies beside triage in its own environment; it is not imported.

    Raises:
        InfrastructureError: there is none.
    """
    try:
        version = importlib.metadata.version(TRITON)
    except importlib.metadata.PackageNotFoundError as error:
        raise InfrastructureError(
            "no Triton is installed beside triage; install one there, or name a version"
        ) from error
    return Compiler(version=version, origin=INSTALLED, fingerprint=_fingerprint())
