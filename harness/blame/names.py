"""What a blame calls the compilers and the programs of its grid. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from harness.blame.grid import Line


def agree(number: int, verb: str) -> str:
    """The verb for so many subjects: `it fails`, `they fail`."""
    return f"{verb}s" if number == 1 else verb


def compiled_by(lines: Sequence[Line]) -> str:
    """The compilers of these lines."""
    title = lines[0].title if lines else ""
    return compiler_names(title, [version for line in lines for version in line.tritons])


def who_do(lines: Sequence[Line], verb: str) -> str:
    """The compilers of these lines, and what they do."""
    number = len({version for line in lines for version in line.tritons})
    return f"{compiled_by(lines)} {agree(number, verb)}"


def compiler_names(title: str, versions: Sequence[str]) -> str:
    """`Triton 3.5.1, 3.6.0`; `the raw PTX`, or what else was given, where there are none."""
    ordered = sorted(dict.fromkeys(versions), key=Version)
    return f"{title} {', '.join(ordered)}" if ordered else f"the {title}"


def line_name(line: Line) -> str:
    """A line in words: `Triton 3.6.0, PTX 8.8`."""
    words = [compiler_names(line.title, line.tritons)] if line.tritons else []
    if line.version:
        words.append(f"{line.code} {line.version}" if words else f"{line.title} {line.version}")
    if line.made_for:
        words.append(f"pointed at {line.tool} {line.made_for}")
    return ", ".join(words) or compiler_names(line.title, ())
