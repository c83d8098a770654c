"""The config of a tuner as Python. Pure."""

from __future__ import annotations

import json
import math

from harness.values.kernel import Config

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Of a config, what is said to the compiler; all else are the kernel's own meta-parameters."""


def config_source(config: Config, constructor: str) -> str:
    """A config as a tuner's list spells it."""
    values = config.as_dict()
    meta = {name: value for name, value in values.items() if name not in OPTIONS}
    options = [f"{name}={literal(values[name])}" for name in OPTIONS if name in values]
    return f"{constructor}({', '.join([literal(meta), *options])})"


def literal(value: object) -> str:
    """As most formatters spell it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
