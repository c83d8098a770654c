"""A file of CUDA C++ with one of its configs, as one that needs nothing but its compiler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from harness.frontends.cuda.source import is_config_line, own_header, read_source
from harness.values.kernel import Scalar

_ONCE = re.compile(r"^\s*#\s*pragma\s+once\b")
_LAUNCH = re.compile(r"^\s*//\s*launch\b")


def one_file(path: Path, config: Mapping[str, Scalar]) -> str:
    """The text with the user's headers in the place of their `#include`, and macros defined.

    Raises:
        UsageError: a header cannot be read.
    """
    lines = [f"#define {name} {value}" for name, value in config.items()]
    for line in _lines(path, path.parent, set(), ()):
        if is_config_line(line):
            continue
        if _LAUNCH.match(line):
            line = _with_values(line, config)  # noqa: PLW2901 - the same line in other words
        lines.append(line)
    return "\n".join(lines) + "\n"


def _with_values(line: str, config: Mapping[str, Scalar]) -> str:
    """A line `// launch` names macros of the config, and there is none any more."""
    return re.sub(r"(?<=[=,])\w+", lambda found: str(config.get(found[0], found[0])), line)


def _lines(path: Path, beside: Path, once: set[Path], inside: tuple[Path, ...]) -> list[str]:
    """Of a file, with those of its headers; what includes itself again is left as it is."""
    found: list[str] = []
    for line in read_source(path).splitlines():
        header = own_header(line, path.parent, beside)
        if _ONCE.match(line) and inside:
            once.add(path.resolve())
        elif header is None or header.resolve() in inside:
            found.append(line)
        elif header.resolve() not in once:
            found += _lines(header, beside, once, (*inside, header.resolve()))
    return found
