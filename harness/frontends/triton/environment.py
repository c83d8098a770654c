"""The environment of launch code: what any program needs, compiler settings, and what is named."""

from __future__ import annotations

import os
import re
import site
from collections.abc import Mapping
from pathlib import Path

import harness
from harness.frontends.triton.knobs import NO_KNOBS
from harness.frontends.triton.settings import knobs, torch_settings
from harness.io.processes.confinement import is_confined
from harness.io.processes.environment import plain_environment
from harness.values.toolchain import Compiler

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY")


def child_environment(triton: Compiler) -> dict[str, str]:
    """The environment of a process that runs a Triton; the user's settings of it stay."""
    package_root = str(Path(harness.__file__).parent.parent)
    user = _confined(triton) if is_confined() else os.environ
    return {
        **{
            name: value
            for name, value in user.items()
            if name not in NO_KNOBS and not name.startswith("PYTHON")
        },
        "PYTHONPATH": os.pathsep.join([*([str(triton.path)] if triton.path else []), package_root]),
        # Packages in the user's own site folder are found below another home, too.
        **({"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Launch code that iterates over a set makes the same launches every time.
        "PYTHONHASHSEED": "0",
        # Threads of numeric libraries do not survive a fork, and nothing here computes.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **dict(triton.variables),
    }


def _confined(triton: Compiler) -> Mapping[str, str]:
    settings = {**knobs(triton), **torch_settings()}
    harmless = {name: value for name, value in settings.items() if not _SECRET.search(name)}
    return {**harmless, **plain_environment()}
