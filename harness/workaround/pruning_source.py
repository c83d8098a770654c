"""The Python that a patch puts into a kernel's file: a guard as a function, a config as a call.

It needs nothing but torch and Triton, and says in its docstring what it rests on.

Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

from harness.frontends.texts.config_source import literal
from harness.values.kernel import Scalar
from harness.workaround.guard import Clause, Guard

_WIDTH = 92


def pruning_source(
    name: str, guard: Guard, because: str, *, imported: Collection[str], wraps: bool
) -> str:
    """The function `name` for `early_config_prune`, which leaves out what a guard names.

    `imported` are the modules that the file binds. With `wraps`, a second function joins it to what
    the kernel prunes already.
    """
    lines = [f"def {name}(configs, named_args, **kwargs):", *_docstring(guard, because)]
    lines += [f"    import {module}" for module in ("torch", "triton") if module not in imported]
    if guard.arguments:
        lines += [
            "    arguments = {**named_args, **kwargs}",
            f"    compiled = {literal(dict(guard.arguments))}",
            "    if any(arguments.get(name) != value for name, value in compiled.items()):",
            "        return configs",
        ]
    lines += [
        f"    if torch.cuda.get_device_capability() != {guard.capability!r}:",
        "        return configs",
        '    version = triton.__version__.partition("+")[0]',
        "",
        "    def is_broken(config):",
        "        values = config.all_kwargs()",
        *(line for clause in guard.clauses for line in _clause(clause)),
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
        "    pruning = pruning or {}",
        '    own = pruning.get("early_config_prune")',
        "",
        "    def prune(configs, named_args, **kwargs):",
        "        kept = own(configs, named_args, **kwargs) if own else configs",
        f"        return {name}(kept, named_args, **kwargs)",
        "",
        '    return {**pruning, "early_config_prune": prune}',
    ]


def _docstring(guard: Guard, because: str) -> list[str]:
    where = ", for the arguments below." if guard.arguments else "."
    paragraphs = [
        "Leave out configs that do not compile.",
        because,
        f"Compiled with Triton {', '.join(guard.tested)}{where}",
    ]
    lines = [
        line
        for text in paragraphs
        if text
        for line in ("", *textwrap.wrap(text.replace("\\", "/").replace('"', "'"), _WIDTH))
    ]
    return [f'    """{lines[1]}', *(f"    {line}".rstrip() for line in lines[2:]), '    """']


def _clause(clause: Clause) -> list[str]:
    lines = [f"        if version in {_tuple(clause.releases)}:"]
    for family in clause.either:
        tests = [f"values.get({literal(n)}) in {_allowed(n, allowed)}" for n, allowed in family]
        lines += [f"            if {' and '.join(tests)}:", "                return True"]
    return lines


def _allowed(name: str, values: Sequence[Scalar | None]) -> str:
    # A cluster of one block is what a kernel has where its config says nothing.
    return _tuple((*values, 1) if name == "num_ctas" and None in values else values)


def _tuple(values: Sequence[object]) -> str:
    return f"({', '.join(map(literal, values))}{',' * (len(values) == 1)})"
