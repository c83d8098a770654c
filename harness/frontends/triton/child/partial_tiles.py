"""Finds block sizes that leave a part of a dimension untouched. Reads the kernel's Python only."""

# ruff: noqa: ANN401 - Triton's functions have types that we cannot name

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from typing import Any


def suspicion(function: Any, values: Mapping[str, Any]) -> str:
    """Say in words what a config covers only partly; empty where nothing is suspect.

    `values` are the kernel's arguments by name, meta-parameters among them. A block size `P` is
    suspect if all of this holds, which leaves out whatever could be a loop or a grid over it:

    - the kernel takes `offsets = tl.arange(0, P)` as it is, and uses `P` for nothing else but
      shapes: in no product, quotient, sum, `range` or condition;
    - `offsets` is compared with a dimension (`offsets < D`), an argument whose value is known;
    - the value of `D` is larger than that of `P`.
    """
    found = []
    for block, limit in _compared(function):
        covered, whole = _integer(values.get(block)), _integer(values.get(limit))
        if covered is not None and whole is not None and covered < whole:
            found.append(
                f"{block}={covered} covers {covered} of {limit}={whole}, "
                "and the kernel does not loop over it"
            )
    return "; ".join(found)


@cache
def _compared(function: Any) -> tuple[tuple[str, str], ...]:
    """Each `P` and `D` of a kernel whose values decide, in the order of the source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return ()
    offsets = _plain_offsets(tree)
    pairs = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Lt):
            continue
        block, limit = offsets.get(_base_name(node.left)), node.comparators[0]
        if block and isinstance(limit, ast.Name) and not _is_used_elsewhere(tree, block):
            pairs.append((block, limit.id))
    return tuple(dict.fromkeys(pairs))


def _integer(value: Any) -> int | None:
    value = getattr(value, "value", value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _base_name(node: ast.expr) -> str:
    """`offsets` of `offsets[:, None]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _plain_offsets(tree: ast.Module) -> dict[str, str]:
    """Names that are assigned `tl.arange(0, P)` and nothing else, each with its `P`."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(_base_name(target), []).append(node.value)
        elif isinstance(node, ast.AugAssign):
            assigned.setdefault(_base_name(node.target), []).append(node.value)
    return {
        name: block
        for name, expressions in assigned.items()
        if len(expressions) == 1 and (block := _arange(expressions[0]))
    }


def _arange(node: ast.expr) -> str:
    """`P` of `tl.arange(0, P)`, also with a new axis behind it; empty for anything else."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    if node.func.attr != "arange" or len(node.args) != 2:
        return ""
    start, end = node.args
    is_zero = isinstance(start, ast.Constant) and start.value == 0
    return end.id if is_zero and isinstance(end, ast.Name) else ""


def _is_used_elsewhere(tree: ast.Module, block: str) -> bool:
    """Whether `block` appears where a loop or a grid over the dimension may come from it."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node.id != block:
            continue
        user = parents[node]
        while isinstance(user, ast.Tuple | ast.List):
            user = parents[user]
        if not isinstance(user, ast.Call) or not _makes_a_shape(user):
            return True
    return False


def _makes_a_shape(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in {
        "arange",
        "broadcast_to",
        "full",
        "reshape",
        "view",
        "zeros",
    }
