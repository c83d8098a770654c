"""Runs variants of a launch, or every config of it, in Triton's interpreter, and compares.

`python -m` this module and FOLDER, with `TRITON_INTERPRET=1`: reads `request.json` there and
leaves `result.json`.

For configs the launch code runs once. Where it comes to a tuned kernel, every config runs in a fork
of its own, on its own copy of the tensors: one that reads outside them takes nothing with it.

A variant has overrides of the launch's parameters, and configs to inject. Each runs in a fork with
the same seed; what all return is compared with the first one. How far they may be apart is measured
too, tensor by tensor: by the first variant against itself with every rounding to bfloat16 made at
random. A chain of kernels makes more of a rounding than one kernel does, and of some results more
than of others.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from json import dumps, loads
from pathlib import Path
from typing import Any, NamedTuple

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction

from harness.frontends.pretend.recorded import Replaced, replacing
from harness.frontends.triton.child.describing import (
    Injected,
    config_of,
    injected_configs,
    suspicion,
)
from harness.frontends.triton.child.interpreting import (
    ConfigTrial,
    Forks,
    compare,
    end_with,
    group,
    in_a_line,
    launch_with,
    numbers,
    results,
    run_with_values,
    tensors,
)
from harness.io.children.captures import leave
from harness.io.children.confine import settle
from harness.io.children.launch_code import describe_error, stand_aside

# A kernel that is launched in a loop is checked this often; it is the same kernel.
_LAUNCHES = 3
# Seeds of the runs whose roundings are made at random: the worst of so many counts.
_ROUNDINGS = (1, 2, 3)


class _Variant(NamedTuple):
    """Configs that are one program to the interpreter, which knows no warps and no stages."""

    config: Any
    labels: list[dict[str, Any]]
    suspect: str


class Checker:
    """Stands in for the autotuner: compares its configs, and goes on with one that agrees."""

    def __init__(
        self,
        *,
        kernels: Sequence[str],
        folder: Path,
        jobs: int,
        deadline: float,
        injected: Injected | None = None,
    ) -> None:
        self.findings: list[dict[str, Any]] = []
        # Kernels that the interpreter cannot run, and why; the launch goes on without them.
        self.skipped: dict[str, str] = {}
        # Set in a fork that follows one config to the end of the launch: where its results go.
        self.leave_at: Path | None = None
        self._kernels = kernels
        self._forks = Forks(folder, deadline)
        self._jobs = jobs
        self._injected = injected or {}
        self._launches: Counter[str] = Counter()
        self._is_trial = False

    def replaced(self) -> Replaced:
        """Triton's two ends, and what takes their place."""
        interpret = InterpretedFunction.run
        checker = self

        def tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            return checker._tuned(tuner, args, kwargs)

        def interpreted(function: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                # The interpreter works on plain CPU tensors, and knows it.
                with torch._C.DisableTorchFunction():  # noqa: SLF001 - there is no other way
                    interpret(function, *args, **kwargs)
            except Exception as error:
                if checker._is_trial:
                    raise
                checker.skipped[function.fn.__name__] = in_a_line(error)

        return [(Autotuner, "run", tuned), (InterpretedFunction, "run", interpreted)]

    def _tuned(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        tuner.configs = injected_configs(tuner, self._injected) or tuner.configs
        configs = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
        chosen = configs[0]
        name = tuner.base_fn.__name__
        if self.leave_at is None and any(fnmatchcase(name, wanted) for wanted in self._kernels):
            self._launches[name] += 1
            if self._launches[name] <= _LAUNCHES:
                chosen = self._checked(tuner, configs, args, kwargs)
        tuner.best_config = chosen
        launch_with(tuner, chosen, args, kwargs)

    def _checked(
        self, tuner: Any, configs: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Compare the configs of one launch; the one to go on with."""
        variants = _variants(tuner, configs, kwargs)
        if len(variants) == 1:
            self._note(tuner, variants, [], [[0]], {}, "source")
            return configs[0]
        trials = self._try_all(tuner, variants, args, kwargs)
        doubtful = {n for n, variant in enumerate(variants) if variant.suspect}
        groups, level = group(trials, doubtful), "buffers"
        compared = dict(enumerate(trials))
        if len(groups) > 1:
            # Buffers may differ with good reason, as partial sums do; what is returned must not.
            finals = []
            for members in groups:
                path, child = self._forks.fork()
                if child == 0:
                    self.leave_at = path
                    return variants[members[0]].config
                finals.append(self._forks.collect(child, path))
            unfollowed = next((final.error for final in finals if final.error), "")
            if unfollowed:
                for members in groups[1:]:
                    said = f"its buffers differ, which may be right (partial sums); {unfollowed}"
                    for index in members:
                        trials[index] = ConfigTrial(error=said)
                groups = groups[:1]
            elif all(final.tensors for final in finals):
                level = "results"
                compared = {
                    members[0]: final for members, final in zip(groups, finals, strict=True)
                }
                parts_of = group(finals, {n for n, g in enumerate(groups) if g[0] in doubtful})
                groups = [[i for part in parts for i in groups[part]] for parts in parts_of]
        self._note(tuner, variants, trials, groups, compared, level)
        return variants[groups[0][0]].config if groups else configs[0]

    def _note(
        self,
        tuner: Any,
        variants: Sequence[_Variant],
        trials: Sequence[ConfigTrial],
        groups: Sequence[Sequence[int]],
        compared: dict[int, ConfigTrial],
        level: str,
    ) -> None:
        """Keep what was found of each variant; group 0 is the one that the others are held to."""
        number = {index: n for n, members in enumerate(groups) for index in members}
        found = []
        for index, variant in enumerate(variants):
            # Of a group that was followed to the end, its first member stands for all.
            group_of = number.get(index)
            apart = None
            if group_of:
                head = next(i for i in groups[group_of] if i in compared)
                apart = compare(compared[head], compared[groups[0][0]])
            found.append(
                {
                    "configs": variant.labels,
                    "suspect": variant.suspect,
                    "group": group_of,
                    "error": trials[index].error if trials else "",
                    **(numbers(apart) if apart else {}),
                }
            )
        self.findings.append({"kernel": tuner.base_fn.__name__, "level": level, "variants": found})

    def _try_all(
        self,
        tuner: Any,
        variants: Sequence[_Variant],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> list[ConfigTrial]:
        """Each variant once, in forks side by side."""

        def trial(variant: _Variant) -> dict[str, torch.Tensor]:
            self._is_trial = True
            launch_with(tuner, variant.config, args, kwargs)
            return tensors({**tuner.nargs, **kwargs})

        return self._forks.all((partial(trial, each) for each in variants), self._jobs)


def _variants(tuner: Any, configs: Sequence[Any], kwargs: dict[str, Any]) -> list[_Variant]:
    """Configs by what the kernel's source can see of them."""
    found: dict[str, _Variant] = {}
    for config in configs:
        seen = {k: repr(v) for k, v in config.all_kwargs().items() if k in tuner.arg_names}
        # Hooks are code: what they do is not known.
        key = dumps([sorted(seen.items()), repr(config.pre_hook)])
        if key not in found:
            values = {**tuner.nargs, **kwargs, **config.kwargs}
            found[key] = _Variant(config, [], suspicion(tuner.base_fn, values))
        found[key].labels.append(config_of(config))
    return list(found.values())


def compare_configs(ask: dict[str, Any], folder: Path, deadline: float) -> dict[str, Any]:
    """What the configs of tuned kernels leave, against each other."""
    checker = Checker(
        kernels=ask["kernels"],
        folder=folder,
        jobs=ask["jobs"],
        deadline=deadline,
        injected=ask["injected"],
    )
    around = replacing(checker.replaced())
    returned, error, reads = run_with_values(ask, folder, around, assembles=False)
    if checker.leave_at:
        end_with(checker.leave_at, partial(results, checker.skipped, returned, error))
    said = describe_error(error, ask["file"]) if error else None
    return {"findings": checker.findings, "skipped": checker.skipped, "error": said, "reads": reads}


def _returned(
    ask: dict[str, Any], variant: dict[str, Any], folder: Path
) -> dict[str, torch.Tensor]:
    """What the launch returns, with every tuner's first config (or the injected one)."""
    checker = Checker(kernels=[], folder=folder, jobs=1, deadline=0.0, injected=variant["injected"])
    launch = {**ask, "overrides": variant["overrides"]}
    around, rounding = replacing(checker.replaced()), variant.get("rounding")
    returned, error, reads = run_with_values(launch, folder, around, rounding=rounding)
    (folder / f"reads-{os.getpid()}.json").write_text(dumps(reads))
    return results(checker.skipped, returned, error)


def compare_variants(ask: dict[str, Any], folder: Path, deadline: float) -> dict[str, Any]:
    """What each variant of the launch returns, against the first one."""
    variants = ask["variants"]
    noisy = [{**variants[0], "rounding": seed} for seed in _ROUNDINGS]
    bodies = (partial(_returned, ask, variant, folder) for variant in [*variants, *noisy])
    trials = Forks(folder, deadline).all(bodies, ask["jobs"])
    first, others, noise = trials[0], trials[1 : len(variants)], trials[len(variants) :]
    found: list[dict[str, Any]] = []
    for other in others:
        error = (first.error and f"the original: {first.error}") or other.error
        if not error and not first.tensors:
            error = "the launch returns nothing that could be compared"
        apart = None if error else compare(other, first, noise)
        facts = {**numbers(apart), "differs": apart.differs} if apart else {}
        found.append({"error": error, **facts})
    reads = [loads(path.read_text()) for path in sorted(folder.glob("reads-*.json"))]
    return {"variants": found, "reads": reads}


def main() -> None:
    """Do what `request.json` asks for."""
    # Some of the time is left to say what was found until then.
    started, folder = time.monotonic(), Path(sys.argv[1])
    ask = loads((folder / "request.json").read_text())
    if ask["confined"]:
        settle(str(folder))
    stand_aside(ask)
    work = compare_variants if "variants" in ask else compare_configs
    leave(work(ask, folder, started + 0.9 * ask["timeout"]), folder)


if __name__ == "__main__":
    main()
