"""Orders of configs, for people, for JSON and as Markdown. Pure."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from harness.tables.said import (
    BLANK,
    Block,
    GridColumn,
    SaidGrid,
    SaidLine,
    Tone,
    say,
    verdict_said,
)
from harness.values.row import SCHEMA
from harness.workaround.rank.order import GOOD, RankedConfig, RankedLaunch, RankReport

_REGRETS = ("first choice", "best of three")


def ranks_said(report: RankReport) -> list[Block]:
    """A grid for each launch; the configs that are expected to be fast first."""
    parts: list[Block] = []
    for launch in report.launches:
        heading = f"{launch.kernel} · {launch.launch} · {launch.target}"
        sure = launch.doubt or "the order is expected to hold"
        titles = ("expected", "regs", "spilled", "per SM", "waves", "ms")
        columns = (
            GridColumn(title="", is_number=True),
            GridColumn(title="config", wraps=True, folds=True),
            GridColumn(title="verdict"),
            *(GridColumn(title=title, is_number=True) for title in titles),
        )
        costs = [config.cost for config in launch.configs if config.cost is not None]
        best = min(costs, default=None)
        rows = [_line(number, each, best) for number, each in enumerate(launch.configs, 1)]
        parts += [
            say(heading, Tone.HEAD),
            say(sure, Tone.FAINT),
            SaidGrid(columns=columns, rows=tuple(rows)),
        ]
        quality = launch.quality
        if quality:
            rho = "-" if quality.spearman is None else f"{quality.spearman:.2f}"
            parts.append(
                say(
                    f"measured on {report.device}: Spearman {rho}; the first choice is "
                    f"{quality.first:.1%} slower than the best, the best of the first three "
                    f"{quality.top_three:.1%}"
                )
            )
        parts.append(BLANK)
    return parts


def _line(number: int, each: RankedConfig, best: float | None) -> tuple[SaidLine, ...]:
    row, features = each.row, each.features
    config = ",".join(f"{name}={value}" for name, value in row.config.items()) or "default"
    expected = f"{each.cost / best:.2f}" if best and each.cost is not None else "-"
    spilled = None if row.spill_stores is None else row.spill_stores + (row.spill_loads or 0)
    numbers = (
        expected,
        _number(row.n_regs),
        _number(spilled),
        _number(features.per_sm if features else None),
        f"{features.waves:.2f}" if features else "-",
        f"{each.time.median:.4f}" if each.time else "-",
    )
    return (say(str(number)), say(config), verdict_said(row.verdict), *map(say, numbers))


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def rank_document(report: RankReport) -> dict[str, Any]:
    """For `--json`: launches with their rows in order; `expected` is a cost in no unit."""
    return {
        "schema": SCHEMA,
        "device": report.device,
        "launches": [_launch(launch) for launch in report.launches],
        "notes": report.notes,
    }


def _launch(launch: RankedLaunch) -> dict[str, Any]:
    quality = launch.quality
    return {
        "kernel": launch.kernel,
        "launch": launch.launch,
        "target": launch.target,
        "doubt": launch.doubt or None,
        "quality": asdict(quality) if quality else None,
        "configs": [
            {
                **asdict(each.row),
                "rank": number,
                "expected": each.cost,
                "features": asdict(each.features) if each.features else None,
                "untimed": each.untimed,
                "time_samples": each.samples,
            }
            for number, each in enumerate(launch.configs, 1)
        ],
    }


_LEAST = 3


def ranks_as_markdown(report: RankReport) -> str:
    """A table with a line for each launch that was measured, and what follows from all of them."""
    found = [(each, each.quality) for each in report.launches]
    known = [(each, quality) for each, quality in found if quality and quality.configs >= _LEAST]
    titles = ("kernel", "launch", "configs", "slowest / best", "Spearman", *_REGRETS, "tells")
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for each, quality in known:
        times = [config.time.median for config in each.configs if config.time and config.cost]
        rho = "-" if quality.spearman is None else f"{quality.spearman:.2f}"
        lines.append(
            f"| {each.kernel} | {each.launch} | {quality.configs} | {max(times) / min(times):.2f} "
            f"| {rho} | +{quality.first:.1%} | +{quality.top_three:.1%} "
            f"| {'no' if each.doubt else 'yes'} |"
        )
    telling = [quality.spearman or 0.0 for each, quality in known if not each.doubt]
    good = sum(rho >= GOOD for rho in telling)
    regrets = [quality.top_three for _, quality in known]
    claimed = [quality.top_three for each, quality in known if not each.doubt]
    summary = (
        f"{len(known)} launches on {report.device}: the best of the first three is "
        f"{statistics.median(regrets):.1%} slower than the best at the median, "
        f"{statistics.fmean(regrets):.1%} on average, {max(regrets):.0%} at worst."
    )
    if telling:
        summary += (
            f" Of {len(telling)} launches of which it claims to tell the order, {good} have a "
            f"Spearman correlation of {GOOD} or more, the least is {min(telling):.2f}; the "
            f"best of the first three is there {statistics.median(claimed):.1%} slower at the "
            f"median, {max(claimed):.0%} at worst."
        )
    lines += ["", summary]
    return "\n".join(lines)
