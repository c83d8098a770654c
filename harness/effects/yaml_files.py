"""YAML files that people write, read so that every complaint names file, line and key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from harness.values.errors import ConfigurationError

__all__ = ["read_yaml"]

T = TypeVar("T")

_MAX_BYTES = 1 << 20
_AT = re.compile(r"^(.*?)(?: - at `(\$[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([\w-]+)|\[(\d+|\.\.\.)\]")


def read_yaml(path: Path, schema: type[T]) -> T:
    """Read `path` into `schema` (a msgspec struct; unknown keys are refused).

    Raises:
        ConfigurationError: unreadable, not YAML, or not of the schema; one line with file and line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"{path}: {len(data):,} bytes is too large for a settings file")
    try:
        root = yaml.compose(data, Loader=yaml.CSafeLoader)
        value = yaml.load(data, Loader=yaml.CSafeLoader)  # noqa: S506 - the safe loader, in C
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigurationError(f"{path}:{_line_of_error(error)}: not YAML: {_short(error)}") from error
    if root is None:
        raise ConfigurationError(f"{path}:1: the file is empty")
    try:
        return msgspec.convert(value, schema, strict=True)
    except msgspec.ValidationError as error:
        message, where = _AT.fullmatch(str(error)).groups()  # type: ignore[union-attr]
        line, key = _locate(root, where or "$", message)
        raise ConfigurationError(f"{path}:{line}: {key}{message}") from error


def _line_of_error(error: Exception) -> int:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else 1


def _short(error: Exception) -> str:
    return str(getattr(error, "problem", None) or error).splitlines()[0]


def _locate(root: yaml.Node, where: str, message: str) -> tuple[int, str]:
    """Line of the value at a msgspec path; of the key itself when the message names an unknown one."""
    node, steps = root, []
    for name, index in _STEP.findall(where):
        steps.append(name or f"[{index}]")
        found = _child(node, name, index)
        if found is None:
            break
        node = found
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown and isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.value == unknown[1]:
                return key.start_mark.line + 1, ""
    key = ".".join(steps).replace(".[", "[")
    return node.start_mark.line + 1, f"{key}: " if key else ""


def _child(node: yaml.Node, name: str, index: str) -> yaml.Node | None:
    if name and isinstance(node, yaml.MappingNode):
        values: list[Any] = [value for key, value in node.value if key.value == name]
        return values[0] if values else None
    if isinstance(node, yaml.SequenceNode) and index.isdigit():
        return node.value[int(index)] if int(index) < len(node.value) else None
    return None
