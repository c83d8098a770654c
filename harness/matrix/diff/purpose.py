"""What a run is for: the words of its command that choose its cells, without those on how to work.

Which options those are is declared where they are declared: the command line registers who knows.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

Silent = Callable[[Sequence[str]], Mapping[str, bool]]
"""From a command's words to its options that choose no cells, and whether a value follows each."""

_KNOWN: list[Silent] = []


def silence_with(silent: Silent) -> None:
    """Who knows the options of a command; the last one counts."""
    _KNOWN[:] = [silent]


def purpose_of(command: str) -> tuple[str, ...]:
    """The words of a command that choose its cells: those of two nights of one kind are equal."""
    words = shlex.split(command)
    silent = _KNOWN[0](words) if _KNOWN else {}
    kept = []
    following = iter(words)
    for word in following:
        name, equals, _ = word.partition("=")
        if name not in silent:
            kept.append(word)
        elif silent[name] and not equals:
            next(following, None)
    return tuple(kept)
