"""Changes the tuning list of a kernel in its source: configs left out where they fail, or added.

The file stays as it is but for what is put in: a function before the kernel, and arguments of its
`autotune`. What is put in needs nothing but torch and Triton.
"""

from __future__ import annotations

import ast
import difflib
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from harness.logic.guards import Clause, Guard
from harness.logic.workarounds import OPTIONS
from harness.values.kernel import Config, Scalar

__all__ = ["PatchError", "Tuner", "find_tuner", "patch_tuner", "unified_diff"]

_WIDTH = 92


class PatchError(Exception):
    """The source cannot be changed by us; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuner:
    """The `autotune` of a kernel: `key` are the arguments by which it tells launches apart."""

    call: ast.Call
    function: ast.FunctionDef
    key: tuple[str, ...]

    def argument(self, name: str, position: int) -> ast.expr | None:
        """One of its arguments, given by name or by position."""
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return keyword.value
        return self.call.args[position] if len(self.call.args) > position else None


def find_tuner(text: str, kernel: str) -> Tuner:
    """The tuner of the function of that name.

    Raises:
        PatchError: there is none, or it is no decorator of the function.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise PatchError(f"it is no Python that this version reads: {error}") from error
    # As in Python, the last definition of a name counts.
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and _name(decorator.func) == "autotune":
                    return _tuner(decorator, node)
            raise PatchError(f"{kernel} has no @autotune decorator that could be changed")
    raise PatchError(f"no function {kernel} at the top level of the file")


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _tuner(call: ast.Call, function: ast.FunctionDef) -> Tuner:
    bare = Tuner(call=call, function=function, key=())
    key = bare.argument("key", 1)
    names = key.elts if isinstance(key, ast.List | ast.Tuple) else []
    return Tuner(
        call=call,
        function=function,
        key=tuple(
            n.value for n in names if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ),
    )


def patch_tuner(
    text: str,
    kernel: str,
    *,
    guard: Guard | None = None,
    because: str = "",
    add: Sequence[Config] = (),
) -> str:
    """The source with configs added to the kernel's list, and those of a guard left out.

    `because` says in the source why the guard is there.

    Raises:
        PatchError: the kernel has no tuner that could be changed.
    """
    tuner = find_tuner(text, kernel)
    edits: list[_Edit] = []
    if add:
        configs = tuner.argument("configs", 0)
        if configs is None:
            raise PatchError(f"the autotune of {kernel} names no configs")
        edits += _added(text, configs, add, _spelling(tuner.call, "Config"))
    if guard:
        name = _free(text, "_drop_broken_configs")
        edits += _pruned(text, tuner, name)
        wraps = tuner.argument("prune_configs_by", 2) is not None
        edits.append(_before(text, tuner, _helper(text, name, guard, because, wraps=wraps)))
    return _checked(_apply(text, edits), kernel, prunes=guard is not None)


def _checked(text: str, kernel: str, *, prunes: bool) -> str:
    """What was put in has to be where it belongs: parentheses can lead it astray."""
    tuner = find_tuner(text, kernel)
    if prunes and tuner.argument("prune_configs_by", 2) is None:
        raise PatchError(f"the autotune of {kernel} is written in a way that we cannot add to")
    return text


def unified_diff(path: str, before: str, after: str) -> str:
    """As `git diff` spells it, ready for `git apply` and `patch -p1`."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        fromfile=f"a/{path}",
        tofile=f"b/{path}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


# --- edits --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """Text to put in the place of what lies between two offsets of the source in UTF-8."""

    start: int
    end: int
    text: str


def _apply(text: str, edits: Sequence[_Edit]) -> str:
    data = text.encode()
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()


def _lines(text: str) -> list[bytes]:
    # As Python's own parser counts them: a form feed ends no line.
    return [line + b"\n" for line in text.encode().split(b"\n")]


def _offset(text: str, line: int, column: int) -> int:
    return sum(map(len, _lines(text)[: line - 1])) + column


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (
        _offset(text, node.lineno, node.col_offset),
        _offset(text, node.end_lineno, node.end_col_offset),
    )


def _before(text: str, tuner: Tuner, helper: str) -> _Edit:
    """Above the kernel's decorators, and the comments that belong to them."""
    first = min(node.lineno for node in tuner.function.decorator_list)
    lines = _lines(text)
    while first > 1 and lines[first - 2].startswith(b"#"):
        first -= 1
    start = _offset(text, first, 0)
    return _Edit(start=start, end=start, text=f"{helper}\n\n")


def _added(text: str, configs: ast.expr, add: Sequence[Config], constructor: str) -> list[_Edit]:
    start, end = _span(text, configs)
    more = ", ".join(config_source(config, constructor) for config in add)
    # Whatever makes the list, a tuple or a generator too.
    is_list = isinstance(configs, ast.List | ast.ListComp)
    opening, closing = ("", "") if is_list else ("list(", ")")
    return [
        _Edit(start=start, end=start, text=opening),
        _Edit(start=end, end=end, text=f"{closing} + [{more}]"),
    ]


def config_source(config: Config, constructor: str) -> str:
    """A config as a tuner's list spells it."""
    values = config.as_dict()
    meta = {name: value for name, value in values.items() if name not in OPTIONS}
    options = [f"{name}={_literal(values[name])}" for name in OPTIONS if name in values]
    return f"{constructor}({', '.join([_literal(meta), *options])})"


def _spelling(call: ast.Call, name: str) -> str:
    """`triton.Config` where the file says `triton.autotune`."""
    return ast.unparse(call.func).rpartition("autotune")[0] + name


def _pruned(text: str, tuner: Tuner, name: str) -> list[_Edit]:
    own = tuner.argument("prune_configs_by", 2)
    if own is not None:
        start, end = _span(text, own)
        return [
            _Edit(start=start, end=start, text=f"_and{name}("),
            _Edit(start=end, end=end, text=")"),
        ]
    last = max(
        _span(text, node)[1] for node in [*tuner.call.args, *(k.value for k in tuner.call.keywords)]
    )
    end = _span(text, tuner.call)[1] - 1
    argument = f'prune_configs_by={{"early_config_prune": {name}}}'
    between = text.encode()[last:end].decode()
    comma = "" if "," in between.partition("#")[0] else ","
    if "\n" not in between:
        return [
            _Edit(start=last, end=last, text=f"{comma} {argument}" if comma else f", {argument}")
        ]
    # One argument a line: as the others are written.
    column = _indent(text, tuner)
    return [_Edit(start=last, end=last, text=f",\n{column}{argument}")]


def _indent(text: str, tuner: Tuner) -> str:
    """The white space before the last argument's line."""
    last = tuner.call.keywords[-1].value if tuner.call.keywords else tuner.call.args[-1]
    line = _lines(text)[(last.end_lineno or last.lineno) - 1].decode()
    return line[: len(line) - len(line.lstrip())]


# --- what is put in -----------------------------------------------------------------------------


def _free(text: str, name: str) -> str:
    """A name that the file does not have yet."""
    number, found = 1, name
    while found in text:
        number += 1
        found = f"{name}_{number}"
    return found


def _helper(text: str, name: str, guard: Guard, because: str, *, wraps: bool) -> str:
    lines = [f"def {name}(configs, named_args, **kwargs):", *_docstring(guard, because)]
    lines += [f"    import {module}" for module in ("torch", "triton") if not _binds(text, module)]
    if len(guard.arguments) > 0:
        lines += [
            "    arguments = {**named_args, **kwargs}",
            f"    tested = {_literal(dict(guard.arguments))}",
            "    if any(arguments.get(name) != value for name, value in tested.items()):",
            "        return configs",
        ]
    lines += [
        f"    if torch.cuda.get_device_capability() != {guard.capability!r}:",
        "        return configs",
        '    version = tuple(int(part) for part in triton.__version__.split(".")[:2])',
        "",
        "    def is_broken(config):",
        "        values = config.all_kwargs()",
    ]
    for clause in guard.clauses:
        lines += _clause(clause)
    lines += [
        "        return False",
        "",
        "    return [config for config in configs if not is_broken(config)] or configs",
    ]
    return "\n".join([*lines, *(_wrapper(name) if wraps else [])]) + "\n"


def _wrapper(name: str) -> list[str]:
    return [
        "",
        "",
        f"def _and{name}(pruning):",
        '    """What the kernel prunes by itself, and what does not compile."""',
        '    own = pruning.get("early_config_prune")',
        "",
        "    def prune(configs, named_args, **kwargs):",
        "        kept = own(configs, named_args, **kwargs) if own else configs",
        f"        return {name}(kept, named_args, **kwargs)",
        "",
        '    return {**pruning, "early_config_prune": prune}',
    ]


def _docstring(guard: Guard, because: str) -> list[str]:
    words = [
        "Leave out configs that do not compile.",
        because,
        f"Compiled with Triton {', '.join(guard.tested)}"
        + (", for the arguments below." if guard.arguments else "."),
    ]
    said = [
        part for text in words if text for part in ("", *textwrap.wrap(_quotable(text), _WIDTH))
    ]
    return [f'    """{said[1]}', *(f"    {line}".rstrip() for line in said[2:]), '    """']


def _quotable(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")


def _clause(clause: Clause) -> list[str]:
    first, last = (
        tuple(int(part) for part in text.split(".")) for text in (clause.first, clause.last)
    )
    when = f"version == {first}" if first == last else f"{first} <= version <= {last}"
    lines = [f"        if {when}:"]
    for family in clause.either:
        tests = [
            f"values.get({_literal(name)}) in {_allowed(name, values)}" for name, values in family
        ]
        lines.append(f"            if {' and '.join(tests)}:")
        lines.append("                return True")
    return lines


def _allowed(name: str, values: Sequence[Scalar | None]) -> str:
    # A cluster of one block is what there is where nobody asks for another.
    more = (1,) if name == "num_ctas" and None in values else ()
    allowed = [_literal(value) for value in (*values, *more)]
    return f"({', '.join(allowed)}{',' * (len(allowed) == 1)})"


def _literal(value: object) -> str:
    """As most formatters spell it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _binds(text: str, module: str) -> bool:
    return any(
        isinstance(node, ast.Import)
        and any(alias.name == module and alias.asname is None for alias in node.names)
        for node in ast.parse(text).body
    )
