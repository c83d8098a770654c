"""A scratch copy of the sources that a launch imports, with one file changed."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.io.files.regular_files import read_regular
from harness.io.files.whole_folders import scratch_disk
from harness.values.errors import UsageError

if TYPE_CHECKING:
    from harness.frontends.base import LaunchCode


_MOST_BYTES = 4 << 20


def read_source(path: Path) -> str:
    """A Python file as it is, with its line ends.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_regular(path, _MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error.reason}") from error


def source_root(code: LaunchCode, file: Path) -> Path | None:
    """The folder of the module path that holds a file; its own for the launch file itself.

    None for a file that comes from elsewhere: from an installed package, say.
    """
    if file == code.file.resolve():
        return file.parent
    roots = (path.resolve() for path in code.paths)
    return next((root for root in roots if file.is_relative_to(root)), None)


def copy_with(code: LaunchCode, file: Path, text: str, folder: Path) -> LaunchCode | None:
    """The launch from a copy in `folder` (new) in which `file` holds `text`.

    None where the file does not come from the launch's own sources.

    Raises:
        InfrastructureError: the copy cannot be written.
    """
    root = source_root(code, file)
    if root is None:
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()
    with scratch_disk():
        if file == code.file.resolve():
            # What it imports from beside itself stays where it is.
            folder.mkdir(parents=True)
            copy = folder / file.name
            copy.write_bytes(text.encode())
            identity = {**code.identity, "file": digest, "path": file.name}
            return replace(code, file=copy, beside=(file.parent,), identity=identity)
        shutil.copytree(root, folder, symlinks=True)
        copy = folder / file.relative_to(root)
        copy.write_bytes(text.encode())

    def moved(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(folder if path.resolve() == root else path for path in paths)

    identity = {**code.identity, "source": digest}
    return replace(code, paths=moved(code.paths), bare=moved(code.bare), identity=identity)
