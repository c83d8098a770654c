"""The results that a command works with; where a damaged database was replaced, it says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.cli.output import print_note
from harness.files.locations import home_dir, home_path
from harness.store.store import Store

__all__ = ["open_results", "read_results"]


@contextmanager
def open_results() -> Iterator[Store]:
    """The results folder, to read and to write; created if it is missing.

    Raises:
        StorageError: it cannot be used.
    """
    with Store.open(home_dir()) as store:
        try:
            yield store
        finally:
            _say(store)


@contextmanager
def read_results() -> Iterator[Store]:
    """The results folder, only to read: it may be read-only, and is not created.

    Raises:
        StorageError: it cannot be read.
    """
    with Store.for_reading(home_path()) as store:
        try:
            yield store
        finally:
            _say(store)


def _say(store: Store) -> None:
    if store.notice:
        print_note(store.notice)
