"""The results that a command works with; where a damaged database was replaced, it says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from harness.cli.output import print_note
from harness.io.files.locations import home_dir, home_path
from harness.store.store import Store


def open_results() -> AbstractContextManager[Store]:
    """The results folder, to read and to write; created if it is missing.

    Raises:
        StorageError: it cannot be used.
    """
    return _with_notice(Store.open(home_dir()))


def read_results() -> AbstractContextManager[Store]:
    """The results folder, only to read: it may be read-only, and is not created.

    Raises:
        StorageError: it cannot be read.
    """
    return _with_notice(Store.for_reading(home_path()))


@contextmanager
def _with_notice(opened: AbstractContextManager[Store]) -> Iterator[Store]:
    """What the store has to say of itself, said at the end whatever happens."""
    with opened as store:
        try:
            yield store
        finally:
            if store.notice:
                print_note(store.notice)
