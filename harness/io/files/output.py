"""Files that the user names for output: written as a shell's redirection writes them.

What is a regular file, or is not there yet, appears whole or not at all: a draft beside it takes
its place. A link is followed, and stays. A pipe or a device (/dev/stdout, /dev/null) is written
into: a file in its place would destroy it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.io.files.locations import create_folder, storage_error
from harness.io.files.whole_folders import DRAFT, Scratch
from harness.values.errors import UsageError


def write_output(
    path: Path, write: Callable[[Path], None], *, option: str, overwrite: bool
) -> None:
    """Let `write` write a draft, and put its content where `path` says.

    Args:
        path: what the user named.
        write: writes the whole content to the path that it gets, which is not there yet.
        option: by which the user named it, for messages.
        overwrite: whether a regular file that is there may be replaced.

    Raises:
        UsageError: it is a folder, a pipe that has no reader, or a file that is there already.
        StorageError: it cannot be written.
    """
    try:
        mode = _mode(path)
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


def _mode(path: Path) -> int | None:
    """What is there, behind links; None for nothing, as behind a link to nothing."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


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
    """Let `fill` fill a draft beside `path`, which then takes its place.

    Args:
        path: what the user named: nothing yet, an empty folder, or one with our marker.
        fill: writes the whole content into the empty folder that it gets.
        marker: the file that says that a folder was written here and may be replaced.
        option: by which the user named it, for messages.

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
