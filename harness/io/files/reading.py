"""Files that others wrote: regular ones only, not without end; and YAML that people write.

A pipe would make us wait for its writer, a device such as /dev/zero never ends, and a sparse
file of a few bytes on disk can be larger than the memory. Every complaint about YAML names file,
line and key.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import msgspec.inspect
import yaml

from harness.values.errors import ConfigurationError

_WORDS = {
    errno.ENOENT: "no such file",
    errno.EISDIR: "a folder; name a file in it",
    errno.ENXIO: "not a regular file",  # a socket
}


def read_regular(path: Path, limit: int, *, follow_links: bool = True) -> bytes:
    """A regular file's content, without waiting for a pipe; at most `limit` bytes.

    `follow_links` is about the file itself: the folders on the way to it may be links.

    Raises:
        ConfigurationError: it is something else, cannot be read, or is larger; one line.
    """
    with open_regular(path, limit, follow_links=follow_links) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(path, limit)
    return data


@contextlib.contextmanager
def open_regular(path: Path, limit: int, *, follow_links: bool = True) -> Iterator[BinaryIO]:
    """As `read_regular`, for what is read bit by bit.

    Raises:
        ConfigurationError: as `read_regular`; also where it cannot be read later on.
    """
    # Without NONBLOCK, opening a pipe waits for its writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        with open(os.open(path, flags | (0 if follow_links else os.O_NOFOLLOW)), "rb") as file:  # noqa: PTH123
            facts = os.fstat(file.fileno())
            if stat.S_ISDIR(facts.st_mode):
                raise ConfigurationError(f"{path}: {_WORDS[errno.EISDIR]}")
            if not stat.S_ISREG(facts.st_mode):
                raise ConfigurationError(f"{path}: not a regular file")
            # Not read up to the limit first: of a sparse file that would be all memory.
            if facts.st_size > limit:
                raise _too_large(path, limit)
            yield file
    except OSError as error:
        if not follow_links and error.errno == errno.ELOOP:
            raise ConfigurationError(f"{path}: a symbolic link: not followed") from error
        reason = _WORDS.get(error.errno or 0) or f"cannot be read: {error.strerror}"
        raise ConfigurationError(f"{path}: {reason}") from error
    except ValueError as error:
        raise ConfigurationError(f"{str(path)!r}: cannot be read: {error}") from error


def _too_large(path: Path, limit: int) -> ConfigurationError:
    return ConfigurationError(f"{path}: more than {limit:,} bytes: it is not read")


T = TypeVar("T")

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 24
_TOO_DEEP = f"nested deeper than {_MAX_DEPTH} levels"
_MAX_ALIASES = 16
_MAX_DIGITS = 18

_AT = re.compile(r"^(.*?)(?: - at `(?:key in )?(\$[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([\w-]+)|\[(\d+|\.\.\.)\]")
_WANTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `([^`]*)`")
_PLAIN_NAMES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null"))
_NOT_TEXT = frozenset(_TAG + name for name in ("int", "float", "bool", "null", "timestamp"))


class FieldError(ValueError):
    """A value that has the right type and makes no sense.

    `where` is its path as msgspec writes it: `$.requires[0].sha256`.
    """

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


class _HostileError(yaml.YAMLError):
    def __init__(self, problem: str, mark: object) -> None:
        super().__init__(problem)
        self.problem = problem
        self.problem_mark = mark


def read_yaml(path: Path, schema: type[T], check: Callable[[T], object] | None = None) -> T:
    """Read `path` into `schema`; `check` looks at the values, and raises `FieldError`.

    Raises:
        ConfigurationError: unreadable, not YAML, or not of the schema; one line with file and line.
    """
    return read_located(path, schema, check)[0]


def read_located(
    path: Path, schema: type[T], check: Callable[[T], object] | None = None
) -> tuple[T, Callable[[str], int]]:
    """As `read_yaml`, and what tells the line of a value by its path (`$.exclude[0].target`)."""
    data = read_regular(path, _MAX_BYTES)
    try:
        root, value = _parse(data)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        line = _line_of_error(error, data)
        raise ConfigurationError(f"{path}:{line}: not YAML: {_short(error)}") from error
    if root is None or value is None:
        raise ConfigurationError(f"{path}:1: the file is empty")
    try:
        result = msgspec.convert(value, schema, strict=True)
        if check:
            check(result)
    except FieldError as error:
        line, key, _ = _locate(root, error.where, "")
        raise ConfigurationError(f"{path}:{line}: {key}{error}") from error
    except msgspec.ValidationError as error:
        message, where = _AT.fullmatch(str(error)).groups()  # type: ignore[union-attr]
        line, key, node = _locate(root, where or "$", message)
        known = _known(schema, where or "$", message)
        raise ConfigurationError(f"{path}:{line}: {key}{_plain(message, node)}{known}") from error
    return result, lambda where: _locate(root, where, "")[0]


def _parse(data: bytes) -> tuple[yaml.Node | None, Any]:
    # Events come without recursion: depth and aliases are bounded before a tree is built.
    depth = aliases = 0
    for event in yaml.parse(data, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _HostileError(_TOO_DEEP, event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > _MAX_ALIASES:
                raise _HostileError(f"more than {_MAX_ALIASES} aliases (*name)", event.start_mark)
    loader = yaml.CSafeLoader(data)
    try:
        root = loader.get_single_node()
        if root is None:
            return None, None
        _refuse_traps(root, ())
        return root, loader.construct_document(root)
    finally:
        loader.dispose()


def _refuse_traps(node: yaml.Node, around: tuple[yaml.Node, ...]) -> None:
    """Refuse what YAML accepts and no author means; `around`: the collections that hold `node`."""
    if any(node is outer for outer in around):
        raise _HostileError("an alias (*name) inside of what it names", node.start_mark)
    if isinstance(node, yaml.ScalarNode):
        if node.tag == _TAG + "timestamp":
            # Everything in our files that looks like a date is text.
            node.tag = _TAG + "str"
        if node.tag not in _SCALARS:
            raise _HostileError(f"{node.tag.removeprefix(_TAG)!r} values", node.start_mark)
        if node.tag == _TAG + "int" and len(node.value) > _MAX_DIGITS:
            raise _HostileError("a number of that many digits", node.start_mark)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_traps(item, (*around, node))
    else:
        keys: set[str] = set()
        for key, _ in node.value:
            mark = key.start_mark
            if not isinstance(key, yaml.ScalarNode) or key.tag == _TAG + "merge":
                raise _HostileError("a key that is not plain text", mark)
            if key.tag != _TAG + "str":
                raise _HostileError(
                    f'the key {key.value[:40]} is not text; write "{key.value[:40]}"', mark
                )
            if key.value in keys:
                raise _HostileError(f"the key `{key.value[:80]}` is there twice", mark)
            keys.add(key.value)
        for _, item in node.value:
            _refuse_traps(item, (*around, node))


def _line_of_error(error: Exception, data: bytes) -> int:
    mark = getattr(error, "problem_mark", None)
    if mark:
        return int(mark.line) + 1
    position = getattr(error, "position", None)
    return data.count(b"\n", 0, position) + 1 if isinstance(position, int) else 1


def _short(error: Exception) -> str:
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    # The scanner of PyYAML 6.0.4 runs ahead of the events, and has a limit of its own.
    return _TOO_DEEP if "maximum nesting depth" in problem else problem


def _plain(message: str, node: yaml.Node) -> str:
    """The complaint in words of the file's language, not of Python's."""
    field = _FIELD.fullmatch(message)
    if field:
        return f"the key `{field[1]}` is {'missing' if 'missing' in message else 'not known'}"
    mismatch = _WANTED.match(message)
    if not mismatch:
        return message
    names = [_PLAIN_NAMES.get(word.strip(), word.strip()) for word in mismatch[1].split("|")]
    expected = f"expected {' or '.join(name for name in names if name != 'nothing')}"
    if not isinstance(node, yaml.ScalarNode):
        return f"{expected}, got {_PLAIN_NAMES.get(mismatch[2], mismatch[2])}"
    shown = node.value[:40]
    if "text" in names and node.tag in _NOT_TEXT:
        return f'{expected}, got {shown or "nothing"}; write it in quotes: "{shown}"'
    return f"{expected}, got {shown!r}" if shown else f"{expected}, got nothing"


def _locate(root: yaml.Node, where: str, message: str) -> tuple[int, str, yaml.Node]:
    """Line, key and node of the value at a msgspec path.

    The line is that of the key itself when the message names an unknown one.
    """
    node, steps = root, []
    for name, index in _STEP.findall(where):
        child = _child(node, name, index)
        steps.append(name or f"[{index}]")
        if child is None:
            break
        node = child
    unknown = _UNKNOWN.search(message)
    if unknown and isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.value == unknown[1]:
                return key.start_mark.line + 1, _joined(steps), key
    return node.start_mark.line + 1, _joined(steps), node


def _known(schema: type, where: str, message: str) -> str:
    """The keys that may stand where the message names an unknown one; the nearest first."""
    unknown = _UNKNOWN.search(message)
    if not unknown:
        return ""
    info: Any = msgspec.inspect.type_info(schema)
    for name, _ in _STEP.findall(where):
        if isinstance(info, msgspec.inspect.StructType):
            info = next(field.type for field in info.fields if field.encode_name == name)
        else:
            info = info.item_type if isinstance(info, msgspec.inspect.ListType) else info.value_type
    keys = [field.encode_name for field in info.fields]
    inside = [
        f"{field.encode_name}.{unknown[1]}"
        for field in info.fields
        if any(unknown[1] == own.encode_name for own in getattr(field.type, "fields", ()))
    ]
    near = inside or difflib.get_close_matches(unknown[1], keys, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else "."
    return f"{hint} Known here: {', '.join(keys)}"


def _joined(steps: list[str]) -> str:
    key = ".".join(steps).replace(".[", "[")
    return f"{key}: " if key else ""


def _child(node: yaml.Node, name: str, index: str) -> yaml.Node | None:
    if name and isinstance(node, yaml.MappingNode):
        values: list[Any] = [value for key, value in node.value if key.value == name]
        return values[0] if values else None
    if isinstance(node, yaml.SequenceNode) and index.isdigit():
        return node.value[int(index)] if int(index) < len(node.value) else None
    return None
