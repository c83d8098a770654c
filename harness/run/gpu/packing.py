"""Packs as files: one Python program that has cubins, inputs and a runner in it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import harness
from harness.io.files.locations import storage_error
from harness.run.gpu.device.contents import MANIFEST, blob_name
from harness.run.gpu.trip import Trip, manifest
from harness.store.store import Store

_FIRST_LINE = b"#!/usr/bin/env python3\n"
_MAIN = b"from harness.run.gpu.device.program import main\n\nmain()\n"
_ROOM = "harness/run/gpu/device"
# The earliest that the format knows: a pack depends on what is in it alone.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def runner_files() -> dict[str, bytes]:
    """The program of every pack: names in the archive and their bytes."""
    root = Path(harness.__file__).parent.parent
    files = {"__main__.py": _MAIN}
    files |= {
        f"{above}/__init__.py": b"" for above in ("harness", "harness/run", "harness/run/gpu")
    }
    for path in sorted((root / _ROOM).glob("*.py")):
        files[f"{_ROOM}/{path.name}"] = path.read_bytes()
    return files


def manifest_bytes(trip: Trip) -> bytes:
    """`pack.json`; its sha256 names the pack."""
    return json.dumps(manifest(trip), sort_keys=True, indent=1).encode()


def write_pack(trip: Trip, store: Store, path: Path) -> None:
    """Write a pack.

    Raises:
        StorageError: the file cannot be written, or an artifact cannot be read.
    """
    members = {**runner_files(), MANIFEST: manifest_bytes(trip)}
    try:
        with path.open("wb") as file:
            file.write(_FIRST_LINE)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in members.items():
                    archive.writestr(_member(name), data)
                for sha256 in trip.blobs:
                    archive.writestr(_member(blob_name(sha256)), store.artifacts.get(sha256))
        path.chmod(0o755)
    except OSError as error:
        raise storage_error(error, path, "write", option="--pack") from error


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member
