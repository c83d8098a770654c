"""A text with its syntax tree, and what may go from it by that alone. Pure.

Each function lists the changes that it knows; whether one goes is for the compiler to say.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.frontends.one_file import Syntax, SyntaxNode
from harness.minimize.reduction.reducer import (
    FoundPass,
    Reducer,
    TextFormat,
    reduce_patiently,
    sweep_coarsely,
)

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
    def items(self) -> Collection[int]:
        """What stands in blocks: declarations, statements, directives; in their order."""
        blocks = self.of_kind(self.syntax.blocks)
        return dict.fromkeys(child for block in blocks for child in self.items_of(block))

    def items_of(self, block: int) -> list[int]:
        """What stands in one block."""
        heads = ("name", "condition", "value")
        return [c for c in self.named(block) if self.nodes[c].field not in heads]

    @cached_property
    def names(self) -> dict[str, list[int]]:
        """Where each name stands."""
        places: dict[str, list[int]] = {}
        for at in self.of_kind(self.syntax.names):
            if self.is_leaf(at):
                places.setdefault(self.words(at), []).append(at)
        return places

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

    def item_around(self, position: int) -> int | None:
        """The innermost item that a node is in."""
        return next((at for at in self.around(position) if at in self.items), None)

    def closure(self, first: Iterable[int]) -> list[int]:
        """Items with all others that name what they define; those inside others are left out."""
        lost: set[int] = set()
        waiting = list(first)
        while waiting:
            item = waiting.pop()
            if any(around in lost for around in self.around(item)):
                continue
            lost.add(item)
            for name in self.defined_by(item):
                for use in self.uses_of(name, self.scope_of(item)):
                    user = self.item_around(use)
                    if user is not None:
                        waiting.append(user)
        return sorted(
            item
            for item in lost
            if not any(outer in lost for outer in self.around(item, own=False))
        )

    def around(self, position: int, *, own: bool = True) -> Iterator[int]:
        """A node and those that it is in, the inner one first."""
        at = position if own else self.nodes[position].parent
        while at >= 0:
            yield at
            at = self.nodes[at].parent

    def cut(self, position: int, by: str = "") -> Splice:
        """Without a node, or with something else in its place."""
        return self.nodes[position].start, self.nodes[position].end, by

    def kept(self, position: int, inside: Sequence[int]) -> list[Splice]:
        """A node that is only some of its descendants, in their order; outer ones cover inner."""
        node = self.nodes[position]
        splices: list[Splice] = []
        at = node.start
        for child in inside:
            inner = self.nodes[child]
            splices.append((at, inner.start, " " if splices else ""))
            at = inner.end
        splices.append((at, node.end, ""))
        return [splice for splice in splices if splice[0] < splice[1]]

    def changed(self, changes: Iterable[SyntaxChange]) -> SourceTree | None:
        """With these changes; None where that is not a change, or makes more of it unreadable."""
        changes = list(changes)
        splices = [splice for change in changes for splice in change.splices]
        elements = {element for change in changes for element in change.elements}
        text = _spliced(self.text, [*splices, *self._without(elements)])
        if text == self.text:
            return None
        tree = SourceTree(text, self.syntax)
        return None if tree.errors > self.errors else tree

    def _without(self, elements: Collection[int]) -> Iterator[Splice]:
        for parent in sorted({self.nodes[element].parent for element in elements}):
            every = self.named(parent)
            staying = [at for at, child in enumerate(every) if child not in elements]
            for at, child in enumerate(every):
                if child not in elements:
                    continue
                before = [k for k in staying if k < at]
                after = [k for k in staying if k > at]
                here = self.nodes[child]
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
    for start, stop, new in sorted(splices, key=lambda splice: (splice[0], -splice[1])):
        if merged and start < merged[-1][1]:
            first, last, present = merged[-1]
            if stop > last and not new:
                merged[-1] = (first, stop, present)
            continue
        merged.append((start, stop, new))
    pieces, at = [], 0
    for start, stop, new in merged:
        pieces += [text[at:start], _joined(text, start, stop, new)]
        at = stop
    pieces.append(text[at:])
    result = "".join(pieces)
    if result == text:
        return text
    # Without the lines that only a cut has made blank, and blanks at the ends of lines.
    result = "\n".join(line.rstrip() for line in result.split("\n"))
    return re.sub(r"\n{2,}", "\n", result).lstrip("\n") if "\n" in text else result


def _joined(text: str, start: int, stop: int, new: str) -> str:
    """What takes the place of a part; words beside it do not run together."""
    if new or start == 0 or stop >= len(text) or start == stop:
        return new
    before, after = text[start - 1], text[stop]
    is_word = (before.isalnum() or before == "_") and (after.isalnum() or after == "_")
    return " " if is_word else ""


# What may go.

_EVERY_ITEM = "*"
_INDENT = "    "


def change_pass(
    name: str, find: Callable[[SourceTree], Iterator[SyntaxChange]]
) -> FoundPass[SourceTree]:
    """A pass whose edits are the changes that a function finds, each once."""
    return FoundPass(
        name,
        lambda tree: dict.fromkeys(find(tree)),
        lambda tree, chosen: tree.changed(chosen),
        lambda _, change: change.mark,
    )


def comments(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Comments."""
    for at in tree.of_kind(tree.syntax.comments):
        yield SyntaxChange(tree.words(at), (tree.cut(at),))


def items(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Declarations, statements and directives, each with all that names what it defines."""
    for item in tree.items:
        lost = tree.closure([item])
        mark = "\n".join(tree.words(node) for node in lost)
        yield SyntaxChange(mark, tuple(tree.cut(node) for node in lost))


def alone(tree: SourceTree) -> Iterator[SyntaxChange]:
    """The same, each alone."""
    for item in tree.items:
        yield SyntaxChange(tree.words(item), (tree.cut(item),))


def unwrapped(tree: SourceTree) -> Iterator[SyntaxChange]:
    """A part in place of the whole: a branch for its statement, what is in braces for these."""
    for at in tree.of_kind(tree.syntax.bodies):
        kind = tree.nodes[at].kind
        for fields in tree.syntax.bodies[kind]:
            parts: list[int | None]
            if fields == _EVERY_ITEM:
                parts = [c for c in tree.items_of(at) if tree.nodes[c].field != "parameters"]
            else:
                parts = [tree.field(at, name) for name in fields.split("+")]
            inside = [part for part in parts if part is not None] if None not in parts else []
            splices = tree.kept(at, inside) if inside else []
            if len(inside) > 1 and fields != _EVERY_ITEM:
                # What the first part declares may be declared beside it, too.
                splices = _in_braces(tree, at, splices)
            if splices:
                more = _unqualified(tree, at)
                yield SyntaxChange(f"{fields} of {tree.words(at)}", (*splices, *more))


def _in_braces(tree: SourceTree, position: int, splices: list[Splice]) -> list[Splice]:
    (start, begin, _), *between, (last, stop, _) = splices
    closing = (last, stop, " }") if len(splices) > 2 else (stop, stop, " }")
    if last == start or stop != tree.nodes[position].end:
        return []
    return [(start, begin, "{ "), *between, closing]


def _unqualified(tree: SourceTree, position: int) -> list[Splice]:
    if tree.nodes[position].kind not in tree.syntax.namespaces:
        return []
    name = tree.field(position, "name")
    words = tree.words(name) if name is not None else ""
    splices = []
    for at in tree.of_kind(tree.syntax.qualified):
        scope, inner = tree.field(at, "scope"), tree.field(at, "name")
        if scope is not None and inner is not None and tree.words(scope) == words:
            splices.append((tree.nodes[at].start, tree.nodes[inner].start, ""))
    return splices


def elements(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Elements of lists: arguments, parameters, initialisers, declarators."""
    for at in tree.of_kind(tree.syntax.lists):
        for element in tree.named(at):
            yield SyntaxChange(f"{tree.words(element)} of {tree.words(at)}", elements=(element,))
    for at in tree.of_kind(tree.syntax.variables):
        declared = [c for c in tree.named(at) if tree.nodes[c].field == "declarator"]
        for before, element in itertools.pairwise(declared):
            cut = (tree.nodes[before].end, tree.nodes[element].end, "")
            yield SyntaxChange(f"{tree.words(element)} of {tree.words(at)}", (cut,))


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
    for child in tree.named(position):
        if tree.nodes[child].kind in tree.syntax.expressions:
            yield child
        elif tree.nodes[child].kind in tree.syntax.lists:
            yield from _inner_expressions(tree, child)


def replaced(by: str) -> Callable[[SourceTree], Iterator[SyntaxChange]]:
    """Expressions by a number."""

    def find(tree: SourceTree) -> Iterator[SyntaxChange]:
        for at in tree.of_kind(tree.syntax.expressions):
            words, is_defined = tree.words(at), tree.nodes[at].field in tree.syntax.defining
            if words not in ("0", "1", by) and not is_defined and len(words) >= len(by):
                yield _put(tree, at, by)

    return find


def halves(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Whole numbers that are half as large."""
    for at in tree.of_kind(tree.syntax.numbers):
        words = tree.words(at)
        if words.isdecimal() and int(words) > 1:
            yield _put(tree, at, str(int(words) // 2))


def plain_types(tree: SourceTree) -> Iterator[SyntaxChange]:
    """The plainest type in place of another."""
    plain = tree.syntax.plain_type
    for at in tree.of_kind(tree.syntax.types):
        words = tree.words(at)
        is_type = tree.nodes[at].field == "type" and words not in (plain, "void")
        if is_type and len(words) >= len(plain):
            yield _put(tree, at, plain)


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


def _put(tree: SourceTree, position: int, by: str) -> SyntaxChange:
    """Something else in place of a node."""
    mark = f"{by} for {tree.words(position)} of {_around(tree, position)}"
    return SyntaxChange(mark, (tree.cut(position, by),))


def _around(tree: SourceTree, position: int) -> str:
    """What a change is a change of, so that two of them differ."""
    return tree.words(max(0, tree.nodes[position].parent))


# What may go from a text together, by the names that it has: parameters with arguments.

_SIMPLE = re.compile(r"[\w.:]+|\w[\w:]*<[\w, ]*>")


@dataclass(frozen=True, slots=True)
class _Callee:
    """What has a name, lists of its parameters, and lists of the arguments that it is given."""

    name: str
    parameters: Sequence[Sequence[int]]
    arguments: Sequence[Sequence[int]]


def parameters(tree: SourceTree) -> Iterator[SyntaxChange]:
    """A parameter with its arguments, and with the statements that use it."""
    for callee, number, name in _every_parameter(tree):
        dropped = _elements(callee, number)
        uses = [] if name is None else tree.uses_of(name, _extent(tree, name))
        around = {tree.item_around(use) for use in uses if not _is_in(tree, use, dropped)}
        whole = {tree.item_around(node) for node in dropped}
        items = tree.closure(node for node in around if node is not None and node not in whole)
        mark = f"{number} of {callee.name}"
        cuts = tuple(tree.cut(node) for node in items)
        yield SyntaxChange(mark, cuts, tuple(dropped))


def specialised(tree: SourceTree) -> Iterator[SyntaxChange]:
    """A parameter that always has one argument: the argument in its place."""
    for callee, number, name in _every_parameter(tree):
        values = {tree.words(listed[number]) for listed in callee.arguments if number < len(listed)}
        words = next(iter(values), "")
        if name is None or len(values) != 1 or not _SIMPLE.fullmatch(words):
            continue
        dropped = _elements(callee, number)
        uses = [u for u in tree.uses_of(name, _extent(tree, name)) if not _is_in(tree, u, dropped)]
        splices = tuple(tree.cut(use, words) for use in uses)
        yield SyntaxChange(f"{words} for {number} of {callee.name}", splices, tuple(dropped))


def _every_parameter(tree: SourceTree) -> Iterator[tuple[_Callee, int, int | None]]:
    """Each parameter by its number, and its name in the first list that has one."""
    for callee in _callees(tree):
        for number in range(max(map(len, callee.parameters))):
            lists = [listed for listed in callee.parameters if number < len(listed)]
            names = [name for listed in lists for name in tree.defined_by(listed[number])]
            yield callee, number, names[-1] if names else None


def _callees(tree: SourceTree) -> list[_Callee]:
    syntax = tree.syntax
    defined: dict[tuple[str, bool], list[list[int]]] = {}
    for at in tree.of_kind(syntax.functions):
        of = tree.field(at, "declarator")
        _enter(tree, defined, of, tree.field(at, "parameters"), is_template=False)
    for at in tree.of_kind(syntax.templates):
        name = next(iter(tree.defined_by(at)), None)
        _enter(tree, defined, name, tree.field(at, "parameters"), is_template=True)
    arguments: dict[tuple[str, bool], list[list[int]]] = {}
    for at in tree.of_kind(syntax.calls):
        field = syntax.calls[tree.nodes[at].kind]
        of, listed = tree.field(at, field), tree.field(at, "arguments")
        _enter(tree, arguments, of, listed, is_template=field == "name")
    return [
        _Callee(name=name, parameters=lists, arguments=arguments.get((name, is_template), []))
        for (name, is_template), lists in defined.items()
        if any(lists)
    ]


def _enter(
    tree: SourceTree,
    into: dict[tuple[str, bool], list[list[int]]],
    of: int | None,
    listed: int | None,
    *,
    is_template: bool,
) -> None:
    name = None if of is None else _last_name(tree, of)
    if name is not None and listed is not None:
        into.setdefault((name, is_template), []).append(tree.named(listed))


def _last_name(tree: SourceTree, position: int) -> str | None:
    if tree.is_leaf(position):
        return tree.words(position) if tree.nodes[position].kind in tree.syntax.names else None
    inner = [
        _last_name(tree, child)
        for child in tree.named(position)
        if tree.nodes[child].kind not in tree.syntax.lists
    ]
    return next((name for name in reversed(inner) if name is not None), None)


def _elements(callee: _Callee, number: int) -> list[int]:
    every = (*callee.parameters, *callee.arguments)
    return list(dict.fromkeys(listed[number] for listed in every if number < len(listed)))


def _extent(tree: SourceTree, name: int) -> int:
    item = tree.item_around(name)
    return 0 if item is None else item


def _is_in(tree: SourceTree, position: int, nodes: Sequence[int]) -> bool:
    return any(around in nodes for around in tree.around(position))


def variables(tree: SourceTree) -> Iterator[SyntaxChange]:
    """A variable that has a value from the start: the value in its place."""
    for at in tree.of_kind(tree.syntax.initialised):
        parent = tree.nodes[at].parent
        declared = [c for c in tree.named(parent) if tree.nodes[c].field == "declarator"]
        name, value = tree.field(at, "declarator"), tree.field(at, "value")
        if name is None or value is None or not tree.is_leaf(name) or declared != [at]:
            continue
        words = tree.words(value)
        words = words if _SIMPLE.fullmatch(words) else f"({words})"
        uses = tree.uses_of(name, tree.scope_of(parent))
        cuts = (tree.cut(parent), *(tree.cut(use, words) for use in uses))
        yield SyntaxChange(f"{words} for {tree.words(parent)}", cuts)


def macros(tree: SourceTree) -> Iterator[SyntaxChange]:
    """The text of a macro in its place."""
    for at in tree.of_kind(tree.syntax.macros):
        name, value = tree.field(at, "name"), tree.field(at, "value")
        if name is not None:
            words = "" if value is None else tree.words(value).strip()
            uses = (tree.cut(use, words) for use in tree.uses_of(name, 0))
            yield SyntaxChange(tree.words(at), (tree.cut(at), *uses))


def shorter_names(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Names that the text defines, each by a letter that it does not have."""
    taken = set(tree.names) | set(re.findall(r"\w+", tree.text))
    # One letter, then two.
    short = (
        "".join(letters)
        for count in (1, 2, 3)
        for letters in itertools.product(string.ascii_lowercase, repeat=count)
    )
    free = (name for name in short if name not in taken)
    defined = [name for item in tree.items for name in tree.defined_by(item)]
    for at in tree.of_kind(tree.syntax.lists):
        for element in tree.named(at):
            # An argument is a name that others define.
            if not tree.is_leaf(element) and tree.nodes[element].field not in tree.syntax.defining:
                defined += tree.defined_by(element)
    for words in dict.fromkeys(tree.words(name) for name in defined):
        new = next(free)
        if len(words) > len(new):
            yield SyntaxChange(words, tuple(tree.cut(at, new) for at in tree.names[words]))


# Reduces a text by its syntax: what is large goes first, what is fine last.

_STRUCTURE: tuple[FoundPass[SourceTree], ...] = (
    change_pass("comments", comments),
    change_pass("items", items),
    change_pass("items alone", alone),
    change_pass("parts for wholes", unwrapped),
)
_FINE: tuple[FoundPass[SourceTree], ...] = (
    change_pass("macros", macros),
    change_pass("parameters", parameters),
    change_pass("arguments for parameters", specialised),
    change_pass("elements", elements),
    change_pass("what is optional", optional),
    change_pass("operands", operands),
    change_pass("0 for expressions", replaced("0")),
    change_pass("1 for expressions", replaced("1")),
    change_pass("values for variables", variables),
    change_pass("plain types", plain_types),
    change_pass("half of numbers", halves),
)
_LAST: tuple[FoundPass[SourceTree], ...] = (
    change_pass("names", shorter_names),
    change_pass("layout", layout),
)
PASSES = (*_STRUCTURE, *_FINE, *_LAST)


async def _reduce_by_syntax(reducer: Reducer[SourceTree]) -> None:
    await sweep_coarsely(reducer, _STRUCTURE, smallest=4)
    await sweep_coarsely(reducer, (*_STRUCTURE, *_FINE), smallest=4)
    await reduce_patiently(reducer, (*_STRUCTURE, *_FINE))
    await reduce_patiently(reducer, PASSES)


def syntax_format(syntax: Syntax) -> TextFormat[SourceTree]:
    """Texts of a language; lines are those with code."""
    return TextFormat(
        read=lambda text: SourceTree(text, syntax),
        text_of=lambda tree: tree.text,
        size=lambda tree: tree.size,
        lines=lambda tree: tree.lines,
        run=_reduce_by_syntax,
    )
