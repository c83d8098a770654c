"""Runs a launch in Triton's interpreter, on small real inputs.

Every config of it against the others, or variants of the whole launch against each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.frontends.bench.bench import Kept
from harness.frontends.launch_code import capture_request
from harness.frontends.reads import is_unchanged
from harness.frontends.triton.environment import child_environment
from harness.frontends.triton.lower import launch_key
from harness.io.files.scratch import scratch_disk
from harness.io.processes.confinement import require_confinement
from harness.values.check import Departure, Interpretation, Operations
from harness.values.limits import Limits
from harness.values.outcome import ProcessEnd, RaisedError
from harness.values.target import Target
from harness.values.toolchain import Compiler

if TYPE_CHECKING:
    from harness.frontends.base import LaunchCode
    from harness.frontends.bench.bench import Workbench


_CHILD = "harness.frontends.triton.child"


async def interpret(
    bench: Workbench,
    code: LaunchCode,
    *,
    kernels: Sequence[str],
    target: Target,
    triton: Compiler,
    limits: Limits,
) -> Interpretation:
    """Compare the configs of the kernels with these names or patterns, as `target` would see them.

    What was found is kept by content, unless the launch code raised or the time was too short.

    Raises:
        InfrastructureError: this Triton cannot be started here.
    """
    sent = {**capture_request(code, target, limits).message(), "kernels": list(kernels)}
    key = launch_key("check", code, sent, triton)
    async with bench.once(key):
        kept = bench.find("check", key, Interpretation)
        if kept is None or not is_unchanged(kept.value.reads, _environment(triton)):
            kept = await _run(bench, key, sent, triton)
    return kept.value


async def _run(
    bench: Workbench, key: str, sent: dict[str, Any], triton: Compiler
) -> Kept[Interpretation]:
    request = {**sent, "jobs": bench.jobs, "timeout": bench.limits.timeout}
    folder, end = await _interpreter(bench, "compare_configs", request, triton)
    value = _read(folder, end)
    bench.hub.drop_folder(folder)
    timed_out = any("time limit" in v.error for f in value.findings for v in f.variants)
    if value.error or timed_out:
        return Kept(value=value, key=key, artifacts={}, cached=False)
    return bench.keep("check", key, value, {})


def _environment(triton: Compiler) -> dict[str, str]:
    return {**child_environment(triton), "TRITON_INTERPRET": "1"}


async def _interpreter(
    bench: Workbench, module: str, request: dict[str, Any], triton: Compiler
) -> tuple[Path, ProcessEnd]:
    """Have one of our modules answer a request in its interpreter; the folder is the caller's."""
    require_confinement()
    folder = bench.hub.new_folder("check")
    with scratch_disk():
        (folder / "request.json").write_text(json.dumps(request))
    argv = [sys.executable, "-m", f"{_CHILD}.{module}", str(folder)]
    # Its forks are its own affair, and as many as there are workers.
    async with bench.slot(alone=True):
        end = await bench.hub.execute(
            argv, folder=folder, limits=bench.limits, env=_environment(triton)
        )
    bench.cpu_seconds += end.cpu
    return folder, end


def _read(folder: Path, end: ProcessEnd) -> Interpretation:
    try:
        return msgspec.json.decode((folder / "result.json").read_bytes(), type=Interpretation)
    except (OSError, msgspec.MsgspecError):
        pass
    error = RaisedError(type="Interpreter", kinds=(), message=_said(folder, end))
    return Interpretation(error=error)


def _said(folder: Path, end: ProcessEnd) -> str:
    """How the process ended that left no result."""
    log = folder / "stderr"
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    said = f": {lines[-1][:300]}" if lines else ""
    return f"the interpreter's process {end.words}{said}"


async def interpret_variants(
    bench: Workbench,
    original: LaunchCode,
    others: Sequence[LaunchCode],
    *,
    target: Target,
    triton: Compiler,
    limits: Limits,
) -> list[Departure]:
    """Compare what a launch returns with what each of its variants does, on the same inputs.

    Variants differ in overrides and in injected configs. What was found is kept by content, unless
    a variant could not be compared.

    Raises:
        InfrastructureError: this Triton cannot be started here.
    """
    codes = [original, *others]
    sent = {
        **capture_request(original, target, limits).message(),
        "variants": [
            {"overrides": dict(code.overrides), "injected": dict(code.injected)} for code in codes
        ],
    }
    key = launch_key("operations", original, sent, triton)
    async with bench.once(key):
        kept = bench.find("operations", key, Operations)
        environment = _environment(triton)
        if kept and all(is_unchanged(each, environment) for each in kept.value.reads):
            return kept.value.variants
        request = {**sent, "jobs": bench.jobs, "timeout": bench.limits.timeout}
        folder, end = await _interpreter(bench, "compare_variants", request, triton)
        try:
            found = msgspec.json.decode((folder / "result.json").read_bytes(), type=Operations)
        except (OSError, msgspec.MsgspecError):
            said = _said(folder, end)
            found = Operations(variants=[Departure(error=said) for _ in others])
        bench.hub.drop_folder(folder)
        if not any(each.error for each in found.variants):
            bench.keep("operations", key, found, {})
    return found.variants
