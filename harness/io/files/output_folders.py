"""Folders that the user names for output: they appear whole, and only what is ours is replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.io.files.locations import create_folder, storage_error
from harness.io.files.scratch import DRAFT, Scratch
from harness.values.errors import UsageError


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
