"""The order of the configs of one launch, by times or by spills and occupancy. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec import structs

from harness.tables.rows import config_columns, figure, grid_of, lifted_words, numbers_of, share
from harness.tables.said import BLANK, Block, SaidGrid, SaidLine, Tone, say, verdict_said
from harness.tables.survivors import alike
from harness.values.row import SCHEMA, Row
from harness.values.timing import TimeMs

RULE = "what can be launched, then fewer spilled bytes of a thread, then a lower occupancy"
GOOD = 0.8
"""What an order that says something has at least: Spearman's correlation with measured times."""
_LEAST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Of the order of one kernel's configs by `RULE`, held to measured times.

    `spearman` is the correlation of ranks, None where it is not defined. `first` and `top_three`
    are regrets: by how much the first choice, and the best of the first three, is slower than the
    best (0.1 is 10 %).
    """

    configs: int
    spearman: float | None
    first: float
    top_three: float


def quality_of(places: Sequence[float], measured: Sequence[float]) -> Quality:
    """Compare the place of each config in an order with its measured time.

    Where several have one place, a user may get any of them: the slowest counts.

    Raises:
        ValueError: there is nothing to compare.
    """
    if len(places) != len(measured) or not measured:
        raise ValueError("as many measured times as configs, and one at least")
    best = min(measured)
    order = sorted(zip(places, measured, strict=True), key=lambda pair: (pair[0], -pair[1]))
    times = [time for _, time in order]
    return Quality(
        configs=len(measured),
        spearman=spearman(places, measured),
        first=times[0] / best - 1,
        top_three=min(times[:3]) / best - 1,
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The correlation of ranks, where equal numbers share a rank; None where one is constant."""
    own, theirs = ranks(first), ranks(second)
    middle = (len(first) - 1) / 2
    apart = [(a - middle, b - middle) for a, b in zip(own, theirs, strict=True)]
    spread = sum(a * a for a, _ in apart) * sum(b * b for _, b in apart)
    return sum(a * b for a, b in apart) / spread**0.5 if spread else None


def ranks(numbers: Sequence[float]) -> list[float]:
    """The rank of each, from 0; equal numbers share the mean of theirs."""
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    ranks = [0.0] * len(numbers)
    start = 0
    for _, group in groupby(order, key=numbers.__getitem__):
        places = list(group)
        for place in places:
            ranks[place] = start + (len(places) - 1) / 2
        start += len(places)
    return ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedConfig:
    """One config; `untimed` is why its time is not known, else it is of `samples` (milliseconds).

    `place` is that of the order by `RULE`, from 1; configs that it does not tell apart share one.
    """

    row: Row
    place: int = 0
    untimed: str | None = None
    samples: tuple[float, ...] = ()

    @property
    def time(self) -> TimeMs | None:
        """What it takes."""
        return self.row.time_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLaunch:
    """The configs of one launch of a kernel on one target, the fastest or the first by `RULE`."""

    kernel: str
    launch: str
    target: str
    configs: tuple[RankedConfig, ...]

    @classmethod
    def ordered(cls, place: tuple[str, str, str], configs: Sequence[RankedConfig]) -> RankedLaunch:
        """These configs of a kernel, launch and target, in their order.

        Those with a measured time come first, by it; the others follow by `RULE`.
        """
        kernel, launch, target = place
        keys = [_key(config.row) for config in configs]
        places = {key: number for number, key in enumerate(sorted(set(keys)), start=1)}
        placed = [
            replace(config, place=places[key]) for config, key in zip(configs, keys, strict=True)
        ]
        placed.sort(
            key=lambda config: (
                config.time.median if config.time else math.inf,
                config.place,
                config.row.cell,
            )
        )
        return cls(kernel=kernel, launch=launch, target=target, configs=tuple(placed))

    @property
    def quality(self) -> Quality | None:
        """Of the order by `RULE` against measured times; None where fewer than 3 are measured."""
        pairs = [(config.place, config.time.median) for config in self.configs if config.time]
        if len(pairs) < _LEAST:
            return None
        return quality_of([place for place, _ in pairs], [time for _, time in pairs])


def _key(row: Row) -> tuple[bool, float, float]:
    """What sorts first by `RULE`; what is not known comes last.

    Configs of one launch differ in their tiles, and a block with a larger tile loads less for the
    same work: so the lower occupancy is first. `docs/measured/ranking.md` has what an H200 says of
    that.
    """
    spills, occupancy = row.spills, row.occupancy
    return (
        not row.verdict.compiles,
        math.inf if spills is None else spills,
        math.inf if occupancy is None else occupancy,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """All launches that were ranked; `device` is the GPU that measured them, if one did."""

    launches: Sequence[RankedLaunch]
    device: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConfig:
    """One config of an order that is kept, and its measured milliseconds."""

    label: str
    verdict: str
    time: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRank:
    """An order as it is kept; `device` measured."""

    toolchains: tuple[str, ...]
    device: str | None
    configs: tuple[KeptConfig, ...]

    @property
    def is_measured(self) -> bool:
        """Whether any config has a time."""
        return any(config.time is not None for config in self.configs)

    @property
    def words(self) -> str:
        """Which order it is in."""
        return _words(self.device, is_measured=self.is_measured)


def _words(device: str | None, *, is_measured: bool) -> str:
    if is_measured:
        return f"by median times, measured on {device or 'a GPU whose name is not kept'}"
    return f"by {RULE}: this is not an order of times"


def ranks_said(report: RankReport) -> list[Block]:
    """A grid for each launch, and which order it is in; without times, configs alike are a line."""
    parts: list[Block] = []
    for launch in report.launches:
        is_measured = any(config.time for config in launch.configs)
        # Without times, configs of one place are one line.
        key = attrgetter(
            *(("row.cell",) if is_measured else ("place", "row.verdict", "row.n_regs"))
        )
        lines = alike(launch.configs, key, lambda each: each.row.config)
        configs = [config for config, _ in lines]
        place = (launch.kernel, launch.launch, launch.target, *lifted_words(configs))
        parts += [
            say(" · ".join(place), Tone.HEAD),
            say(_words(report.device, is_measured=is_measured), Tone.FAINT),
            _grid(configs, [each for _, each in lines], is_measured=is_measured),
        ]
        if quality := launch.quality:
            rho = "-" if quality.spearman is None else f"{quality.spearman:.2f}"
            parts.append(
                say(
                    f"`unmeasured` is the place by spills and occupancy: Spearman {rho}; its first "
                    f"choice is {quality.first:.1%} slower than the best, the best of its first "
                    f"three {quality.top_three:.1%}"
                )
            )
        parts.append(BLANK)
    return parts


def _grid(
    configs: Sequence[Mapping[str, str]], ranked: Sequence[RankedConfig], *, is_measured: bool
) -> SaidGrid:
    rows = [each.row for each in ranked]
    # Only times are an order that is worth a number.
    numbers = map(str, range(1, len(rows) + 1))
    columns: dict[str, Sequence[str | SaidLine]] = {"rank": list(numbers)} if is_measured else {}
    columns |= config_columns(configs)
    columns["verdict"] = [verdict_said(row.verdict) for row in rows]
    columns |= numbers_of(rows, "regs")
    columns["spilled"] = [figure(row.spills) for row in rows]
    columns["occupancy"] = [share(row.occupancy) for row in rows]
    if is_measured:
        columns["ms"] = [f"{each.time.median:.4f}" if each.time else "-" for each in ranked]
        columns["unmeasured"] = [str(each.place) for each in ranked]
    return grid_of(columns, {"regs": 3, "spilled": 1, "occupancy": 1})


def rank_document(report: RankReport) -> dict[str, Any]:
    """For `--json`: launches with their rows in order; `place` is that by spills and occupancy."""
    return {
        "schema": SCHEMA,
        "device": report.device,
        "launches": [
            {
                "kernel": launch.kernel,
                "launch": launch.launch,
                "target": launch.target,
                "quality": launch.quality and asdict(launch.quality),
                "configs": [
                    {
                        **structs.asdict(config.row),
                        "rank": number,
                        "place": config.place,
                        "untimed": config.untimed,
                        "time_samples": config.samples,
                    }
                    for number, config in enumerate(launch.configs, 1)
                ],
            }
            for launch in report.launches
        ],
        "notes": report.notes,
    }


def ranks_as_markdown(report: RankReport) -> str:
    """A table with a line for each launch that was measured, and what follows from all of them.

    It says how good the order by `RULE` is.
    """
    measured = [(launch, quality) for launch in report.launches if (quality := launch.quality)]
    lines = [
        "| kernel | launch | configs | slowest / best | Spearman | first choice | best of three |",
        f"|{' --- |' * 7}",
    ]
    for launch, quality in measured:
        times = [config.time.median for config in launch.configs if config.time]
        rho = "-" if quality.spearman is None else f"{quality.spearman:.2f}"
        lines.append(
            f"| {launch.kernel} | {launch.launch} | {quality.configs} "
            f"| {max(times) / min(times):.2f} | {rho} | +{quality.first:.1%} "
            f"| +{quality.top_three:.1%} |"
        )
    good = sum((quality.spearman or 0.0) >= GOOD for _, quality in measured)
    regrets = [quality.top_three for _, quality in measured]
    summary = (
        f"{len(measured)} launches on {report.device}: {good} have a Spearman correlation of "
        f"{GOOD} or more; the best of the first three is {statistics.median(regrets):.1%} slower "
        f"than the best at the median, {statistics.fmean(regrets):.1%} on average, "
        f"{max(regrets):.0%} at worst."
    )
    return "\n".join((*lines, "", summary))
