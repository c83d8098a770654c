"""Templates of the files that are written for other people, and how values get into them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

import harness
from harness.values.kernel import Config
from harness.values.row import Row

_TICKS = re.compile(r"`+")
_LONG = 2500
_LINE = 600
# The line by which a compiler says what went wrong, the most telling kind first.
_TELLING = (
    re.compile(r"Assertion [`']|LLVM ERROR|UNREACHABLE executed"),
    re.compile(r"(?<!Python )\b(?:error|fatal) *: "),
)
# What PTX's debug sections hold, where a compiler prints all of its PTX.
_DEBUG_BYTES = re.compile(r"^\s*\.b(?:8|32|64) .*\n", re.MULTILINE)


def render_template(name: str, **values: Any) -> str:  # noqa: ANN401 - what a template takes
    """Fill in a template of the top-level folder `templates`."""
    package = Path(harness.__file__).parent
    # The user's own come first.
    folders = [Path("templates"), package / "data" / "templates", package.parent / "templates"]
    existing = tuple(str(folder.absolute()) for folder in folders if folder.is_dir())
    return _environment(existing).get_template(name).render(**values)


@lru_cache(maxsize=8)
def _environment(folders: tuple[str, ...]) -> jinja2.Environment:
    """One for the same folders: thousands of pages are rendered from a handful of templates."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        # Escapes of HTML are wrong in Markdown and scripts: those say `code`, `cell`, `quote`.
        autoescape=jinja2.select_autoescape(["html", "html.j2", "svg.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Callable[..., str]] = {
        "cell": markdown_cell,
        "code": markdown_code,
        "code_cell": lambda text: markdown_code(text).replace("|", "\\|"),
        "config_label": config_label,
        "fence": lambda text: "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0)),
        "known": lambda value: "" if value is None else f"{value:,}",
        "number": lambda value: f"{value:,}",
        "quote": shlex.quote,
        "tail": _tail,
    }
    environment.filters |= filters
    return environment


def markdown_code(text: object) -> str:
    """As code within a line of Markdown, whatever it holds."""
    line = " ".join(str(text).split())
    ticks = "`" * (max(map(len, _TICKS.findall(line)), default=0) + 1)
    blank = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{ticks}{blank}{line}{blank}{ticks}"


def markdown_cell(text: object) -> str:
    """Within a cell of a Markdown table: one line, its bars escaped, nothing that is markup."""
    line = " ".join(str(text).split())
    return re.sub(r"([|\\*<\[`]|(?<!\w)_|_(?!\w))", r"\\\1", line)


def foreign_cell(text: object) -> str:
    """As `markdown_cell`, of words that anybody may have written.

    GitHub makes a mention of `@name` and a link of `#1`, escaped or not: a mark without width
    keeps them apart.
    """
    return re.sub(r"((?<!\w)@|(?<!\w)#|[\w.-]/[\w.-]+#)(?=\w)", "\\1\u2060", markdown_cell(text))


def _tail(text: str) -> str:
    """The end of a long text, and the line that says what went wrong where it comes before that."""
    text = _DEBUG_BYTES.sub("", text.strip())
    if len(text) <= _LONG:
        return text
    ending = f"[...]\n{text[-_LONG:].partition(chr(10))[2]}"
    lines = text.splitlines()
    matches = (line for telling in _TELLING for line in lines if telling.search(line))
    first = next(matches, "")
    if first in ending:
        return ending
    if len(first) > _LINE:
        first = f"{first[: _LINE // 2]} [...] {first[-_LINE // 2 :]}"
    return f"[...]\n{first}\n{ending}"


def config_label(row: Row) -> str:
    """A row's config, as in a cell id."""
    return Config.of(row.config).label
