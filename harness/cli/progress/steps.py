"""What a command is doing now: a line redrawn on a terminal, one line a step elsewhere.

`beating` is around every command, `doing` around its parts that take long: the innermost is said,
once, until it says something else.
`triage --help` loads this module: what is slow to load is not imported here. Always on stderr.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import click

from harness.values.shown import shown_in_a_line

PLAIN_SECONDS = 5.0

_parts: list[Callable[[], str]] = []
_said = ""


@contextlib.contextmanager
def beating(words: str) -> Iterator[None]:
    """After `PLAIN_SECONDS`, then three times as far apart: what is done now, where that is new."""
    over = threading.Event()
    began = time.monotonic()

    def beat() -> None:
        pause = PLAIN_SECONDS
        while not over.wait(pause):
            pause = 3 * PLAIN_SECONDS
            if (part := _parts[-1]()) and _is_new(part):
                spent = time.monotonic() - began
                click.echo(f"triage: {shown_in_a_line(part)}; {spent:.0f} s", err=True)

    thread = threading.Thread(target=beat, daemon=True)
    with doing(lambda: words):
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _is_new(words: str) -> bool:
    """Whether a line is not the one that was said last; from now on it is."""
    global _said
    before, _said = _said, words
    return words != before


@contextlib.contextmanager
def doing(words: Callable[[], str]) -> Iterator[None]:
    """A part that may take long; `words` are asked for when they are to be said, "" for silence."""
    _parts.append(words)
    try:
        yield
    finally:
        _parts.remove(words)


@contextlib.contextmanager
def working(words: str) -> Iterator[Callable[[str], None]]:
    """Show what is done while the block lasts: `words`, or what the caller says next."""
    from harness.cli.output import status_console  # noqa: PLC0415 - no help needs it

    now, console = words, status_console()
    display = console.status(words) if console.is_terminal else contextlib.nullcontext()

    with display as status, doing(lambda: "" if status else now):

        def tell(line: str) -> None:
            nonlocal now
            now = line
            if status:
                status.update(line[:100])

        yield tell


@contextlib.contextmanager
def narrating(words: str, *, who: str = "triage: ") -> Iterator[Callable[[str], None]]:
    """As `working`; each step is a line that stays, too."""
    from harness.cli.output import status_console  # noqa: PLC0415 - as above

    with working(words) as show:

        def tell(line: str) -> None:
            if _is_new(line):
                status_console().print(f"{who}{line}", soft_wrap=True)
            show(line)

        yield tell


@contextlib.contextmanager
def show_steps() -> Iterator[Callable[[str, str], None]]:
    """What to hand to a search: it is called with a name and its result.

    An empty result says that the work on it begins.
    """
    count = 0

    with working("capturing") as show:

        def tell(name: str, result: str) -> None:
            nonlocal count
            count += bool(result)
            show(f"{count} tried; {name}: {result or 'compiling'}")

        yield tell


_WORDS = "preparing toolchains and sources"


@contextlib.contextmanager
def preparing() -> Iterator[None]:
    """The downloads of toolchains and sources that are under way."""
    from harness.io.packages.wheels import telling  # noqa: PLC0415 - no help needs it

    with working(_WORDS) as tell, telling(lambda words: tell(f"{_WORDS}: {words}")):
        yield
