"""The order of the configs of one launch, whether it can be relied on, and its tables. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from msgspec import structs

from harness.frontends.texts.python import OPTIONS
from harness.tables.rows import figure
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
from harness.values.change import FirstLost
from harness.values.kernel import Config
from harness.values.row import SCHEMA, Row
from harness.values.timing import TimeMs
from harness.workaround.rank.model import MODEL, Features, Model, costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Of the order of one kernel's configs.

    `spearman` is the correlation of ranks, None where it is not defined. `first` and `top_three`
    are regrets: by how much the first choice, and the best of the first three, is slower than the
    best (0.1 is 10 %).
    """

    configs: int
    spearman: float | None
    first: float
    top_three: float


def quality_of(expected: Sequence[float], measured: Sequence[float]) -> Quality:
    """Compare what each config is expected to cost with its measured time.

    Where several are expected to cost the same, a user may get any of them: the slowest counts.

    Raises:
        ValueError: there is nothing to compare.
    """
    if len(expected) != len(measured) or not measured:
        raise ValueError("as many measured times as configs, and one at least")
    best = min(measured)
    order = sorted(zip(expected, measured, strict=True), key=lambda pair: (pair[0], -pair[1]))
    times = [time for _, time in order]
    return Quality(
        configs=len(measured),
        spearman=spearman(expected, measured),
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
class Errors:
    """Of launches in which a config spills, and of those in which none does.

    Each is the standard deviation of the logarithms of the costs of one launch about those of its
    times, with weights that were fitted to other kernels.
    """

    spilling: Sequence[float]
    dry: Sequence[float]

    def of(self, *, spills: bool) -> Sequence[float]:
        """Those that a launch may have."""
        return self.spilling if spills else self.dry


ERRORS = Errors(
    spilling=(
        0.035, 0.037, 0.047, 0.049, 0.069, 0.088, 0.097, 0.105,
        0.116, 0.122, 0.133, 0.143, 0.172, 0.173, 0.177, 0.180,
        0.180, 0.186, 0.192, 0.211, 0.227, 0.248, 0.268, 0.317,
    ),
    dry=(
        0.060, 0.089, 0.090, 0.095, 0.117, 0.125, 0.144, 0.160,
        0.163, 0.187, 0.242, 0.247, 0.249, 0.255, 0.261, 0.390,
    ),
)  # fmt: skip
"""Of the launches that were measured: `python benchmarks/ranking.py --held-out` prints them."""

GOOD = 0.8
"""What an order that is relied on has at least: Spearman's correlation with the measured times."""

SURE = 0.96
"""An order is claimed where its correlation is GOOD or more with this probability.

Of the launches that were held out, all with 0.9 or more had 0.8. But two with 0.94 and 0.95 (0.80
and 0.86) had 0.77 and 0.72 when they were measured once more: it has to be more than that.
"""

_DRAWS = 2000


def chance_of_order(
    costs: Sequence[float], codes: Sequence[object], errors: Sequence[float]
) -> float:
    """The probability that the order of these costs has a correlation of GOOD or more.

    The time of each code is its cost times a log-normal error; all errors of one draw have one of
    the standard deviations `errors`. Configs with equal `codes` are the same cubin: they have one
    error. 0 where all costs are equal. The draws are the same each time.

    Raises:
        ValueError: a cost is not positive.
    """
    # Digits behind the ninth mean nothing.
    logs = [round(math.log(number), 9) for number in costs]
    middle = (len(logs) - 1) / 2
    expected = [number - middle for number in ranks(logs)]
    ties: dict[tuple[object, float], list[float]] = {}
    for code, log, rank in zip(codes, logs, expected, strict=True):
        ties.setdefault((code, log), []).append(rank)
    sizes = [len(number) for number in ties.values()]
    cubes = len(logs) ** 3 - len(logs) - sum(size**3 - size for size in sizes)
    spread = math.sqrt(sum(number * number for number in expected) * cubes / 12)
    if not spread:
        return 0.0
    groups = [(log, len(tied), sum(tied)) for (_, log), tied in ties.items()]
    source = random.Random(0)  # noqa: S311 - no secret
    good = 0
    for draw in range(_DRAWS):
        error = errors[draw % len(errors)]
        shared, before = 0.0, 0
        for _, size, total in sorted((log + source.gauss(0, error), n, e) for log, n, e in groups):
            shared += total * (before + (size - 1) / 2)
            before += size
        good += shared / spread >= GOOD - 1e-9
    return good / _DRAWS


def chance_of_faster(cost: float, than: float, errors: Sequence[float]) -> float:
    """The probability that the first takes less time than the other.

    Raises:
        ValueError: a cost is not positive.
    """
    apart = math.log(than / cost)
    return math.fsum((1 + math.erf(apart / (2 * error))) / 2 for error in errors) / len(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedConfig:
    """One config; `cost` is what it is expected to cost, None where that is not known.

    `untimed` is why its time is not known; else it is of `samples`, in milliseconds.
    """

    row: Row
    features: Features | None = None
    cost: float | None = None
    untimed: str | None = None
    samples: tuple[float, ...] = ()

    @property
    def time(self) -> TimeMs | None:
        """What it takes."""
        return self.row.time_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLaunch:
    """The configs of one launch of a kernel on one target, the one expected to be fastest first.

    `doubt` says why the order cannot be relied on; empty where it can.
    """

    kernel: str
    launch: str
    target: str
    configs: tuple[RankedConfig, ...]
    doubt: str = ""

    @classmethod
    def ordered(cls, place: tuple[str, str, str], configs: Sequence[RankedConfig]) -> RankedLaunch:
        """These configs of a kernel, launch and target, in their order."""
        kernel, launch, target = place
        order, doubt = order_of(configs)
        return cls(kernel=kernel, launch=launch, target=target, configs=tuple(order), doubt=doubt)

    @property
    def quality(self) -> Quality | None:
        """Of the order against measured times; None where fewer than two configs have both."""
        costed = [(config.cost, config.time) for config in self.configs if config.cost is not None]
        pairs = [(cost, time.median) for cost, time in costed if cost is not None and time]
        if len(pairs) < 2:
            return None
        return quality_of([cost for cost, _ in pairs], [time for _, time in pairs])


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """All launches that were ranked; `device` is the GPU that measured them, if one did."""

    launches: Sequence[RankedLaunch]
    device: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConfig:
    """One config of an order that is kept: its expected cost, and its measured milliseconds."""

    label: str
    verdict: str
    cost: float | None
    time: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRank:
    """An order as it is kept, the config that is expected to be fastest first.

    `spearman`, `first` and `top_three` are of its quality (`Quality`), None where
    too little was measured. `device` measured.
    """

    toolchains: tuple[str, ...]
    device: str | None
    doubt: str
    configs: tuple[KeptConfig, ...]
    spearman: float | None = None
    first: float | None = None
    top_three: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether any config has a time."""
        return any(config.time is not None for config in self.configs)


_LEAST = 3


def order_of(
    configs: Sequence[RankedConfig], model: Model = MODEL, errors: Errors = ERRORS
) -> tuple[list[RankedConfig], str]:
    """The configs, the one expected to be fastest first; and why that is in doubt, or nothing.

    What does not compile comes last, and what the model cannot take before it. `errors` are those
    of the model.
    """
    modelled = [config for config in configs if config.features]
    features = [config.features for config in modelled if config.features]
    expected = (
        costs(features, [tile_of(config.row) for config in modelled], model) if features else []
    )
    pairs = [replace(config, cost=cost) for config, cost in zip(modelled, expected, strict=True)]
    pairs.sort(key=lambda config: (config.cost or 0.0, config.row.cell))
    return [*pairs, *(config for config in configs if not config.features)], _doubt(pairs, errors)


def first_lost(base: RankedLaunch, head: RankedLaunch) -> FirstLost | None:
    """How the first choice of base does in head, where both orders are sure.

    None where an order is in doubt, where the first choice is the same, and where it may be as
    fast as the one in its place by the errors of the model.
    """
    if base.doubt or head.doubt:
        return None
    label = Config.of(dict(base.configs[0].row.config)).label
    now = {Config.of(dict(config.row.config)).label: config for config in head.configs}
    first, new, lost = next(iter(now)), head.configs[0], now.get(label)
    rank = expected = None
    if lost is new or not new.cost:
        return None
    if lost and lost.cost:
        errors = ERRORS.of(spills=_spills(head.configs))
        if chance_of_faster(new.cost, lost.cost, errors) < SURE:
            return None
        rank, expected = list(now).index(label) + 1, lost.cost / new.cost
    elif lost and lost.row.verdict.compiles:
        return None
    place = f"{head.kernel} · {head.launch} · {head.target}"
    return FirstLost(place=place, config=label, rank=rank, expected=expected, first=first)


def tile_of(row: Row) -> tuple[tuple[str, str], ...]:
    """What of a config says how much is worked on at once."""
    items = row.config.items()
    return tuple(sorted((name, str(value)) for name, value in items if name not in OPTIONS))


def _doubt(modelled: Sequence[RankedConfig], errors: Errors) -> str:
    if len(modelled) < _LEAST:
        return f"cannot tell: fewer than {_LEAST} configs of which enough is known"
    own = errors.of(spills=_spills(modelled))
    codes = [config.row.cubin_sha256 or config.row.cell for config in modelled]
    chance = chance_of_order([config.cost or 0.0 for config in modelled], codes, own)
    if chance < SURE:
        return (
            "cannot tell the order: with the model's own errors, its correlation with measured "
            f"times is {GOOD} or more with a probability of {chance:.1%}, and {SURE:.0%} is asked "
            "for"
        )
    return ""


def _spills(configs: Sequence[RankedConfig]) -> bool:
    return any(config.features and config.features.spills for config in configs)


def ranks_said(report: RankReport) -> list[Block]:
    """A grid for each launch, the likely fast configs first; none where nothing tells an order."""
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
        rows = [_line(number, ranked, best) for number, ranked in enumerate(launch.configs, 1)]
        parts += [say(heading, Tone.HEAD), say(sure, Tone.FAINT)]
        quality = launch.quality
        if quality or not launch.doubt:
            parts.append(SaidGrid(columns=columns, rows=tuple(rows)))
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


def _line(number: int, ranked: RankedConfig, best: float | None) -> tuple[SaidLine, ...]:
    row, features = ranked.row, ranked.features
    config = ",".join(f"{name}={value}" for name, value in row.config.items()) or "default"
    expected = f"{ranked.cost / best:.2f}" if best and ranked.cost is not None else "-"
    spilled = None if row.spill_stores is None else row.spill_stores + (row.spill_loads or 0)
    numbers = (
        expected,
        figure(row.n_regs),
        figure(spilled),
        figure(features.per_sm if features else None),
        f"{features.waves:.2f}" if features else "-",
        f"{ranked.time.median:.4f}" if ranked.time else "-",
    )
    return (say(str(number)), say(config), verdict_said(row.verdict), *map(say, numbers))


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
                **structs.asdict(config.row),
                "rank": number,
                "expected": config.cost,
                "features": asdict(config.features) if config.features else None,
                "untimed": config.untimed,
                "time_samples": config.samples,
            }
            for number, config in enumerate(launch.configs, 1)
        ],
    }


def ranks_as_markdown(report: RankReport) -> str:
    """A table with a line for each launch that was measured, and what follows from all of them."""
    launches = [(launch, launch.quality) for launch in report.launches]
    measured = [
        (launch, quality) for launch, quality in launches if quality and quality.configs >= _LEAST
    ]
    titles = (
        "kernel",
        "launch",
        "configs",
        "slowest / best",
        "Spearman",
        "first choice",
        "best of three",
        "tells",
    )
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for launch, quality in measured:
        times = [config.time.median for config in launch.configs if config.time and config.cost]
        rho = "-" if quality.spearman is None else f"{quality.spearman:.2f}"
        lines.append(
            f"| {launch.kernel} | {launch.launch} | {quality.configs} "
            f"| {max(times) / min(times):.2f} | {rho} | +{quality.first:.1%} "
            f"| +{quality.top_three:.1%} | {'no' if launch.doubt else 'yes'} |"
        )
    telling = [quality.spearman or 0.0 for launch, quality in measured if not launch.doubt]
    good = sum(rho >= GOOD for rho in telling)
    regrets = [quality.top_three for _, quality in measured]
    claimed = [quality.top_three for launch, quality in measured if not launch.doubt]
    summary = (
        f"{len(measured)} launches on {report.device}: the best of the first three is "
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
