"""Whether an executable is still the one that was installed: asked before its failure is believed.

A damaged compiler crashes, or says what it never says. Its hash is compared once, as long as its
file stays the same.
"""

from __future__ import annotations

import base64
import csv
import functools
from pathlib import Path

from harness.io.files.whole_folders import sha256_of
from harness.values.errors import InfrastructureError
from harness.values.toolchain import Assembler


def check_ptxas(ptxas: Assembler) -> None:
    """Compare a ptxas with its hash, and with that of the wheel of Triton that it came in.

    Raises:
        InfrastructureError: it is not what was installed.
    """
    try:
        digest = digest_of(ptxas.path)
        expected = _in_record(ptxas.path)
    except OSError as error:
        raise InfrastructureError(f"{ptxas.path} cannot be read: {error.strerror}") from error
    if digest != ptxas.sha256 or expected not in (None, digest):
        raise InfrastructureError(
            f"ptxas {ptxas.version} is damaged: {ptxas.path} is not the file that was installed; "
            "remove its toolchain (triage toolchain list, triage toolchain remove) and run again"
        )


def check_in_wheel(path: Path, name: str) -> None:
    """Compare an executable, `name` for people, with what the wheel that it came in says of it.

    Raises:
        InfrastructureError: it is not what was installed.
    """
    try:
        digest = digest_of(path)
        expected = _in_record(path, f"*{name}*")
    except OSError as error:
        raise InfrastructureError(f"{path} cannot be read: {error.strerror}") from error
    if expected != digest:
        raise InfrastructureError(
            f"{name} is damaged: {path} is not the file that was installed; remove its toolchain "
            "(triage toolchain list, triage toolchain remove) and run again"
        )


def digest_of(path: Path) -> str:
    """The sha256 of a file, computed once as long as it stays the same.

    Raises:
        OSError: it cannot be read.
    """
    facts = path.stat()
    return _digest(path, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=256)
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    del mtime_ns, size  # a part of the key only
    return sha256_of(path)


@functools.lru_cache(maxsize=256)
def _in_record(path: Path, wheel: str = "triton-*") -> str | None:
    for folder in path.parents:
        for record in folder.glob(f"{wheel}.dist-info/RECORD"):
            relative = path.relative_to(folder).as_posix()
            with record.open(newline="", encoding="utf-8") as lines:
                hashes = (row[1] for row in csv.reader(lines) if row and row[0] == relative)
                found = next(hashes, "")
            if found.startswith("sha256="):
                padded = found.removeprefix("sha256=") + "="
                return base64.urlsafe_b64decode(padded).hex()
        if folder.name == "site":
            return None
    return None
