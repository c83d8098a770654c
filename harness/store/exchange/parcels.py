"""A whole results folder as bytes: what a worker found out, on its way to the store of a night.

It is read like any other store that is merged: as data from elsewhere, checked whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.store.exchange.foreign import open_foreign
from harness.store.files.artifacts import ArtifactStore
from harness.store.files.read_only import DATABASE
from harness.values.errors import UsageError

if TYPE_CHECKING:
    from harness.store.exchange.foreign import ForeignStore


class _Parcel(msgspec.Struct):
    """The database, and the files of artifacts by their sha256, compressed as they lie there."""

    database: bytes
    artifacts: dict[str, bytes]


def pack(home: Path) -> bytes:
    """The results in a folder whose store is closed."""
    held = ArtifactStore(home / "artifacts", writable=False)
    return msgspec.msgpack.encode(
        _Parcel(
            database=(home / DATABASE).read_bytes(),
            artifacts={name: held.packed(name) or b"" for name, _, _ in held.all()},
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
        raise UsageError(f"a parcel that this program did not pack: {error}") from error
    with tempfile.TemporaryDirectory(prefix="triage-parcel-") as folder:
        (Path(folder) / DATABASE).write_bytes(parcel.database)
        with open_foreign(Path(folder), parcel.artifacts.get) as source:
            yield source
