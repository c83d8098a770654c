"""What a shell completes beside options: kernels, targets, and versions that are installed.

Nothing is asked for over the network, and what cannot be read completes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from harness.values.errors import TriageError

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def kernels(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Repros whose names begin so; else the files of the folder."""
    from harness.cells.repros.find import list_repros  # noqa: PLC0415 - only a shell wants it

    found: list[CompletionItem] = []
    with contextlib.suppress(TriageError, OSError):
        found = _items((repro.name for repro in list_repros()[0]), begun)
    return found or [CompletionItem(begun, type="file")]


def targets(_context: click.Context, _option: click.Parameter, begun: str) -> list[CompletionItem]:
    """The GPUs that are known, as ptxas spells them."""
    from harness.cells.selection import SUFFIX_SINCE  # noqa: PLC0415 - as above
    from harness.values.limits import KNOWN_CAPABILITIES  # noqa: PLC0415

    known = [
        f"{capability}{suffix}"
        for capability in KNOWN_CAPABILITIES
        for suffix, since in (("", 0), *SUFFIX_SINCE.items())
        if capability >= since
    ]
    return _items([*known, *(f"sm_{each}" for each in known if begun.startswith("s"))], begun)


def versions(kind: str, *words: str) -> Completer:
    """The versions of a tool that are installed, and `words` that stand for some."""

    def complete(
        _context: click.Context, _option: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        from harness.io.toolchains.installed import installed_versions  # noqa: PLC0415 - as above

        found: list[str] = []
        with contextlib.suppress(TriageError, OSError):
            found = [str(version) for version in installed_versions(kind)]
        return _items([*found, *words], begun)

    return complete


def _items(words: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(begun)]
