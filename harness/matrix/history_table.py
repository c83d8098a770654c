"""One cell over all versions: a line a toolchain, and the numbers as a sparkline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from harness.bugs.life import stretch_words, stretches
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition, spell
from harness.judging.followed import FollowedFailure
from harness.tables.rows import figure
from harness.tables.said import Block, GridColumn, SaidGrid, SaidLine, Tone, say, verdict_said
from harness.values.kernel import Config
from harness.values.row import SCHEMA, Row
from harness.values.toolchain import BUNDLED, TRITON, assembler_name, compiler_name

_OF_PLACE = ("kernel", "launch", "config", "target")
_TOOLCHAIN = ("triton", "ptxas", "compiler", "compiler_version", "assembler")
_BARS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "·"
_FAILED = "x"
_HOLDS = {VerdictAnswer.SAME: "holds", VerdictAnswer.OK: "no", VerdictAnswer.OTHER: "other failure"}


def history_document(rows: Sequence[Row], condition: Condition | None = None) -> dict[str, Any]:
    """As `--json` prints it: with a condition, also where it holds."""
    document: dict[str, Any] = {"schema": SCHEMA, "cells": rows}
    if condition is None:
        return document
    ranges = [
        {
            **{name: getattr(stretch[0], name) for name in _OF_PLACE},
            "first": {name: getattr(stretch[0], name) for name in _TOOLCHAIN},
            "last": {name: getattr(stretch[-1], name) for name in _TOOLCHAIN},
            "cells": [row.cell for row in stretch],
            "words": stretch_words(stretch, condition),
        }
        for stretch in stretches(rows, condition)
    ]
    return {**document, "while": spell(condition), "ranges": ranges}


def history_said(rows: Sequence[Row], condition: Condition | None = None) -> list[Block]:
    """A block for each kernel, launch, target and config, in the order of the rows.

    With a condition, it says where that holds.
    """
    parts: list[Block] = []
    for place, group in groupby(rows, key=_place):
        versions = list(group)
        parts += [say(place, Tone.HEAD), *_sparklines(versions)]
        if condition:
            spans = stretches(versions, condition)
            lines = [stretch_words(span, condition) for span in spans] or [
                f"{spell(condition)} holds with none of them"
            ]
            parts += [say(f"  {line}") for line in lines]
        parts.append(_grid(versions, condition))
    return parts


def sparkline(values: Sequence[int | None], failed: Sequence[bool]) -> str:
    """A bar a version between the smallest and the largest; x did not compile, · is not known."""
    numbers = [
        value for value, bad in zip(values, failed, strict=True) if value is not None and not bad
    ]
    low, high = min(numbers, default=0), max(numbers, default=0)
    return "".join(
        _FAILED if bad else _bar(value, low, high)
        for value, bad in zip(values, failed, strict=True)
    )


def _bar(value: int | None, low: int, high: int) -> str:
    if value is None:
        return _UNKNOWN
    if high == low:
        # Nothing moves: none is low at nothing, and a middle bar at something.
        return _BARS[3] if value else _BARS[0]
    return _BARS[round((value - low) / (high - low) * (len(_BARS) - 1))]


def _place(row: Row) -> str:
    config = Config.of(row.config).label
    return f"{row.kernel} · {row.launch} · {row.target} · {config}"


def _sparklines(rows: Sequence[Row]) -> Iterator[SaidLine]:
    failed = [row.verdict.is_failure for row in rows]
    numbers: tuple[tuple[str, Callable[[Row], int | None], str], ...] = (
        ("registers", lambda row: row.n_regs, ""),
        ("spills", lambda row: row.spills, " B"),
    )
    for title, number, unit in numbers:
        values = [number(row) if row.verdict.compiles else None for row in rows]
        present = [value for value in values if value is not None]
        span = "not known"
        if present:
            low, high = min(present), max(present)
            span = f"{low:,}{unit}" if low == high else f"{low:,} to {high:,}{unit}"
        yield say(f"  {title:<10}{sparkline(values, failed)}  {span}")


def _grid(rows: Sequence[Row], condition: Condition | None) -> SaidGrid:
    names = {compiler_name(row.compiler or TRITON) for row in rows}
    tools = {assembler_name(row.assembler) for row in rows if row.ptxas}
    titles = ("cell", _only(names, "compiler"), _only(tools, "assembler"), "verdict")
    columns = [GridColumn(title=title) for title in titles]
    columns += [
        GridColumn(title=title, is_number=True)
        for title in ("regs", "spill st", "spill ld", "occupancy")
    ]
    if condition:
        columns.append(GridColumn(title="--while"))
    lines = (_line(row, condition, is_mixed=len(tools) > 1) for row in rows)
    return SaidGrid(columns=tuple(columns), rows=tuple(lines))


def _only(names: set[str], otherwise: str) -> str:
    return next(iter(names)) if len(names) == 1 else otherwise


def _line(row: Row, condition: Condition | None, *, is_mixed: bool) -> tuple[SaidLine, ...]:
    origin = " (bundled)" if row.ptxas_origin == BUNDLED else ""
    frozen = " frozen" if row.frozen else ""
    tool = row.tool if is_mixed else row.ptxas or "none"
    return (
        say(row.short),
        say(row.compiler_version or "-"),
        say(f"{tool}{origin}{frozen}"),
        verdict_said(row.verdict, [say(f" {row.code}")] if row.code else ()),
        *(say(figure(number)) for number in (row.n_regs, row.spill_stores, row.spill_loads)),
        say("-" if row.occupancy is None else f"{row.occupancy:.1%}"),
        *(
            [say(_HOLDS.get(FollowedFailure(condition=condition).of(row), "-"))]
            if condition
            else []
        ),
    )
