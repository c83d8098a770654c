"""One run of nvcc, as far as PTX: for CUDA C++, and for what other compilers write in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.bench.assemble import read_stream
from harness.frontends.cuda.nvcc import only_its_check_failed, tool_of
from harness.io.files.whole_folders import scratch_disk
from harness.io.processes.machine import plain_environment
from harness.values.outcome import ProcessEnd
from harness.values.toolchain import Compiler

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.io.processes.hub import ResourceLimits


_OUT = "kernel.ptx"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvccRun:
    """How nvcc ended, what it said, and the sha256 of the PTX where it left some.

    `text` is the PTX itself where it was not to be kept.
    """

    end: ProcessEnd
    log: str
    ptx: str | None
    text: str | None = None


async def run_nvcc(
    bench: Workbench,
    compiler: Compiler,
    source: Path,
    words: Sequence[str],
    *,
    alone: bool = False,
    keeps: bool = True,
    limits: ResourceLimits | None = None,
) -> NvccRun:
    """Run the nvcc of a compiler's environment on a file, with these options, as far as PTX.

    Raises:
        InfrastructureError: the environment holds none, or it cannot be started.
    """
    folder = bench.hub.new_folder("nvcc")
    argv: list[str | Path] = [tool_of(compiler, "nvcc"), *words, "-ptx", source, "-o", _OUT]
    env = {**plain_environment(), "TMPDIR": str(folder), "HOME": str(folder)}
    # A toolkit of the host's is none of this compiler's.
    env = {name: value for name, value in env.items() if not name.startswith(("CUDA", "NVCC"))}
    async with bench.slot(alone=alone):
        end = await bench.hub.execute(argv, folder=folder, limits=limits or bench.limits, env=env)
    bench.cpu_seconds += end.cpu
    with scratch_disk():
        log = read_stream(folder / "stderr") + read_stream(folder / "stdout")
    has_ptx = (folder / _OUT).is_file()
    if has_ptx and only_its_check_failed(end, log):
        # What the PTX is worth is for the assembler to say, which is asked again.
        end = replace(end, exit_code=0)
    ptx = text = None
    if end.ok and has_ptx and keeps:
        ptx = bench.store.artifacts.put_file(folder / _OUT)
    elif end.ok and has_ptx:
        text = (folder / _OUT).read_text(encoding="utf-8", errors="replace")
    bench.hub.drop_folder(folder)
    return NvccRun(end=end, log=log, ptx=ptx, text=text)
