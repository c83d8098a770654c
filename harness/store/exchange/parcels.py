"""A whole results folder as bytes: what a worker found out, on its way to the store of a night.

It is read like any other store that is merged: as data from elsewhere, checked whole.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.store.exchange.foreign import open_foreign
from harness.store.files.read_only import DATABASE
from harness.values.errors import UsageError

if TYPE_CHECKING:
    from harness.store.exchange.foreign import ForeignStore

__all__ = ["open_parcel", "pack"]

_ARTIFACTS = "artifacts"
_ARTIFACT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}\.z")


class _Parcel(msgspec.Struct):
    """The database, and the files of artifacts by their places, compressed as they lie there."""

    database: bytes
    artifacts: dict[str, bytes]


def pack(home: Path) -> bytes:
    """The results in a folder whose store is closed."""
    root = home / _ARTIFACTS
    files = {path.relative_to(root).as_posix(): path for path in root.glob("??/*.z")}
    return msgspec.msgpack.encode(
        _Parcel(
            database=(home / DATABASE).read_bytes(),
            artifacts={name: path.read_bytes() for name, path in files.items()},
        )
    )


@contextmanager
def open_parcel(data: bytes) -> Iterator[ForeignStore]:
    """The store in a parcel, unpacked for as long as the block lasts.

    Raises:
        UsageError: it is not what `pack` made, or what it holds is refused.
    """
    try:
        parcel = msgspec.msgpack.decode(data, type=_Parcel)
    except msgspec.MsgspecError as error:
        raise UsageError(f"a parcel that none of ours packed: {error}") from error
    with tempfile.TemporaryDirectory(prefix="triage-parcel-") as folder:
        home = Path(folder)
        (home / DATABASE).write_bytes(parcel.database)
        for name, packed in parcel.artifacts.items():
            # A name from elsewhere leads nowhere else.
            if not _ARTIFACT.fullmatch(name):
                raise UsageError(f"a parcel with a file {name[:100]!r}")
            path = home / _ARTIFACTS / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed)
        with open_foreign(home) as source:
            yield source
