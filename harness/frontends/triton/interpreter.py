"""Runs a launch in Triton's interpreter, on small real inputs.

Every config of it against the others, or variants of the whole launch against each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.frontends.base import Interpreter, LaunchCode
from harness.frontends.launch_code import capture_request, is_unchanged
from harness.frontends.sessions import CapturedLaunch, JobResult
from harness.io.files.whole_folders import scratch_disk
from harness.io.processes.confinement import require_confinement
from harness.values.check import Departure, Interpretation, Operations
from harness.values.outcome import ProcessEnd, RaisedError
from harness.values.target import Target
from harness.values.toolchain import Compiler

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_front_end import CapturedFrontEnd
    from harness.io.processes.hub import ResourceLimits


class TritonInterpreter(Interpreter):
    """See `harness.frontends.base`."""

    def __init__(self, front_end: CapturedFrontEnd) -> None:
        self._front_end = front_end

    async def capture(
        self, bench: Workbench, code: LaunchCode, target: Target, compiler: Compiler
    ) -> CapturedLaunch:
        return await self._front_end.capture(bench, code, target, compiler)

    def launch_key(
        self, kind: str, code: LaunchCode, message: Mapping[str, object], compiler: Compiler
    ) -> str:
        return self._front_end.launch_key(kind, code, message, compiler)

    def environment(self, compiler: Compiler) -> Mapping[str, str]:
        return {**self._front_end.child_environment(compiler), "TRITON_INTERPRET": "1"}

    async def run_with_values(
        self, bench: Workbench, compiler: Compiler, folder: Path, limits: ResourceLimits
    ) -> JobResult:
        return await self._work(bench, "launching", compiler, folder, limits)

    async def run_reference(
        self, bench: Workbench, compiler: Compiler, folder: Path, limits: ResourceLimits
    ) -> JobResult:
        return await self._work(bench, "reference", compiler, folder, limits)

    async def _work(
        self,
        bench: Workbench,
        module: str,
        compiler: Compiler,
        folder: Path,
        limits: ResourceLimits,
    ) -> JobResult:
        """Have `main` of a module for children work in a folder, by a fork of the server."""
        name = f"{self._front_end.module}.{module}"
        # The module confines itself to the folder.
        asked = {"module": name, "place": str(folder), "confined": False}
        message = {"op": "compile", "capture": asked, "limits": limits.message()}
        return await self._front_end.sessions_of(bench).on_server(compiler, message)

    async def compare_configs(
        self,
        bench: Workbench,
        code: LaunchCode,
        *,
        kernels: Sequence[str],
        target: Target,
        compiler: Compiler,
    ) -> Interpretation:
        sent = {**capture_request(code, target).message(), "kernels": list(kernels)}
        key = self.launch_key("check", code, sent, compiler)
        async with bench.once(key):
            kept = bench.find("check", key, Interpretation)
            if kept is not None and is_unchanged(kept.value.reads, self.environment(compiler)):
                return kept.value
            folder, end = await self._interpret(bench, "comparing", compiler, sent)
            value = _read(folder, end)
            bench.hub.drop_folder(folder)
            timed_out = any("time limit" in v.error for f in value.findings for v in f.variants)
            if not (value.error or timed_out):
                bench.keep("check", key, value, {})
        return value

    async def compare_variants(
        self,
        bench: Workbench,
        original: LaunchCode,
        others: Sequence[LaunchCode],
        *,
        target: Target,
        compiler: Compiler,
    ) -> list[Departure]:
        variants = [
            {"overrides": dict(code.overrides), "injected": dict(code.injected)}
            for code in (original, *others)
        ]
        sent = {**capture_request(original, target).message(), "variants": variants}
        key = self.launch_key("operations", original, sent, compiler)
        async with bench.once(key):
            environment = self.environment(compiler)
            kept = bench.find("operations", key, Operations)
            if kept and all(is_unchanged(each, environment) for each in kept.value.reads):
                return kept.value.variants
            folder, end = await self._interpret(bench, "comparing", compiler, sent)
            try:
                found = msgspec.json.decode((folder / "result.json").read_bytes(), type=Operations)
            except (OSError, msgspec.MsgspecError):
                said = _said(folder, end)
                found = Operations(variants=[Departure(error=said) for _ in others])
            bench.hub.drop_folder(folder)
            if not any(each.error for each in found.variants):
                bench.keep("operations", key, found, {})
        return found.variants

    async def _interpret(
        self, bench: Workbench, module: str, compiler: Compiler, sent: Mapping[str, Any]
    ) -> tuple[Path, ProcessEnd]:
        """Have a module for children answer a request in its interpreter; the folder is ours."""
        require_confinement()
        folder = bench.hub.new_folder("check")
        request = {**sent, "jobs": bench.jobs, "timeout": bench.limits.timeout}
        with scratch_disk():
            (folder / "request.json").write_text(json.dumps(request))
        argv = [sys.executable, "-m", f"{self._front_end.module}.{module}", str(folder)]
        env = dict(self.environment(compiler))
        # Its forks are its own affair, and as many as there are workers.
        async with bench.slot(alone=True):
            end = await bench.hub.execute(argv, folder=folder, limits=bench.limits, env=env)
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
