"""Passes over what is not computation: functions, heads, declarations, branches. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from gpu_emulator.ptx.text.document import (
    Document,
    Head,
    Statement,
    StatementKind,
    read_head,
    statement,
)
from harness.minimize.ptx.passes_rewriting import ALL, DELETED, Swap
from harness.minimize.reduction.driver import Edit

# What says which compiler and which GPU a module is for is not up for reduction.
_KEPT = re.compile(r"\.(?:version|target)\b")
_ALIGNMENT = re.compile(r"\.align\s+\d+\s+")


@dataclass(frozen=True)
class Functions:
    """Drops functions and entries whole."""

    name: str = "functions"

    def opportunities(self, document: Document) -> Sequence[Edit]:
        """Each function, by its number, where there are several."""
        count = len(document.functions)
        return list(range(count)) if count > 1 else []

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        """The document without them."""
        functions = [one for number, one in enumerate(document.functions) if number in set(chosen)]
        return document.without(
            {place for one in functions for place in range(one.head, one.closing + 1)}
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a head: `front`, `parameters` or `directives`, and its number."""

    place: int
    kind: str
    number: int


@dataclass(frozen=True)
class Heads:
    """Drops what stands in the heads of functions: linkage, parameters, `.reqntid` and its kin."""

    name: str = "heads"

    def opportunities(self, document: Document) -> Sequence[Edit]:
        """Each part of each head."""
        return [
            _Part(place, kind, number)
            for place, head in _heads(document)
            for kind in ("front", "parameters", "directives")
            for number in range(len(getattr(head, kind)))
        ]

    def apply(self, document: Document, chosen: Sequence[Edit]) -> Document | None:
        """The document without these parts."""
        dropped = [part for part in chosen if isinstance(part, _Part)]
        changes: dict[int, Sequence[Statement]] = {}
        for place, head in _heads(document):
            new = _without(head, [part for part in dropped if part.place == place])
            if new != head:
                changes[place] = [
                    statement(StatementKind.HEAD, str(new), document.statements[place].before)
                ]
        return document.replaced(changes) if changes else None


def _without(head: Head, parts: Collection[_Part]) -> Head:
    gone = {(part.kind, part.number) for part in parts}
    return replace(
        head,
        front=tuple(one for n, one in enumerate(head.front) if ("front", n) not in gone),
        parameters=tuple(
            one for n, one in enumerate(head.parameters) if ("parameters", n) not in gone
        ),
        directives=tuple(
            one for n, one in enumerate(head.directives) if ("directives", n) not in gone
        ),
    )


def _heads(document: Document) -> Iterable[tuple[int, Head]]:
    for place, one in enumerate(document.statements):
        if one.kind is StatementKind.HEAD and (head := read_head(one.code)):
            yield place, head


def declarations(document: Document) -> Iterable[Swap]:
    """Every declaration and directive may go, or its alignment; not the version and the target."""
    for place, one in enumerate(document.statements):
        if one.kind in (StatementKind.DECLARATION, StatementKind.DIRECTIVE) and not _KEPT.match(
            one.code
        ):
            # The alignment first: what is gone after it has none.
            if (plain := _ALIGNMENT.sub("", one.code)) != one.code:
                yield Swap(place, ALL, plain)
            yield Swap(place, DELETED)


def returns(document: Document) -> Iterable[Swap]:
    """Every branch may leave the function instead."""
    for place, one in document.instructions:
        if one.base in ("bra", "brx"):
            yield Swap(place, ALL, f"{one.guard} ret;".lstrip())
