"""The configs of a launch over all versions, and the numbers as sparklines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from harness.bugs.life import stretch_words, stretches
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition, spell
from harness.judging.followed import FollowedFailure
from harness.tables.rows import config_columns, differing, grid_of, lifted_words, numbers_of, share
from harness.tables.said import Block, SaidGrid, SaidLine, Tone, say, verdict_said
from harness.tables.survivors import alike
from harness.values.row import SCHEMA, Row
from harness.values.toolchain import BUNDLED, TRITON, assembler_name, compiler_name

_OF_PLACE = ("kernel", "launch", "config", "target")
_TOOLCHAIN = ("triton", "ptxas", "compiler", "compiler_version", "assembler")
_BARS = "▁▂▃▄▅▆▇█"
_BUNDLED = " (bundled)"
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
    """A table for each kernel, launch and target: configs and versions that are alike are one line.

    With a condition, it says where that holds.
    """
    parts: list[Block] = []
    for place, group in groupby(rows, key=lambda row: (row.kernel, row.launch, row.target)):
        configs: dict[str, list[Row]] = {}
        for row in group:
            configs.setdefault(row.config_label, []).append(row)
        lines = alike(
            configs.values(),
            lambda versions: tuple((*_tools(row), _told(row, condition)) for row in versions),
            lambda versions: versions[0].config,
        )
        lifted = ",".join(lifted_words([config for config, _ in lines]))
        names = differing([config for config, _ in lines])
        parts.append(say(" · ".join((*place, lifted) if lifted else place), Tone.HEAD))
        for config, versions in lines:
            where = ", ".join(f"{name}={config.get(name, 'none')}" for name in names)
            parts += _sparklines(versions, where)
            if condition:
                spans = stretches(versions, condition)
                said = [stretch_words(span, condition) for span in spans] or [
                    f"{spell(condition)} holds with none of them"
                ]
                parts += [say(f"  {f'[{where}] ' if where else ''}{line}") for line in said]
        parts.append(_grid(lines, condition))
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


def _sparklines(rows: Sequence[Row], where: str) -> Iterator[SaidLine]:
    """Registers and spills of one config; of one of several (`where`) what moves."""
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
        if not where or len({*present}) > 1:
            bars = sparkline(values, failed)
            yield say(f"  {title:<10}{bars}  {span}{f'  [{where}]' if where else ''}")


def _tools(row: Row) -> tuple[str, str]:
    origin = _BUNDLED if row.ptxas_origin == BUNDLED else ""
    frozen = " frozen" if row.frozen else ""
    return row.compiler_version or "-", f"{row.tool if row.ptxas else 'none'}{origin}{frozen}"


def _told(row: Row, condition: Condition | None) -> tuple[object, ...]:
    numbers = row.n_regs, row.spill_stores, row.spill_loads, row.occupancy
    return (
        row.verdict,
        row.code,
        *numbers,
        condition and FollowedFailure(condition=condition).of(row),
    )


def _grid(
    lines: Sequence[tuple[Mapping[str, str], Sequence[Row]]], condition: Condition | None
) -> SaidGrid:
    cells = [
        (config, list(stretch))
        for config, versions in lines
        for _, stretch in groupby(versions, key=lambda row: _told(row, condition))
    ]
    rows = [stretch[0] for _, stretch in cells]
    kinds = {row.compiler or TRITON for _, stretch in cells for row in stretch}
    tools = {row.assembler for _, stretch in cells for row in stretch if row.ptxas}
    titles = (
        _only({*map(compiler_name, kinds)}, "compiler"),
        _only({*map(assembler_name, tools)}, "assembler"),
    )
    columns: dict[str, Sequence[str | SaidLine]] = {"cell": [row.short for row in rows]}
    columns |= config_columns([config for config, _ in cells])
    for at, title in enumerate(titles):
        words = [[_tools(row)[at] for row in stretch] for _, stretch in cells]
        cut = f"{title} " if title != "assembler" else ""
        columns[title] = [_span([word.removeprefix(cut) for word in some]) for some in words]
    columns["verdict"] = [
        verdict_said(row.verdict, [say(f" {row.code}")] if row.code else ()) for row in rows
    ]
    columns |= numbers_of(rows, "regs", "spill st", "spill ld")
    columns["occupancy"] = [share(row.occupancy) for row in rows]
    if condition:
        followed = FollowedFailure(condition=condition)
        columns["--while"] = [_HOLDS.get(followed.of(row), "-") for row in rows]
    spare = {"regs": 1, "spill st": 1, "spill ld": 1, "occupancy": 3}
    return grid_of(columns, spare, (*titles, "--while"))


def _only(names: set[str], otherwise: str) -> str:
    return next(iter(names)) if len(names) == 1 else otherwise


def _span(words: Sequence[str]) -> str:
    """One version, or the first and the last of several and how many there are."""
    mark = _BUNDLED if all(word.endswith(_BUNDLED) for word in words) else ""
    distinct = list(dict.fromkeys(word.removesuffix(mark) for word in words))
    if len(distinct) > 2:
        return f"{distinct[0]} - {distinct[-1]} ({len(distinct)}){mark}"
    return ", ".join(distinct) + mark
