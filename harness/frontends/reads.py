"""Whether what a capture read is still the same."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping

from harness.io.children.read_facts import (
    environment_fact,
    file_fact,
    folder_fact,
    kind_fact,
    module_origin,
    value_fact,
)
from harness.values.outcome import Reads

OWN_VARIABLES = frozenset({"HOME", "TMPDIR"})
"""Each child has a home and a temporary folder of its own, and sets these itself."""

_Stamp = tuple[int, int, int]
_HASHED: dict[str, tuple[_Stamp, str | None]] = {}


def is_unchanged(reads: Reads, environment: Mapping[str, str]) -> bool:
    """Whether launch code in this environment would find what it found then."""
    if reads.unseen:
        return False
    if reads.environment not in (None, environment_fact(environment)):
        return False
    if any(value_fact(environment.get(name)) != fact for name, fact in reads.variables.items()):
        return False
    if any(kind_fact(path) != fact for path, fact in reads.kinds.items()):
        return False
    if any(folder_fact(path) != fact for path, fact in reads.folders.items()):
        return False
    return _same_files(reads) and _same_modules(reads)


def withheld(
    reads: Reads, environment: Mapping[str, str], never: frozenset[str] = frozenset()
) -> list[str]:
    """The user's variables that launch code reads, and that its environment does not have.

    Those that children never get (`never`: a compiler's cache, say) are not among them.
    """
    never |= OWN_VARIABLES
    return sorted(reads.variables.keys() & os.environ.keys() - environment.keys() - never)


def _same_files(reads: Reads) -> bool:
    return all(_file_fact(path) == fact for path, fact in reads.files.items())


def _file_fact(path: str) -> str | None:
    """As `file_fact`; a file that many captures read is hashed once."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - the path is text, as it was kept
    except (OSError, ValueError):
        return file_fact(path)
    stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
    known = _HASHED.get(path)
    if known is None or known[0] != stamp:
        known = _HASHED[path] = (stamp, file_fact(path))
    return known[1]


def _same_modules(reads: Reads) -> bool:
    if reads.modules:
        importlib.invalidate_caches()
    return all(
        module_origin(name, search.path) == origin
        for search in reads.modules
        for name, origin in search.found.items()
    )
