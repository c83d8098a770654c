"""What may go from a text together, by the names that it has: parameters with arguments. Pure."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.minimize.syntax.tree import SourceTree, Splice, SyntaxChange

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
        gone = _elements(callee, number)
        uses = [] if name is None else tree.uses_of(name, _extent(tree, name))
        around = {tree.item_around(use) for use in uses if not _is_in(tree, use, gone)}
        whole = {tree.item_around(each) for each in gone}
        items = tree.closure(each for each in around if each is not None and each not in whole)
        mark = f"{number} of {callee.name}"
        cuts = tuple(tree.cut(each) for each in items)
        yield SyntaxChange(mark, cuts, tuple(gone))


def specialised(tree: SourceTree) -> Iterator[SyntaxChange]:
    """A parameter that always has one argument: the argument in its place."""
    for callee, number, name in _every_parameter(tree):
        given = {tree.words(each[number]) for each in callee.arguments if number < len(each)}
        words = next(iter(given), "")
        if name is None or len(given) != 1 or not _SIMPLE.fullmatch(words):
            continue
        gone = _elements(callee, number)
        uses = [u for u in tree.uses_of(name, _extent(tree, name)) if not _is_in(tree, u, gone)]
        splices = tuple((tree.nodes[use].start, tree.nodes[use].end, words) for use in uses)
        yield SyntaxChange(f"{words} for {number} of {callee.name}", splices, tuple(gone))


def _every_parameter(tree: SourceTree) -> Iterator[tuple[_Callee, int, int | None]]:
    """Each parameter by its number, and its name in the first list that has one."""
    for callee in _callees(tree):
        for number in range(max(map(len, callee.parameters))):
            lists = [each for each in callee.parameters if number < len(each)]
            names = [name for each in lists for name in tree.defined_by(each[number])]
            yield callee, number, names[-1] if names else None


def _callees(tree: SourceTree) -> list[_Callee]:
    """Functions and templates by name."""
    syntax = tree.syntax
    defined: dict[tuple[str, bool], list[list[int]]] = {}
    for at in tree.of_kind(syntax.functions):
        of = tree.field(at, "declarator")
        _enter(tree, defined, of, tree.field(at, "parameters"), is_template=False)
    for at in tree.of_kind(syntax.templates):
        inner = tree.defined_by(at)
        _enter(
            tree, defined, inner[0] if inner else None, tree.field(at, "parameters"),
            is_template=True,
        )  # fmt: skip
    given: dict[tuple[str, bool], list[list[int]]] = {}
    for at in tree.of_kind(syntax.calls):
        field = syntax.calls[tree.nodes[at].kind]
        _enter(
            tree, given, tree.field(at, field), tree.field(at, "arguments"),
            is_template=field == "name",
        )  # fmt: skip
    return [
        _Callee(name=name, parameters=lists, arguments=given.get((name, is_template), []))
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
    """The name that a call is a call of: the last one, outside of what it is given."""
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
    return list(dict.fromkeys(each[number] for each in every if number < len(each)))


def _extent(tree: SourceTree, name: int) -> int:
    """The item that a parameter is a parameter of."""
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
        yield SyntaxChange(
            f"{words} for {tree.words(parent)}",
            (tree.cut(parent), *_in_place(tree, name, tree.scope_of(parent), words)),
        )


def macros(tree: SourceTree) -> Iterator[SyntaxChange]:
    """The text of a macro in its place."""
    for at in tree.of_kind(tree.syntax.macros):
        name, value = tree.field(at, "name"), tree.field(at, "value")
        if name is not None:
            words = "" if value is None else tree.words(value).strip()
            yield SyntaxChange(tree.words(at), (tree.cut(at), *_in_place(tree, name, 0, words)))


def _in_place(tree: SourceTree, name: int, scope: int, words: str) -> list[Splice]:
    uses = tree.uses_of(name, scope)
    return [(tree.nodes[use].start, tree.nodes[use].end, words) for use in uses]


def shorter_names(tree: SourceTree) -> Iterator[SyntaxChange]:
    """Names that the text defines, each by a letter that it does not have."""
    taken = set(tree.names) | set(re.findall(r"\w+", tree.text))
    free = (each for each in _short_names() if each not in taken)
    defined = [name for item in tree.items for name in tree.defined_by(item)]
    for at in tree.of_kind(tree.syntax.lists):
        for each in tree.named(at):
            # An argument is a name that others define.
            if not tree.is_leaf(each) and tree.nodes[each].field not in tree.syntax.defining:
                defined += tree.defined_by(each)
    for words in dict.fromkeys(tree.words(name) for name in defined):
        new = next(free)
        if len(words) > len(new):
            every = tree.names[words]
            splices = tuple((tree.nodes[at].start, tree.nodes[at].end, new) for at in every)
            yield SyntaxChange(words, splices)


def _short_names() -> Iterator[str]:
    """One letter, then two."""
    for count in (1, 2, 3):
        for letters in itertools.product(string.ascii_lowercase, repeat=count):
            yield "".join(letters)


inlined = (macros, variables, specialised)
