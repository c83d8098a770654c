"""Programs of front ends: each runs once, in a process of the compiler's own Python.

A front end's child program is a file that imports the standard library and the compiler, and
nothing of ours. It finds `request.json` in its working folder and leaves `answer.json` there, and
whatever else it makes. It writes there only, and has no network, as far as this machine is able to
keep it from that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.io.files.regular_files import read_regular
from harness.io.files.whole_folders import scratch_disk
from harness.io.processes.confinement import is_confined, require_confinement
from harness.io.processes.machine import plain_environment
from harness.values.errors import ConfigurationError
from harness.values.outcome import ProcessEnd
from harness.values.toolchain import Compiler

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.io.processes.hub import ResourceLimits


_MOST_BYTES = 64 << 20


class ProgramEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended, its answer (None where it left none), and the folder with its files.

    `stdout` and `stderr` in the folder are its streams. The caller drops the folder.
    """

    end: ProcessEnd
    answer: dict[str, Any] | None
    folder: Path


def interpreter_of(compiler: Compiler) -> str:
    """The Python that can import a compiler: that of its environment, else triage's own."""
    return str(compiler.python or sys.executable)


async def run_program(
    bench: Workbench,
    compiler: Compiler,
    program: Path,
    request: Mapping[str, object],
    *,
    alone: bool = False,
    limits: ResourceLimits | None = None,
) -> ProgramEnd:
    """Run a file of Python in the environment of a compiler, under `limits` or the bench's.

    Raises:
        InfrastructureError: it cannot be started, or has to be confined and cannot be.
    """
    require_confinement()
    folder = bench.hub.new_folder("program")
    with scratch_disk():
        (folder / "request.json").write_bytes(msgspec.json.encode(request))
    # Isolated: neither the user's module path nor their own packages are seen there.
    argv: list[str | Path] = [interpreter_of(compiler), "-I", "-B", program]
    async with bench.slot(alone=alone):
        end = await bench.hub.execute(
            argv,
            folder=folder,
            limits=limits or bench.limits,
            env=_environment(compiler, folder),
            writable=[folder] if is_confined() else None,
        )
    bench.cpu_seconds += end.cpu
    return ProgramEnd(end=end, answer=_answer(folder / "answer.json"), folder=folder)


def _environment(compiler: Compiler, folder: Path) -> dict[str, str]:
    user = plain_environment() if is_confined() else dict(os.environ)
    return {
        **user,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        # A GPU of this machine is not used; threads of numeric libraries are not needed.
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        **dict(compiler.variables),
    }


def _answer(path: Path) -> dict[str, Any] | None:
    try:
        data = read_regular(path, _MOST_BYTES, follow_links=False)
        return msgspec.json.decode(data, type=dict[str, Any])
    except (ConfigurationError, msgspec.MsgspecError):
        return None
