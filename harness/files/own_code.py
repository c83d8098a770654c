"""Hashes of this program's own code: what it computed is kept only while the code is the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import harness

__all__ = ["code_sha256"]


def code_sha256(*places: str) -> str:
    """Hash of modules; each place is a folder or a file, relative to the package.

    Raises:
        FileNotFoundError: there is no Python at one of them (it was moved).
    """
    package = Path(harness.__file__).parent
    digest = hashlib.sha256()
    for place in places:
        top = package / place
        modules = [top] if top.is_file() else sorted(top.rglob("*.py"))
        if not modules:
            raise FileNotFoundError(f"no module of this program in {place}")
        for module in modules:
            digest.update(module.read_bytes())
    return digest.hexdigest()
