"""The syntax of a language as data: what a reducer of its text has to know, and a parsed text.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxNode:
    """A node of a parsed text, at `start` to `end` in characters.

    `parent` is its position in the list of all nodes (-1: it is the root), which is in order of the
    text, a parent before its children; `last` is the position after its last descendant. `field` is
    what its parent calls it. A token that stands for itself (`{`) is not `is_named`.
    """

    kind: str
    field: str | None
    start: int
    end: int
    parent: int
    last: int
    is_named: bool
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """What of a language decides what can go from a text of it.

    All are kinds of nodes, or names of fields, of the grammar that `parse` reads with. The tree of
    a text may be wrong in places (macros): it only says what is worth trying.

    Attributes:
        parse: the nodes of a text.
        comments: kinds that are comments.
        blocks: their named children are items, each of which may go.
        scopes: a name that an item in one of them defines means nothing outside.
        namespaces: blocks whose `name` is part of other names; `qualified` are those names.
        bodies: by kind, the fields of which one may take the place of the whole; with several names
            joined by `+`, all of these. `*` is every item.
        lists: their named children stand between separators, and each may go.
        optional: kinds that may go from where they are.
        optional_fields: by kind, the field that may go with the token before it.
        expressions: kinds that have a value; any may take the place of another.
        types: kinds of types; `plain_type` may take the place of any.
        numbers: kinds of literals that are numbers.
        names: kinds of leaves that are names.
        defining: fields that lead from an item to the name that it defines.
        transparent: kinds whose named children define what the whole defines.
        undefined: kinds of items that define nothing, whatever they name.
        macros: kinds of items that give a name (`name`) a text (`value`).
        variables: kinds of declarations of variables; `initialised` are declarators with a value.
        functions: kinds that name a function (`declarator`) beside its `parameters`.
        calls: kinds that name a function or a template beside its `arguments`, by the field of the
            name.
        templates: kinds with `parameters` of the template that they define.
    """

    parse: Callable[[str], Sequence[SyntaxNode]]
    comments: frozenset[str]
    blocks: frozenset[str]
    scopes: frozenset[str]
    namespaces: frozenset[str]
    qualified: frozenset[str]
    bodies: dict[str, tuple[str, ...]]
    lists: frozenset[str]
    optional: frozenset[str]
    optional_fields: dict[str, str]
    expressions: frozenset[str]
    types: frozenset[str]
    plain_type: str
    numbers: frozenset[str]
    names: frozenset[str]
    defining: frozenset[str]
    transparent: frozenset[str]
    undefined: frozenset[str]
    macros: frozenset[str]
    variables: frozenset[str]
    initialised: frozenset[str]
    functions: frozenset[str]
    calls: dict[str, str]
    templates: frozenset[str]
