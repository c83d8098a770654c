"""`triage export`: results as a file, for other programs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from harness.effects.export_files import TEXT_FORMATS, write_binary, write_text
from harness.effects.locations import storage_error
from harness.effects.past_results import StoredRow
from harness.effects.store import RunRecord, Store
from harness.values.errors import UsageError

__all__ = ["export_file", "export_stream"]


def export_stream(store: Store, runs: Sequence[RunRecord], form: str, out: IO[bytes]) -> None:
    """Write the results of the runs to an open stream.

    Raises:
        StorageError: the results cannot be read.
    """
    write_text(form, _rows(store, runs), out)


def export_file(
    store: Store, runs: Sequence[RunRecord], form: str, path: Path, *, overwrite: bool = False
) -> None:
    """Write the results of the runs to a file: all of it, or nothing.

    Raises:
        UsageError: the file is there already, or the format needs a library that is not.
        StorageError: the results cannot be read, or the file cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder; name a file")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists: name another file, or say --force")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            draft = Path(folder) / path.name
            _write(draft, _rows(store, runs), form)
            if overwrite:
                draft.replace(path)
            else:
                # Unlike a rename, a link never takes the place of another file.
                os.link(draft, path)
    except FileExistsError:
        raise UsageError(f"{path} exists: name another file, or say --force") from None
    except OSError as error:
        raise storage_error(error, path, "write", variable="--out") from error


def _write(path: Path, rows: Iterator[StoredRow], form: str) -> None:
    if form not in TEXT_FORMATS:
        write_binary(form, rows, path)
        return
    with path.open("wb") as out:
        write_text(form, rows, out)


def _rows(store: Store, runs: Sequence[RunRecord]) -> Iterator[StoredRow]:
    for run in runs:
        yield from store.run_bodies(run.id)
