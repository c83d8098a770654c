"""Drives the reduction of a text by its syntax, and measures texts."""

from __future__ import annotations

from collections.abc import Callable

from harness.frontends.syntax import Syntax
from harness.minimize.reduction.result import Size
from harness.minimize.reduction.texts import DocumentDriver
from harness.minimize.syntax.passes import reduce_by_syntax
from harness.minimize.syntax.tree import SourceTree


def syntax_driver(syntax: Syntax) -> DocumentDriver[SourceTree]:
    """Reduces a text of a language."""
    return DocumentDriver(
        read=lambda text: SourceTree(text, syntax),
        text_of=lambda tree: tree.text,
        reduce=reduce_by_syntax,
    )


def syntax_sizes(syntax: Syntax) -> Callable[[str], Size]:
    """The size of a text; lines are those with code."""

    def size_of(text: str) -> Size:
        return Size(bytes=len(text.encode()), lines=SourceTree(text, syntax).lines)

    return size_of
