"""What runs a launch on small real inputs, on the CPU: the interpreter that is part of a compiler.

Each config of a launch is compared with the others, or variants of the whole launch with each
other; and launch code is run with values, of which each launch is handed over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from harness.frontends.bench import Workbench
from harness.frontends.captured_front_end import CapturedFrontEnd
from harness.frontends.launch_code import capture_request, is_unchanged
from harness.frontends.sessions import JobResult, LaunchCode, sessions_of
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import ResourceLimits
from harness.io.processes.machine import require_confinement
from harness.values.execution import Departure, Interpretation, Operations
from harness.values.outcome import RaisedError
from harness.values.target import Target
from harness.values.toolchain import Compiler

# Of what is measured between configs: raised when there is more of it.
_CHECK_RULE = 3

T = TypeVar("T")


class InterpretedFrontEnd(CapturedFrontEnd):
    """The parts of a front end that follow from an interpreter, which children of its own run.

    Modules of the child have these names: `interpreting`, which compares, `launching`, which hands
    launches over, and `reference`. `interpreter_mode` is the variable that has the compiler's
    decorators interpret kernels.
    """

    interprets = True
    interpreter_mode: tuple[str, str]

    def interpreter_environment(self, compiler: Compiler) -> Mapping[str, str]:
        """The variables that launch code sees there."""
        name, value = self.interpreter_mode
        return {**self.child_environment(compiler), name: value}

    async def run_with_values(
        self,
        what: Literal["launching", "reference"],
        bench: Workbench,
        compiler: Compiler,
        folder: Path,
        limits: ResourceLimits,
    ) -> JobResult:
        """Run a launch function once, and hand each launch to the caller; or a reference function.

        `request.json` in the folder says with which values; see `harness.run.inputs` and
        `harness.run.references`. The folder of the result, with what was printed, is the caller's.

        Raises:
            InfrastructureError: the child could not be kept alive.
        """
        # A fork of the server imports the module, which confines itself to the folder.
        capture = {"module": f"{self.module}.{what}", "place": str(folder), "confined": False}
        message = {"op": "compile", "capture": capture, "limits": limits.message()}
        return await sessions_of(bench).run_job(compiler, message)

    async def compare_configs(
        self,
        bench: Workbench,
        code: LaunchCode,
        *,
        kernels: Sequence[str],
        target: Target,
        compiler: Compiler,
    ) -> Interpretation:
        """Compare the configs of the kernels with these names or patterns, as `target` sees them.

        What was found is kept by content, unless the launch code raised or the time was too short.

        Raises:
            InfrastructureError: the interpreter cannot be started here.
        """
        sent = {**capture_request(code, target).message(), "kernels": list(kernels)}
        key = self.launch_key("check", code, {**sent, "rule": _CHECK_RULE}, compiler)
        async with bench.once(key):
            stored = bench.find("check", key, Interpretation)
            if stored and is_unchanged(stored.value.reads, self.interpreter_environment(compiler)):
                return stored.value
            value = await self._interpreted(bench, compiler, sent, Interpretation)
            if isinstance(value, str):
                error = RaisedError(type="Interpreter", kinds=(), message=value)
                return Interpretation(error=error)
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
        """Compare what a launch returns with what each variant of it does, on the same inputs.

        Variants differ in overrides and in injected configs. What was found is kept by content,
        unless a variant could not be compared.

        Raises:
            InfrastructureError: the interpreter cannot be started here.
        """
        variants = [
            {"overrides": dict(code.overrides), "injected": dict(code.injected)}
            for code in (original, *others)
        ]
        sent = {**capture_request(original, target).message(), "variants": variants}
        key = self.launch_key("operations", original, sent, compiler)
        async with bench.once(key):
            environment = self.interpreter_environment(compiler)
            stored = bench.find("operations", key, Operations)
            if stored and all(is_unchanged(reads, environment) for reads in stored.value.reads):
                return stored.value.variants
            value = await self._interpreted(bench, compiler, sent, Operations)
            if isinstance(value, str):
                return [Departure(error=value) for _ in others]
            if not any(variant.error for variant in value.variants):
                bench.keep("operations", key, value, {})
        return value.variants

    async def _interpreted(
        self, bench: Workbench, compiler: Compiler, sent: Mapping[str, Any], schema: type[T]
    ) -> T | str:
        """The answer of a child to a request; how it ended where it left none."""
        require_confinement()
        folder = bench.hub.new_folder("check")
        request = {**sent, "jobs": bench.jobs, "timeout": bench.limits.timeout}
        with scratch_disk():
            (folder / "request.json").write_text(json.dumps(request))
        argv = [sys.executable, "-m", f"{self.module}.interpreting", str(folder)]
        env = dict(self.interpreter_environment(compiler))
        # Its forks are its own affair, and as many as there are workers.
        async with bench.slot(alone=True):
            process = await bench.hub.execute(argv, folder=folder, limits=bench.limits, env=env)
        bench.cpu_seconds += process.cpu
        try:
            return msgspec.json.decode((folder / "result.json").read_bytes(), type=schema)
        except (OSError, msgspec.MsgspecError):
            log = folder / "stderr"
            lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
            last = f": {lines[-1][:300]}" if lines else ""
            return f"the interpreter's process {process.words}{last}"
        finally:
            bench.hub.drop_folder(folder)
