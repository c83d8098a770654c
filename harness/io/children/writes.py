"""Keeps what launch code writes where it may not, in a folder of ours, for it to read again.

A program that writes the table of its timings beside itself goes on, and the user's files stay as
they are. What C opens is refused as before.
"""

# ruff: noqa: ANN401, PTH100, PTH120 - wraps functions of `os`, of any signature

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable
from typing import Any

WRITTEN: list[Callable[[], None]] = []
"""What hears of each file or folder that is kept."""

_REFUSED = frozenset({errno.EACCES, errno.EROFS})
_READERS = ("stat", "lstat", "access", "listdir", "scandir", "remove", "unlink", "rmdir")
_OF_MODES = ("chmod", "utime")


def keep_writes(folder: str) -> None:
    """Have Python write below `folder` (absolute) what it is refused elsewhere, from now on."""
    is_file, is_folder = os.path.isfile, os.path.isdir

    def kept(path: Any) -> str:
        """Where a path's content is kept, if it is; empty for what is no path."""
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        return folder + os.path.abspath(os.fsdecode(path))

    def prepared(path: Any, error: OSError, *, is_new: bool) -> str:
        """Where to keep what was refused with this error, whose folder is there.

        Raises:
            OSError: this one, where a missing right was not the reason.
        """
        place, parent = kept(path), os.path.dirname(os.path.abspath(os.fsdecode(path)))
        is_refused = error.errno in _REFUSED and is_folder(parent)
        is_below = error.errno == errno.ENOENT and is_folder(os.path.dirname(place))
        if not (is_refused or is_below):
            raise error
        make_folders(os.path.dirname(place))
        if not is_new and is_file(path):
            shutil.copyfile(path, place)
        for hear in WRITTEN:
            hear()
        return place

    make, rename = os.mkdir, os.replace

    def make_folders(place: str) -> None:
        if not is_folder(place):
            make_folders(os.path.dirname(place))
            make(place, 0o700)

    def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
        try:
            make(path, *args, **kwargs)
        except OSError as error:
            if not kept(path):
                raise
            make(prepared(path, error, is_new=True))

    def replace(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        place = kept(source)
        if not place or not os.path.lexists(place):
            rename(source, target, *args, **kwargs)
            return
        rename(place, prepared(target, OSError(errno.EACCES, "kept"), is_new=True))

    def reading(original: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            place = kept(path)
            is_ours = bool(place) and is_there(place) and (is_file(place) or not is_there(path))
            return original(place if is_ours else path, *args, **kwargs)

        return read

    look = os.stat

    def is_there(path: Any) -> bool:
        try:
            look(path)
        except (OSError, ValueError):
            return False
        return True

    def opening(original: Callable[..., Any], writes: Callable[[Any], tuple[bool, bool]]) -> Any:
        def opened(path: Any, how: Any = None, *args: Any, **kwargs: Any) -> Any:
            given = () if how is None else (how,)
            does_write, is_new = writes(kwargs.get("mode") if how is None else how)
            place = kept(path)
            if place and is_there(place) and not is_folder(place):
                return original(place, *given, *args, **kwargs)
            try:
                return original(path, *given, *args, **kwargs)
            except OSError as error:
                if not (place and does_write):
                    raise
                return original(prepared(path, error, is_new=is_new), *given, *args, **kwargs)

        return opened

    def by_mode(mode: Any) -> tuple[bool, bool]:
        mode = mode if isinstance(mode, str) else "r"
        return bool(set(mode) & set("wax+")), "w" in mode or "x" in mode

    def by_flags(flags: Any) -> tuple[bool, bool]:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)), bool(flags & os.O_TRUNC)

    def ignoring(original: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **kwargs: Any) -> None:
            try:
                original(*args, **kwargs)
            except PermissionError:
                return

        return change

    wrapped = {name: reading(getattr(os, name)) for name in _READERS}
    wrapped |= {name: ignoring(getattr(os, name)) for name in _OF_MODES}
    wrapped |= {"mkdir": mkdir, "rename": replace, "replace": replace}
    wrapped["open"] = opening(os.open, by_flags)
    for name, function in wrapped.items():
        original = getattr(os, name)
        for abilities in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in abilities:
                abilities.add(function)
        setattr(os, name, function)
    builtins.open = io.open = opening(io.open, by_mode)
