"""`triage export`: results as a file, for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import IO

from harness.io.files.output_files import write_output
from harness.store.exchange.export import TEXT_FORMATS, write_binary, write_text
from harness.store.history.results import StoredRow
from harness.store.sqlite.records import RunRecord
from harness.store.store import Store


def export_stream(
    store: Store, runs: Sequence[RunRecord], form: str, out: IO[bytes], is_read: Callable[[], bool]
) -> None:
    """Write the results of the runs to an open stream, for as long as it `is_read`.

    Raises:
        StorageError: the results cannot be read.
    """
    write_text(form, takewhile(lambda _: is_read(), _rows(store, runs)), out)


def export_file(
    store: Store, runs: Sequence[RunRecord], form: str, path: Path, *, overwrite: bool = False
) -> None:
    """Write the results of the runs to a file: all of it, or nothing.

    Raises:
        UsageError: the file exists, or the format needs a library that is not installed.
        StorageError: the results cannot be read, or the file cannot be written.
    """

    def write(draft: Path) -> None:
        _write(draft, _rows(store, runs), form)

    write_output(path, write, option="--out", overwrite=overwrite)


def _write(path: Path, rows: Iterator[StoredRow], form: str) -> None:
    if form not in TEXT_FORMATS:
        write_binary(form, rows, path)
        return
    with path.open("wb") as out:
        write_text(form, rows, out)


def _rows(store: Store, runs: Sequence[RunRecord]) -> Iterator[StoredRow]:
    for run in runs:
        yield from store.run_bodies(run.id)
