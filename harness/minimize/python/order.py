"""Reduces a standalone file: what is large goes first, what is fine last. Pure.

Statements go with all that depends on them, so that candidates fail for a reason, not for a name
that is missing. Expressions are looked at once the statements are few.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness.minimize.python.launch_passes import Arguments, Numbers, Options
from harness.minimize.python.passes import (
    Methods,
    Statements,
    Unused,
    bare_expressions,
    branches,
    constants,
    keywords,
    operands,
    parameters,
    plain_assignments,
    trailing_arguments,
)
from harness.minimize.python.tree import PythonFile
from harness.minimize.python.variables import Propagations, Twins, Variables
from harness.minimize.reduction.driver import Reducer, Reduction, ReductionProgress
from harness.minimize.reduction.patient import MarkedPass, reduce_patiently, sweep_coarsely
from harness.minimize.reduction.tests import UNLIMITED, Effort

_STRUCTURE: tuple[MarkedPass[PythonFile], ...] = (
    Unused(),
    Methods(),
    Statements(),
    branches("body"),
    branches("else"),
)
PASSES: tuple[MarkedPass[PythonFile], ...] = (
    Arguments(is_inlining=False),
    parameters(),
    Options(),
    keywords(),
    plain_assignments(),
    Variables(0),
    Variables(1.0),
    Unused(),
    operands(0),
    operands(1),
    operands(2),
    *_STRUCTURE,
    Twins(),
    trailing_arguments(),
    constants(1.0),
    constants(0),
    bare_expressions(),
    Unused(),
    Propagations(),
    Numbers(),
    Arguments(is_inlining=True),
)


async def reduce_source(
    document: PythonFile,
    is_interesting: Callable[[PythonFile], Awaitable[bool]],
    *,
    effort: Effort = UNLIMITED,
    watch: Callable[[ReductionProgress[PythonFile]], None] = lambda _: None,
) -> Reduction[PythonFile]:
    """Reduce until nothing more can go; the arguments are those of `reduction.Reducer`."""
    reducer = Reducer(
        document,
        is_interesting,
        size=lambda source: source.size,
        key=lambda source: source.text,
        effort=effort,
        watch=watch,
    )
    await sweep_coarsely(reducer, _STRUCTURE, smallest=8)
    await sweep_coarsely(reducer, PASSES, smallest=4)
    await reduce_patiently(reducer, PASSES)
    return reducer.reduction(is_minimal=True)
