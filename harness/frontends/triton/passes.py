"""Which pass of Triton fails, and which LLVM a Triton is built with."""

from __future__ import annotations

import mmap
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.frontends.triton.pass_dump import follow_passes
from harness.frontends.triton.sessions import sessions_of
from harness.io.files.scratch import scratch_disk
from harness.io.toolchains.bundled import package_of
from harness.values.outcome import LaunchFacts
from harness.values.toolchain import Assembler, Compiler

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_launch import CapturedLaunch


# The debug paths in Triton's library name the LLVM that it was built with, by commit.
_LLVM = re.compile(rb"llvm-project[ /]([0-9a-f]{8})[0-9a-f]{0,32}|llvm-([0-9a-f]{8})-[a-z]")


async def failing_pass(
    bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler, traps: bool
) -> str | None:
    """The pass that fails or dies, or (`traps`) that puts the trap in; by a dump of every pass.

    Raises:
        InfrastructureError: the kernel could not be lowered again.
    """
    async with bench.slot():
        again = await sessions_of(bench).lower(
            launch.capture.key,
            launch.compiler,
            launch.request,
            record=record.key,
            ptxas=ptxas.path,
            limits=bench.limits,
            dump=True,
        )
    bench.cpu_seconds += again.end.cpu
    with scratch_disk(), (again.folder / "stderr").open(errors="replace") as lines:
        trail = follow_passes(lines)
    bench.hub.drop_folder(again.folder)
    return trail.trapping if traps else trail.last


@lru_cache(maxsize=16)
def llvm_of(triton: Compiler) -> str | None:
    """The commit of the LLVM that a Triton was built with, where its library names it."""
    package = package_of(triton)
    for library in sorted(package.glob("_C/libtriton*.so")) if package else []:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            found = _LLVM.search(data)
            if found:
                return (found[1] or found[2]).decode()
    return None
