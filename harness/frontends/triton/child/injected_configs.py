"""Configs that an autotuner does not list, put in the place of those that it does.

What is asked is `{kernel: [config, ...]}`: the kernel's name or a pattern of names, and each config
as `config_of` in `recording` spells it, meta-parameters and options in one.
"""

# ruff: noqa: ANN401 - values of Triton have types that we cannot name

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from triton.runtime.autotuner import Config

Injected = dict[str, list[dict[str, Any]]]

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What `triton.Config` takes by name; all else of a config is a meta-parameter."""

_OF_A_LAUNCH = (*OPTIONS, "ptx_options")


def injected_configs(tuner: Any, asked: Injected) -> list[Any] | None:
    """The configs that take the place of a tuner's own; None where none are asked for its kernel.

    They get the hook of the tuner's first config, which prepares the arguments for any of them.
    """
    found = _of(tuner.base_fn.__name__, asked)
    if found is None:
        return None
    hook = next((config.pre_hook for config in tuner.configs), None)
    return [_config(values, hook) for values in found]


def injected_options(kernel: str, asked: Injected) -> list[dict[str, Any]]:
    """Options for more launches of a kernel without a tuner; its other arguments stay."""
    return [
        {name: value for name, value in values.items() if name in _OF_A_LAUNCH}
        for values in _of(kernel, asked) or ()
    ]


def _of(kernel: str, asked: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    return next((found for name, found in asked.items() if fnmatchcase(kernel, name)), None)


def _config(values: Mapping[str, Any], hook: Any) -> Any:
    meta = {name: value for name, value in values.items() if name not in OPTIONS}
    options = {name: value for name, value in values.items() if name in OPTIONS}
    return Config(meta, **options, pre_hook=hook)
