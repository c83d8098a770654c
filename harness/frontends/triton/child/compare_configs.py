"""Runs every config of a launch in Triton's interpreter on the same input, and compares.

`python -m` this module and FOLDER, with `TRITON_INTERPRET=1`: reads `request.json` there and
leaves `result.json`. The launch code runs once, on real CPU tensors that say they are on a GPU.
Where it comes to a tuned kernel, every config runs in a fork of its own, on its own copy of the
tensors: one that reads outside them takes nothing with it.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from json import dumps, loads
from pathlib import Path
from typing import Any, NamedTuple

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction

from harness.frontends.pretend.pretend_driver import pretend_triton
from harness.frontends.triton.child.describing import config_of
from harness.frontends.triton.child.distances import ConfigTrial, compare, group
from harness.frontends.triton.child.forks import Forks, in_a_line, leave, numbers, results, tensors
from harness.frontends.triton.child.injected_configs import Injected, injected_configs
from harness.frontends.triton.child.mending import mend_bfloat16
from harness.frontends.triton.child.partial_tiles import suspicion
from harness.io.children.confine import settle
from harness.io.children.launch_code import describe_error, run_launch, stand_aside
from harness.io.children.reads import ReadsWatch

# A kernel that is launched in a loop is checked this often; it is the same kernel.
_LAUNCHES = 3
SEED = 20_240_531
"""Of the random numbers that launch code makes: equal in everything that is compared."""


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

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Replace Triton's two ends for the time of the `with` block."""
        tune, interpret = Autotuner.run, InterpretedFunction.run
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

        Autotuner.run, InterpretedFunction.run = tuned, interpreted
        try:
            yield
        finally:
            Autotuner.run, InterpretedFunction.run = tune, interpret

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
        _launch(tuner, chosen, args, kwargs)

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
            _launch(tuner, variant.config, args, kwargs)
            return tensors({**tuner.nargs, **kwargs})

        waiting: list[tuple[int, Path]] = []
        trials = []
        for variant in variants:
            if len(waiting) == self._jobs:
                trials.append(self._forks.collect(*waiting.pop(0)))
            path, child = self._forks.fork()
            if child == 0:
                leave(path, partial(trial, variant))
            waiting.append((child, path))
        return trials + [self._forks.collect(*each) for each in waiting]


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


def _launch(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """As the autotuner launches the config that it has chosen, after it has timed them all."""
    current = {**kwargs, **config.all_kwargs()}
    named = {**tuner.nargs, **current}
    for name in tuner.reset_to_zero:
        named[name].zero_()
    if config.pre_hook:
        config.pre_hook(named)
    tuner.fn.run(*args, **current)


def main() -> None:
    """Do what `request.json` asks for."""
    started = time.monotonic()
    folder = Path(sys.argv[1])
    ask = loads((folder / "request.json").read_text())
    checker = Checker(
        kernels=ask["kernels"],
        folder=folder,
        jobs=ask["jobs"],
        # Some of the time is left to say what was found until then.
        deadline=started + 0.9 * ask["timeout"],
        injected=ask["injected"],
    )
    if ask["confined"]:
        settle(str(folder))
    stand_aside(ask)
    mode = pretend_triton(ask["device"], with_values=True)
    mend_bfloat16()
    torch.manual_seed(SEED)
    error, returned = None, None
    reads = ReadsWatch([*ask["bare"], *ask["paths"], str(folder)], ask["file"])
    reads.start()
    try:
        with mode, checker.active():
            returned = run_launch(ask["file"], ask["function"], ask["overrides"])
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - the user's code raises anything
        if not (isinstance(raised, SystemExit) and not raised.code):
            error = describe_error(raised, ask["file"])
    if checker.leave_at:
        leave(checker.leave_at, partial(results, checker.skipped, returned, error))
    result = {"findings": checker.findings, "skipped": checker.skipped, "error": error}
    result["reads"] = reads.stop()
    unfinished = folder / "result.json.tmp"
    unfinished.write_text(dumps(result))
    unfinished.rename(folder / "result.json")


if __name__ == "__main__":
    main()
