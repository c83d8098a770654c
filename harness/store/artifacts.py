"""Bytes by content: PTX, cubins, logs, each kept once under the sha256 of what it is.

Layout: `root/ab/cdef....z` is the zlib stream of the bytes whose sha256 is `abcdef...`;
`root/tmp` holds what is being written. A file gets its final name only when it is complete, and
every read is checked against the name, so that a damaged file is never served: it is deleted and
the caller makes the bytes again.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from harness.values.errors import FullDiskError, StorageError

_LARGEST = 2**30
"""Most bytes that one artifact may have, uncompressed: bounds what a damaged file expands to."""

# zlib adds 5 bytes for each 16 KiB at worst (RFC 1950): more than this was never written by us.
_LARGEST_FILE = _LARGEST + _LARGEST // 1000 + 2**20

_STALE = 3600.0
"""Seconds after which a temporary file belongs to a writer that was killed."""

_CHUNK = 2**20
_PACKED_CHUNK = 2**16
_HELD = 2**26

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHARD = re.compile(r"[0-9a-f]{2}")


class UnusableArtifactError(StorageError):
    """An artifact that was promised is missing: make it again and `put` it."""


class MissingArtifactError(UnusableArtifactError):
    """No file has this name."""


class DamagedArtifactError(UnusableArtifactError):
    """The file was truncated or changed. It has been deleted, so that `put` writes it again."""


def disk_failure(path: Path, error: OSError) -> StorageError:
    """Say in one line what the operating system refused at `path`, and what to do."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return FullDiskError(
            f"no space left for {path}: free some space, or run `triage cache --trim 1GB`"
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return StorageError(f"{path} is not writable: change its permissions or use another folder")
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return StorageError(f"cannot open {path}: {error.strerror}; raise the limit (ulimit -n)")
    return StorageError(f"cannot use {path}: {error.strerror or error}; use another folder")


class ArtifactStore:
    """Content-addressed bytes under one folder, safe for several processes at once.

    What the disk refuses is a `StorageError`; so is what is too large to be kept.

    Nothing is flushed to the platter (no fsync). `kill -9` cannot tear a file, because the final
    name appears by rename only after the last byte was handed to the kernel, which outlives us.
    Power loss can leave a final name over missing bytes; the check on every read finds that, and
    what is lost can be made again, so a flush for each artifact would cost time and buy nothing.
    """

    def __init__(self, root: Path, *, writable: bool = True) -> None:
        """Create the folders, and delete what killed writers left in `root/tmp`.

        With `writable=False` nothing is changed, ever: it is only for reading.
        """
        self.root = root
        self._temporary = root / "tmp"
        self._writable = writable
        if not writable:
            return
        try:
            self._temporary.mkdir(parents=True, exist_ok=True)
            oldest = time.time() - _STALE
            for entry in self._temporary.iterdir():
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime < oldest:
                        entry.unlink()
        except OSError as error:
            raise disk_failure(root, error) from error

    def put(self, data: bytes) -> str:
        """Keep `data` and return its sha256 (hex).

        One that is here already is not written again, but its modification time is renewed: that
        is what keeps a concurrent trim from removing it before it is named. At most 1 GiB is kept.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        if not self._renew(sha256):
            self._write(data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK))
        return sha256

    def put_file(self, path: Path) -> str:
        """Keep the content of a file, reading it once and never whole; return its sha256."""
        return self._write(_chunks(path))

    def get(self, sha256: str) -> bytes:
        """Return the bytes, checked against their name.

        Raises:
            MissingArtifactError: there is no such artifact.
            DamagedArtifactError: its file was changed; it is deleted now.
        """
        path = self._path(sha256)
        try:
            # A store from elsewhere may hold a pipe under this name, or a link to a device.
            with open(os.open(path, _READ), "rb") as file:  # noqa: PTH123
                inode = os.fstat(file.fileno())
                is_file = stat.S_ISREG(inode.st_mode)
                data = _inflate(file, inode.st_size, sha256) if is_file else None
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingArtifactError(
                f"artifact {sha256[:12]} is not in {self.root}; run the command again to make it"
            ) from error
        except OSError as error:
            if error.errno != errno.EIO:
                raise disk_failure(path, error) from error
            data = inode = None
        if data is None:
            self._discard(path, inode)
            raise DamagedArtifactError(
                f"artifact {sha256[:12]} was damaged on disk and is deleted; run again to make it"
            )
        return data

    def packed(self, sha256: str) -> bytes | None:
        """Return the file of an artifact as it lies there; None where none can be read.

        What it holds is not looked at: `put_packed` of another store does.
        """
        try:
            with open(os.open(self._path(sha256), _READ), "rb") as file:  # noqa: PTH123
                inode = os.fstat(file.fileno())
                is_file = stat.S_ISREG(inode.st_mode) and inode.st_size <= _LARGEST_FILE
                return file.read() if is_file else None
        except OSError:
            return None

    def put_packed(self, sha256: str, packed: bytes) -> None:
        """Keep an artifact that another store has packed, without packing it again.

        Raises:
            DamagedArtifactError: it is not what its name says.
        """
        if _inflate(io.BytesIO(packed), len(packed), sha256) is None:
            raise DamagedArtifactError(f"artifact {sha256[:12]} is not what its name says")
        if not self._renew(sha256):
            with self._new_file() as (file, temporary):
                file.write(packed)
                self._rename(file, temporary, self._path(sha256))

    def has(self, sha256: str) -> bool:
        """Whether a file of that name exists; `get` finds out whether it is sound."""
        return self.size(sha256) is not None

    def size(self, sha256: str) -> int | None:
        """Bytes on disk (compressed), None when there is no such artifact."""
        try:
            return self._path(sha256).stat().st_size
        except OSError:
            return None

    def all(self) -> Iterator[tuple[str, int, float]]:
        """Yield sha256, bytes on disk and time of the last `put` (seconds since the epoch).

        Files that appear or vanish during the walk may or may not be seen.
        """
        if not self._writable and not self.root.exists():
            return
        try:
            shards = sorted(entry for entry in self.root.iterdir() if _SHARD.fullmatch(entry.name))
            for shard in shards:
                with os.scandir(shard) as entries:
                    for entry in entries:
                        sha256 = shard.name + entry.name.removesuffix(".z")
                        if entry.name.endswith(".z") and _SHA256.fullmatch(sha256):
                            try:
                                inode = entry.stat(follow_symlinks=False)
                            except FileNotFoundError:
                                continue
                            yield sha256, inode.st_size, inode.st_mtime
        except OSError as error:
            raise disk_failure(self.root, error) from error

    def remove(self, sha256: str, *, put_until: float | None = None) -> int:
        """Delete an artifact and return the bytes freed on disk, 0 when there was nothing to do.

        With `put_until` (seconds since the epoch), one that was put later than that stays.
        """
        path = self._path(sha256)
        try:
            inode = path.stat()
            if put_until is not None and inode.st_mtime > put_until:
                return 0
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            raise disk_failure(path, error) from error
        return inode.st_size

    def _path(self, sha256: str) -> Path:
        # A name that is not a sha256 (a damaged row may hold one) must not lead out of the folder.
        if not _SHA256.fullmatch(sha256):
            return self.root / "no-such-artifact"
        return self.root / sha256[:2] / f"{sha256[2:]}.z"

    def _renew(self, sha256: str) -> bool:
        try:
            os.utime(self._path(sha256))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk_failure(self.root, error) from error
        return True

    def _write(self, chunks: Iterable[bytes]) -> str:
        """Compress into a temporary file, hash on the way, and rename to the final name."""
        digest = hashlib.sha256()
        # Level 1: on PTX a higher level saves a seventh of the space for half as much time again.
        packer = zlib.compressobj(1)
        total = 0
        with self._new_file() as (file, temporary):
            for chunk in chunks:
                total += len(chunk)
                if total > _LARGEST:
                    raise StorageError(
                        f"an artifact for {self.root} is over {_LARGEST} bytes, the largest"
                        " that is kept; exclude this cell"
                    )
                digest.update(chunk)
                file.write(packer.compress(chunk))
            file.write(packer.flush())
            self._rename(file, temporary, self._path(digest.hexdigest()))
        return digest.hexdigest()

    @contextmanager
    def _new_file(self) -> Iterator[tuple[BinaryIO, Path]]:
        """A temporary file and its path; it is gone afterwards, unless it was renamed.

        Raises:
            StorageError: in place of `OSError`.
        """
        temporary = self._temporary / f"{os.getpid()}-{os.urandom(8).hex()}"
        try:
            with temporary.open("xb") as file:
                yield file, temporary
        except OSError as error:
            raise disk_failure(self.root, error) from error
        finally:
            with suppress(OSError):
                temporary.unlink()

    def _rename(self, file: BinaryIO, temporary: Path, path: Path) -> None:
        file.close()
        try:
            temporary.replace(path)
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True)
            temporary.replace(path)

    def _discard(self, path: Path, read: os.stat_result | None) -> None:
        """Delete a damaged file, unless another process has already put a sound one there."""
        if not self._writable:
            return
        try:
            now = path.stat()
            if read is None or (now.st_ino, now.st_mtime_ns) == (read.st_ino, read.st_mtime_ns):
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_failure(path, error) from error


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as source:
            while chunk := source.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def _inflate(file: BinaryIO, size: int, sha256: str) -> bytes | None:
    """Decompress what hashes to `sha256`; None when it is not exactly one whole zlib stream of it.

    What is large is held only once its hash is known to be right: a few bytes can expand to GiB.
    """
    if size > _LARGEST_FILE:
        return None
    packed = file.read()
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, min(_HELD, _LARGEST))
        if not unpacker.eof and unpacker.unconsumed_tail:
            if _inflated_hash(packed) != sha256:
                return None
            return zlib.decompress(packed)
    except zlib.error:
        return None
    is_whole = unpacker.eof and not unpacker.unused_data
    return data if is_whole and hashlib.sha256(data).hexdigest() == sha256 else None


def _inflated_hash(packed: bytes) -> str | None:
    """The hash of what one zlib stream expands to, piece by piece; None if it is too large."""
    unpacker, digest, size = zlib.decompressobj(), hashlib.sha256(), 0
    for at in range(0, len(packed), _PACKED_CHUNK):
        remaining = packed[at : at + _PACKED_CHUNK]
        while remaining and not unpacker.eof:
            data = unpacker.decompress(remaining, _CHUNK)
            remaining = unpacker.unconsumed_tail
            digest.update(data)
            size += len(data)
            if size > _LARGEST:
                return None
        if unpacker.eof and (unpacker.unused_data or at + _PACKED_CHUNK < len(packed)):
            return None
    return digest.hexdigest() if unpacker.eof else None


# Results that can be read and not written: on a read-only disk, or another user's.

DATABASE = "triage.db"
_BESIDE = ("", "-wal")
"""What belongs to a database: itself, and the log that a process which was killed leaves."""


def is_writable(home: Path) -> bool:
    """Whether the results in `home` can be used in place."""
    places = (home, home / DATABASE, home / "triage.lock", home / "artifacts")
    return all(os.access(path, os.W_OK, effective_ids=True) for path in places if path.exists())


@contextmanager
def database_copy(home: Path) -> Iterator[Path]:
    """A folder with a copy of the database in `home`, or without one where there is none.

    Raises:
        StorageError: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="triage-read-") as folder:
        for ending in _BESIDE:
            source = home / f"{DATABASE}{ending}"
            try:
                if source.is_file():
                    shutil.copyfile(source, Path(folder) / source.name)
                elif source.exists():
                    raise StorageError(f"{source} is not a file: it cannot be read")
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise FullDiskError(
                        f"no space left for a copy of {source} in {folder}: "
                        "set TMPDIR to a folder on another disk"
                    ) from error
                raise disk_failure(source, error) from error
        yield Path(folder)
