"""What a bad input is, as data; the tables of cases are beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Case"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command line, what is there when it runs, and what has to come of it.

    `prepare` puts files into the empty folder in which it runs. `code` is the exit code, or the
    codes that are both right; `says` is in one of its complaints. `lines` is how many lines
    complain (`triage:` or `Error:`), None where it is one for each of several things. `out` is in
    what it prints. `store` is whether there are results of earlier runs (in `results`). With
    `plain` root, too, has only the rights that a file's mode gives to its owner.
    """

    id: str
    words: tuple[str, ...]
    code: int
    says: str = ""
    out: str = ""
    lines: int | None = 1
    prepare: Callable[[Path], object] = lambda _folder: None
    store: bool = False
    env: Mapping[str, str | None] = field(default_factory=dict)
    stdin: str = "null"
    stdout: str = "file"
    stderr: str = "file"
    encoding: str = "utf-8"
    memory: int | None = None
    plain: bool = False
    folder_is_gone: bool = False
