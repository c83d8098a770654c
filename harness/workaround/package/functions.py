"""The Triton functions of a package, and which of them launches reached. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.frontends.texts.written_kernels import WrittenFunction, written_functions


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCount:
    """Functions of the package that Triton compiles, as (file, name).

    `launched` were; `mentioned` were not, and other such functions mention their names: functions
    that kernels call look like this. No launch reached the others, `unreached`; of these, `tuned`
    have an `autotune`. `unread` are files that are not Python that this Python reads.
    """

    launched: tuple[tuple[str, str], ...]
    mentioned: tuple[tuple[str, str], ...]
    unreached: tuple[tuple[str, str], ...]
    tuned: tuple[tuple[str, str], ...]
    unread: tuple[str, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.launched) + len(self.mentioned) + len(self.unreached)


def count_functions(
    texts: Mapping[str, str], launched: Collection[tuple[str, str]]
) -> FunctionCount:
    """Sort the functions of a package's files.

    Args:
        texts: what each file says, by its place below the package's folder.
        launched: the functions that were launched, as (file, name).
    """
    written: dict[tuple[str, str], WrittenFunction] = {}
    unread: list[str] = []
    for file, text in texts.items():
        try:
            written.update(((file, each.name), each) for each in written_functions(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            unread.append(file)
    names: dict[str, set[tuple[str, str]]] = {}
    for place, each in written.items():
        for name in each.names:
            names.setdefault(name, set()).add(place)
    left = [place for place in written if place not in launched]
    mentioned = [place for place in left if names.get(place[1], set()) - {place}]
    unreached = [place for place in left if place not in set(mentioned)]
    return FunctionCount(
        launched=tuple(place for place in written if place in launched),
        mentioned=tuple(mentioned),
        unreached=tuple(unreached),
        tuned=tuple(place for place in unreached if written[place].is_tuned),
        unread=tuple(unread),
    )
