"""One failure beside its neighbours: what it takes, and what does not matter. Pure.

For what has no order to search in: flags, the values of tuned parameters, GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.judging.answers import VerdictAnswer
from harness.judging.followed import FollowedFailure
from harness.tables.said import BLANK, Block, SaidLine, Tone, say, verdict_said
from harness.values.kernel import Config, Scalar
from harness.values.limits import KNOWN_CAPABILITIES
from harness.values.row import Row
from harness.values.target import Target

# The fewest first: a kernel with one stage has no pipeline, one with one warp no barriers.
_VALUES: Mapping[str, tuple[Scalar, ...]] = {"num_stages": (1, 2, 3), "num_warps": (1, 2, 4, 8)}
# The first GPU with asynchronous copies, which the emulator knows; from 90 on a target is one chip.
_OLDEST, _EXACT_SINCE = 80, 90


def other_options(
    config: Mapping[str, Scalar], options: Sequence[str]
) -> list[tuple[str, dict[str, Scalar]]]:
    """The config with one option of the compiler changed, each with words for the change."""
    return [
        (f"{name}={value}", {**config, name: value})
        for name, values in _VALUES.items()
        if name in options and name in config
        for value in values
        if value != config[name]
    ]


def other_targets(target: Target) -> list[Target]:
    """The first GPU of each other generation."""
    firsts: dict[int, int] = {}
    for capability in sorted(KNOWN_CAPABILITIES):
        if capability >= _OLDEST:
            firsts.setdefault(capability // 10, capability)
    return [
        Target(capability=first, suffix="a" if first >= _EXACT_SINCE else "")
        for generation, first in firsts.items()
        if generation != target.capability // 10
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A neighbour, what it did and why; `row` is None where it could not be tried."""

    label: str
    outcome: VerdictAnswer
    reason: str
    row: Row | None = None
    config: Config | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """One tuned parameter, with everything else as in the failing config: its values by outcome.

    It carries the failure where another value of it works; where none was tried, nothing is known.
    """

    name: str
    fails: tuple[str, ...]
    works: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def carries(self) -> bool | None:
        """Whether the failure depends on it; None where that cannot be determined."""
        if self.works:
            return True
        return False if len(self.fails) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The failing cell (`origin`), what is followed of it, and its neighbours along one axis."""

    axis: str
    origin: Row
    points: tuple[Point, ...]
    followed: FollowedFailure = field(default_factory=FollowedFailure)
    trouble: str | None = None

    def labels(self, *outcomes: VerdictAnswer) -> list[str]:
        """The neighbours that answered so."""
        return [point.label for point in self.points if point.outcome in outcomes]

    @property
    def carriers(self) -> list[Carrier]:
        """By tuned parameter; of the axis `config` only."""
        return carriers(Config.of(self.origin.config), self.points)


def carriers(origin: Config, points: Sequence[Point]) -> list[Carrier]:
    """What each parameter does alone; one that no neighbour changes alone has its own value only.

    `points` may hold the failing config itself.
    """
    configs = [point.config.as_dict() for point in points if point.config]
    names = dict.fromkeys(name for config in (origin.as_dict(), *configs) for name in config).keys()
    parameters = []
    for name in names:
        values: dict[VerdictAnswer, list[str]] = {}
        for point in points:
            config = point.config.as_dict() if point.config else None
            if config is None or any(
                config.get(beside) != origin.as_dict().get(beside) for beside in names - {name}
            ):
                continue
            value = config.get(name)
            values.setdefault(point.outcome, []).append("none" if value is None else str(value))
        distinct = {word for words in values.values() for word in words}
        if len(distinct) > 1 or name in origin.as_dict():
            parameters.append(
                Carrier(
                    name=name,
                    fails=tuple(values.pop(VerdictAnswer.SAME, ())),
                    works=tuple(values.pop(VerdictAnswer.OK, ())),
                    other=tuple(word for words in values.values() for word in words),
                )
            )
    return parameters


# What a failure takes, and what does not matter to it, in words and as a document.


def contrast_said(contrast: Contrast) -> list[Block]:
    """Each neighbour with its verdict, and what that says."""
    width = max((len(point.label) for point in contrast.points), default=0)
    lines = [_point_said(point, width) for point in contrast.points]
    return [*lines, BLANK, *(say(words, Tone.HEAD) for words in contrast_words(contrast))]


def _point_said(point: Point, width: int) -> SaidLine:
    line = say(f"  {point.label:<{width}}  ")
    if point.row:
        line += verdict_said(point.row.verdict)
    mark = "  <- this failure" if point.outcome is VerdictAnswer.SAME else ""
    return line + say(f"{mark}  {point.reason}", Tone.FAINT)


def contrast_words(contrast: Contrast) -> list[str]:
    """The conclusion, a sentence a line."""
    if contrast.axis == "config":
        return [_carrier_words(carrier) for carrier in contrast.carriers]
    lines = []
    for words, outcomes in (
        ("Fails alike", (VerdictAnswer.SAME,)),
        ("Works", (VerdictAnswer.OK,)),
        ("Fails in another way", (VerdictAnswer.OTHER,)),
        ("Cannot be determined", (VerdictAnswer.UNTESTABLE, VerdictAnswer.INFRA)),
    ):
        labels = contrast.labels(*outcomes)
        if labels:
            lines.append(f"{words}: {', '.join(labels)}.")
    return lines


def _carrier_words(carrier: Carrier) -> str:
    parts = [
        f"{'|'.join(values)} {words}"
        for values, words in (
            (carrier.fails, "fail" if len(carrier.fails) > 1 else "fails"),
            (carrier.works, "work" if len(carrier.works) > 1 else "works"),
            (carrier.other, "could not be determined"),
        )
        if values
    ]
    verbs = {True: "carries it", False: "does not carry it", None: "is not known to carry it"}
    return f"{carrier.name} {verbs[carrier.carries]}: {', '.join(parts)} (all else equal)."


def contrast_document(contrast: Contrast) -> dict[str, Any]:
    """For `--json`: the keys of a bisection too, those that do not apply being null."""
    origin = contrast.origin
    bodies = {point.row.ptx_body_sha256 for point in contrast.points if point.row}
    return {
        "schema": 1,
        "axis": contrast.axis,
        "config": origin.config,
        "signature": origin.signature,
        "last_good": None,
        "first_bad": None,
        "first_fixed": None,
        "fails": contrast.labels(VerdictAnswer.SAME),
        "works": contrast.labels(VerdictAnswer.OK),
        "other": contrast.labels(VerdictAnswer.OTHER),
        "untestable": contrast.labels(VerdictAnswer.UNTESTABLE, VerdictAnswer.INFRA),
        "segments": [
            {
                "first": point.label,
                "last": point.label,
                "outcome": point.outcome.value,
                "verdict": point.row.verdict if point.row else None,
                "signature": point.row.signature if point.row else None,
            }
            for point in contrast.points
        ],
        "carriers": [
            {
                "name": carrier.name,
                "fails": carrier.fails,
                "works": carrier.works,
                "other": carrier.other,
                "carries": carrier.carries,
            }
            for carrier in (contrast.carriers if contrast.axis == "config" else [])
        ],
        "confidence": None,
        "ptx_identical": (
            None if None in bodies or not bodies else bodies == {contrast.origin.ptx_body_sha256}
        ),
        "blame": None,
        "trouble": contrast.trouble,
    }
