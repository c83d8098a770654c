"""Reduces a text by its syntax: what is large goes first, what is fine last. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness.minimize.reduction.driver import Reducer, Reduction, ReductionProgress
from harness.minimize.reduction.patient import MarkedPass, reduce_patiently, sweep_coarsely
from harness.minimize.reduction.tests import UNLIMITED, Effort
from harness.minimize.syntax.names import macros, parameters, shorter_names, specialised, variables
from harness.minimize.syntax.passes import (
    ChangePass,
    alone,
    comments,
    elements,
    halves,
    items,
    layout,
    operands,
    optional,
    plain_types,
    replaced,
    unwrapped,
)
from harness.minimize.syntax.tree import SourceTree

_STRUCTURE: tuple[MarkedPass[SourceTree], ...] = (
    ChangePass("comments", comments),
    ChangePass("items", items),
    ChangePass("items alone", alone),
    ChangePass("parts for wholes", unwrapped),
)
_FINE: tuple[MarkedPass[SourceTree], ...] = (
    ChangePass("macros", macros),
    ChangePass("parameters", parameters),
    ChangePass("arguments for parameters", specialised),
    ChangePass("elements", elements),
    ChangePass("what is optional", optional),
    ChangePass("operands", operands),
    ChangePass("0 for expressions", replaced("0")),
    ChangePass("1 for expressions", replaced("1")),
    ChangePass("values for variables", variables),
    ChangePass("plain types", plain_types),
    ChangePass("half of numbers", halves),
)
_LAST: tuple[MarkedPass[SourceTree], ...] = (
    ChangePass("names", shorter_names),
    ChangePass("layout", layout),
)
PASSES = (*_STRUCTURE, *_FINE, *_LAST)


async def reduce_by_syntax(
    document: SourceTree,
    is_interesting: Callable[[SourceTree], Awaitable[bool]],
    *,
    effort: Effort = UNLIMITED,
    watch: Callable[[ReductionProgress[SourceTree]], None] = lambda _: None,
) -> Reduction[SourceTree]:
    """Reduce until nothing more can go; the arguments are those of `reduction.Reducer`."""
    reducer = Reducer(
        document,
        is_interesting,
        size=lambda tree: tree.size,
        key=lambda tree: tree.text,
        effort=effort,
        watch=watch,
    )
    await sweep_coarsely(reducer, _STRUCTURE, smallest=4)
    await sweep_coarsely(reducer, (*_STRUCTURE, *_FINE), smallest=4)
    await reduce_patiently(reducer, (*_STRUCTURE, *_FINE))
    await reduce_patiently(reducer, PASSES)
    return reducer.reduction(is_minimal=True)
