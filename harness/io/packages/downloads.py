"""What uv downloads while it installs, as lines for a display."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_BEGUN = re.compile(r"^Downloading (\S+) \(([\d.]+ ?[KMGT]?i?B)\)$", re.MULTILINE)
_DONE = re.compile(r"^ *Downloaded (\S+)$", re.MULTILINE)
_MOST_NAMES = 3

_tell: ContextVar[Callable[[str], None] | None] = ContextVar("tell", default=None)


@contextlib.contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block, `tell` gets a line about each download again and again, from a thread."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def told_to() -> Callable[[str], None] | None:
    """What takes all that uv has printed so far; None outside `telling`."""
    tell = _tell.get()
    if tell is None:
        return None

    def watch(printed: str) -> None:
        words = words_of(printed)
        if words:
            tell(words)

    return watch


def words_of(printed: str) -> str | None:
    """What is on its way, by what uv has printed so far; None where nothing was.

    uv names packages of a megabyte or more, each when it begins and when it is there.
    """
    begun = dict(_BEGUN.findall(printed))
    if not begun:
        return None
    done = set(_DONE.findall(printed)) & set(begun)
    waits = [f"{name} ({size})" for name, size in begun.items() if name not in done]
    if not waits:
        return f"{len(done)} of {len(begun)} downloads done, unpacking"
    more = f" and {len(waits) - _MOST_NAMES} more" if len(waits) > _MOST_NAMES else ""
    return f"{len(done)} of {len(begun)} downloads done, {', '.join(waits[:_MOST_NAMES])}{more}"
