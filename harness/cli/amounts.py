"""What options hold: times, sizes, other finite numbers, words that are not empty, and paths.

Each type refuses in one line what it cannot take: exit code 2, before anything is done.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
"""The units of a time."""

SIZES = {
    "B": 1,
    **{
        prefix + unit: step**power
        for power, prefix in enumerate("KMGT", start=1)
        for unit, step in (("", 1000), ("B", 1000), ("IB", 1024))
    },
}
"""The units of a size in bytes, in capitals."""

# So many digits are finite as a float, and as bytes of a disk.
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z]*)")
_EMPTY = "it is empty; leave the option out, or say what is meant."
# How Python holds a byte of a word that is not UTF-8.
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


Given = click.Parameter | None
Where = click.Context | None


def read_amount(text: str, units: Mapping[str, float]) -> float | None:
    """A number with one of these units, in the smallest of them; None for any other text."""
    match = _AMOUNT.fullmatch(text.strip())
    if not match or match[2] not in units:
        return None
    return float(match[1]) * units[match[2]]


class Seconds(click.ParamType[float]):
    """A time, as `90s` or `4m`; it is not nothing."""

    name = "time"

    def convert(self, value: Any, param: Given, ctx: Where) -> float:
        seconds = value if isinstance(value, float) else read_amount(str(value), SECONDS)
        if not seconds:
            self.fail(f"{value!r}: write a time, for example 90s or 4m.", param, ctx)
        return seconds


class FiniteRange(click.FloatRange):
    """A number within bounds; `nan` and `inf` are none."""

    def convert(self, value: Any, param: Given, ctx: Where) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Gibibytes(FiniteRange):
    """GiB within bounds: a number, or a size with its unit, as `500MB` or `6GiB`."""

    def convert(self, value: Any, param: Given, ctx: Where) -> float:
        size = read_amount(str(value).upper(), {"": 2**30, **SIZES})
        if size is None:
            self.fail(f"{value!r}: write GiB, or a size with its unit: 6, 6GB.", param, ctx)
        return super().convert(size / 2**30, param, ctx)


class Words(click.ParamType[str]):
    """A text that is not empty: an empty one is most often a shell variable that is not set.

    It is UTF-8, as results and JSON are; only names of files may be any bytes.
    """

    name = "text"

    def __init__(self, *, names_files: bool = False) -> None:
        self.names_files = names_files

    def convert(self, value: Any, param: Given, ctx: Where) -> str:
        text = str(value)
        if not text.strip():
            self.fail(_EMPTY, param, ctx)
        if "\0" in text:
            self.fail(f"{text!r} holds a NUL character.", param, ctx)
        if not self.names_files and _HALF_A_PAIR.search(text):
            self.fail(f"{text[:80]!r} is not UTF-8.", param, ctx)
        return text


class FilePath(click.Path):
    """A path, which is not empty: that would be the working folder.

    What is there under one that is `read` must be a regular file that can be opened: that is looked
    at before any work is done. Whether it is missing, its reader says.
    """

    def __init__(self, *, read: bool = False, **how: Any) -> None:
        super().__init__(path_type=Path, **how)
        self._is_read = read

    def convert(self, value: Any, param: Given, ctx: Where) -> Path:
        if not str(value).strip():
            self.fail(_EMPTY, param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self._is_read and os.path.lexists(path):
            from harness.io.files.reading import open_regular  # noqa: PLC0415 - no help needs it

            with open_regular(path, sys.maxsize):
                pass
        return path


def once(_context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """For an option with `multiple=True` and one value: else click keeps the last in silence."""
    if len(values) > 1:
        raise click.BadParameter(
            f"it is given {len(values)} times; name one, or a pattern of names.", param=option
        )
    return values[0] if values else None
