"""Folders and files that appear whole or not at all; scratch folders; what users name for output.

A folder is ours if it carries the marker file that its owner asked for; nothing else is ever
deleted. Locks are advisory (flock), so the kernel drops them when a process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.io.files.locations import create_folder, storage_error
from harness.values.errors import InfrastructureError, UsageError

# Scratch folders: each is locked while it is in use, and swept once the run that made it is gone. A
# sweep deletes a folder only if this program made it: by its name, its mode, its user, and the
# words in a file inside. The lock is an flock, which the kernel drops when a process is killed; a
# process id would say nothing to containers that share a temporary folder.

_PREFIX = "triage-"
DRAFT = ".draft-"
"""How names of drafts begin, which lie beside what they are going to replace."""

_PARTIAL = ".partial-"
"""How names of folders begin that are being made, or deleted."""

_RANDOM = re.compile(r"(?:.+-)?[a-z0-9_]{8}")
_OWNER = "owner"
_WORDS = b"A scratch folder of kernel-triage, deleted once nothing holds a lock on this file.\n"
_EMPTY_SECONDS = 3600.0


@contextlib.contextmanager
def scratch_disk() -> Iterator[None]:
    """Turn an error of the scratch disk into ours.

    Raises:
        InfrastructureError: in place of `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"cannot write scratch files in {tempfile.gettempdir()}: {error.strerror or error}; "
            "free some space or set TMPDIR to another disk"
        ) from error


class Scratch:
    """A new folder below `parent` (the temporary folder by default), with a lock on it.

    Those of runs that were killed, with the same `prefix`, are deleted there. Its name says what it
    is `of`, where that is given.
    """

    def __init__(
        self, parent: str | None = None, *, prefix: str = _PREFIX, of: str | None = None
    ) -> None:
        sweep_scratch(parent, prefix=prefix)
        with scratch_disk() if parent is None else contextlib.nullcontext():
            named = f"{prefix}{of}-" if of else prefix
            self.folder = Path(tempfile.mkdtemp(prefix=named, dir=parent))
            self._lock = os.open(self.folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Written once it is locked: without the words, no sweep touches the folder.
            os.write(self._lock, _WORDS)

    def remove(self) -> None:
        """Delete the folder and drop the lock."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.remove()


def sweep_scratch(parent: str | None = None, *, prefix: str = _PREFIX) -> None:
    """Delete the scratch folders of runs that were killed."""
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            facts = folder.lstat()
            is_private = facts.st_mode == stat.S_IFDIR | stat.S_IRWXU
            is_ours = is_private and facts.st_uid == os.geteuid()
            if is_ours and _RANDOM.fullmatch(folder.name.removeprefix(prefix)):
                _sweep_one(folder)


def _sweep_one(folder: Path) -> None:
    inside = [path.name for path in folder.iterdir()]
    if not inside and _is_old(folder):
        # Its run was killed before it could write whose folder it is.
        folder.rmdir()
        return
    owner = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = os.read(owner, len(_WORDS) + 1)
        if content == _WORDS:
            shutil.rmtree(folder, ignore_errors=True)
        elif not content and inside == [_OWNER] and _is_old(folder):
            (folder / _OWNER).unlink()
            folder.rmdir()
    finally:
        os.close(owner)


def _is_old(folder: Path) -> bool:
    return folder.stat().st_mtime < time.time() - _EMPTY_SECONDS


_LOCK_SECONDS = 1800.0
_LOCKS = ".locks"


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
    with locked(destination):
        if (destination / marker).is_file():
            return destination
        if destination.exists():
            raise UsageError(
                f"{destination} is in the way and was not created by triage; move it elsewhere"
            )
        parent, name = str(destination.parent), destination.name
        try:
            with Scratch(parent, prefix=_PARTIAL, of=name) as beside:
                partial = beside / "new"
                partial.mkdir()
                content = fill(partial)
                (partial / marker).write_bytes(content)
                partial.rename(destination)
        except OSError as error:
            raise storage_error(error, destination, "write") from error
    return destination


def remove_folder(destination: Path, *, marker: str) -> None:
    """Delete `destination`, which must carry our marker.

    Raises:
        StorageError: the disk is read-only.
        UsageError: the folder does not exist or is not ours.
    """
    with locked(destination):
        if destination.is_symlink() or not (destination / marker).is_file():
            raise UsageError(f"{destination} was not created by triage (no {marker}): not deleted")
        parent, name = str(destination.parent), destination.name
        try:
            # Renamed first: a reader sees the whole folder or none.
            with Scratch(parent, prefix=_PARTIAL, of=name) as beside:
                destination.rename(beside / "old")
        except OSError as error:
            raise storage_error(error, destination, "delete") from error


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
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def locked(destination: Path, *, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Hold what lies at `destination`, there or not, against other processes.

    Raises:
        InfrastructureError: another process holds it for that many seconds.
        StorageError: the disk is full or read-only.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - what is installed needs no lock

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


def write_output(
    path: Path, write: Callable[[Path], None], *, option: str, overwrite: bool
) -> None:
    """Let `write` write a draft, and put its content where `path` says, as a redirection does.

    A regular file is replaced whole, or (without `overwrite`) not at all. A link is followed, and
    stays. A pipe or a device is written into: a file in its place would destroy it. `option` is
    what the user named it by, for messages.

    Raises:
        UsageError: it is a folder, a pipe that has no reader, or a file that is there already.
        StorageError: it cannot be written.
    """
    try:
        mode = None  # of nothing, as behind a link to nothing
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode
        if mode is not None and stat.S_ISDIR(mode):
            raise UsageError(f"{option} {path} is a folder; name a file")
        if mode is None or stat.S_ISREG(mode):
            _replace(Path(os.path.realpath(path)), write, overwrite=overwrite)
        else:
            _pour(path, write, option)
    except FileExistsError:
        raise UsageError(f"{path} exists: name another file, or add --force") from None
    except (OSError, ValueError) as error:
        raise storage_error(error, path, "write", option=option) from error


def _replace(path: Path, write: Callable[[Path], None], *, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        # Before the work; once more, and for good, after it.
        raise FileExistsError
    with Scratch(str(path.parent), prefix=DRAFT) as folder:
        draft = folder / "draft"
        write(draft)
        if overwrite:
            if path.exists():
                shutil.copymode(path, draft)
            draft.replace(path)
        else:
            # Unlike a rename, a link never takes the place of another file.
            os.link(draft, path)


def _pour(path: Path, write: Callable[[Path], None], option: str) -> None:
    with tempfile.TemporaryDirectory(prefix="triage-output-") as folder:
        draft = Path(folder) / "draft"
        write(draft)
        try:
            # Without NONBLOCK, opening a pipe waits for a reader that may never come.
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise UsageError(
                    f"{option} {path}: no process reads from it; start the reader first"
                ) from error
            raise
        os.set_blocking(fd, True)
        with draft.open("rb") as source, os.fdopen(fd, "wb") as target:
            try:
                shutil.copyfileobj(source, target)
            except BrokenPipeError:
                # It has seen enough.
                target.detach()


# Folders that the user names for output: they appear whole, and only what is ours is replaced.


def write_output_folder(
    path: Path, fill: Callable[[Path], None], *, marker: str, option: str
) -> None:
    """Let `fill` fill an empty draft beside `path`, which then takes its place.

    There may be nothing yet, an empty folder, or one with our `marker`, a file that says that it
    was written here and may be replaced. `option` is as in `write_output`.

    Raises:
        UsageError: something that is not ours is there.
        StorageError: it cannot be written.
    """
    path = path.absolute()
    _refuse(path, marker, option)
    create_folder(path.parent)
    try:
        with Scratch(str(path.parent), prefix=DRAFT) as beside:
            draft = beside / "new"
            draft.mkdir()
            fill(draft)
            (draft / marker).write_bytes(b"")
            # Once more: it took a while.
            _refuse(path, marker, option)
            if path.exists():
                path.rename(beside / "old")
            draft.rename(path)
    except OSError as error:
        raise storage_error(error, path, "write", option=option) from error


def _refuse(path: Path, marker: str, option: str) -> None:
    try:
        is_ours = path.is_dir() and not path.is_symlink() and (path / marker).is_file()
        is_free = is_ours or not (path.exists() or path.is_symlink())
        if not is_free and path.is_dir() and not path.is_symlink():
            is_free = not any(path.iterdir())
    except (OSError, ValueError) as error:
        raise storage_error(error, path, "read", option=option) from error
    if not is_free:
        raise UsageError(
            f"{option} {path} is there and was not written by this command; name another folder"
        )
