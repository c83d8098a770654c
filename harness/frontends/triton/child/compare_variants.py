"""Runs several variants of a launch in Triton's interpreter, and compares what they return.

`python -m` this module and FOLDER, with `TRITON_INTERPRET=1`: reads `request.json` in that
folder and leaves `result.json`. A variant has overrides of the launch's parameters, and configs to
inject. Each runs in a fork with the same seed; all are compared with the first one.

How far they may be apart is measured too, tensor by tensor: by the first variant against itself
with every rounding to bfloat16 made at random. A chain of kernels makes more of a rounding than one
kernel does, and of some results more than of others.
"""

from __future__ import annotations

import math
import os
import sys
import time
from functools import partial
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.frontends.pretend.pretend_driver import pretend_triton
from harness.frontends.triton.child.compare_configs import SEED, Checker
from harness.frontends.triton.child.distances import Apart, Distance, distance, tolerance
from harness.frontends.triton.child.forks import Forks, leave, numbers, results
from harness.frontends.triton.child.mending import mend_bfloat16, mend_inline_assembly
from harness.io.children.confine import settle
from harness.io.children.launch_code import describe_error, run_launch, stand_aside
from harness.io.children.reads import ReadsWatch

if TYPE_CHECKING:
    from harness.frontends.triton.child.distances import ConfigTrial


# Seeds of the runs whose roundings are made at random: the worst of so many counts.
_ROUNDINGS = (1, 2, 3)


def _run(ask: dict[str, Any], variant: dict[str, Any], folder: Path) -> dict[str, torch.Tensor]:
    """What the launch returns, with every tuner's first config (or the injected one)."""
    checker = Checker(kernels=[], folder=folder, jobs=1, deadline=0.0, injected=variant["injected"])
    mode = pretend_triton(ask["device"], with_values=True)
    mend_bfloat16(variant.get("rounding"))
    mend_inline_assembly()
    torch.manual_seed(SEED)
    error, returned = None, None
    reads = ReadsWatch([*ask["bare"], *ask["paths"], str(folder)], ask["file"])
    reads.start()
    try:
        with mode, checker.active():
            returned = run_launch(ask["file"], ask["function"], variant["overrides"])
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - the user's code raises anything
        error = describe_error(raised, ask["file"])
    (folder / f"reads-{os.getpid()}.json").write_text(dumps(reads.stop()))
    return results(checker.skipped, returned, error)


def _all(
    ask: dict[str, Any], variants: list[dict[str, Any]], forks: Forks, folder: Path
) -> list[ConfigTrial]:
    """Each variant, as many side by side as there are workers."""
    waiting: list[tuple[int, Path]] = []
    trials: list[ConfigTrial] = []
    for variant in variants:
        if len(waiting) == ask["jobs"]:
            trials.append(forks.collect(*waiting.pop(0)))
        path, child = forks.fork()
        if child == 0:
            leave(path, partial(_run, ask, variant, folder))
        waiting.append((child, path))
    return trials + [forks.collect(*each) for each in waiting]


def _apart(trial: ConfigTrial, reference: ConfigTrial, noise: list[ConfigTrial]) -> Apart:
    """The tensor that is farthest beyond, or nearest to, what rounding explains."""
    assert trial.tensors is not None
    assert reference.tensors is not None
    least = tolerance([tensor.dtype for tensor in reference.tensors.values()])
    found: list[Apart] = []
    for name in {**reference.tensors, **trial.tensors}:
        left, right = trial.tensors.get(name), reference.tensors.get(name)
        if left is None or right is None:
            return Apart(name, Distance(math.inf, math.inf, 1.0), least)
        rounded = (each.tensors.get(name) for each in noise if each.tensors)
        by_rounding = (distance(each, right, least) for each in rounded if each is not None)
        allowed = max([least, *(each.stable_max_rel for each in by_rounding)])
        found.append(Apart(name, distance(left, right, allowed), allowed))
    return max(found, key=lambda each: each.distance.stable_max_rel / (each.allowed or 1e-300))


def main() -> None:
    """Do what `request.json` asks for."""
    started = time.monotonic()
    folder = Path(sys.argv[1])
    ask = loads((folder / "request.json").read_text())
    if ask["confined"]:
        settle(str(folder))
    stand_aside(ask)
    # Some of the time is left to say what was found until then.
    variants = ask["variants"]
    noisy = [{**variants[0], "rounding": seed} for seed in _ROUNDINGS]
    forks = Forks(folder, started + 0.9 * ask["timeout"])
    trials = _all(ask, [*variants, *noisy], forks, folder)
    first, others, noise = trials[0], trials[1 : len(variants)], trials[len(variants) :]
    found: list[dict[str, Any]] = []
    for other in others:
        error = (first.error and f"the original: {first.error}") or other.error
        if not error and not first.tensors:
            error = "the launch returns nothing that could be compared"
        apart = None if error else _apart(other, first, noise)
        facts = {**numbers(apart), "differs": apart.differs} if apart else {}
        found.append({"error": error, **facts})
    unfinished = folder / "result.json.tmp"
    reads = [loads(path.read_text()) for path in sorted(folder.glob("reads-*.json"))]
    unfinished.write_text(dumps({"variants": found, "reads": reads}))
    unfinished.rename(folder / "result.json")


if __name__ == "__main__":
    main()
