"""Numbers over versions as lines of a chart: the points are computed here, drawn by a template.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from harness.values.change import Severity, severity_of
from harness.values.limits import Limits
from harness.values.row import BugFacts


class Frame(NamedTuple):
    """The size of a drawing in its own units, and how far the points stay from its edges."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def x(self, index: int, count: int) -> float:
        """Where the point of this index stands, of as many."""
        step = (self.width - self.left - self.right) / max(1, count - 1)
        return round(self.left + index * step, 1)

    def y(self, value: float, top: float) -> float:
        """Where a value stands if `top` stands at the top and 0 at the bottom."""
        return round(self.top + (1 - value / top) * (self.height - self.top - self.bottom), 1)


class ChartPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A value with one version or toolchain (`label`, the one with this `index`).

    `x` and `y` are in units of the drawing, whose origin is above at the left.
    """

    label: str
    index: int
    value: float
    x: float
    y: float


class ChartLine(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one config, or of several (`names`) that have the same everywhere.

    `stretches` are points without a gap: a gap is a version with which it does not compile.
    """

    names: tuple[str, ...]
    stretches: tuple[tuple[ChartPoint, ...], ...]

    @property
    def points(self) -> list[ChartPoint]:
        """All points, in order."""
        return [point for stretch in self.stretches for point in stretch]

    @property
    def by_index(self) -> dict[int, float]:
        """The values by the index of their version."""
        return {point.index: point.value for point in self.points}


class ChartStep(msgspec.Struct, frozen=True, kw_only=True):
    """The largest change for the worse from one version to the next known one.

    One that is too small to matter is none: see `harness.values.change.METRICS`.
    """

    line: ChartLine
    before: ChartPoint
    after: ChartPoint


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One number over versions or toolchains (`labels`), in order; a line for each config.

    `limit` is what one thread or block may have; `limit_y` is None where it lies far above.
    `ticks` are round values of the axis with their `y`.
    """

    title: str
    unit: str
    labels: tuple[str, ...]
    frame: Frame
    most: float
    lines: tuple[ChartLine, ...]
    ticks: tuple[tuple[float, float], ...]
    limit: float | None
    limit_y: float | None
    worst: ChartStep | None


def charts_over(
    labels: Sequence[str],
    configs: Mapping[str, Mapping[str, BugFacts]],
    limits: Limits | None,
    frame: Frame,
) -> list[Chart]:
    """A chart for each number that is known of anything and is not always 0.

    Args:
        labels: versions or toolchains, in the order of the drawing.
        configs: for each config what compiles, by label.
        limits: of the target, None where they are not known.
        frame: the size of each drawing.
    """
    registers = limits.max_registers_per_thread if limits else None
    shared = limits.max_shared_per_block if limits else None
    tmem = limits.tensor_memory_columns or None if limits else None
    curves: tuple[tuple[str, str, str, float | None], ...] = (
        ("n_regs", "registers", "per thread", registers),
        ("spills", "spills", "bytes per thread, stores and loads", None),
        ("shared", "shared memory", "bytes per block", shared),
        ("tmem_size", "tensor memory", "columns per block", tmem),
        ("occupancy", "occupancy", "%", 100),
    )
    charts = []
    for metric, title, unit, limit in curves:
        series: dict[tuple[float | None, ...], list[str]] = {}
        for name, rows in configs.items():
            numbers: list[float | None] = [
                getattr(rows[label], metric) if label in rows else None for label in labels
            ]
            if metric == "occupancy":
                numbers = [None if n is None else round(n * 100, 1) for n in numbers]
            values = tuple(numbers)
            series.setdefault(values, []).append(name)
        if any(any(values) for values in series):
            charts.append(_chart(metric, title, unit, labels, series, limit, frame))
    return charts


def _chart(
    metric: str,
    title: str,
    unit: str,
    labels: Sequence[str],
    series: Mapping[tuple[float | None, ...], Sequence[str]],
    limit: float | None,
    frame: Frame,
) -> Chart:
    most = max(value for values in series for value in values if value is not None)
    # A limit that is far away would flatten the line: it is named, and not drawn.
    is_near = limit is not None and limit <= most * 2
    top = max(most, limit) if limit is not None and is_near else most

    def line(values: Sequence[float | None], names: Sequence[str]) -> ChartLine:
        points = [
            value
            if value is None
            else ChartPoint(
                label=labels[index],
                index=index,
                value=value,
                x=frame.x(index, len(labels)),
                y=frame.y(value, top),
            )
            for index, value in enumerate(values)
        ]
        stretches = [list(part) for _, part in groupby(points, key=lambda point: point is None)]
        known = [tuple(point for point in part if point) for part in stretches if part[0]]
        return ChartLine(names=tuple(names), stretches=tuple(known))

    lines = tuple(
        line(values, names)
        for values, names in series.items()
        if any(value is not None for value in values)
    )
    worst = _worst_step(metric, lines)
    return Chart(
        title=title,
        unit=unit,
        labels=tuple(labels),
        frame=frame,
        most=most,
        # What is drawn last lies on top.
        lines=tuple(sorted(lines, key=lambda line: worst is not None and line is worst.line)),
        ticks=tuple((tick, frame.y(tick, top)) for tick in ticks(top)),
        limit=limit,
        limit_y=frame.y(limit, top) if limit is not None and is_near else None,
        worst=worst,
    )


def ticks(top: float) -> list[float]:
    """0 and up to five round values above it."""
    size = 10 ** math.floor(math.log10(top / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= top / 5)
    return [step * index for index in range(int(top / step) + 1)]


def _worst_step(metric: str, lines: Sequence[ChartLine]) -> ChartStep | None:
    sign = -1 if metric == "occupancy" else 1
    steps = [
        ChartStep(line=line, before=before, after=after)
        for line in lines
        for before, after in zip(line.points, line.points[1:], strict=False)
        if (after.value - before.value) * sign > 0
        and severity_of(metric, before.value, after.value) > Severity.INFORMATIONAL
    ]
    return max(steps, key=lambda step: (step.after.value - step.before.value) * sign, default=None)
