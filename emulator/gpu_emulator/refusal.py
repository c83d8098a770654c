"""Why a program cannot be executed."""

from __future__ import annotations


class NotExecutable(Exception):  # noqa: N818 - an answer, not an error: it becomes `not_run`
    """The reason in one line; `unknown` are the opcodes that no row of the table knows."""

    def __init__(self, reason: str, unknown: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.unknown = unknown
