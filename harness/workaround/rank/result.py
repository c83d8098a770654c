"""An order of the configs of one launch, and what was measured of them. Values only. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.values.row import Row
from harness.values.timing import TimeMs
from harness.workaround.rank.features import Features
from harness.workaround.rank.quality import Quality, quality_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedConfig:
    """One config; `cost` is what it is expected to cost, None where that is not known.

    `time` is what it takes, of `samples` in milliseconds; `untimed` is why that is not known.
    """

    row: Row
    features: Features | None = None
    cost: float | None = None
    time: TimeMs | None = None
    untimed: str | None = None
    samples: tuple[float, ...] = ()


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

    @property
    def quality(self) -> Quality | None:
        """Of the order against measured times; None where fewer than two configs have both."""
        known = [(each.cost, each.time) for each in self.configs if each.cost is not None]
        pairs = [(cost, time.median) for cost, time in known if cost is not None and time]
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

    `spearman`, `first` and `top_three` are of its quality (`quality.py` beside), None where
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
        return any(each.time is not None for each in self.configs)
