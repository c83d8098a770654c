"""The order of workarounds by time, as it was measured or as `triage rank` expects it.

Spilled bytes are not time: the model weighs instructions and local memory by the loops that they
lie in, and its own errors are known. Where two candidates are too near for the certainty that an
order of `triage rank` needs, the one that changes less comes first. What optimises less
comes behind what does not: the model's weights come from code at ptxas' default level. So does
another compiler, which changes every other kernel of the program.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.frontends.bench.assemble import kept_times
from harness.frontends.bench.bench import Workbench
from harness.judging.ptxas.options import lowers_optimisation
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
class Known:
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
    known: Known
    cost: float | None


def in_order_of_time(
    bench: Workbench, home: Attempt, proved: Sequence[tuple[Candidate, Attempt]]
) -> list[Candidate]:
    """The candidates in the order of their lists and times, with what is expected of each.

    Raises:
        StorageError: the store cannot be read.
    """
    if home.row.ptxas == EMULATOR:
        return by_time(Known(row=home.row), [(each, Known(row=each.row)) for each, _ in proved])
    device: str | None = None
    times: Mapping[str, TimeMs] = {}
    for name, found in kept_times(bench.store, home.row).items():
        if home.row.cubin_sha256 in found:
            device, times = name, found
    known = [
        Known(
            row=each.row,
            launch=each.setting.launch,
            features=_features(bench, each),
            time=times.get(each.row.cubin_sha256 or ""),
        )
        for each in (home, *(proof for _, proof in proved))
    ]
    pairs = [(each, one) for (each, _), one in zip(proved, known[1:], strict=True)]
    return by_time(known[0], pairs, device)


def _features(bench: Workbench, each: Attempt) -> Features | None:
    """Of what compiles; None where its machine code is damaged or not known."""
    if not each.row.verdict.compiles:
        return None
    try:
        return features_of_cell(bench, each.cell, each.done)
    except UnusableArtifactError:
        return None


def by_time(
    today: Known, found: Sequence[tuple[Candidate, Known]], device: str | None = None
) -> list[Candidate]:
    """The candidates with what is expected of each: those for today first, each list by time.

    What the model does not know keeps its place. `device` is the GPU of the measured times.
    """
    everything = [today, *(known for _, known in found)]
    errors = ERRORS.of(spills=any(each.features and each.features.spills for each in everything))
    now, *prices = _costs(everything)
    priced = [
        _Priced(candidate=candidate, known=known, cost=cost)
        for (candidate, known), cost in zip(found, prices, strict=True)
    ]
    tiers: dict[tuple[bool, ...], list[_Priced]] = {}
    for each in priced:
        tiers.setdefault(_tier(each.candidate), []).append(each)
    ordered = [each for tier in sorted(tiers) for each in _in_order(tiers[tier], errors)]
    return [
        replace(
            each.candidate, expected=_expected(each, today, now, errors, device, beside=ordered)
        )
        for each in ordered
    ]


def _costs(everything: Sequence[Known]) -> list[float | None]:
    """In cycles, None where it is not known; measured times are scaled to those of the first."""
    # What the model can compare with the first: code of its launch whose loops are recognised. Of
    # another launch nothing says how much work is to be done. Where the loops of one code do
    # nothing and those of another of the same tile do, a loop of the first was not recognised.
    launch = everything[0].launch
    found = [each for each in everything if each.features and each.launch == launch]
    looping = {tile_of(each.row) for each in found if _works_in_loops(each)}
    modelled = [each for each in found if _works_in_loops(each) or tile_of(each.row) not in looping]
    features = [each.features for each in modelled if each.features]
    tiles = [tile_of(each.row) for each in modelled]
    expected = dict(zip(map(id, modelled), costs(features, tiles), strict=True))
    first = everything[0]
    now = expected.get(id(first))
    if first.time is None:
        return [expected.get(id(each)) for each in everything]
    scale = (now or 1.0) / first.time.median
    return [
        each.time.median * scale if each.time else expected.get(id(each)) if now else None
        for each in everything
    ]


def _works_in_loops(each: Known) -> bool:
    loops = each.features.loops if each.features else ()
    return any(loop.depth and (loop.tensor_work or loop.global_bytes) for loop in loops)


def _tier(candidate: Candidate) -> tuple[bool, ...]:
    return (
        not candidate.is_for_today,
        lowers_optimisation(candidate.setting.flags),
        candidate.is_for_today and any(step.kind is SettingKind.TRITON for step in candidate.steps),
    )


def _in_order(tier: Sequence[_Priced], errors: Sequence[float]) -> list[_Priced]:
    """Again and again the nearest of those that may be as fast as the fastest that is left.

    What has no cost keeps its place.
    """
    rest = [each for each in tier if each.cost]
    ordered: list[_Priced] = []
    while rest:
        fastest = min(rest, key=lambda each: each.cost or math.inf)
        alike = [each for each in rest if not _is_faster(fastest, each, errors)]
        nearest = min(alike, key=_distance)
        ordered.append(nearest)
        rest.remove(nearest)
    known = iter(ordered)
    return [next(known) if each.cost else each for each in tier]


def _distance(each: _Priced) -> tuple[bool, int]:
    is_fine = each.candidate.row.verdict is VerdictKind.OK
    return not is_fine, sum(step.kind.weight for step in each.candidate.steps)


def _is_faster(one: _Priced, other: _Priced, errors: Sequence[float]) -> bool:
    times = one.known.time, other.known.time
    if times[0] and times[1]:
        return compare_times(times[0], times[1]) is Faster.FIRST
    if not one.cost or not other.cost:
        return False
    return chance_of_faster(one.cost, other.cost, errors) >= SURE


def _expected(
    each: _Priced,
    today: Known,
    now: float | None,
    errors: Sequence[float],
    device: str | None,
    *,
    beside: Sequence[_Priced],
) -> ExpectedSpeed | None:
    if not each.cost or not now:
        return None
    is_measured = bool(each.known.time and today.time)
    error = math.sqrt(2 * statistics.fmean(one * one for one in errors))
    width = 1.0 if is_measured else math.exp(_NINE_TENTHS * error)
    alike = [
        other.candidate.change
        for other in beside
        if other is not each
        and other.candidate.is_for_today is each.candidate.is_for_today
        and other.cost
        and not (_is_faster(each, other, errors) or _is_faster(other, each, errors))
    ]
    return ExpectedSpeed(
        times=now / each.cost,
        least=now / each.cost / width,
        most=now / each.cost * width,
        device=device if is_measured else None,
        not_apart=tuple(alike),
    )
