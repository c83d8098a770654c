"""Consoles and documents: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec
from rich.console import Console

__all__ = ["print_json", "print_text", "results_console", "status_console"]

# Wide enough that no column of a table is cut where nobody looks at it live.
_PIPE_WIDTH = 200


def results_console() -> Console:
    """The console for results; outside a terminal it is wide and plain. Honours NO_COLOR."""
    columns = os.environ.get("COLUMNS", "")
    wide = int(columns) if columns.isdigit() and int(columns) else _PIPE_WIDTH
    return Console(width=None if sys.stdout.isatty() else wide, **_plain_words())


def status_console() -> Console:
    """The console for progress and notes."""
    return Console(stderr=True, **_plain_words())


def _plain_words() -> dict[str, Any]:
    """Nothing of ours is markup; and without colour (NO_COLOR) no bold either."""
    bare: dict[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return {"highlight": False, "emoji": False, "markup": False, **bare}


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, and nothing else."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_text(text: str) -> None:
    """A document on stdout, as it is."""
    click.echo(text, nl=False)
