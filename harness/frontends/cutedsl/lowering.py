"""The child that captures kernels of CuTe DSL and lowers them, and what it leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.frontends.captures import CapturingChild, read_lowering
from harness.frontends.cutedsl.versions import KIND
from harness.frontends.cutedsl.wordings import only_its_ptxas_failed
from harness.values.outcome import Lowering

if TYPE_CHECKING:
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.sessions import JobResult


FILES = {"mlir": "kernel.mlir", "ptx": "kernel.ptx"}
"""What a job leaves, by stage."""
CHILD = CapturingChild(
    kind=KIND,
    module="harness.frontends.cutedsl.child",
    code=("frontends/pretend", "frontends/triton/child", "frontends/cutedsl/child"),
    settings=("CUTE_DSL_", "CUTE_EXPERIMENTAL_DSL_"),
    never=frozenset(
        f"CUTE_DSL_{name}"
        for name in ("ARCH", "CACHE_DIR", "DRYRUN", "DUMP_DIR", "KEEP", "KEEP_CUBIN", "KEEP_PTX")
    ),
)


def lowering_of(launch: CapturedLaunch, done: JobResult) -> Lowering:
    """The evidence that a job left; its stage is `ptx` where there is PTX to assemble."""
    lowering = read_lowering(done, "mlir")
    has_ptx = (done.folder / FILES["ptx"]).is_file()
    if lowering.error and has_ptx and only_its_ptxas_failed(lowering.error):
        # What the PTX is worth is for the assembler to say, which is asked again.
        lowering = replace(lowering, error=None)
    if lowering.error or not has_ptx:
        return lowering
    own = str((done.result or {}).get("ptxas_options", "")).split()
    target = str(launch.request.settings["target"])
    return replace(lowering, stage="ptx", flags=("-v", f"--gpu-name={target}", *own))
