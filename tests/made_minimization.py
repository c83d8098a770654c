"""Reductions whose values are written down by their names, whatever part they are of."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from harness.minimize.reduction.minimization import (
    Minimization,
    MinimizedLaunch,
    MinimizedSubject,
    MinimizedText,
    MinimizedToolchain,
    MinimizeSpent,
)

PARTS = {
    "subject": MinimizedSubject,
    "toolchain": MinimizedToolchain,
    "left": MinimizedText,
    "spent": MinimizeSpent,
}
# Of the original and of what is left; versions of a compiler and of an assembler.
OTHERWISE = {
    "original_text": ("subject", "text"),
    "original": ("subject", "size"),
    "text": ("left", "text"),
    "minimized": ("left", "size"),
    "triton": ("toolchain", "version"),
}
PLACES = {field.name: (part, field.name) for part, kind in PARTS.items() for field in fields(kind)}
PLACES |= OTHERWISE


def _by_part(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    whole, parts = dict(values), dict[str, dict[str, Any]]()
    if "undefined" in whole:
        before, after = whole.pop("undefined")
        parts |= {"subject": {"undefined": before}, "left": {"undefined": after}}
    if "run_command" in whole:
        command, files = whole.pop("run_command"), whole.pop("run_files", {})
        shown, is_comparing = whole.pop("shown", None), whole.pop("is_comparing", False)
        whole["launch"] = MinimizedLaunch(
            command=command, files=files, shown=shown, is_comparing=is_comparing
        )
    for name in [name for name in whole if name in PLACES]:
        part, field = PLACES[name]
        parts.setdefault(part, {})[field] = whole.pop(name)
    return whole, parts


def minimization(**values: Any) -> Minimization:
    """A reduction with these values."""
    whole, parts = _by_part(values)
    made = {part: kind(**parts.get(part, {})) for part, kind in PARTS.items()}
    return Minimization(**whole, **made)


def changed(result: Minimization, **values: Any) -> Minimization:
    """A reduction with other values."""
    whole, parts = _by_part(values)
    for part, others in parts.items():
        whole[part] = replace(getattr(result, part), **others)
    return replace(result, **whole)
