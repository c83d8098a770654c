"""Runs a launch in Triton's interpreter, on small real inputs: every config against the others."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import msgspec

from harness.effects.lowering import capture_request, triton_identity
from harness.effects.process import scratch_disk
from harness.effects.triton_sessions import child_code_sha256, child_environment
from harness.effects.workbench import Kept, content_key
from harness.values.check import Interpretation
from harness.values.outcome import RaisedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.effects.lowering import LaunchCode
    from harness.effects.workbench import Workbench
    from harness.values.limits import Limits
    from harness.values.outcome import ProcessEnd
    from harness.values.target import Target
    from harness.values.toolchain import Triton

__all__ = ["interpret"]


async def interpret(
    bench: Workbench,
    code: LaunchCode,
    *,
    kernels: Sequence[str],
    target: Target,
    triton: Triton,
    limits: Limits,
) -> Interpretation:
    """Compare the configs of the kernels with these names or patterns, as `target` would see them.

    What was found is kept by content, unless the launch code raised or the time was too short.

    Raises:
        InfrastructureError: this Triton cannot be started here.
    """
    key = content_key(
        code=code.identity,
        kernels=list(kernels),
        capability=target.capability,
        triton=triton_identity(triton),
        child=child_code_sha256(),
        torch=metadata.version("torch"),
        numpy=metadata.version("numpy"),
        python=platform.python_version(),
    )
    async with bench.once(key):
        kept = bench.find("check", key, Interpretation)
        if kept is None:
            kept = await _run(bench, key, code, kernels, target, triton, limits)
    return kept.value


async def _run(
    bench: Workbench,
    key: str,
    code: LaunchCode,
    kernels: Sequence[str],
    target: Target,
    triton: Triton,
    limits: Limits,
) -> Kept[Interpretation]:
    folder = bench.hub.new_folder("check")
    request = {
        **capture_request(code, target, limits).message(),
        "kernels": list(kernels),
        "jobs": bench.jobs,
        "timeout": bench.limits.timeout,
    }
    with scratch_disk():
        (folder / "request.json").write_text(json.dumps(request))
    argv = [sys.executable, "-m", "harness.child.checking", str(folder)]
    environment = {**child_environment(triton), "TRITON_INTERPRET": "1"}
    # Its forks are its own affair, and as many as there are workers.
    async with bench.slot(alone=True):
        end = await bench.hub.execute(argv, folder=folder, limits=bench.limits, env=environment)
    bench.cpu_seconds += end.cpu
    value = _read(folder, end)
    bench.hub.drop_folder(folder)
    timed_out = any("time limit" in v.error for f in value.findings for v in f.variants)
    if value.error or timed_out:
        return Kept(value=value, key=key, artifacts={}, cached=False)
    return bench.keep("check", key, value, {})


def _read(folder: Path, end: ProcessEnd) -> Interpretation:
    try:
        return msgspec.json.decode((folder / "result.json").read_bytes(), type=Interpretation)
    except (OSError, msgspec.MsgspecError):
        pass
    log = folder / "stderr"
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    said = f": {lines[-1][:300]}" if lines else ""
    message = f"the interpreter's process {end.words}{said}"
    return Interpretation(error=RaisedError(type="Interpreter", kinds=(), message=message))
