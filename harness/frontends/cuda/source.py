"""What a `.cu` file says of itself: its configs, and the headers of the user's that it includes.

A line `// config NAME = VALUE VALUE ...` lists values of a macro, which nvcc gets as
`-DNAME=VALUE`: template arguments are chosen so too, by an explicit instantiation that names it.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import TYPE_CHECKING

from harness.files.regular_files import read_regular
from harness.values.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.values.kernel import Scalar

__all__ = ["configs_of", "display_name", "kernels_in", "read_source", "sources_sha256"]

_MOST_BYTES = 16 << 20
_MOST_CONFIGS = 4096
_CONFIG = re.compile(r"^\s*//\s*config\s+(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_MACRO = re.compile(r"[A-Za-z_]\w*")
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)")
_KERNEL = re.compile(r"\b__global__\b[^;{()]*?\b(\w+)\s*(?:<[^;{()]*>)?\s*\(")
_NUMBER = re.compile(r"-?\d+")
# Itanium C++ ABI, 5.1.2: `_Z`, then names as length and letters; `N ... E` around nested ones.
_MANGLED = re.compile(r"_Z(N?)(\d+)")


def read_source(path: Path) -> str:
    """The text of a file.

    Raises:
        UsageError: it cannot be read, or is no text.
    """
    try:
        return read_regular(path, _MOST_BYTES).decode()
    except ConfigurationError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not CUDA C++: it holds binary data") from error


def configs_of(text: str, path: Path) -> list[dict[str, Scalar]]:
    """Every combination of the values that its lines `// config` list; one without any, for none.

    Raises:
        UsageError: a line names no macro or no values, or there are too many combinations.
    """
    choices: dict[str, list[Scalar]] = {}
    for name, values in _CONFIG.findall(text):
        words = values.split()
        if not _MACRO.fullmatch(name) or not words:
            raise UsageError(f"{path}: write `// config NAME = VALUE VALUE ...`, not {name!r}")
        choices[name] = [int(word) if _NUMBER.fullmatch(word) else word for word in words]
    found = [
        dict(zip(choices, values, strict=True))
        for values in itertools.islice(itertools.product(*choices.values()), _MOST_CONFIGS + 1)
    ]
    if len(found) > _MOST_CONFIGS:
        raise UsageError(f"{path}: its configs have over {_MOST_CONFIGS:,} combinations")
    return found


def kernels_in(text: str) -> list[str]:
    """The names of the `__global__` functions that a text defines or instantiates, each once."""
    return list(dict.fromkeys(_KERNEL.findall(_BOUNDS.sub("", text))))


def sources_sha256(path: Path) -> str:
    """A hash of a file and of the user's headers that it includes, one by another.

    Raises:
        UsageError: one of them cannot be read.
    """
    digest = hashlib.sha256()
    for each, text in _with_headers(path, set()):
        digest.update(f"{each}\n{len(text)}\n{text}".encode())
    return digest.hexdigest()


def _with_headers(path: Path, seen: set[Path]) -> Iterator[tuple[str, str]]:
    resolved = path.resolve()
    if resolved in seen:
        return
    seen.add(resolved)
    text = read_source(path)
    yield path.name, text
    for name in _INCLUDE.findall(text):
        # What does not lie beside the file is a header of CUDA's or of the host's compiler.
        if (path.parent / name).is_file():
            yield from _with_headers(path.parent / name, seen)


def display_name(mangled: str) -> str:
    """The innermost name of a mangled function, without its arguments; others as they are."""
    found = _MANGLED.match(mangled)
    if not found:
        return mangled
    at, name = found.start(2), ""
    while length := re.match(r"\d+", mangled[at:]):
        start = at + length.end()
        at = start + int(length[0])
        name = mangled[start:at]
        if not found[1]:
            break
    return name or mangled
