"""Hashes of this program's own code: what it computed is kept only while the code is the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import gpu_emulator
import harness


def code_sha256(*places: str) -> str:
    """Hash of modules; each place is a folder or a file, relative to the package.

    What lies in `gpu_emulator/` is named so.

    Raises:
        FileNotFoundError: there is no Python at one of them (it was moved).
    """
    package = Path(harness.__file__).parent
    beside = {"gpu_emulator": Path(gpu_emulator.__file__).parent.parent}
    digest = hashlib.sha256()
    for place in places:
        top = beside.get(place.partition("/")[0], package) / place
        modules = [top] if top.is_file() else sorted(top.rglob("*.py"))
        if not modules:
            raise FileNotFoundError(f"no module of this program in {place}")
        for module in modules:
            digest.update(module.read_bytes())
    return digest.hexdigest()


def program_sha256() -> str:
    """Hash of all of this program's code, the emulator's too."""
    return code_sha256(".", "gpu_emulator")


def import_path() -> str:
    """What `PYTHONPATH` has to hold for a process that imports this program."""
    folders = (Path(ours.__file__ or "").parent.parent for ours in (harness, gpu_emulator))
    return os.pathsep.join(dict.fromkeys(map(str, folders)))
