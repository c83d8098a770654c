"""The order of workarounds by time, as it was measured or as `triage rank` expects it.

Spilled bytes are not time: the model weighs instructions and local memory by the loops that they
lie in, and its own errors are known. Where two candidates are too near for the certainty that an
order of `triage rank` needs, the one that changes less comes first. What optimises less
comes behind what does not: the model's weights come from code at ptxas' default level. So does
another compiler, which changes every other kernel of the program; an older one behind a newer one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.frontends.assemble import kept_times
from harness.frontends.bench import Workbench
from harness.judging.ptxas.ptxas_options import lowers_optimisation
from harness.store.artifacts import UnusableArtifactError
from harness.values.kernel import Scalar
from harness.values.row import Row
from harness.values.timing import Faster, TimeMs, compare_times
from harness.values.toolchain import EMULATOR
from harness.values.verdict import VerdictKind
from harness.workaround.rank.model import Features, costs
from harness.workaround.rank.order import ERRORS, SURE, chance_of_faster, tile_of
from harness.workaround.rank.ranking import features_of_cell
from harness.workaround.result import Candidate, ExpectedSpeed
from harness.workaround.settings import SettingKind
from harness.workaround.trials import Attempt

_NINE_TENTHS = 1.645
"""So many standard deviations to each side hold nine tenths of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSetting:
    """What is known of a compiled setting; `launch` are its parameters of the launch.

    `time` is what a GPU measured of its cubin, one and the same GPU for all that are compared.
    """

    row: Row
    launch: tuple[tuple[str, Scalar | None], ...] = ()
    features: Features | None = None
    time: TimeMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    candidate: Candidate
    setting: KnownSetting
    cost: float | None


def in_order_of_time(
    bench: Workbench, home: Attempt, proved: Sequence[tuple[Candidate, Attempt]]
) -> list[Candidate]:
    """The candidates in the order of their lists and times, with what is expected of each.

    Raises:
        StorageError: the store cannot be read.
    """
    if home.row.ptxas == EMULATOR:
        return by_time(
            KnownSetting(row=home.row),
            [(candidate, KnownSetting(row=candidate.row)) for candidate, _ in proved],
        )
    device: str | None = None
    times: Mapping[str, TimeMs] = {}
    for name, by_cubin in kept_times(bench.store, home.row).items():
        if home.row.cubin_sha256 in by_cubin:
            device, times = name, by_cubin
    settings = [
        KnownSetting(
            row=candidate.row,
            launch=candidate.setting.launch,
            features=_features(bench, candidate),
            time=times.get(candidate.row.cubin_sha256 or ""),
        )
        for candidate in (home, *(proof for _, proof in proved))
    ]
    pairs = [
        (candidate, setting) for (candidate, _), setting in zip(proved, settings[1:], strict=True)
    ]
    return by_time(settings[0], pairs, device)


def _features(bench: Workbench, attempt: Attempt) -> Features | None:
    """Of what compiles; None where its machine code is damaged or not known."""
    if not attempt.row.verdict.compiles:
        return None
    try:
        return features_of_cell(bench, attempt.cell, attempt.evaluated)
    except UnusableArtifactError:
        return None


def by_time(
    today: KnownSetting, pairs: Sequence[tuple[Candidate, KnownSetting]], device: str | None = None
) -> list[Candidate]:
    """The candidates with what is expected of each: those for today first, each list by time.

    What the model does not know keeps its place. `device` is the GPU of the measured times.
    """
    everything = [today, *(setting for _, setting in pairs)]
    errors = ERRORS.of(spills=any(item.features and item.features.spills for item in everything))
    now, *prices = _costs(everything)
    priced = [
        _Priced(candidate=candidate, setting=setting, cost=cost)
        for (candidate, setting), cost in zip(pairs, prices, strict=True)
    ]
    tiers: dict[tuple[bool, ...], list[_Priced]] = {}
    for item in priced:
        is_for_today, steps = item.candidate.is_for_today, item.candidate.steps
        tier = (
            not is_for_today,
            lowers_optimisation(item.candidate.setting.flags),
            is_for_today and any(step.kind is SettingKind.TRITON for step in steps),
            any(step.kind is SettingKind.TRITON and step.is_downgrade for step in steps),
        )
        tiers.setdefault(tier, []).append(item)
    ordered = [item for tier in sorted(tiers) for item in _in_order(tiers[tier], errors)]
    return [
        replace(
            item.candidate, expected=_expected(item, today, now, errors, device, beside=ordered)
        )
        for item in ordered
    ]


def _costs(everything: Sequence[KnownSetting]) -> list[float | None]:
    """In cycles, None where it is not known; measured times are scaled to those of the first."""
    # What the model can compare with the first: code of its launch whose loops are recognised. Of
    # another launch nothing says how much work is to be done. Where the loops of one code do
    # nothing and those of another of the same tile do, a loop of the first was not recognised.
    launch = everything[0].launch
    comparable = [
        setting for setting in everything if setting.features and setting.launch == launch
    ]
    looping = {tile_of(setting.row) for setting in comparable if _works_in_loops(setting)}
    modelled = [
        setting
        for setting in comparable
        if _works_in_loops(setting) or tile_of(setting.row) not in looping
    ]
    features = [setting.features for setting in modelled if setting.features]
    tiles = [tile_of(setting.row) for setting in modelled]
    expected = dict(zip(map(id, modelled), costs(features, tiles), strict=True))
    first = everything[0]
    now = expected.get(id(first))
    if first.time is None:
        return [expected.get(id(setting)) for setting in everything]
    scale = (now or 1.0) / first.time.median
    return [
        setting.time.median * scale if setting.time else expected.get(id(setting)) if now else None
        for setting in everything
    ]


def _works_in_loops(setting: KnownSetting) -> bool:
    loops = setting.features.loops if setting.features else ()
    return any(loop.depth and (loop.tensor_work or loop.global_bytes) for loop in loops)


def _in_order(tier: Sequence[_Priced], errors: Sequence[float]) -> list[_Priced]:
    """Again and again the nearest of those that may be as fast as the fastest that is left.

    What has no cost keeps its place.
    """
    remaining = [item for item in tier if item.cost]
    ordered: list[_Priced] = []
    while remaining:
        fastest = min(remaining, key=lambda item: item.cost or math.inf)
        near = [item for item in remaining if not _is_faster(fastest, item, errors)]
        nearest = min(
            near,
            key=lambda item: (
                item.candidate.row.verdict is not VerdictKind.OK,
                sum(step.kind.weight for step in item.candidate.steps),
            ),
        )
        ordered.append(nearest)
        remaining.remove(nearest)
    sequence = iter(ordered)
    return [next(sequence) if item.cost else item for item in tier]


def _is_faster(item: _Priced, than: _Priced, errors: Sequence[float]) -> bool:
    times = item.setting.time, than.setting.time
    if times[0] and times[1]:
        return compare_times(times[0], times[1]) is Faster.FIRST
    if not item.cost or not than.cost:
        return False
    return chance_of_faster(item.cost, than.cost, errors) >= SURE


def _expected(
    item: _Priced,
    today: KnownSetting,
    now: float | None,
    errors: Sequence[float],
    device: str | None,
    *,
    beside: Sequence[_Priced],
) -> ExpectedSpeed | None:
    if not item.cost or not now:
        return None
    is_measured = bool(item.setting.time and today.time)
    error = math.sqrt(2 * statistics.fmean(error * error for error in errors))
    width = 1.0 if is_measured else math.exp(_NINE_TENTHS * error)
    close = [
        neighbour.candidate.change
        for neighbour in beside
        if neighbour is not item
        and neighbour.candidate.is_for_today is item.candidate.is_for_today
        and neighbour.cost
        and not (_is_faster(item, neighbour, errors) or _is_faster(neighbour, item, errors))
    ]
    return ExpectedSpeed(
        times=now / item.cost,
        least=now / item.cost / width,
        most=now / item.cost * width,
        device=device if is_measured else None,
        not_apart=tuple(close),
    )
