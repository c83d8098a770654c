"""Folders that appear whole or not at all: temporary, marker, rename, one lock per destination.

A folder is ours if it carries the marker file that its owner asked for; nothing else is ever
deleted. Locks are advisory (flock), so the kernel drops them when a process is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from harness.io.files.locations import create_folder, storage_error
from harness.values.errors import InfrastructureError, UsageError

_LOCK_SECONDS = 1800.0
_LOCKS = ".locks"
_PARTIAL = re.compile(r"\.partial-(?P<name>.+)-[0-9a-f]{8}")
# An install takes at most half an hour; a folder without a stamp is left over once it is older.
_STALE_SECONDS = 2 * 3600.0


def ensure_folder(destination: Path, *, marker: str, fill: Callable[[Path], bytes]) -> Path:
    """Return `destination`; if it is not there, let `fill` make it first.

    `fill` gets an empty folder on the same disk and returns what to write into the marker file.
    When it raises, nothing is left behind. Of processes that race, one fills and the others wait.
    A destination that exists needs neither a lock nor a writable disk.

    Raises:
        StorageError: the disk is full or read-only.
        UsageError: something that is not ours is in the way.
        InfrastructureError: another process has held the lock for half an hour.
    """
    if (destination / marker).is_file():
        return destination
    create_folder(destination.parent)
    with _locked(destination):
        if (destination / marker).is_file():
            return destination
        if destination.exists():
            raise UsageError(
                f"{destination} is in the way and was not created by triage; move it elsewhere"
            )
        _sweep(destination)
        _fill(destination, marker, fill)
    return destination


def remove_folder(destination: Path, *, marker: str) -> None:
    """Delete `destination`, which must carry our marker.

    Raises:
        StorageError: the disk is read-only.
        UsageError: the folder does not exist or is not ours.
    """
    with _locked(destination):
        if destination.is_symlink() or not (destination / marker).is_file():
            raise UsageError(f"{destination} was not created by triage (no {marker}): not deleted")
        doomed = _partial_of(destination)
        try:
            # Renamed first: a reader sees the whole folder or none.
            _stamp_of(doomed).touch()
            destination.rename(doomed)
        except OSError as error:
            raise storage_error(error, destination, "delete") from error
        _discard(doomed)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file, or leave the old one.

    Raises:
        StorageError: the disk is full or read-only.
    """
    create_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(error, path, "write") from error


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _fill(destination: Path, marker: str, fill: Callable[[Path], bytes]) -> None:
    partial = _partial_of(destination)
    stamp = _stamp_of(partial)
    try:
        stamp.touch()
        partial.mkdir()
        content = fill(partial)
        (partial / marker).write_bytes(content)
        partial.rename(destination)
    except OSError as error:
        raise storage_error(error, destination, "write") from error
    finally:
        _discard(partial)


def _partial_of(destination: Path) -> Path:
    return destination.with_name(f".partial-{destination.name}-{secrets.token_hex(4)}")


def _stamp_of(partial: Path) -> Path:
    """The file that says that `partial` is ours.

    It lies outside, so that it still says so when a child that outlived a killed install makes
    the folder again after it was swept.
    """
    return partial.with_name(_LOCKS) / f"{partial.name}.stamp"


def _discard(partial: Path) -> None:
    """Delete a partial folder, then its stamp; what cannot be deleted now is left to a sweep."""
    with contextlib.suppress(OSError):
        if partial.exists():
            shutil.rmtree(partial)
        _stamp_of(partial).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(destination: Path, *, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    folder = create_folder(destination.parent / _LOCKS)
    lock = FileLock(folder / f"{destination.name}.lock", timeout=seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise InfrastructureError(
            f"another process has been working on {destination.name} for {seconds:.0f} s; "
            "wait for it or end it, then try again"
        ) from error
    except OSError as error:
        raise storage_error(error, folder, "lock a file in") from error
    try:
        yield
    finally:
        lock.release()


def _sweep(destination: Path) -> None:
    """Delete what killed processes left beside `destination`, whose lock we hold."""
    stamps = (destination.parent / _LOCKS).glob(".partial-*.stamp")
    stamped = {stamp.name.removesuffix(".stamp") for stamp in stamps}
    # A child that outlived its killed install, as older versions let it, comes without a stamp.
    stale = {path.name for path in destination.parent.glob(".partial-*") if _is_stale(path)}
    for name in sorted(stamped | stale):
        partial = destination.with_name(name)
        match = _PARTIAL.fullmatch(name)
        if not match:
            continue
        owner = destination.with_name(match["name"])
        if owner == destination:
            _sweep_one(partial)
            continue
        # Held by a living process: it is still filling that folder.
        with contextlib.suppress(InfrastructureError), _locked(owner, seconds=0):
            _sweep_one(partial)


def _is_stale(partial: Path) -> bool:
    """Whether it is a folder of this user's that nothing was put into for some time."""
    with contextlib.suppress(OSError):
        found = partial.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        return is_ours and found.st_mtime < time.time() - _STALE_SECONDS
    return False


def _sweep_one(partial: Path) -> None:
    if partial.exists():
        # The stamp stays until the next sweep: see `_stamp_of`.
        shutil.rmtree(partial, ignore_errors=True)
    else:
        _stamp_of(partial).unlink(missing_ok=True)
