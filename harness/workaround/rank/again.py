"""Orders of what was measured before: the documents of `triage rank --measure --json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.values.row import Row
from harness.workaround.rank.features import Features
from harness.workaround.rank.order import order_of
from harness.workaround.rank.result import RankedConfig, RankedLaunch, RankReport


class MeasuredError(ValueError):
    """The text is not such a document; one line that says why."""


class _Config(msgspec.Struct):
    features: Features | None = None


class _Launch(msgspec.Struct):
    kernel: str
    launch: str
    target: str
    configs: list[msgspec.Raw]


class _Document(msgspec.Struct):
    launches: list[_Launch]
    device: str | None = None


def rank_again(texts: Sequence[bytes]) -> RankReport:
    """Order the configs of these documents again, with their times.

    Raises:
        MeasuredError: one of them is not a document of `triage rank`.
    """
    launches: list[RankedLaunch] = []
    devices: set[str] = set()
    for text in texts:
        try:
            document = msgspec.json.decode(text, type=_Document)
            launches += [_ranked(each) for each in document.launches]
        except (msgspec.MsgspecError, ValueError) as error:
            raise MeasuredError(str(error)) from error
        devices |= {document.device} if document.device else set()
    launches.sort(key=lambda each: (each.kernel, each.launch))
    return RankReport(launches=launches, device=", ".join(sorted(devices)) or None)


def _ranked(launch: _Launch) -> RankedLaunch:
    configs = []
    for raw in launch.configs:
        row = msgspec.json.decode(raw, type=Row)
        features = msgspec.json.decode(raw, type=_Config).features
        configs.append(RankedConfig(row=row, features=features, time=row.time_ms))
    ordered, doubt = order_of(configs)
    return RankedLaunch(
        kernel=launch.kernel,
        launch=launch.launch,
        target=launch.target,
        configs=tuple(ordered),
        doubt=doubt,
    )
