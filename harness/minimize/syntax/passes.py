"""What may go from a text, by its syntax tree alone. Pure.

Each function lists the changes that it knows; whether one goes is for the compiler to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.minimize.reduction.driver import Edit
from harness.minimize.syntax.tree import SourceTree, Splice, SyntaxChange

_EVERY_ITEM = "*"
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class ChangePass:
    """A pass whose edits are the changes that a function finds."""

    name: str
    find: Callable[[SourceTree], Iterator[SyntaxChange]]

    def opportunities(self, document: SourceTree) -> Sequence[Edit]:
        """Each change once."""
        return list(dict.fromkeys(self.find(document)))

    def mark(self, document: SourceTree, edit: Edit) -> str:  # noqa: ARG002 - the edit says it
        """What it changes, in words."""
        assert isinstance(edit, SyntaxChange)
        return edit.mark

    def apply(self, document: SourceTree, chosen: Sequence[Edit]) -> SourceTree | None:
        """The text with these changes."""
        return document.changed(edit for edit in chosen if isinstance(edit, SyntaxChange))


def comments(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Comments."""
    for at in tree.of_kind(tree.syntax.comments):
        yield SyntaxChange(tree.words(at), (tree.cut(at),))


def items(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Declarations, statements and directives, each with all that names what it defines."""
    for item in tree.items:
        gone = tree.closure([item])
        mark = "\n".join(tree.words(each) for each in gone)
        yield SyntaxChange(mark, tuple(tree.cut(each) for each in gone))


def alone(tree: SourceTree) -> Iterator[SyntaxChange]:
    """The same, each alone."""
    for item in tree.items:
        yield SyntaxChange(tree.words(item), (tree.cut(item),))


def unwrapped(tree: SourceTree) -> Iterator[SyntaxChange]:
    """A part in place of the whole: a branch for its statement, what is in braces for these."""
    for at in tree.of_kind(tree.syntax.bodies):
        kind = tree.nodes[at].kind
        for fields in tree.syntax.bodies[kind]:
            kept = _parts(tree, at, fields)
            splices = tree.kept(at, kept) if kept else []
            if len(kept) > 1 and fields != _EVERY_ITEM:
                # What the first part declares may be declared beside it, too.
                splices = _in_braces(tree, at, splices)
            if splices:
                more = _unqualified(tree, at)
                yield SyntaxChange(f"{fields} of {tree.words(at)}", (*splices, *more))


def _parts(tree: SourceTree, position: int, fields: str) -> list[int]:
    if fields == _EVERY_ITEM:
        return [c for c in tree.items_of(position) if tree.nodes[c].field != "parameters"]
    found = [tree.field(position, name) for name in fields.split("+")]
    return [each for each in found if each is not None] if None not in found else []


def _in_braces(tree: SourceTree, position: int, splices: list[Splice]) -> list[Splice]:
    (start, end, _), *between, (last, stop, _) = splices
    closing = (last, stop, " }") if len(splices) > 2 else (stop, stop, " }")
    if last == start or stop != tree.nodes[position].end:
        return []
    return [(start, end, "{ "), *between, closing]


def _unqualified(tree: SourceTree, position: int) -> list[Splice]:
    """Where a namespace goes, its name before other names."""
    if tree.nodes[position].kind not in tree.syntax.namespaces:
        return []
    name = tree.field(position, "name")
    words = tree.words(name) if name is not None else ""
    found = []
    for at in tree.of_kind(tree.syntax.qualified):
        scope, inner = tree.field(at, "scope"), tree.field(at, "name")
        if scope is not None and inner is not None and tree.words(scope) == words:
            found.append((tree.nodes[at].start, tree.nodes[inner].start, ""))
    return found


def elements(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Elements of lists: arguments, parameters, initialisers, declarators."""
    for at in tree.of_kind(tree.syntax.lists):
        for each in tree.named(at):
            yield SyntaxChange(f"{tree.words(each)} of {tree.words(at)}", elements=(each,))
    for at in tree.of_kind(tree.syntax.variables):
        declared = [c for c in tree.named(at) if tree.nodes[c].field == "declarator"]
        for before, each in itertools.pairwise(declared):
            cut = (tree.nodes[before].end, tree.nodes[each].end, "")
            yield SyntaxChange(f"{tree.words(each)} of {tree.words(at)}", (cut,))


def optional(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Attributes, qualifiers, other branches, initial values: what need not be there."""
    for at, node in enumerate(tree.nodes):
        if node.kind in tree.syntax.optional:
            yield SyntaxChange(f"{tree.words(at)} of {_around(tree, at)}", (tree.cut(at),))
        name = tree.syntax.optional_fields.get(node.kind)
        value = tree.field(at, name) if name else None
        if value is None:
            continue
        siblings = list(tree.children(at))
        before = siblings[siblings.index(value) - 1]
        token = tree.nodes[before]
        # `=` goes with the value; what only separates stays.
        start = token.start if tree.words(before) == "=" else tree.nodes[value].start
        cut = (start, tree.nodes[value].end, "")
        yield SyntaxChange(f"{name} of {tree.words(at)}", (cut,))


def operands(tree: SourceTree) -> Iterator[SyntaxChange]:
    """A part of an expression in place of all of it, the first ones first."""
    kinds = tree.syntax.expressions
    for at in tree.of_kind(kinds):
        for child in _inner_expressions(tree, at):
            splices = tuple(tree.kept(at, [child]))
            mark = f"{tree.words(child)} for {tree.words(at)}"
            if splices and tree.nodes[at].field != "declarator":
                yield SyntaxChange(mark, splices)


def _inner_expressions(tree: SourceTree, position: int) -> Iterator[int]:
    """The outermost expressions inside one."""
    for child in tree.named(position):
        if tree.nodes[child].kind in tree.syntax.expressions:
            yield child
        elif tree.nodes[child].kind in tree.syntax.lists:
            yield from _inner_expressions(tree, child)


def replaced(by: str) -> Callable[[SourceTree], Iterator[SyntaxChange]]:
    """Expressions by a number."""

    def find(tree: SourceTree) -> Iterator[SyntaxChange]:
        for at in tree.of_kind(tree.syntax.expressions):
            node, words = tree.nodes[at], tree.words(at)
            is_defined = node.field in tree.syntax.defining
            if words not in ("0", "1", by) and not is_defined and len(words) >= len(by):
                mark = f"{by} for {words} of {_around(tree, at)}"
                yield SyntaxChange(mark, ((node.start, node.end, by),))

    return find


def halves(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Whole numbers that are half as large."""
    for at in tree.of_kind(tree.syntax.numbers):
        words, node = tree.words(at), tree.nodes[at]
        if words.isdecimal() and int(words) > 1:
            less = str(int(words) // 2)
            mark = f"{less} for {words} of {_around(tree, at)}"
            yield SyntaxChange(mark, ((node.start, node.end, less),))


def plain_types(tree: SourceTree) -> Iterator[SyntaxChange]:
    """The plainest type in place of another."""
    plain = tree.syntax.plain_type
    for at in tree.of_kind(tree.syntax.types):
        node, words = tree.nodes[at], tree.words(at)
        is_type = node.field == "type" and words not in (plain, "void")
        if is_type and len(words) >= len(plain):
            mark = f"{plain} for {words} of {_around(tree, at)}"
            yield SyntaxChange(mark, ((node.start, node.end, plain),))


def layout(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Lines as deep as the braces that they are in."""
    lines = tree.text.split("\n")
    braces = [(n.start, n.kind) for n in tree.nodes if n.kind in ("{", "}")]
    splices, at = [], 0
    for line in lines:
        bare = line.lstrip()
        depth = sum(1 if kind == "{" else -1 for start, kind in braces if start < at)
        depth -= bare.startswith("}")
        indent = "" if bare.startswith("#") else _INDENT * max(0, depth)
        if bare and line != indent + bare:
            splices.append((at, at + len(line) - len(bare), indent))
        at += len(line) + 1
    if splices:
        yield SyntaxChange(tree.text, tuple(splices))


def _around(tree: SourceTree, position: int) -> str:
    """What a change is a change of, so that two of them differ."""
    return tree.words(max(0, tree.nodes[position].parent))
