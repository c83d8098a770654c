"""Numbers over versions as lines of a chart: the points are computed here, drawn by a template.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median_low
from typing import TypeAlias

import msgspec

from harness.values.bug import BugFacts
from harness.values.limits import Limits
from harness.values.row import Row

WIDTH, HEIGHT = 640.0, 140.0
"""Of a drawing, in its own units."""
LEFT, TOP = 8.0, 8.0
"""How far the points stay from its edges, on both sides."""

Measured: TypeAlias = Row | BugFacts
"""What has the numbers of a kernel that was compiled."""


class ChartPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The least, the median and the most of all that compiles with one version or toolchain.

    `x` and the three `*_y` are in units of the drawing, whose origin is above at the left.
    """

    label: str
    low: float
    middle: float
    high: float
    x: float
    low_y: float
    middle_y: float
    high_y: float


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One number over versions or toolchains, in order.

    `stretches` are points without a gap: a gap is one with which nothing compiles.
    `limit` is what one thread or block may have; `limit_y` is None where it lies far above.
    """

    title: str
    unit: str
    width: float
    height: float
    most: float
    stretches: tuple[tuple[ChartPoint, ...], ...]
    gaps: tuple[str, ...]
    limit: float | None
    limit_y: float | None


def charts_over(
    columns: Sequence[tuple[str, Sequence[Measured]]], limits: Limits | None
) -> list[Chart]:
    """A chart for each number that is known of anything and is not always 0.

    Args:
        columns: a label with all that compiles there, in the order of the drawing.
        limits: of the target, None where they are not known.
    """
    registers = limits.max_registers_per_thread if limits else None
    shared = limits.max_shared_per_block if limits else None
    tmem = limits.tensor_memory_columns or None if limits else None
    curves: tuple[tuple[str, str, Callable[[Measured], float | None], float | None], ...] = (
        ("registers", "", lambda row: row.n_regs, registers),
        ("spills", "bytes per thread, stores and loads", lambda row: row.spills, None),
        ("shared memory", "bytes a block", lambda row: row.shared, shared),
        ("tensor memory", "columns a block", lambda row: row.tmem_size, tmem),
        ("occupancy", "%", _percent, 100),
    )
    charts = []
    for title, unit, number, limit in curves:
        values = [
            sorted(v for point in measured if (v := number(point)) is not None)
            for _, measured in columns
        ]
        if any(map(any, values)):
            charts.append(_chart(title, unit, [label for label, _ in columns], values, limit))
    return charts


def _percent(facts: Measured) -> float | None:
    return None if facts.occupancy is None else round(facts.occupancy * 100, 1)


def _chart(
    title: str,
    unit: str,
    labels: Sequence[str],
    values: Sequence[Sequence[float]],
    limit: float | None,
) -> Chart:
    most = max(max(series) for series in values if series)
    # A limit that is far away would flatten the line: it is named, and not drawn.
    is_near = limit is not None and limit <= most * 2
    top = max(most, limit) if limit is not None and is_near else most
    step = (WIDTH - 2 * LEFT) / max(1, len(labels) - 1)

    def y(value: float) -> float:
        return round(TOP + (1 - value / top) * (HEIGHT - 2 * TOP), 1)

    def point(index: int) -> ChartPoint:
        low, middle, high = values[index][0], median_low(values[index]), values[index][-1]
        return ChartPoint(
            label=labels[index],
            low=low,
            middle=middle,
            high=high,
            x=round(LEFT + index * step, 1),
            low_y=y(low),
            middle_y=y(middle),
            high_y=y(high),
        )

    stretches = tuple(
        tuple(map(point, indices))
        for is_known, indices in groupby(range(len(labels)), key=lambda index: bool(values[index]))
        if is_known
    )
    return Chart(
        title=title,
        unit=unit,
        width=WIDTH,
        height=HEIGHT,
        most=most,
        stretches=stretches,
        gaps=tuple(label for label, series in zip(labels, values, strict=True) if not series),
        limit=limit,
        limit_y=y(limit) if limit is not None and is_near else None,
    )
