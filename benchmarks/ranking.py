"""Fits the weights of `triage rank` to times that a GPU measured, and says what they are worth.

    python benchmarks/ranking.py tests/data/gpu/ranks-h200.json.xz
    python benchmarks/ranking.py tests/data/gpu/ranks-h200.json.xz --held-out
    python benchmarks/ranking.py tests/data/gpu/ranks-h200.json.xz --held-out --rough

The first prints the weights that `harness/workaround/rank/model.py` has to have. The second holds
out each kernel with all its launches in turn, fits the weights to the others, and orders its
configs with these: how good such orders are as Markdown, and the error from which
`harness/workaround/rank/order.py` says what can be told. PRIOR was chosen after fits to these
launches; --rough searches from weights that know nothing of them, and keeps near to none. Nothing
is compiled or run on a GPU.
"""

from __future__ import annotations

import argparse
import lzma
import math
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from harness.workaround.rank.model import Model, WarpWork, cost_of, works_of
from harness.workaround.rank.order import (
    Errors,
    RankedLaunch,
    RankReport,
    order_of,
    ranks_as_markdown,
    tile_of,
)
from harness.workaround.rank.ranking import rank_again

PRIOR = Model(
    issue_memory=8.0,
    issue_local=30.0,
    begin=3000.0,
    wait=2.0,
    wait_memory=8.0,
    wait_local=25.0,
    wait_control=10.0,
    wait_warps=2.0,
    wait_turn=1000.0,
    bytes_a_cycle=18.0,
    sharpness=2.0,
)
"""Where the search begins, and what weights are kept near to: round numbers of the right size.

A load from GPU memory takes 500 to 1,000 cycles; 4.8 TB/s are 18 bytes a cycle for each of 132 SMs.
"""

STRENGTH = 0.01
"""Of the prior: what a weight costs that is off by a factor of e, in parts of the loss."""

ROUGH = Model(
    issue_memory=4.0,
    issue_local=4.0,
    begin=1000.0,
    wait=4.0,
    wait_memory=30.0,
    wait_local=30.0,
    wait_control=20.0,
    wait_warps=1.0,
    wait_turn=700.0,
    bytes_a_cycle=18.0,
    sharpness=2.0,
)
"""A guess, made before anything was fitted from it."""

STEPS = (1.5, 1.15, 1.05)
SWEEPS = 10
LEAST = 3


@dataclass(frozen=True)
class Search:
    """Where a fit begins, and how strongly it is kept near to that."""

    start: Model = PRIOR
    strength: float = STRENGTH


@dataclass(frozen=True)
class Sample:
    """One launch: the work of each config, the logarithm of its time, and whether any spills."""

    kernel: str
    works: tuple[WarpWork, ...]
    logs: tuple[float, ...]
    spills: bool = False


def sample_of(launch: RankedLaunch) -> Sample | None:
    """What can be fitted of a launch; None where too little was measured."""
    known = [(each, each.features) for each in launch.configs if each.features]
    works = works_of([features for _, features in known], [tile_of(each.row) for each, _ in known])
    timed = [
        (work, math.log(each.time.median))
        for (each, _), work in zip(known, works, strict=True)
        if each.time
    ]
    if len(timed) < LEAST:
        return None
    return Sample(
        launch.kernel,
        tuple(work for work, _ in timed),
        tuple(log for _, log in timed),
        any(features.spills for _, features in known),
    )


def residuals(sample: Sample, model: Model) -> list[float]:
    """By how much the logarithm of each cost is off, beside the others of its launch."""
    found = [
        math.log(cost_of(work, model)) - log
        for work, log in zip(sample.works, sample.logs, strict=True)
    ]
    mean = math.fsum(found) / len(found)
    return [each - mean for each in found]


def loss(samples: Sequence[Sample], model: Model, search: Search) -> float:
    """Over launches, the mean of their standard deviations; and how far the start is."""
    errors = (
        math.sqrt(math.fsum(each * each for each in found) / len(found))
        for found in (residuals(sample, model) for sample in samples)
    )
    here, there = asdict(model), asdict(search.start)
    apart = [math.log(here[name] / there[name]) ** 2 for name in there]
    return math.fsum(errors) / len(samples) + search.strength * statistics.fmean(apart)


def fit(samples: Sequence[Sample], search: Search = Search()) -> Model:
    """The weights with the least loss: one is changed at a time, in ever smaller steps."""
    model, best = search.start, loss(samples, search.start, search)
    for step in STEPS:
        for _ in range(SWEEPS):
            before = best
            for name in asdict(model):
                model, best = along(samples, search, model, best, name, step)
            if before - best < 1e-5:
                break
    return rounded(model)


def along(
    samples: Sequence[Sample], search: Search, model: Model, best: float, name: str, step: float
) -> tuple[Model, float]:
    """As far as it gets better, one weight alone."""
    for factor in (step, 1 / step):
        while True:
            other = replace(model, **{name: asdict(model)[name] * factor})
            found = loss(samples, other, search)
            if found >= best - 1e-7:
                break
            model, best = other, found
    return model, best


def rounded(model: Model) -> Model:
    """To three digits: more of them mean nothing."""
    return Model(**{name: float(f"{value:.3g}") for name, value in asdict(model).items()})


def without(samples: Sequence[Sample], search: Search, kernel: str) -> Model:
    """The weights that the other kernels give."""
    return fit([each for each in samples if each.kernel != kernel], search)


def errors_beside(
    samples: Sequence[Sample], models: Mapping[str, Model], kernel: str = ""
) -> Errors:
    """Of the launches of all other kernels, each with weights that know nothing of it."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for each in samples:
        if each.kernel != kernel:
            found[each.spills].append(statistics.stdev(residuals(each, models[each.kernel])))
    return Errors(spilling=sorted(found[True]), dry=sorted(found[False]))


def held_out(
    report: RankReport, samples: Sequence[Sample], search: Search
) -> tuple[RankReport, Errors]:
    """Each launch with weights and errors that know nothing of its kernel, and all the errors."""
    kernels = sorted({each.kernel for each in samples})
    with ProcessPoolExecutor() as pool:
        found = pool.map(partial(without, samples, search), kernels)
        models = dict(zip(kernels, found, strict=True))
    launches = []
    for launch in report.launches:
        if launch.kernel in models:
            others = errors_beside(samples, models, launch.kernel)
            ordered, doubt = order_of(launch.configs, models[launch.kernel], others)
            launches.append(replace(launch, configs=tuple(ordered), doubt=doubt))
    return replace(report, launches=launches), errors_beside(samples, models)


def main() -> None:
    """Print the weights, or what weights are worth that know nothing of a kernel."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("documents", nargs="+", type=Path, metavar="FILE.json.xz")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--rough", action="store_true")
    given = parser.parse_args()
    search = Search(ROUGH, 0.0) if given.rough else Search()
    report = rank_again([lzma.decompress(path.read_bytes()) for path in given.documents])
    samples = [sample for sample in map(sample_of, report.launches) if sample]
    if not given.held_out:
        model = fit(samples, search)
        for name, value in asdict(model).items():
            print(f"    {name}: float = {value}")
        print(f"# {len(samples)} launches, loss {loss(samples, model, search):.4f}")
        return
    held, errors = held_out(report, samples, search)
    print(ranks_as_markdown(held))
    print("\nThe standard deviations of the logarithms of costs about those of times, by launch,")
    for found, words in (
        (errors.spilling, "where a config spills"),
        (errors.dry, "where none does"),
    ):
        together = math.sqrt(statistics.fmean(each * each for each in found))
        print(f"{words}: {', '.join(f'{each:.3f}' for each in found)} (together {together:.2f}).")


if __name__ == "__main__":
    main()
