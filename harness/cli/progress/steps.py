"""What is being done: one line that is redrawn on a terminal, a line every so often elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from harness.cli.pulse import doing


@contextlib.contextmanager
def working(console: Console, words: str) -> Iterator[Callable[[str], None]]:
    """Show what is done while the block lasts: `words`, or what the caller says next."""
    now = words

    with console.status(words) as status, doing(lambda: now):

        def tell(said: str) -> None:
            nonlocal now
            now = said
            status.update(said[:100])

        yield tell


@contextlib.contextmanager
def narrating(
    console: Console, words: str, *, who: str = "triage: "
) -> Iterator[Callable[[str], None]]:
    """As `working`; each step is a line that stays, too."""
    with working(console, words) as show:

        def tell(said: str) -> None:
            console.print(f"{who}{said}", soft_wrap=True)
            show(said)

        yield tell


@contextlib.contextmanager
def show_steps(console: Console) -> Iterator[Callable[[str, str], None]]:
    """What to hand to a search: it is called with a name and its result.

    An empty result says that the work on it begins.
    """
    done = 0

    with working(console, "capturing") as show:

        def tell(name: str, said: str) -> None:
            nonlocal done
            done += bool(said)
            show(f"{done} tried; {name}: {said or 'compiling'}")

        yield tell
