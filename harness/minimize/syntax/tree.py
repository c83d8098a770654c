"""A text with its syntax tree, what its items define, and how a change is made to it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.frontends.one_file import Syntax, SyntaxNode

Splice = tuple[int, int, str]
"""From where to where, and what takes its place."""
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class SyntaxChange:
    """What may be done to a text: `splices`, and `elements` of lists (by position) that go.

    `mark` says in words what it changes.
    """

    mark: str
    splices: tuple[Splice, ...] = ()
    elements: tuple[int, ...] = ()


@dataclass(frozen=True)
class SourceTree:
    """A text of a language, read by its syntax."""

    text: str
    syntax: Syntax

    @cached_property
    def nodes(self) -> Sequence[SyntaxNode]:
        """All nodes, a parent before its children, in the order of the text."""
        return self.syntax.parse(self.text)

    @cached_property
    def size(self) -> int:
        """Characters that are not blank."""
        return len(_BLANKS.sub("", self.text))

    @cached_property
    def lines(self) -> int:
        """Lines that are neither blank nor only a comment."""
        comments = [
            (node.start, node.end, "") for node in self.nodes if node.kind in self.syntax.comments
        ]
        return sum(bool(line.strip()) for line in _spliced(self.text, comments).splitlines())

    @cached_property
    def errors(self) -> int:
        """How many places of it the grammar does not understand."""
        return sum(node.is_error for node in self.nodes)

    def words(self, position: int) -> str:
        """The text of a node."""
        node = self.nodes[position]
        return self.text[node.start : node.end]

    def children(self, position: int) -> Iterator[int]:
        """The positions of a node's children."""
        at, last = position + 1, self.nodes[position].last
        while at < last:
            yield at
            at = self.nodes[at].last

    def named(self, position: int) -> list[int]:
        """Those of its children that are not mere tokens or comments."""
        return [
            child
            for child in self.children(position)
            if self.nodes[child].is_named and self.nodes[child].kind not in self.syntax.comments
        ]

    def field(self, position: int, name: str) -> int | None:
        """The child that it calls so."""
        return next((c for c in self.children(position) if self.nodes[c].field == name), None)

    def is_leaf(self, position: int) -> bool:
        """Whether nothing is inside it."""
        return self.nodes[position].last == position + 1

    def of_kind(self, kinds: Collection[str]) -> Iterator[int]:
        """Positions of the nodes of some kinds."""
        return (at for at, node in enumerate(self.nodes) if node.kind in kinds)

    @cached_property
    def items(self) -> Sequence[int]:
        """What stands in blocks: declarations, statements, directives."""
        return [
            child for block in self.of_kind(self.syntax.blocks) for child in self.items_of(block)
        ]

    def items_of(self, block: int) -> list[int]:
        """What stands in one block."""
        heads = ("name", "condition", "value")
        return [c for c in self.named(block) if self.nodes[c].field not in heads]

    @cached_property
    def names(self) -> dict[str, list[int]]:
        """Where each name stands."""
        found: dict[str, list[int]] = {}
        for at in self.of_kind(self.syntax.names):
            if self.is_leaf(at):
                found.setdefault(self.words(at), []).append(at)
        return found

    def defined_by(self, position: int) -> list[int]:
        """The names, by position, that an item or a parameter defines."""
        syntax, node = self.syntax, self.nodes[position]
        if node.kind in syntax.undefined:
            return []
        if self.is_leaf(position):
            return [position] if node.kind in syntax.names else []
        inner = [
            child
            for child in self.named(position)
            if self.nodes[child].field in syntax.defining
            or (node.kind in syntax.transparent and self.nodes[child].field != "parameters")
        ]
        return [name for child in inner for name in self.defined_by(child)]

    def scope_of(self, position: int) -> int:
        """The innermost scope around a node; the whole text where there is none."""
        at = self.nodes[position].parent
        while at > 0 and self.nodes[at].kind not in self.syntax.scopes:
            at = self.nodes[at].parent
        return max(at, 0)

    def uses_of(self, name: int, scope: int) -> list[int]:
        """Where else a name stands within a scope."""
        last = self.nodes[scope].last
        return [at for at in self.names[self.words(name)] if scope <= at < last and at != name]

    @cached_property
    def _item_set(self) -> frozenset[int]:
        return frozenset(self.items)

    def item_around(self, position: int) -> int | None:
        """The innermost item that a node is in."""
        at = position
        while at >= 0 and at not in self._item_set:
            at = self.nodes[at].parent
        return at if at >= 0 else None

    def closure(self, first: Iterable[int]) -> list[int]:
        """Items with all others that name what they define; those inside others are left out."""
        gone: set[int] = set()
        waiting = list(first)
        while waiting:
            item = waiting.pop()
            if any(around in gone for around in self.around(item)):
                continue
            gone.add(item)
            for name in self.defined_by(item):
                for use in self.uses_of(name, self.scope_of(item)):
                    other = self.item_around(use)
                    if other is not None:
                        waiting.append(other)
        return sorted(
            item for item in gone if not any(each in gone for each in self.around(item, own=False))
        )

    def around(self, position: int, *, own: bool = True) -> Iterator[int]:
        """A node and those that it is in, the inner one first."""
        at = position if own else self.nodes[position].parent
        while at >= 0:
            yield at
            at = self.nodes[at].parent

    def cut(self, position: int) -> Splice:
        """Without a node."""
        return self.nodes[position].start, self.nodes[position].end, ""

    def kept(self, position: int, kept: Sequence[int]) -> list[Splice]:
        """A node that is only some of its descendants, in their order; outer ones cover inner."""
        node = self.nodes[position]
        found: list[Splice] = []
        at = node.start
        for each in kept:
            inner = self.nodes[each]
            found.append((at, inner.start, " " if found else ""))
            at = inner.end
        found.append((at, node.end, ""))
        return [splice for splice in found if splice[0] < splice[1]]

    def changed(self, changes: Iterable[SyntaxChange]) -> SourceTree | None:
        """With these changes; None where that is not a change, or makes more of it unreadable."""
        changes = list(changes)
        splices = [splice for change in changes for splice in change.splices]
        elements = {element for change in changes for element in change.elements}
        text = _spliced(self.text, [*splices, *self._without(elements)])
        if text == self.text:
            return None
        found = SourceTree(text, self.syntax)
        return None if found.errors > self.errors else found

    def _without(self, elements: Collection[int]) -> Iterator[Splice]:
        """Lists without some of their elements, and the separators of those."""
        for parent in sorted({self.nodes[element].parent for element in elements}):
            every = self.named(parent)
            kept = [at for at, each in enumerate(every) if each not in elements]
            for at, each in enumerate(every):
                if each not in elements:
                    continue
                before = [k for k in kept if k < at]
                after = [k for k in kept if k > at]
                here = self.nodes[each]
                if after:
                    # The separator that follows each goes with it.
                    yield here.start, self.nodes[every[at + 1]].start, ""
                elif before:
                    yield self.nodes[every[at - 1]].end, here.end, ""
                else:
                    inner = list(self.children(parent))
                    first, last = self.nodes[inner[0]], self.nodes[inner[-1]]
                    opens = first.end if not first.is_named else here.start
                    closes = last.start if not last.is_named else here.end
                    yield opens, closes, ""


def _spliced(text: str, splices: Iterable[Splice]) -> str:
    """With all of these; one that lies in another is lost, and lines that get blank go."""
    merged: list[Splice] = []
    for start, end, new in sorted(splices, key=lambda each: (each[0], -each[1])):
        if merged and start < merged[-1][1]:
            first, last, kept = merged[-1]
            if end > last and not new:
                merged[-1] = (first, end, kept)
            continue
        merged.append((start, end, new))
    pieces, at = [], 0
    for start, end, new in merged:
        pieces += [text[at:start], _joined(text, start, end, new)]
        at = end
    pieces.append(text[at:])
    found = "".join(pieces)
    return found if found == text else _without_blank_lines(found, text)


def _joined(text: str, start: int, end: int, new: str) -> str:
    """What takes the place of a part; words beside it do not run together."""
    if new or start == 0 or end >= len(text) or start == end:
        return new
    before, after = text[start - 1], text[end]
    is_word = (before.isalnum() or before == "_") and (after.isalnum() or after == "_")
    return " " if is_word else ""


def _without_blank_lines(text: str, before: str) -> str:
    """Without the lines that only a cut has made blank, and blanks at the ends of lines."""
    found = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{2,}", "\n", found).lstrip("\n") if "\n" in before else found
