"""Consoles and documents: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec
from rich.console import Console

__all__ = ["print_json", "results_console", "status_console"]

# Wide enough that no column of a table is cut where nobody looks at it live.
_PIPE_WIDTH = 200


def results_console() -> Console:
    """The console for results; outside a terminal it is wide and plain. Honours NO_COLOR."""
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", _PIPE_WIDTH))
    return Console(width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def status_console() -> Console:
    """The console for progress and notes."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, and nothing else."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
