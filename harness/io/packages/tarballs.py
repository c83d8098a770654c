"""Bundles: `.tar.gz` files whose bytes depend on their content, and on nothing of the machine."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from harness.io.files.locations import storage_error
from harness.io.files.whole_folders import write_atomically
from harness.io.packages import sdists as sources


def pack(path: Path, files: Mapping[str, bytes], *, folder: str) -> None:
    """Write a bundle; equal files give equal bytes. Scripts (`.sh`) can be run.

    Raises:
        StorageError: it cannot be written.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            member.mode = 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(member, io.BytesIO(data))
    packed = io.BytesIO()
    # No name and no time in the header.
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as file:
        file.write(plain.getvalue())
    write_atomically(path, packed.getvalue())


def unpack(path: Path, target: Path) -> None:
    """Unpack a bundle that `pack` made into a folder, which must be new.

    Raises:
        IntegrityError: it is damaged, hostile or too large.
        StorageError: it cannot be read, or written there.
    """
    try:
        sources.unpack(path, target)
    except OSError as error:
        raise storage_error(error, path, "unpack", option="--out") from error
