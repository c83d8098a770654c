"""What a command is doing now: a line every so often on stderr, where that is not a terminal.

`beating` is around every command, `doing` around its parts that take long: the innermost is said.
On a terminal, a display of its own shows the same (`harness/cli/progress`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import click

from harness.values.shown import shown_in_a_line

PLAIN_SECONDS = 15.0

_parts: list[Callable[[], str]] = []


@contextlib.contextmanager
def beating(words: str) -> Iterator[None]:
    """A line every `PLAIN_SECONDS` until the end: what is done now, and for how long."""
    over = threading.Event()
    began = time.monotonic()

    def beat() -> None:
        while not over.wait(PLAIN_SECONDS):
            if said := _parts[-1]():
                spent = time.monotonic() - began
                click.echo(f"triage: {shown_in_a_line(said)}; {spent:.0f} s", err=True)

    thread = threading.Thread(target=beat, daemon=True)
    with doing(lambda: words):
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextlib.contextmanager
def doing(words: Callable[[], str]) -> Iterator[None]:
    """A part that may take long; `words` are asked for when they are to be said, "" for silence."""
    _parts.append(words)
    try:
        yield
    finally:
        _parts.remove(words)
